"""The language of programs: what users import as `vernier` and call to describe a dataflow.

In: a program's calls, such as `app.source(...)` and `.join(...)`. Out: an App whose views are nodes of the logical
plan; nothing is computed here. Read collection/app.py first, then collection/collection.py; public.py lists the public
names.
"""
