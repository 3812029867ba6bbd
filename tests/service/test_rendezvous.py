"""Rendezvous and exchange: real sockets, workers as threads; shards, unknown clients, old attempts, dead peers."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from vernier.operators.runtime.exchange import Threads
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.cluster.messages import Assign, Hello, Hot, Report, Start
from vernier.service.cluster.rendezvous import Attempt, Rendezvous, place
from vernier.service.cluster.shelf import Borrower, Place
from vernier.service.errors import AttemptCancelled, DeadlinePassed, DriverGone

START = Start(epoch=5, base="good", ingestion={"a": 1}, offsets={"t": {0: 7}})
PATIENCE = 30


def report(attempt: str, shard: int) -> Report:
    """A report with nothing in it."""
    maps = ("ingestion", "offsets", "frontiers", "traces", "held", "changes", "signs", "counts", "waiting", "phases")
    empty: dict[str, Any] = {name: {} for name in maps}
    return Report(
        attempt=attempt, shard=shard, worker="1", lower=0, upper=1, dead=None, received_ms=[], received_count=[],
        times=0, operators={}, rounds={}, merged=0, exchanged=0, memory=0, **empty,
    )  # fmt: skip


class Office:
    """A rendezvous and the attempts that it found complete."""

    def __init__(self, workers: int, *, encrypted: bool = False) -> None:
        self.complete: list[Attempt] = []
        self.rendezvous = Rendezvous(workers, self.complete.append, encrypted=encrypted)
        self.pool = ThreadPoolExecutor(8)
        self.links: list[Connection] = []

    def link(self, address: str = "tcp://unused", *, sees: bool = False) -> Connection:
        """A worker process's connection."""
        self.links.append(Connection(self.rendezvous.address, self.rendezvous.keys))
        self.links[-1].introduce(address, sees)
        return self.links[-1]

    def meet(self, attempt: Attempt, links: list[Connection], hot: dict[int, list[Hot]] | None = None) -> list[Assign]:
        """Open everyone's task, and what each is assigned."""
        for task, link in enumerate(links):
            link.open(attempt.id, task, (hot or {}).get(task, []))
        return [link.assigned(attempt.id, PATIENCE) for link in links]

    def later(self, work: Callable[[], Any]) -> Future[Any]:
        """Run on another thread."""
        return self.pool.submit(work)

    def close(self) -> None:
        """Close all connections and threads."""
        for link in self.links:
            link.close()
        self.rendezvous.close()
        self.pool.shutdown(wait=True, cancel_futures=True)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def office(request: pytest.FixtureRequest) -> Iterator[Office]:
    """A rendezvous of two workers."""
    made = Office(2, encrypted=request.param)
    yield made
    made.close()


