"""Runs the workers of a dataflow on this machine, one in this process and each other one in a process that it forks,
without Spark. `vernier replay` uses it.

*The way of an epoch.* The parent is worker 0: it sends each other worker its part of the input, runs its own, and
receives their changes. A parent that only waited would be one process more than there are cores, and one more to be
woken twice an epoch. If kernels send the rows of a small epoch to the owners of their keys anyway, the parent keeps all
of them and leads: the others already wait in their kernels, where it tells them which epoch it is
(`Worker.follow_epoch`). Other epochs, and questions, begin with the word that they come another way; then the parts go
as packets in a call of all workers, because a worker polls for what comes that way before it sleeps, and so do the
changes. An empty packet says that something else comes through the worker's channel (channel.py): large parts, long
texts, questions, failures. Where kernels have run all slices of the epoch, worker 0 already has all changes
(`EpochResult.gathered`), and there is no second call. Rows travel between workers as in the service
(service/cluster/exchange/all_to_all.py).
*The invariant.* All workers make the same calls: if they are connected (`Worker.leads`), the word of worker 0; perhaps
one call for the parts, in which worker 0 waits for nothing; those of the epoch; perhaps one for the changes.
*A failure in the middle.* While the parent waits for rows, it also watches the channels, so it notices at once that a
worker has failed or ended; in the next epoch, if it had sent its changes before. Workers end with the parent, however
that ends. Threads instead of processes would wait for each other in Python between kernels.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import secrets
import selectors
import signal
import threading
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from typing import Any

import numpy as np

from vernier.operators.engine.interpreter import MOST
from vernier.operators.engine.worker import EpochResult, Worker
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import SHARE, Budget
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.replay.channel import Channel
from vernier.service.replay.packet import pack, unpack
from vernier.storage.errors import InvariantError, VernierError
from vernier.storage.memory import usable_bytes
from vernier.storage.strings.string_heap import Heap, Texts, needed
from vernier.storage.trace import spill
from vernier.storage.updates import Ints, Updates

_EXCHANGE_SECONDS = 10 * 365 * 24 * 3600
"""How long a worker may wait for its peers, and for the next epoch; the parent checks whether they are alive."""
_NOTHING = np.empty((0, 1), np.int64)
"""The empty packet."""
_NUMBERS = 3
"""How many numbers a part begins with."""


class WorkerLost(InvariantError):
    """A worker process ended by itself."""

    message = "worker {index} of {workers} ended with status {status}; perhaps the machine has too little memory"
    index: int
    workers: int
    status: int


class WorkerRaised(InvariantError):
    """A worker failed with an unexpected error."""

    message = "worker {index} of {workers} failed: {problem}"
    index: int
    workers: int
    problem: str


@dataclass(frozen=True)
class _Child:
    process: ForkProcess
    channel: Channel


_Part = tuple[int, int, int, dict[str, Updates], list[Texts]]
"""A worker's part of an epoch: lower, upper, how many updates all workers have, its own ones, their long texts."""
_Result = tuple[Mapping[str, Updates], list[Texts]]
"""A worker's changes of the views, and their long texts; of worker 0 perhaps those of all."""


