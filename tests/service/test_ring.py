"""Rings: messages between processes of one host, through memory."""

import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np
import pytest

import vernier as vn
from bench.exchange import connected
from vernier.operators.engine.worker import Worker
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange import all_to_all as exchange_module
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.shared_ring import WORDS, Ring
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.errors import DeadlinePassed
from vernier.service.kernels.rings import CORE, FULL, WAKE, WRITTEN, await_any, fall_asleep, watch_any

PATIENCE = 30.0


class Edge(vn.Schema):
    """A directed edge."""

    src: vn.Int64
    dst: vn.Int64


def pair() -> tuple[Ring, Ring]:
    """Both ends of a ring."""
    writer = Ring.make()
    assert writer is not None
    assert not writer.ready
    reader = Ring.accept(writer.offer)
    assert reader is not None
    assert writer.ready
    return writer, reader


def at(*rings: Ring) -> np.ndarray:
    """Their addresses, as kernels want them."""
    return np.array([ring.address for ring in rings], np.int64)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_read_in_order_around_the_end(seed: int) -> None:
    choose, (writer, reader) = random.Random(seed), pair()
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    header, full = np.empty(3, np.int64), 0
    for step in range(3_000):
        sent = (
            np.array([seed, step, choose.getrandbits(60)]),
            np.arange(step, step + choose.choice((0, 1, 7, 900, 20_000))),
        )
        said = writer.write(*sent)
        full += said == FULL
        if said != FULL:
            waiting.append(sent)
        while waiting and (said == FULL or choose.random() < 0.6):
            assert await_any(at(reader), 0) == 0
            words = reader.read(header)
            expected = waiting.pop(0)
            assert np.array_equal(header, expected[0])
            assert np.array_equal(words, expected[1])
    assert full > 0, "the ring has never been full"
    while waiting:
        reader.read(header)
        waiting.pop(0)
    assert await_any(at(reader), 3) == -1
    assert watch_any(at(reader), 3) == -1
    writer.write(header, header)
    assert watch_any(at(reader), 3) == 0


def test_a_message_that_never_fits_is_refused_and_a_sleeper_is_to_be_woken() -> None:
    writer, reader = pair()
    header = np.zeros(2, np.int64)
    assert writer.write(header, np.zeros(WORDS, np.int64)) == FULL
    assert writer.write(header, np.zeros(3, np.int64)) == WRITTEN
    fall_asleep(at(reader), 1)
    assert writer.write(header, np.zeros(3, np.int64)) == WAKE
    fall_asleep(at(reader), 0)
    assert writer.write(header, np.zeros(3, np.int64)) == WRITTEN


def test_nobody_opens_what_was_not_offered() -> None:
    writer = Ring.make()
    assert writer is not None
    pid, descriptor, nonce = struct.unpack("<qq16s", writer.offer)
    offers = [
        struct.pack("<qq16s", pid, descriptor, bytes(16)),
        struct.pack("<qq16s", 2**40, descriptor, nonce),
        struct.pack("<qq16s", pid, 1_000_000, nonce),
        struct.pack("<qq16s", pid, os.open(os.devnull, os.O_RDWR), nonce),
        b"short",
    ]
    assert [Ring.accept(offer) for offer in offers] == [None] * len(offers)
    assert not writer.ready
    assert Ring.accept(writer.offer) is not None


def worker(index: int, workers: int, rounds: int, seed: int, pipe: Connection) -> None:
    """Send and check random parts; tells how many rings it reads."""
    box = Mailbox(Keys.plain("secret"))
    pipe.send(box.address)
    exchange = Exchange(box, "a", index, pipe.recv(), None, PATIENCE)
    wrong = 0
    for call in range(rounds):
        # What all have agreed to send: everyone knows what comes.
        sizes = np.random.default_rng((seed, call)).choice((0, 1, 50, 3_000, 40_000), (workers, workers))
        if call % 37 == index:
            time.sleep(0.02)  # the others sleep, too
        got = exchange.all_to_all([np.full((sizes[index, to], 2), call * workers + index) for to in range(workers)])
        for sender, part in enumerate(got):
            wrong += part.shape != (sizes[sender, index], 2) or bool((part != call * workers + sender).any())
        wrong += exchange.allgather(b"x" * (call + index)) != [b"x" * (call + i) for i in range(workers)]
        own = [np.full((sizes[0, to], 3), call) for to in range(workers)] if index == 0 else None
        part = exchange.scatter(own)  # worker 0 goes on
        wrong += part.shape != (sizes[0, index], 3) or bool((part != call).any())
    pipe.send((wrong, len(box.rings)))
    pipe.recv()
    box.close()


