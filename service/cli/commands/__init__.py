"""The commands of `vernier`, one module for each subject.

In: parsed arguments.
Out: calls into the other packages of the service, and their results on the terminal.
Read first: base.py, which has the options and the error handling that commands share.
"""
