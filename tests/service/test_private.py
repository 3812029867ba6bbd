"""Worker exchange and rendezvous between hosts: an eavesdropper reads nothing, unknown clients disturb no epoch."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.service.test_rendezvous import PATIENCE, START, Office, joined, report, together
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.cluster.messages import Hot
from vernier.service.cluster.tls import Identity
from vernier.service.config.settings import BadSettings, load
from vernier.service.errors import DriverGone

SECRET = b"what no other process may read"


class Wiretap:
    """Passes bytes on between its clients and a listener, and keeps a copy of all of them."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.heard = bytearray()
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut all lines."""
        for one in [self._server, *self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(self._target, PATIENCE)
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.heard += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def tapped() -> Iterator[Callable[[tuple[str, int]], Wiretap]]:
    """Makes wiretaps, and cuts them at the end."""
    made: list[Wiretap] = []

    def tap(target: tuple[str, int]) -> Wiretap:
        made.append(Wiretap(target))
        return made[-1]

    yield tap
    for one in made:
        one.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_whoever_listens_at_the_rendezvous(tapped: Callable[[tuple[str, int]], Wiretap], *, encrypted: bool) -> None:
    office = Office(1, encrypted=encrypted)
    try:
        keys, tap = office.rendezvous.keys, tapped(office.rendezvous.address)
        attempt = office.rendezvous.begin(msgspec.structs.replace(START, ingestion={"a": SECRET.decode()}))
        link = Connection(tap.address, keys)
        office.links.append(link)
        link.introduce("tcp://" + SECRET.decode())
        link.open(attempt.id, 0, [Hot(0, 1, SECRET.decode(), 1)])
        assert link.assigned(attempt.id, PATIENCE).start.ingestion == {"a": SECRET.decode()}
        # More than one record, both ways.
        link.report(msgspec.structs.replace(report(attempt.id, 0), worker=SECRET.decode() * 10_000))
        assert attempt.ended.wait(PATIENCE)
        assert attempt.reports[0].worker == SECRET.decode() * 10_000
        assert len(tap.heard) > 250_000
        assert (SECRET in tap.heard) is not encrypted
        assert (keys.token.encode() in tap.heard) is not encrypted
    finally:
        office.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_whoever_listens_at_the_exchange(tapped: Callable[[tuple[str, int]], Wiretap], *, encrypted: bool) -> None:
    keys = Keys.sealed("a certificate") if encrypted else Keys.plain()
    boxes = [Mailbox(keys) for _ in range(2)]
    try:
        taps = [tapped(("127.0.0.1", int(box.address.rpartition(":")[2]))) for box in boxes]
        # By another name than the mailboxes' own, as between hosts: else some of it may go through memory.
        peers = [f"tcp://localhost:{tap.address[1]}" for tap in taps]
        ends = [Exchange(box, "a", i, peers, None, PATIENCE) for i, box in enumerate(boxes)]
        words = np.frombuffer(SECRET.ljust(32), np.int64).reshape(1, -1)
        for got in together([partial(end.all_to_all, [words.repeat(500, axis=0)] * 2) for end in ends]):
            assert [part.tolist() for part in got] == [words.repeat(500, axis=0).tolist()] * 2
        for tap in taps:
            assert len(tap.heard) > 500 * 32
            assert (SECRET in tap.heard) is not encrypted
    finally:
        for box in boxes:
            box.close()


def strangers(keys: Keys) -> dict[str, Keys]:
    """Who is not let in: without any key, with another pair, with the pair and another token."""
    public, secret = zmq.curve_keypair()
    return {
        "no key": Keys.plain(keys.token),
        "another pair": replace(keys, public=public, secret=secret),
        "another token": replace(keys, token="guessed"),
    }


class Watched(Mailbox):
    """One whose connection tells what becomes of it, from the start."""

    watch: zmq.Socket[bytes]

    def _socket(self, address: str) -> zmq.Socket[bytes]:
        made = super()._socket(address)
        self.watch = made.get_monitor_socket()
        return made


@pytest.mark.parametrize("who", ["no key", "another pair", "another token"])
def test_a_stranger_sends_to_workers_and_the_epoch_goes_on(who: str) -> None:
    keys = Keys.sealed("a certificate")
    boxes, stranger = [Mailbox(keys) for _ in range(2)], Watched(strangers(keys)[who])
    try:
        peers = [box.address for box in boxes]
        false = Exchange(stranger, "a", 1, peers, None, PATIENCE)
        watch, seen = stranger.watch, 0
        false._send(0, 1, 8, np.array([666]))
        while who != "another token" and not seen:
            assert watch.poll(PATIENCE * 1000), "the connection was not refused"
            event = recv_monitor_message(watch)["event"]
            assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
            seen = event & (zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        watch.close()
        ends = joined(boxes, "a")
        parts = [[np.full((1, 1), 10 * i + j, np.int64) for j in range(2)] for i in range(2)]
        got = together([partial(end.all_to_all, part) for end, part in zip(ends, parts, strict=True)])
        assert [[int(part[0, 0]) for part in one] for one in got] == [[0, 10], [1, 11]]
    finally:
        for box in [stranger, *boxes]:
            box.close()


def test_knowing_the_public_half_is_not_enough() -> None:
    keys = Keys.sealed("a certificate")
    box, context = Mailbox(keys), zmq.Context()
    try:
        false = context.socket(zmq.PUSH)
        false.setsockopt(zmq.LINGER, 0)
        false.curve_publickey, false.curve_secretkey = zmq.curve_keypair()
        false.curve_serverkey = keys.public
        watch = false.get_monitor_socket()
        false.connect(box.address)
        seen = 0
        while seen != zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            assert watch.poll(PATIENCE * 1000)
            seen = recv_monitor_message(watch)["event"]
            assert seen != zmq.EVENT_HANDSHAKE_SUCCEEDED
        watch.close()
        false.close()
    finally:
        box.close()
        context.term()


def test_strangers_at_the_rendezvous_and_the_epoch_goes_on() -> None:
    office = Office(2, encrypted=True)
    try:
        attempt = office.rendezvous.begin(START)
        keys, address = office.rendezvous.keys, office.rendezvous.address
        links = [office.link(), office.link()]
        links[0].open(attempt.id, 0, [])
        plain = Connection(address, Keys.plain(keys.token))
        plain.introduce("tcp://x")
        guessed = Connection(address, replace(keys, token="guessed"))
        guessed.introduce("tcp://x")
        for refused in (plain, guessed):
            with pytest.raises(DriverGone):
                refused.assigned(attempt.id, PATIENCE)
        # A worker does not talk to a driver with another certificate, even if an attacker has put one there.
        with pytest.raises(DriverGone):
            Connection(address, replace(keys, certificate=Identity().pem))
        links[1].open(attempt.id, 1, [])
        shards = [link.assigned(attempt.id, PATIENCE).shard for link in links]
        for link, shard in zip(links, shards, strict=True):
            link.report(report(attempt.id, shard))
        assert attempt.ended.wait(PATIENCE)
        assert len(attempt.reports) == 2
    finally:
        office.close()


def test_too_many_strangers_at_once_are_not_heard() -> None:
    office = Office(1, encrypted=True)
    silent = []
    try:
        silent = [socket.create_connection(office.rendezvous.address, PATIENCE) for _ in range(64)]
        extra = socket.create_connection(office.rendezvous.address, PATIENCE)
        silent.append(extra)
        assert extra.recv(1) == b""
        for one in silent:
            one.close()
        attempt = office.rendezvous.begin(START)
        while True:  # until the places of those who have left are free
            try:
                link = office.link()
                link.open(attempt.id, 0, [])
                assert link.assigned(attempt.id, PATIENCE).shard == 0
                return
            except DriverGone:
                continue
    finally:
        for one in silent:
            one.close()
        office.close()


@pytest.mark.parametrize(
    ("given", "encrypted"),
    [
        ({}, False),
        ({"exchange.host": "::1"}, False),
        ({"exchange.host": "localhost"}, False),
        ({"exchange.host": "10.0.0.7"}, True),
        ({"exchange.host": "driver.example"}, True),
        ({"exchange.encrypt": "true"}, True),
        ({"exchange.host": "10.0.0.7", "exchange.encrypt": "false"}, False),
    ],
)
def test_private_by_default_unless_on_loopback(given: dict[str, str], *, encrypted: bool) -> None:
    assert load(None, given, {}).settings.exchange.encrypted is encrypted


def test_an_address_that_workers_cannot_connect_to_is_refused() -> None:
    with pytest.raises(BadSettings, match="workers cannot connect to"):
        load(None, {"exchange.host": "0.0.0.0"}, {})


def test_keys_do_not_show_themselves() -> None:
    keys = Keys.sealed(Identity().pem)
    shown = repr(keys)
    assert keys.token not in shown
    assert keys.secret.decode() not in shown
    assert keys.encrypted
    assert not Keys.plain().encrypted
