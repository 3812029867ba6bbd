"""The command line `vernier`.

In: arguments, and the settings that they name.
Out: text, tables, JSON or Arrow on standard output; an error is one line on standard error. Each command imports what
it needs when it runs, so that help and mistakes are answered at once.
Read first: main.py; the commands are in commands/, and display.py formats their output.
"""