class ForkedWorkers:
    """N workers, the first of them in this process. Create it before this process starts threads of its own; `close`
    ends the workers.

    `heap` holds the contents of long texts, as LocalEngine's does. The workers must not be used again after an epoch
    that raised.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self._texts = {name: row_type.text_words for name, row_type in plan.sources.items()}
        self.heap = Heap()
        self._children: dict[int, _Child] = {}
        self._news = selectors.DefaultSelector()
        self._answers: dict[int, Any] = {}
        self._mailbox: Mailbox | None = None
        # The parent watch: nothing is ever written to this pipe; workers see its end when this process has ended.
        parent_pipe, self._parent_pipe = os.pipe()
        context = multiprocessing.get_context("fork")
        token = secrets.token_hex(16)
        try:
            for index in range(1, workers):
                mine, theirs = Channel.pair(context)
                target = (plan, token, index, theirs, parent_pipe, self._parent_pipe)
                process = context.Process(target=_serve, args=target, name=f"vernier-worker-{index}", daemon=True)
                _fork(process)
                theirs.close()
                self._children[index] = _Child(process, mine)
                self._news.register(mine, selectors.EVENT_READ, index)
            os.close(parent_pipe)
            self._mailbox = Mailbox(Keys.plain(token))
            while len(self._answers) < len(self._children):
                self._receive(None)
            peers: list[str] = [self._mailbox.address, *(self._answers.pop(index) for index in self._children)]
            for index in self._children:
                self._send(index, peers)
            self._exchange = Exchange(self._mailbox, token, 0, peers, self, _EXCHANGE_SECONDS)
            self._worker = _worker(plan, self._exchange)
            interpreter = self._worker.interpreter
            self._parted = frozenset[str]() if interpreter is None else interpreter.program.parted
        except BaseException:
            self.close()
            raise

    def run_epoch(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> Mapping[str, Updates]:
        """The changes of all views, not consolidated across workers. Raises what a worker raised, and WorkerLost."""
        total = sum(map(len, inputs.values()))
        small = 0 < total <= MOST and all(name in self._parted or not len(one) for name, one in inputs.items())
        leads = self._worker.leads and small
        if leads:
            part: tuple[Mapping[str, Updates], list[Texts]] = inputs, []
        else:
            self._scatter([_NOTHING, *(self._packed(i, lower, upper, total, inputs) for i in self._children)])
            part = self._part(0, inputs)
        _attach(self._worker, part[1])
        ended = self._worker.run_epoch(lower, upper, part[0], total, leads=leads)
        self.heap.detach()
        if ended.gathered and self._worker.state.heap.is_empty:
            return ended.changes
        result = _changes(self._worker, ended)
        results = [result] if ended.gathered else [result, *(_result(answer, self._plan) for answer in self._gather())]
        for _, dictionaries in results:
            self.heap.attach(dictionaries)
        return {
            name: Updates.concat((changes[name] for changes, _ in results), view.schema.width)
            for name, view in self._plan.views.items()
        }

    def state_bytes(self) -> int:
        """The size in bytes of all batches on all workers."""
        for index in self._children:
            self._send(index, None)
        self._scatter([_NOTHING] * self._exchange.workers)
        return sum([self._worker.state.nbytes, *self._gather()])

    def close(self) -> None:
        """Terminate the processes, whatever they are doing."""
        for child in self._children.values():
            child.process.terminate()
        for child in self._children.values():
            child.process.join()
            child.channel.close()
        self._children = {}
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
        if self._parent_pipe >= 0:
            os.close(self._parent_pipe)
            self._parent_pipe = -1
            self._news.close()

    def fileno(self) -> int:
        """While worker 0 waits for rows: the descriptor is readable when a worker has answered or ended; then call
        `check`."""
        return self._news.fileno()

    def check(self, attempt: str) -> None:
        """Receive what workers have sent. Raises what a worker raised, and WorkerLost."""
        self._receive(0)

    def _part(self, index: int, inputs: Mapping[str, Updates]) -> tuple[dict[str, Updates], list[Texts]]:
        """A worker's part of the input, and its long texts. Any worker may read an update: the dataflow sends each row
        to the worker of its key."""
        step = self._exchange.workers
        part = {
            name: Updates(updates.data[index::step], updates.width, updates.depth)
            for name, updates in inputs.items()
            if len(updates) > index
        }
        return part, needed(self.heap, part, self._texts)

    def _packed(self, index: int, lower: int, upper: int, total: int, inputs: Mapping[str, Updates]) -> Ints:
        """A worker's part as a packet; an empty one if it comes through the channel."""
        part, texts = self._part(index, inputs)
        packet = _packet((lower, upper, total), part, texts, self._plan.sources)
        if packet is None:
            # A channel sends whole matrices without pickling them.
            whole = {name: Updates(np.ascontiguousarray(one.data), one.width, one.depth) for name, one in part.items()}
            self._send(index, (lower, upper, total, whole, texts))
        return _NOTHING if packet is None else packet

    def _scatter(self, packets: list[Ints]) -> None:
        """Send each worker its packet; first call those that wait in their kernels."""
        if self._worker.leads:
            self._worker.lead_elsewhere()
        self._exchange.scatter(packets)

    def _send(self, index: int, message: Any) -> None:
        try:
            self._children[index].channel.send(message)
        except OSError as error:
            raise self._lost(index) from error

    def _gather(self) -> list[Any]:
        """Receive one answer from each child. Raises the first failure without waiting for the other workers."""
        packets = self._exchange.all_to_all([_NOTHING] * self._exchange.workers)
        silent = sum(len(packets[index]) == 0 for index in self._children)
        while len(self._answers) < silent:
            self._receive(None)
        answers, self._answers = self._answers, {}
        return [answers.get(index, packets[index]) for index in self._children]

    def _receive(self, seconds: float | None) -> None:
        for key, _ in self._news.select(seconds):
            index: int = key.data
            if index in self._answers:
                # A worker answers once; a second event means that its channel has closed.
                raise self._lost(index)
            try:
                answer = self._children[index].channel.receive()
            except (EOFError, OSError) as error:
                raise self._lost(index) from error
            if isinstance(answer, VernierError):
                raise answer
            self._answers[index] = answer

    def _lost(self, index: int) -> WorkerLost:
        process = self._children[index].process
        process.join(1)
        return WorkerLost(index=index, workers=1 + len(self._children), status=process.exitcode or 0)


