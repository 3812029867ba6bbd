"""Runs the processes of a service on one machine: starts them in order, restarts what dies, and stops them.

In: loaded settings.
Out: running processes (broker, driver, sidecar, publisher), each with a log file of its own, and none left behind. The
demonstration and the making of class-data archives live here, because they run a service, too.
Read first: supervisor.py; parent_watch.py explains how a child ends with its parent.
"""
