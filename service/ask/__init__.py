"""Questions in SQL over the served views, as of one data time, answered by DuckDB in processes of its own.

In: the text of a SELECT, and the views of one committed epoch.
Out: its rows as JSON, CSV or Arrow, or an error that says what is wrong and where.
Read first: workers.py, the side of the sidecar; then worker.py, the process, and database.py, the DuckDB in it.

A question takes two steps. A worker parses the text and names the views that it reads and the time after AS OF; the
sidecar finds the views and decides the time. Then a worker runs the question: the sidecar sends the rows of each view
that the worker does not have yet, and the worker sends the encoded answer. Invariant: a table in a worker holds the
rows of one view at one data time and never changes, so two questions with one time see the same rows. The sidecar
itself never imports DuckDB. A question that crashes its process, or has to be killed, costs that process and nothing
else; the next question starts a new one.
"""