def _fork(process: ForkProcess) -> None:
    """Start a child with SIGINT blocked, until it has installed its own handling of Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # numpy has idle threads, about which Python warns; this process has not started any yet.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(plan: Plan, token: str, index: int, channel: Channel, parent_pipe: int, theirs: int) -> None:
    """The main loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(theirs)
    threading.Thread(target=_watch, args=(parent_pipe,), name="parent-watch", daemon=True).start()
    gc.freeze()  # what the parent made; looking at it would copy its pages
    mailbox = Mailbox(Keys.plain(token))
    channel.send(mailbox.address)
    peers: list[str] = channel.receive()
    exchange = Exchange(mailbox, token, index, peers, None, _EXCHANGE_SECONDS)
    worker = _worker(plan, exchange)
    nothing = [_NOTHING] * len(peers)
    while True:
        answer: int | _Result
        words = None
        try:
            result = _followed(worker)
            if result is None:
                packet = exchange.scatter(None)
                message: _Part | None = channel.receive() if len(packet) == 0 else _unpacked(packet, plan)
                if message is not None:
                    *numbers, updates, texts = message
                    _attach(worker, texts)
                    result = worker.run_epoch(numbers[0], numbers[1], updates, numbers[2])
            if result is None:
                answer = worker.state.nbytes
            elif result.gathered:
                continue
            else:
                answer = _changes(worker, result)
                words = _packet((worker.state.upper,), *answer, plan.views)
        except Exception as error:
            channel.send(_said(error, index, len(peers)))
            break
        if words is None:
            channel.send(answer)
        exchange.all_to_all(nothing if words is None else [words, *nothing[1:]])
    # The workers are no longer at the same call, so this one makes none until the parent ends it.
    while True:
        signal.pause()


def _said(error: Exception, index: int, workers: int) -> VernierError:
    """What the parent raises for an error of a worker."""
    if isinstance(error, VernierError):
        return error
    raised = WorkerRaised(index=index, workers=workers, problem=f"{type(error).__name__}: {error}")
    raised.add_note(traceback.format_exc())
    return raised


def _packet(
    numbers: Sequence[int], updates: Mapping[str, Updates], texts: Sequence[Texts], names: Iterable[str]
) -> Ints | None:
    """A packet of updates; None if it cannot be one."""
    if any(map(len, texts)):
        return None
    return pack(numbers, [updates[name].data if name in updates else _NOTHING for name in names])


def _opened(packet: Ints, numbers: int, rows: Mapping[str, RowType]) -> tuple[list[int], dict[str, Updates]]:
    """The numbers and the updates of a packet. rows: the types of the updates' rows, in the packet's order."""
    found, matrices = unpack(packet, numbers, [row.width + 2 for row in rows.values()])
    return found, {name: Updates(data, rows[name].width, 0) for name, data in zip(rows, matrices, strict=True)}


def _unpacked(packet: Ints, plan: Plan) -> _Part:
    """A part that came as a packet."""
    (lower, upper, total), inputs = _opened(packet, _NUMBERS, plan.sources)
    return lower, upper, total, inputs, []


def _result(answer: Ints | _Result, plan: Plan) -> _Result:
    """A result that came as a packet, or as it is."""
    if isinstance(answer, tuple):
        return answer
    return _opened(answer, 1, {name: view.schema for name, view in plan.views.items()})[1], []


def _worker(plan: Plan, exchange: Exchange) -> Worker:
    """The worker of this process. All workers share the memory of the machine."""
    spill.keep()
    return Worker(plan, exchange, budget=Budget(int(SHARE * usable_bytes()) // exchange.workers), gathers=True)


def _attach(worker: Worker, dictionaries: list[Texts]) -> None:
    """Before an epoch: forget long texts that nothing has any more, and know those of the epoch's updates."""
    heap = worker.state.heap
    if dictionaries or not heap.is_empty:
        heap.trim()
        heap.attach(dictionaries)


def _followed(worker: Worker) -> EpochResult | None:
    """An epoch that worker 0 leads; None if the next one comes another way."""
    if not worker.leads:
        return None
    _attach(worker, [])
    return worker.follow_epoch()


def _changes(worker: Worker, result: EpochResult) -> _Result:
    """An epoch's changes, and their long texts."""
    heap = worker.state.heap
    if heap.is_empty:
        return result.changes, []
    texts = {name: view.schema.text_words for name, view in worker.plan.views.items()}
    return result.changes, needed(heap, result.changes, texts)


def _watch(parent_pipe: int) -> None:
    """End with the parent: the kernel closes its end of the pipe."""
    os.read(parent_pipe, 1)
    os._exit(1)