def test_all_meet_and_report(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    links = [office.link("tcp://a"), office.link("tcp://b")]
    assigned = office.meet(attempt, links)
    assert [one.shard for one in assigned] == [0, 1]
    assert {tuple(one.peers) for one in assigned} == {("tcp://a", "tcp://b")}
    assert assigned[0].start == START
    links[1].report(report(attempt.id, 1))
    assert not attempt.ended.is_set()
    links[0].report(report(attempt.id, 0))
    assert attempt.ended.wait(PATIENCE)
    assert [one.shard for one in attempt.reports] == [0, 1]
    assert office.complete == [attempt]
    assert not office.rendezvous.cancel(attempt, "too late")
    assert attempt.reason is None


def test_shards_stay_where_they_are_hot(office: Office) -> None:
    good, old = Hot(0, 4, "good", 2), Hot(1, 4, "failed", 2)
    attempt = office.rendezvous.begin(START)
    links = [office.link(), office.link()]
    assigned = office.meet(attempt, links, {0: [old], 1: [old, good]})
    assert [one.shard for one in assigned] == [1, 0]


@pytest.mark.parametrize(
    ("hot", "shards"),
    [
        ([[], [], []], [0, 1, 2]),
        ([[Hot(2, 4, "good", 3)], [], []], [1, 2, 0]),
        ([[Hot(1, 4, "good", 3)], [Hot(1, 4, "good", 3)], []], [1, 0, 2]),
        ([[Hot(1, 4, "bad", 3)], [Hot(0, 3, "good", 3)], [Hot(9, 4, "good", 3)]], [0, 1, 2]),
        # Cut for other numbers of workers.
        ([[Hot(1, 4, "good", 2)], [Hot(0, 4, "good", 2)], [Hot(0, 4, "good", 4)]], [0, 1, 2]),
        ([[Hot(0, 4, "good", 3), Hot(1, 4, "good", 3)], [Hot(0, 4, "good", 3)], [Hot(2, 4, "good", 3)]], [0, 1, 2]),
    ],
)
def test_placement_is_a_permutation(hot: list[list[Hot]], shards: list[int]) -> None:
    placed = place(hot, START)
    assert sorted(placed) == [0, 1, 2]
    assert placed == shards


def test_processes_without_a_shard_are_known(office: Office) -> None:
    """After a change to fewer workers, or when Spark has started one too many."""
    first, second = office.link(), office.link()
    office.meet(office.rendezvous.begin(START), [first, second], {})
    office.rendezvous.workers = 1
    attempt = office.rendezvous.begin(START)
    office.meet(attempt, [second], {})
    assert office.rendezvous.surplus(attempt) == [os.getpid()]
    first.close()
    while office.rendezvous.surplus(attempt):
        threading.Event().wait(0.01)


def committed(office: Office, links: list[Connection]) -> Start:
    """The start of an epoch after one that these workers have made."""
    attempt = office.rendezvous.begin(START)
    for shard, (link, _) in enumerate(zip(links, office.meet(attempt, links))):
        link.report(report(attempt.id, shard))
    assert attempt.ended.wait(PATIENCE)
    return Start(epoch=6, base=attempt.id, ingestion={}, offsets={})


def test_messages_are_handed_out_to_those_who_made_the_newest_epoch(office: Office) -> None:
    links = [office.link("tcp://a"), office.link("tcp://b")]
    start = committed(office, links)
    office.link()  # has no shard
    for epoch in range(6, 8):
        attempt = office.rendezvous.begin(start)
        assert office.rendezvous.hand_out(attempt, [b"one", b""])
        assigned = [link.handed_out() for link in links]
        assert [one and (one.shard, one.rows, one.peers) for one in assigned] == [
            (0, b"one", ["tcp://a", "tcp://b"]),
            (1, b"", ["tcp://a", "tcp://b"]),
        ]
        assert attempt.late == [os.getpid()] * 2
        links[0].report(report(attempt.id, 0))
        links[1].report(report(attempt.id, 1))
        assert attempt.ended.wait(PATIENCE)
        assert attempt.late == []
        assert attempt.handed_out
        start = Start(epoch=epoch + 1, base=attempt.id, ingestion={}, offsets={})


def test_messages_lie_on_the_shelf_for_those_who_see_it(office: Office) -> None:
    links = [office.link(sees=True), office.link()]
    attempt = office.rendezvous.begin(committed(office, links))
    laid = office.rendezvous.lay([b"one", b"two"])
    assert office.rendezvous.hand_out(attempt, laid)
    first, second = (link.handed_out() for link in links)
    assert first is not None
    assert isinstance(first.rows, Place)
    assert Borrower().read(first.rows) == b"one"
    assert second is not None
    assert second.rows == b"two"


def test_nothing_is_laid_out_for_workers_that_cannot_see_it(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.meet(office.rendezvous.begin(START), [office.link(), office.link()])
    assert office.rendezvous.lay([b"one", b""]) == [b"one", b""]
    office.meet(office.rendezvous.begin(START), [office.link(sees=True), office.link()])
    monkeypatch.setattr(os, "ftruncate", refuse)
    large = [bytes(1 << 20), b""]
    assert office.rendezvous.lay(large) == large


def refuse(_descriptor: int, _size: int) -> None:
    """A system without memory."""
    raise OSError(errno.ENOMEM, "no memory")


def test_nothing_is_handed_out_if_others_made_the_newest_epoch(office: Office) -> None:
    links = [office.link(), office.link()]
    start = committed(office, links)
    for wrong in (replace_start(start, base="other"), START):
        attempt = office.rendezvous.begin(wrong)
        assert not office.rendezvous.hand_out(attempt, [b"", b""])
        office.rendezvous.cancel(attempt, "for a test")
    office.rendezvous.workers = 1
    assert not office.rendezvous.hand_out(office.rendezvous.begin(start), [b""])
    office.rendezvous.workers = 2
    links[1].close()
    attempt = office.rendezvous.begin(start)
    while office.rendezvous.surplus(attempt) != [os.getpid()]:
        threading.Event().wait(0.01)
    assert not office.rendezvous.hand_out(attempt, [b"", b""])
    assert not attempt.handed_out
    assert len(office.meet(attempt, [links[0], office.link()])) == 2  # tasks of Spark's may have it


def test_a_worker_that_dies_of_what_was_handed_out_ends_the_attempt(office: Office) -> None:
    links = [office.link(), office.link()]
    start = committed(office, links)
    attempt = office.rendezvous.begin(start)
    assert office.rendezvous.hand_out(attempt, [b"", b""])
    links[1].close()
    assert links[0].handed_out() is not None
    with pytest.raises(AttemptCancelled, match="is gone"):
        links[0].check(attempt.id)
    attempt = office.rendezvous.begin(start)
    assert not office.rendezvous.hand_out(attempt, [b"", b""])
    assert len(office.meet(attempt, [links[0], office.link()])) == 2


def test_an_assignment_may_come_too_late_for_an_idle_process(office: Office) -> None:
    links = [office.link(), office.link()]
    attempt = office.rendezvous.begin(committed(office, links))
    assert office.rendezvous.hand_out(attempt, [b"", b""])
    office.rendezvous.cancel(attempt, "for a test")
    first, second = links[0].handed_out(), links[0].handed_out()
    assert first is not None
    assert second is None


def replace_start(start: Start, **changes: Any) -> Start:
    """A start with other fields."""
    changed: Start = msgspec.structs.replace(start, **changes)
    return changed


def test_one_worker_of_an_executor_hears_of_its_surplus_processes(office: Office) -> None:
    def link(pid: int, parent: int) -> Connection:
        found = Connection(office.rendezvous.address, office.rendezvous.keys)
        office.links.append(found)
        found._send(Hello(office.rendezvous.keys.token, "host", pid, "tcp://unused", parent))
        return found

    here, too = link(1, 7), link(2, 7)
    assert [one.surplus for one in office.meet(office.rendezvous.begin(START), [here, too])] == [[], []]
    another, there = link(3, 7), link(4, 8)
    assigned = office.meet(office.rendezvous.begin(START), [another, there])
    assert [sorted(one.surplus) for one in assigned] == [[1, 2], []]


def test_a_process_ends_those_with_its_parent_and_no_others() -> None:
    mine = subprocess.Popen(["sleep", "600"])
    code = "import os, sys; from vernier.service.cluster.surplus import end_siblings; end_siblings(eval(sys.argv[1]))"
    theirs = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert theirs.stdout is not None
    stranger = int(theirs.stdout.readline())
    try:
        subprocess.run([sys.executable, "-c", code, repr([mine.pid, stranger, 1 << 22])], check=True, timeout=PATIENCE)
        assert mine.wait(PATIENCE) == -signal.SIGTERM
        assert psutil.pid_exists(stranger)
    finally:
        mine.kill()
        os.kill(stranger, signal.SIGKILL)
        theirs.communicate(timeout=PATIENCE)


def refused(raw: socket.socket) -> bool:
    """Whether nothing but an alert of TLS comes, and then the end."""
    with contextlib.suppress(ConnectionResetError):
        while said := raw.recv(1 << 16):
            if said[0] != 0x15:
                return False
    return True


def test_a_stranger_is_refused(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    stranger = Connection(office.rendezvous.address, replace(office.rendezvous.keys, token="wrong"))
    stranger.introduce("tcp://x")
    with pytest.raises(DriverGone):
        stranger.assigned(attempt.id, PATIENCE)
    with socket.create_connection(office.rendezvous.address, PATIENCE) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert refused(raw)
    # A frame that claims to be huge is not waited for.
    with socket.create_connection(office.rendezvous.address, PATIENCE) as raw:
        raw.sendall(b"\xff\xff\xff\xff\xff")
        assert refused(raw)
    assert not attempt.ended.is_set()


class Refusing:
    """A listening socket whose first `accept` fails, as when the process has too many open files."""

    def __init__(self, server: socket.socket) -> None:
        self._server, self._failed = server, False

    def accept(self) -> tuple[socket.socket, object]:
        """Fail once, then accept."""
        if not self._failed:
            self._failed = True
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._server.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._server, name)


def test_connections_are_accepted_again_after_a_failure(office: Office) -> None:
    links = [office.link()]
    office.rendezvous._server = Refusing(office.rendezvous._server)  # type: ignore[assignment]
    links.append(office.link())  # the pending accept takes this one, and the next accept fails
    attempt = office.rendezvous.begin(START)
    assert len(office.meet(attempt, [links[0], office.link()])) == 2
    assert office.rendezvous._threads.restarts == {"rendezvous": 1}


def test_only_workers_messages_are_taken(office: Office) -> None:
    link = office.link()
    link.introduce("tcp://x")
    with pytest.raises(DriverGone):
        link.check("any")


def test_a_task_of_an_older_attempt_is_sent_away(office: Office) -> None:
    first = office.rendezvous.begin(START)
    assert office.rendezvous.cancel(first, "for a test")
    second = office.rendezvous.begin(START)
    link = office.link()
    link.open(first.id, 0, [])
    with pytest.raises(AttemptCancelled):
        link.assigned(first.id, PATIENCE)
    link.report(report(first.id, 0))
    assert len(office.meet(second, [link, office.link()])) == 2
    assert not second.ended.is_set()


def test_a_worker_that_dies_ends_the_attempt_for_all(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    one, other = office.link(), office.link()
    office.meet(attempt, [one, other])
    other.close()
    with pytest.raises(AttemptCancelled, match="is gone"):
        one.check(attempt.id)
    assert attempt.ended.is_set()
    assert not attempt.reports


def test_a_worker_that_reported_may_go(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    one, other = office.link(), office.link()
    assigned = office.meet(attempt, [one, other])
    other.report(report(attempt.id, assigned[1].shard))
    other.close()
    one.report(report(attempt.id, assigned[0].shard))
    assert attempt.ended.wait(PATIENCE)
    assert len(attempt.reports) == 2


def test_a_failure_is_told_to_the_others(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    one, other = office.link(), office.link()
    office.meet(attempt, [one, other])
    other.failed(attempt.id, "loop reach did not settle", caller=True)
    with pytest.raises(AttemptCancelled, match="did not settle"):
        one.check(attempt.id)
    assert attempt.caller


def test_waiting_ends_at_the_deadline_and_with_the_driver(office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    link = office.link()
    link.open(attempt.id, 0, [])
    with pytest.raises(DeadlinePassed):
        link.assigned(attempt.id, 0.01)
    waiting = office.later(lambda: link.assigned(attempt.id, PATIENCE))
    office.rendezvous.close()
    with pytest.raises(DriverGone):
        waiting.result(PATIENCE)


# --- exchange ---------------------------------------------------------------------------------------------------------


def calls(exchange: Any, seed: int) -> list[Any]:
    """A worker's calls, the same kinds in the same order on all workers, and everything they gave."""
    own = np.random.default_rng([seed, exchange.index])
    shared = np.random.default_rng(seed)
    got: list[Any] = []
    for _ in range(40):
        kind, columns = int(shared.integers(3)), int(shared.integers(1, 6))
        if kind == 0:
            sizes = own.integers(0, 50, exchange.workers)
            parts = [own.integers(-(2**63), 2**63 - 1, (n, columns), dtype=np.int64) for n in sizes]
            taken = exchange.all_to_all(parts)
            assert all(part.flags.writeable and part.dtype == np.int64 for part in taken)
            got.append([part.tolist() for part in taken])
        elif kind == 1:
            got.append(exchange.allgather(own.bytes(int(own.integers(0, 100)))))
        else:
            value = tuple(own.integers(0, 3, columns).tolist()) if own.integers(4) else None
            got.append(exchange.agree_min(value))
    return got


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def keys(request: pytest.FixtureRequest) -> Keys:
    """A service's."""
    return Keys.sealed("a certificate") if request.param else Keys.plain()


@pytest.fixture
def mailboxes(keys: Keys) -> Iterator[list[Mailbox]]:
    """Three mailboxes of one service."""
    made = [Mailbox(keys) for _ in range(3)]
    yield made
    for one in made:
        one.close()


def joined(mailboxes: list[Mailbox], attempt: str, seconds: float = PATIENCE) -> list[Exchange]:
    """An exchange over each mailbox."""
    peers = [one.address for one in mailboxes]
    return [Exchange(one, attempt, i, peers, None, seconds) for i, one in enumerate(mailboxes)]


def together(work: list[Callable[[], Any]]) -> list[Any]:
    """Run each on a thread of its own; all results."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [one.result(PATIENCE) for one in [pool.submit(each) for each in work]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_gives_what_threads_give(mailboxes: list[Mailbox], workers: int) -> None:
    ours, model = joined(mailboxes[:workers], "a"), Threads.connected(workers)
    got = together([partial(calls, one, 7) for one in ours])
    wanted = together([partial(calls, one, 7) for one in model])
    assert got == wanted
    assert all(one.bytes_sent > 0 for one in ours) or workers == 1


def test_what_an_older_attempt_or_a_stranger_sends_is_dropped(mailboxes: list[Mailbox], keys: Keys) -> None:
    stranger = Mailbox(replace(keys, token="other"))
    try:
        peers = [one.address for one in mailboxes]
        stale = Exchange(mailboxes[2], "old", 1, peers, None, PATIENCE)
        strange = Exchange(stranger, "new", 1, peers, None, PATIENCE)
        for exchange in (stale, strange):
            exchange._send(0, 1, 8, np.array([666]))
        short = [
            b"",
            b"no header",
            b"x" * 100,
            b"x" * 800,
            mailboxes[2].token,
            mailboxes[2].token + bytes(48) + b"no ring",
        ]
        mailboxes[2].outbox(peers[0])._socket.send_multipart([*short, mailboxes[2].token + bytes(56)])
        fresh = joined(mailboxes, "new")
        parts = [[np.full((1, 1), 10 * i + j, np.int64) for j in range(3)] for i in range(3)]
        got = together([partial(one.all_to_all, part) for one, part in zip(fresh, parts, strict=True)])
        assert [[int(part[0, 0]) for part in one] for one in got] == [[0, 10, 20], [1, 11, 21], [2, 12, 22]]
    finally:
        stranger.close()


def test_a_peer_that_never_sends_is_given_up(mailboxes: list[Mailbox]) -> None:
    waiting = joined(mailboxes, "a", seconds=0.05)[0]
    with pytest.raises(DeadlinePassed, match="message from a peer"):
        waiting.allgather(b"")


def test_whoever_waits_for_peers_hears_that_the_attempt_is_over(mailboxes: list[Mailbox], office: Office) -> None:
    attempt = office.rendezvous.begin(START)
    links = [office.link(mailboxes[0].address), office.link(mailboxes[1].address)]
    assigned = office.meet(attempt, links)
    exchange = Exchange(mailboxes[0], attempt.id, 0, assigned[0].peers, links[0], PATIENCE)
    began = threading.Event()

    def wait() -> Any:
        began.set()
        return exchange.allgather(b"")

    waiting = office.later(wait)
    assert began.wait(PATIENCE)
    office.rendezvous.cancel(attempt, "the other worker was killed")
    with pytest.raises(AttemptCancelled, match="was killed"):
        waiting.result(PATIENCE)
