"""CPU cores: how many this process may use, and moving a thread away from busy ones."""

import os
from collections.abc import Collection


def usable_cores() -> int:
    """The number of cores that this process is bound to, if the system tells; otherwise all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_core(taken: Collection[int]) -> None:
    """Move this thread to a core that is not in `taken`, if it may use one.

    The thread is not pinned there: the scheduler may move it again later.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    usable = os.sched_getaffinity(0)
    free = usable.difference(taken)
    if free:
        os.sched_setaffinity(0, free)
        os.sched_setaffinity(0, usable)
