"""Cores: how many this process may use, and which one it runs on."""

import os
from collections.abc import Collection


def usable_cores() -> int:
    """Those that it is bound to, where the system tells; else all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_core(taken: Collection[int]) -> None:
    """Have this thread go on at another core than those, if it may use one. It is not bound to that: whatever moves it
    later does."""
    if not hasattr(os, "sched_setaffinity"):
        return
    usable = os.sched_getaffinity(0)
    free = usable.difference(taken)
    if free:
        os.sched_setaffinity(0, free)
        os.sched_setaffinity(0, usable)
