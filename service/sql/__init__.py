"""Programs in SQL: the text of a program becomes an App.

In: the text of a `.sql` file, or a query of `app.sql`. Out: an App, or a Collection. Catalyst plans each query in a
process of its own (catalyst.py); what it planned is kept (kept.py), so a program that was seen before needs no Java.
operators/sql translates the plans. Read first: front.py.
"""
