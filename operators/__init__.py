"""Differential dataflow without Spark: the language that programs are written in, the planner, and the operators. It
imports `storage` and never `service`.

The rooms, from the bottom up; a room imports only those above it in this list:

    language.types        column types and schemas; the words that hold a value in a row
    language.expr         expressions over the columns of one row, and how they are computed
    language.plan         nodes of the logical plan, aggregates and table functions
    group_functions       what a reduction computes from all rows of a key
    language.collection   Collection and App: the methods that a program calls; they build the logical plan
    planning              turns the logical plan into a plan of physical operators, and places them on workers
    runtime               what operators run on: scopes, slices, the exchange between workers, memory budgets
    physical              the operators: linear stages, joins, reductions, loops, the temporal buffer
    engine                a worker that runs a plan, an in-process engine for tests, migration of state

Beside them: `kernels` (numba functions on arrays), errors.py (a program cannot be built), failures.py (a running
dataflow fails), location.py (lines of the user's program), testing.py (`vn.testing`), tables.py (row, time and diff as
tables of text) and pytest_plugin.py (the fixture `vernier`). Read first: language/collection/app.py.
"""
