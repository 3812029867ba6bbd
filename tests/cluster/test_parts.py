"""The parts of the cluster of tests: bad cables, a store in trouble, random events."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.chaos.commits import Commits
from bench.chaos.events import HOSTS, INSTANT, TARGETS, deck, groups
from tests.cluster.network import Host, missing, network
from tests.cluster.store import Trouble, Troubled

PORT = 7000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts; this thread is on the first."""
    if why := missing():
        pytest.skip(why)
    with network(tmp_path, ["here", "there"]) as hosts, hosts["here"].inside():
        yield hosts["here"], hosts["there"]


def on(host: Host, kind: socket.SocketKind) -> socket.socket:
    """A socket on a host, whichever one this thread is on."""
    with host.inside():
        return socket.socket(socket.AF_INET, kind)


def echo(host: Host) -> socket.socket:
    """A server on a host that sends back what it receives; returns what listens."""
    listening = on(host, socket.SOCK_STREAM)
    listening.bind((host.address, PORT))
    listening.listen()

    def serve() -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            try:
                while data := connected.recv(1 << 16):
                    connected.sendall(data)
            except OSError:
                connected.close()

    threading.Thread(target=serve, daemon=True).start()
    return listening


def talk(connected: socket.socket) -> None:
    """Send and receive until the connection ends."""
    while True:
        connected.sendall(b"again")
        connected.recv(1 << 16)


def test_a_bad_cable_is_slow_and_resets_connections_and_a_new_one_does_not(pair: tuple[Host, Host]) -> None:
    here, there = pair
    with echo(there):
        there.wear("--delay-ms", "30")
        began = time.monotonic()
        with socket.create_connection((there.address, PORT), 20) as connected:
            assert time.monotonic() - began >= 0.06
            whole = bytes(3_000_000)
            threading.Thread(target=connected.sendall, args=(whole,), daemon=True).start()
            left = len(whole)
            while left:
                left -= len(connected.recv(1 << 16))
        there.renew()
        there.wear("--reset-seconds", "0.01")
        with socket.create_connection((there.address, PORT), 20) as connected, pytest.raises(ConnectionResetError):
            talk(connected)
        there.renew()
        with socket.create_connection((there.address, PORT), 20) as connected:
            connected.sendall(b"after")
            assert connected.recv(10) == b"after"
    assert here.address != there.address


def test_what_one_host_sends_is_lost_and_what_it_gets_is_not(pair: tuple[Host, Host]) -> None:
    here, there = pair
    mine, its = on(here, socket.SOCK_DGRAM), on(there, socket.SOCK_DGRAM)
    for one, host in ((mine, here), (its, there)):
        one.bind((host.address, PORT))

    def arrives(sender: socket.socket, target: Host, receiver: socket.socket, within: float = 60) -> bool:
        sender.sendto(b"x", (target.address, PORT))
        receiver.settimeout(within)
        try:
            return receiver.recv(10) == b"x"
        except TimeoutError:
            return False

    with mine, its:
        assert arrives(its, here, mine)
        assert arrives(mine, there, its)
        there.mute()
        assert not arrives(its, here, mine, 0.2)
        assert arrives(mine, there, its)
        there.hear_and_speak()
        there.deafen()
        assert arrives(its, here, mine)
        assert not arrives(mine, there, its, 0.2)
        there.hear_and_speak()
        assert arrives(its, here, mine)
        assert arrives(mine, there, its)


def test_a_store_in_trouble_refuses_what_it_has_done_or_not(tmp_path: Path) -> None:
    path, done, said = tmp_path / "trouble", [], []

    def made(environ: dict[str, Any], start: Any) -> list[bytes]:
        done.append(environ["PATH_INFO"])
        start("200 OK", [])
        return [b"fine"]

    def ask(name: str) -> None:
        answer = Troubled(made, path)(
            {"PATH_INFO": name, "wsgi.input": _Nothing()}, lambda status, _: said.append(status)
        )
        assert list(answer)

    ask("a")
    Trouble(refuse=1.0).write(path)
    ask("b")
    Trouble(refuse=1.0, done=True).write(path)
    ask("c")
    path.unlink()
    ask("d")
    assert done == ["a", "c", "d"]
    assert said == ["200 OK", "503 Slow Down", "503 Slow Down", "200 OK"]


class _Nothing:
    def read(self, size: int) -> bytes:
        return bytes(size)


def test_a_seed_is_one_deck_of_all_kinds_of_events() -> None:
    events = deck(3, 40)
    assert events == deck(3, 40) != deck(4, 40)
    kinds = Counter(event.kind for event in events)
    assert kinds.keys() == TARGETS.keys()
    assert set(kinds.values()) == {5}
    assert {event.role for event in events if event.kind == "dies"} == set(TARGETS["dies"])
    assert all(event.seconds > 20 for event in events if (event.kind, event.role) == ("hangs", "driver"))


def test_commits_are_counted_once_however_many_sidecars_say_them() -> None:
    commits = Commits(["one", "two"])
    for url, epoch, upper in (("one", 1, 10), ("two", 1, 10), ("two", 2, 30), ("one", 2, 30), ("one", 5, 60)):
        commits._see(url, json.loads(json.dumps({"epoch": epoch, "upper": [str(upper)]})))
    assert commits.epoch == 5
    assert commits.newest == 60
    assert [found and found[1] for found in map(commits.first, (0, 10, 30, 59, 60))] == [10, 30, 60, 60, None]
    assert commits.longest(0.0, time.monotonic()) >= 0
    assert commits.answering == ["one", "two"]


def test_events_that_last_are_beside_those_of_other_roles_that_epochs_can_do_without() -> None:
    found = groups(600)
    assert Counter((one.kind, one.role) for group in found for one in group) == Counter(
        (kind, role) for kind, roles in TARGETS.items() for role in roles if kind not in INSTANT
    )
    for group in found:
        roles = [one.role for one in group]
        stopped = {one.role for one in group if one.kind != "is slow"}
        assert len(roles) == len(set(roles))
        assert not {"driver", "standby"} <= set(roles)
        assert not {"executor", "master"} <= set(roles)
        assert "store" not in stopped or len(group) == 1
        assert "store" not in roles or set(roles) <= {"store", "standby", "master"}
    early = [one for group in found[:6] for one in group]
    assert {one.role for one in early} == set(HOSTS)
    assert {one.kind for one in early} == set(TARGETS) - INSTANT
    done = [(one.kind, one.role) for one in early]
    assert not {(one.kind, one.role) for group in groups(600, done) for one in group} & set(done)
