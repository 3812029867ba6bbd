"""Cores: how many this process may use."""

import os


def usable_cores() -> int:
    """Those that it is bound to, where the system tells; else all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
