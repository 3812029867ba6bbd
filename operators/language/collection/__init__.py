"""Collections and apps: the methods that a program calls.

In: a program's method calls and the nodes of language/plan/. Out: new nodes, checked and typed, and an App that names
sources and views. Every method checks its arguments and reports the user's line when they are wrong. Read first:
collection.py for the families of methods, then app.py.
"""
