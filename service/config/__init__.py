"""The settings of a service and the programs that it runs.

In: a YAML file, VERNIER_ environment variables, command-line flags, program files.
Out: one frozen `Settings`, the origin of each value, and each program's text.
Read first: settings.py, which reads and merges everything; model.py, sections.py and streams.py have the settings
themselves.
"""