@pytest.mark.parametrize("workers", [2, 5])
def test_processes_exchange_through_rings_and_what_is_too_large_by_the_socket(workers: int) -> None:
    ends, processes = connected(workers, worker, lambda index: (index, workers, 120, 7))
    assert [end.recv() for end in ends] == [(0, workers - 1)] * workers
    for end, process in zip(ends, processes, strict=True):
        end.send(None)
        process.join(PATIENCE)
        assert process.exitcode == 0


@contextmanager
def together(calls: int) -> Iterator[tuple[list[list[bytes]], list[Mailbox], list[Exchange]]]:
    """Two workers in this process after a number of calls: what each has got, their mailboxes, their ends."""
    boxes = [Mailbox(Keys.plain("secret")) for _ in range(2)]
    try:
        peers = [box.address for box in boxes]
        ends = [Exchange(box, "a", i, peers, None, PATIENCE) for i, box in enumerate(boxes)]
        found: list[list[bytes]] = [[], []]

        def run(index: int) -> None:
            for call in range(calls):
                found[index] += ends[index].allgather(bytes([index, call]))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield found, boxes, ends
    finally:
        for box in boxes:
            box.close()


def test_a_ring_that_cannot_be_opened_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "accept", staticmethod(lambda offer: None))
    with together(20) as (found, boxes, _):
        assert found[0] == found[1] == [bytes([i, call]) for call in range(20) for i in range(2)]
        assert not any(box.rings for box in boxes)


@pytest.mark.parametrize(
    "waiting",
    [
        {"_LOOKS": 0, "_LOOKING_SECONDS": 0.0},  # sleeps at once
        {"_LOOKS": 0, "_TURNS": 0, "_LOOKING_SECONDS": 0.05},  # looks for long: rings alone, mail is seen behind that
        {"_LOOKS": 0, "_TURNS": 1, "_LOOKING_SECONDS": 0.01, "_CROWDED_SECONDS": -1.0, "_CROWDED_CALLS": 3},
    ],
)
def test_messages_come_however_they_are_waited_for(monkeypatch: pytest.MonkeyPatch, waiting: dict[str, float]) -> None:
    for name, value in waiting.items():
        monkeypatch.setattr(exchange_module, name, value)
    monkeypatch.setattr(exchange_module, "usable_cores", lambda: 2)
    with together(100) as (found, boxes, _):
        assert found[0] == found[1] == [bytes([i, call]) for call in range(100) for i in range(2)]
        assert all(box.rings for box in boxes)


def test_who_waits_leaves_the_core_of_whom_it_waits_for_and_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: bound.append((pid, set(cores))))
    with together(20) as (_, _, ends):
        bound.clear()
        there = {ring.core for ring in ends[0]._rings}
        assert all(core >= 0 for core in there)
        for ring in ends[0]._rings:
            ring._words[CORE] = 3
        monkeypatch.setattr(exchange_module, "this_core", lambda: 5)
        assert not ends[0]._leave_shared_core()
        assert bound == []
        monkeypatch.setattr(exchange_module, "this_core", lambda: 3)
        assert ends[0]._leave_shared_core()
        assert bound == [(0, {0, 5, 7}), (0, {0, 3, 5, 7})]
        bound.clear()
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})  # nowhere to go
        assert ends[0]._leave_shared_core()
        assert bound == []


