"""Compiled inner loops of the operators, with numpy and numba only; one file per task.

In: keyed rows and trace selections as int64 matrices. Out: new rows, mostly with a status code and the position at
fault, which the operators turn into errors. Importing this package first sets numba's cache directory.
Read first: rounds.py and joining.py; reducing.py for the replay of a key's history.
"""

import vernier.storage.kernels  # noqa: F401 - numba's cache, before the first kernel
