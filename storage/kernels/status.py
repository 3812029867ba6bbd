"""Status codes of kernels. A kernel that raises would leak what it has allocated, so kernels return codes instead."""

OK = 0
OVERFLOW = -1