def test_a_peer_that_was_left_out_for_an_attempt_is_heard_again() -> None:
    """Only one side has seen the attempt in between: the other one still writes where it always wrote."""
    boxes = [Mailbox(Keys.plain("secret")) for _ in range(3)]

    def meet(attempt: str, members: tuple[int, ...], present: tuple[int, ...]) -> list[list[bytes]]:
        peers = [boxes[i].address for i in members]
        ends = [Exchange(boxes[i], attempt, members.index(i), peers, None, 5.0) for i in present]
        found: list[list[bytes]] = [[] for _ in ends]

        def run(place: int) -> None:
            for call in range(10):
                found[place] += ends[place].allgather(bytes([place, call]))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(ends) if len(ends) > 1 else 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    try:
        whole = [bytes([i, call]) for call in range(10) for i in range(2)]
        assert meet("a", (0, 1), (0, 1)) == [whole, whole]
        meet("b", (0, 2), (0,))  # given up before the others came
        for attempt in ("c", "d"):
            assert meet(attempt, (0, 1), (0, 1)) == [whole, whole]
        meet("e", (1, 2), (1,))
        assert meet("f", (0, 1), (0, 1)) == [whole, whole]
        assert all(len(box.rings) == 1 for box in boxes[:2])
    finally:
        for box in boxes:
            box.close()


def test_kernels_exchange_through_rings_and_an_attempt_that_failed_leaves_nothing_behind() -> None:
    app = vn.App("rings")
    app.view("answer", app.source("edges", Edge).group_by("src").agg(n=vn.count()))
    plan = compile_app(app)
    boxes = [Mailbox(Keys.plain("secret")) for _ in range(2)]
    peers = [box.address for box in boxes]

    def attempt(name: str, present: tuple[int, ...], seconds: float) -> tuple[list[list[int]], list[bool]]:
        """An epoch after some calls; what it has changed, and whether kernels ran it. Only those who are present take
        part in the epoch."""
        changed: list[list[int]] = []
        ran: list[bool] = []
        failures: list[Exception] = []

        def run(index: int) -> None:
            exchange = Exchange(boxes[index], name, index, peers, None, seconds)
            worker = Worker(plan, exchange)
            for _ in range(20):
                exchange.allgather(b"")
            assert exchange.lanes is not None
            assert exchange.lanes.agreed
            worker.pace.share = 0
            rows = np.array([[1, index, 1, 1], [2 + index, 0, 1, 1]], np.int64)
            interpreter = worker.interpreter
            assert interpreter is not None
            if index not in present:
                return
            try:
                ran.append(interpreter.run(0, 10, {"edges": rows}, len(rows)))
                changed.extend(row for one in interpreter.outputs().values() for row in one.tolist())
            except DeadlinePassed as failure:
                failures.append(failure)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(failures) == (len(present) if len(present) < 2 else 0)
        return sorted(changed), ran

    try:
        counts = [[1, 2, 1, 1], [2, 1, 1, 1], [3, 1, 1, 1]]
        assert attempt("a", (0, 1), PATIENCE) == (counts, [True, True])
        assert attempt("b", (0,), 1.0) == ([], [])
        assert attempt("c", (1,), 1.0) == ([], [])
        assert attempt("d", (0, 1), PATIENCE) == (counts, [True, True])
    finally:
        for box in boxes:
            box.close()


def test_rings_of_whoever_is_gone_are_let_go() -> None:
    boxes = [Mailbox(Keys.plain("secret")) for _ in range(2)]
    try:
        writer, reader = pair()
        boxes[0].rings["tcp://127.0.0.1:1"] = reader
        boxes[0].keep([boxes[1].address])
        assert boxes[0].rings  # no worker has reported its end
        writer.close()
        boxes[0].keep([boxes[1].address])
        assert not boxes[0].rings
    finally:
        for box in boxes:
            box.close()


def test_a_mailbox_closes_after_a_connection_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ctrl-C while workers connect: the socket that was being made belongs to no outbox.
    box = Mailbox(Keys.plain("secret"))

    def interrupted() -> Ring:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ring, "make", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:  # the traceback keeps the socket alive, as that of a command does
        box.outbox("tcp://127.0.0.1:1")
    closing = threading.Thread(target=box.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert caught.type is KeyboardInterrupt
    assert not closing.is_alive()
