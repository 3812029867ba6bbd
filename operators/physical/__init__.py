"""Physical operators: each file runs one family of the plan's operators on one worker.

In: an operator of the `Plan`, its scope, and the output of its inputs in the same step. Out: the operator's updates of
that step; arrangements and most reductions also seal them in a trace. Each file lists its classes in `KINDS`.
Read first: linear.py and arrange.py, then join.py and reduce.py; iterate.py runs loops.
"""
