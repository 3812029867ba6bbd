"""Apart: large merged layers are written beside the epochs, so that no epoch waits for them.

Until a large merged layer is on disk, manifests go on naming the layers that it was made of (`Layer.leaves`), and it is
read from memory alone; a process that ends in the meantime loses work, not data. A thread writes one such layer at a
time, in a segment of its own; it mostly waits for the device, and needs the interpreter only between pieces.

A segment that is written but not yet in a committed manifest is garbage to anyone who sweeps (after a failed attempt).
So a layer that has been given its place is looked for again in each epoch until a commit has named it; if it is gone,
the layer is written once more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from vernier.storage.blob.segment import Entry, segment_file
from vernier.storage.errors import StorageError
from vernier.storage.state.manifest import LayerRef
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Layer
from vernier.storage.trace.spine import Trace

_log = logging.getLogger("vernier.storage")


@dataclass
class _Write:
    """A layer on its way to disk."""

    layer: Layer
    thread: threading.Thread | None = None
    ref: LayerRef | None = None
    problem: StorageError | None = None


@dataclass
class _Named:
    """A layer that an attempt reports under its own name, which no commit is known to have done yet."""

    layer: Layer
    parts: tuple[Layer, ...]
    attempt: str


class Apart:
    """Writes the large merged layers of one worker process. `threads=False` writes at once, for simulations."""

    def __init__(self, directory: StateDirectory, *, threads: bool = True) -> None:
        self._directory, self._threads = directory, threads
        self._writing: _Write | None = None
        self._named: list[_Named] = []
        self._serial = 0

    def tend(self, traces: Iterable[Trace], epoch: int, attempt: str, shard: int, base: str) -> None:
        """Once in each attempt, before it stores: name what has been written, and write what is next.

        base: the attempt that made the state which this one goes on from, hence was committed. Costs a look at a file
        for each layer that is not known to be committed; never waits for the device. A write that fails is tried again.
        """
        layers = {id(layer): layer for trace in traces for layer in trace.layers}
        self._confirm(base)
        done = self._writing
        if done is not None and (done.thread is None or not done.thread.is_alive()):
            self._writing = None
            if done.problem is not None:
                _log.warning("a merged layer of shard %d is not written yet: %s", shard, done.problem)
            elif done.ref is not None and id(done.layer) in layers and self._is_there(done.ref):
                self._named.append(_Named(done.layer, done.layer.parts, attempt))
                done.layer.ref, done.layer.parts = done.ref, ()
            elif done.ref is not None:
                self._directory.blob.delete(segment_file(done.ref.segment))
        if self._writing is None:
            waiting = [layer for layer in layers.values() if layer.ref is None and layer.parts]
            if waiting:
                self._begin(max(waiting, key=lambda layer: layer.updates), epoch, attempt, shard)

    def _confirm(self, base: str) -> None:
        """Forget what is committed; take back names of files that a sweep has removed."""
        left = []
        for named in self._named:
            if named.attempt == base:
                continue
            if self._is_there(named.layer.ref):
                left.append(named)
            else:
                named.layer.ref, named.layer.parts = None, named.parts
        self._named = left

    def _is_there(self, ref: LayerRef) -> bool:
        return self._directory.blob.size(segment_file(ref.segment)) is not None

    def _begin(self, layer: Layer, epoch: int, attempt: str, shard: int) -> None:
        self._serial += 1
        write = self._writing = _Write(layer)
        entry = Entry("layer", layer.meta(), layer.arrays())

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
