"""Between tasks: a worker process waits for its next task of Spark's, and for the driver.

An epoch of few messages takes Spark longer to start, and to end, than the workers take to compute it. The driver
therefore sends the messages of such an epoch itself, with the assignment of the shards (Rendezvous.hand_out), and the
processes that have the shards in memory work on them without a task of Spark's (decision 54). A process works on one
thing at a time: it looks at the driver's connection only while Spark wants nothing of it.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import BinaryIO

from vernier.service.cluster import worker
from vernier.service.errors import DriverGone, ProtocolBroken

Main = Callable[[BinaryIO, BinaryIO], None]
"""What Spark's daemon calls in a worker process for each task, with both directions of the connection to Spark."""


def attending(main: Main) -> Main:
    """The same function, which works for the driver until its task has come."""

    def attend_first(infile: BinaryIO, outfile: BinaryIO) -> None:
        attend(infile.fileno())
        main(infile, outfile)

    return attend_first


def attend(spark: int) -> None:
    """Work for the driver until the descriptor `spark` is readable, or the driver is gone."""
    process = worker.connected()
    if process is None:
        return
    waiting = select.poll()
    waiting.register(spark, select.POLLIN)
    waiting.register(process.link.fileno(), select.POLLIN)
    while not any(ready == spark for ready, _ in waiting.poll()):
        try:
            assigned = process.link.handed_out()
            if assigned is not None:
                worker.run_handed(process, assigned)
        except (DriverGone, ProtocolBroken):
            return  # the next task finds out, and says so
