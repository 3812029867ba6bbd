"""Background writer: writes large merged batches outside the epochs, so that no epoch waits for them.

Until a large merged batch is on disk, manifests name the batches that it was merged from (`Batch.leaves`), and it
exists only in memory. A process that ends in the meantime loses work, not data. A thread writes one such batch at a
time, in a segment of its own. The thread mostly waits for the device and needs the interpreter only between pieces.

A segment that is written but not yet named by a committed manifest is garbage to a sweep (after a failed attempt). The
writer therefore checks in each epoch that the file of such a batch still exists, until a commit has named it. If the
file is gone, the batch is written again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from vernier.storage.blob.segment import Entry, segment_file
from vernier.storage.errors import StorageError
from vernier.storage.state.manifest import BatchRef
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace

_log = logging.getLogger("vernier.storage")


@dataclass
class _Write:
    """A batch that is being written to disk."""

    batch: Batch
    thread: threading.Thread | None = None
    ref: BatchRef | None = None
    problem: StorageError | None = None


@dataclass
class _Named:
    """A batch that an attempt reports under its own name, before a commit is known to have named it."""

    batch: Batch
    parts: tuple[Batch, ...]
    attempt: str


class BackgroundWriter:
    """Writes the large merged batches of one worker process. `threads=False` writes synchronously, for simulations."""

    def __init__(self, directory: StateDirectory, *, threads: bool = True) -> None:
        self._directory, self._threads = directory, threads
        self._writing: _Write | None = None
        self._named: list[_Named] = []
        self._serial = 0

    def tend(self, traces: Iterable[Trace], epoch: int, attempt: str, shard: int, base: str) -> None:
        """Call once per attempt, before it stores its batches: names what has been written, and starts the next write.

        base: the attempt that produced the state that this one continues; it was therefore committed. Costs one file
        lookup for each batch not known to be committed; never waits for the device. A failed write is retried.
        """
        batches = {id(batch): batch for trace in traces for batch in trace.batches}
        self._confirm(base)
        done = self._writing
        if done is not None and (done.thread is None or not done.thread.is_alive()):
            self._writing = None
            if done.problem is not None:
                _log.warning("a merged batch of shard %d is not written yet: %s", shard, done.problem)
            elif done.ref is not None and id(done.batch) in batches and self._is_there(done.ref):
                self._named.append(_Named(done.batch, done.batch.parts, attempt))
                done.batch.ref, done.batch.parts = done.ref, ()
            elif done.ref is not None:
                self._directory.blob.delete(segment_file(done.ref.segment))
        if self._writing is None:
            waiting = [batch for batch in batches.values() if batch.ref is None and batch.parts]
            if waiting:
                self._begin(max(waiting, key=lambda batch: batch.updates), epoch, attempt, shard)

    def _confirm(self, base: str) -> None:
        """Drop batches that a commit has named; reset batches whose files a sweep has deleted."""
        left = []
        for named in self._named:
            if named.attempt == base:
                continue
            if self._is_there(named.batch.ref):
                left.append(named)
            else:
                named.batch.ref, named.batch.parts = None, named.parts
        self._named = left

    def _is_there(self, ref: BatchRef) -> bool:
        return self._directory.blob.size(segment_file(ref.segment)) is not None

    def _begin(self, batch: Batch, epoch: int, attempt: str, shard: int) -> None:
        self._serial += 1
        write = self._writing = _Write(batch)
        entry = Entry("layer", batch.meta(), batch.arrays())

        def run() -> None:
            try:
                (write.ref,) = self._directory.write(epoch, f"{attempt}-apart-{self._serial}", shard, [entry])
            except StorageError as problem:
                write.problem = problem

        if self._threads:
            write.thread = threading.Thread(target=run, name="vernier-apart", daemon=True)
            write.thread.start()
        else:
            run()
