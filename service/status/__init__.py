"""Status: small files in the state directory by which the processes of a service report and request things.

In: the desired states of the intake and of the workers, and what the driver and the publisher report about themselves.
Out: the same to the processes that follow or show it (driver, sidecar, command line). The files decide nothing about
epochs and may be missing. Read first: status_file.py, then intake.py.
"""
