"""Shares: how the memory of a machine, a container or an rlimit is divided among the processes of a service.

The demonstration on two workers holds 1.7 GB when nothing is large (each page counted once): the driver's JVM 430 MB,
the broker 250, each Python process 60 to 150. What may grow has a bound: the two Java heaps, and what a worker may take
within an epoch. Together with what the other processes take they fit into what there is.
"""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20

MOST_DRIVER_HEAP, LEAST_DRIVER_HEAP = 1024 * MB, 384 * MB
MOST_BROKER_HEAP, LEAST_BROKER_HEAP = 384 * MB, 128 * MB
LEAST_WORKER = 512 * MB
"""What a worker needs to do anything: its process has 300 MB before it has a row, most of them its parent's."""

_DRIVER = 450 * MB
"""Of the driver beside its JVM's heap: Python, and what Java has outside of heaps."""
_BROKER = 150 * MB
_OTHERS = 700 * MB
"""The supervisor, the sidecar, the publisher, and the process that workers are forked from."""
_SPARE = 0.95
"""The part that is divided."""


@dataclass(frozen=True)
class Shares:
    """Bytes: the heaps of the driver and of the embedded broker, and what each worker may take within an epoch."""

    driver_heap: int
    broker_heap: int
    worker: int


def divide(
    usable: int,
    workers: int,
    *,
    broker: bool,
    driver_heap: int | None = None,
    broker_heap: int | None = None,
) -> Shares:
    """The shares of `usable` bytes. broker: whether there is an embedded one. driver_heap, broker_heap: where the
    settings say how much. Where there is too little for all, each has the least that it can do with."""
    if driver_heap is None:
        driver_heap = min(MOST_DRIVER_HEAP, max(LEAST_DRIVER_HEAP, usable // 6))
    if broker_heap is None:
        broker_heap = min(MOST_BROKER_HEAP, max(LEAST_BROKER_HEAP, usable // 16))
    fixed = driver_heap + _DRIVER + _OTHERS + (broker_heap + _BROKER if broker else 0)
    worker = max(LEAST_WORKER, (int(_SPARE * usable) - fixed) // workers)
    return Shares(driver_heap // MB * MB, broker_heap // MB * MB, worker)
