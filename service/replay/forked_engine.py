"""Runs the workers of a dataflow as forked processes on this machine, without Spark. `vernier replay` uses it.

The workers exchange rows as the service's workers do (service/cluster/exchange/all_to_all.py). The parent sends each
worker its part of an epoch's input through a channel (channel.py) and receives its changes. Workers end with the
parent, however that ends. On two cores with two workers, this measured 1.7 times the speed of threads, which wait for
each other in Python between kernels.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import select
import signal
import threading
import traceback
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from typing import Any

import numpy as np

from vernier.operators.engine.worker import Worker
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import SHARE, Budget
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.replay.channel import Channel
from vernier.storage.errors import InvariantError, VernierError
from vernier.storage.memory import usable_bytes
from vernier.storage.strings.string_heap import Heap, Texts, needed
from vernier.storage.trace import spill
from vernier.storage.updates import Updates

_EXCHANGE_SECONDS = 24 * 3600
"""How long a worker may wait for its peers; the parent checks whether they are alive."""


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


class ForkedWorkers:
    """N worker processes. Create it before this process starts threads of its own; `close` ends the workers.

    `heap` holds the contents of long texts, as LocalEngine's does. The workers must not be used again after an epoch
    that raised.
    """

    def __init__(self, plan: Plan, workers: int) -> None:
        self._plan = plan
        self.heap = Heap()
        self._children: list[_Child] = []
        self._answers = select.poll()
        self._places: dict[int, int] = {}
        # The parent watch: nothing is ever written to this pipe; workers see its end when this process has ended.
        parent_pipe, self._parent_pipe = os.pipe()
        context = multiprocessing.get_context("fork")
        token = secrets.token_hex(16)
        try:
            for index in range(workers):
                mine, theirs = Channel.pair(context)
                target = (plan, token, index, theirs, parent_pipe, self._parent_pipe)
                process = context.Process(target=_serve, args=target, name=f"vernier-worker-{index}", daemon=True)
                _fork(process)
                theirs.close()
                self._children.append(_Child(process, mine))
                self._answers.register(mine, select.POLLIN)
                self._places[mine.fileno()] = index
            os.close(parent_pipe)
            self._send([self._gather()] * workers)
        except BaseException:
            self.close()
            raise

    def run_epoch(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> Mapping[str, Updates]:
        """The changes of all views, not consolidated across workers. Raises what a worker raised, and WorkerLost."""
        count = len(self._children)
        # Any worker may read an update: the dataflow sends each row to the worker of its key.
        parts = [
            {name: _every(count, i, updates) for name, updates in inputs.items() if len(updates) > i}
            for i in range(count)
        ]
        texts = {name: row_type.text_words for name, row_type in self._plan.sources.items()}
        total = sum(map(len, inputs.values()))
        self._send([(lower, upper, total, part, needed(self.heap, part, texts)) for part in parts])
        results: list[tuple[Mapping[str, Updates], list[Texts]]] = self._gather()
        self.heap.detach()
        for _, dictionaries in results:
            self.heap.attach(dictionaries)
        return {
            name: Updates.concat((changes[name] for changes, _ in results), view.schema.width)
            for name, view in self._plan.views.items()
        }

    def state_bytes(self) -> int:
        """The size in bytes of all batches on all workers."""
        self._send([None] * len(self._children))
        return sum(self._gather())

    def close(self) -> None:
        """Terminate the processes, whatever they are doing."""
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            child.process.join()
            child.channel.close()
        self._children = []
        if self._parent_pipe >= 0:
            os.close(self._parent_pipe)
            self._parent_pipe = -1

    def _send(self, messages: Iterable[Any]) -> None:
        for index, (child, message) in enumerate(zip(self._children, messages, strict=True)):
            try:
                child.channel.send(message)
            except OSError as error:
                raise self._lost(index) from error

    def _gather(self) -> list[Any]:
        """Receive one answer from each worker. Raises the first failure without waiting for the other workers."""
        answers: dict[int, Any] = {}
        while len(answers) < len(self._children):
            for descriptor, _ in self._answers.poll():
                index = self._places[descriptor]
                if index in answers:
                    # A worker answers once; a second event means that its channel has closed.
                    raise self._lost(index)
                try:
                    answer = self._children[index].channel.receive()
                except (EOFError, OSError) as error:
                    raise self._lost(index) from error
                if isinstance(answer, VernierError):
                    raise answer
                answers[index] = answer
        return [answers[index] for index in range(len(self._children))]

    def _lost(self, index: int) -> WorkerLost:
        process = self._children[index].process
        process.join(1)
        return WorkerLost(index=index, workers=len(self._children), status=process.exitcode or 0)


def _every(step: int, first: int, updates: Updates) -> Updates:
    """Each step-th update from number `first` on, as a matrix of their own, which a channel sends without pickling."""
    return Updates(np.ascontiguousarray(updates.data[first::step]), updates.width, updates.depth)


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
    mailbox = Mailbox(Keys.plain(token))
    channel.send(mailbox.address)
    peers: list[str] = channel.receive()
    spill.keep()
    # The workers share the memory of the machine.
    budget = Budget(int(SHARE * usable_bytes()) // len(peers))
    worker = Worker(plan, Exchange(mailbox, token, index, peers, None, _EXCHANGE_SECONDS), budget=budget)
    views = plan.views.items()
    while True:
        message = channel.receive()
        answer: Any
        try:
            if message is None:
                answer = sum(trace.nbytes for trace in worker.state.traces.values())
            else:
                lower, upper, total, inputs, dictionaries = message
                heap = worker.state.heap
                heap.trim()
                heap.attach(dictionaries)
                changes = worker.run_epoch(lower, upper, inputs, total).changes
                answer = changes, needed(heap, changes, {name: view.schema.text_words for name, view in views})
        except VernierError as error:
            answer = error
        except Exception as error:
            answer = WorkerRaised(index=index, workers=len(peers), problem=f"{type(error).__name__}: {error}")
            answer.add_note(traceback.format_exc())
        channel.send(answer)


def _watch(parent_pipe: int) -> None:
    """End with the parent: the kernel closes its end of the pipe."""
    os.read(parent_pipe, 1)
    os._exit(1)
