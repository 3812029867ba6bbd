"""Divides the memory of a machine, a container or an rlimit among the processes of a service.

The demonstration on two workers holds 1.7 GB when nothing is large (each page counted once): the driver's JVM 430 MB,
the broker 250, each Python process 60 to 150. Everything that can grow has a bound: the two Java heaps, and the memory
of a worker within an epoch. Together with the other processes these bounds fit into the available memory.
"""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20

MOST_DRIVER_HEAP, LEAST_DRIVER_HEAP = 1024 * MB, 384 * MB
MOST_BROKER_HEAP, LEAST_BROKER_HEAP = 384 * MB, 128 * MB
LEAST_WORKER = 512 * MB
"""The minimum for a worker: its process has 300 MB before it holds a row, mostly shared with its parent."""

_DRIVER = 450 * MB
"""The driver's memory besides its JVM heap: Python, and Java's memory outside the heap."""
_BROKER = 150 * MB
_OTHERS = 700 * MB
"""The supervisor, the sidecar, the publisher, and the process from which workers are forked."""
_SPARE = 0.95
"""The part of the memory that is divided."""


@dataclass(frozen=True)
class Shares:
    """Sizes in bytes: the heaps of the driver and of the embedded broker, and each worker's limit within an epoch."""

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
    """Divide `usable` bytes.

    broker: whether there is an embedded broker. driver_heap, broker_heap: the sizes from the settings, if given. If the
    memory is too small for all, each process gets its minimum.
    """
    if driver_heap is None:
        driver_heap = min(MOST_DRIVER_HEAP, max(LEAST_DRIVER_HEAP, usable // 6))
    if broker_heap is None:
        broker_heap = min(MOST_BROKER_HEAP, max(LEAST_BROKER_HEAP, usable // 16))
    fixed = driver_heap + _DRIVER + _OTHERS + (broker_heap + _BROKER if broker else 0)
    worker = max(LEAST_WORKER, (int(_SPARE * usable) - fixed) // workers)
    return Shares(driver_heap // MB * MB, broker_heap // MB * MB, worker)


def java_bytes(text: str) -> int:
    """The bytes of a size as Java and Spark write it: 1g, 512m. Raises ValueError."""
    unit = {"k": 10, "m": 20, "g": 30, "t": 40}.get(text.strip().lower().removesuffix("b")[-1:])
    digits = text.strip().lower().removesuffix("b")[: -1 if unit else None]
    if not digits.isdecimal():
        raise ValueError(f"{text!r} is not a size of a Java heap; write it like 1g or 512m")
    # Spark reads a number without a unit as mebibytes.
    return int(digits) << (unit or 20)
