"""The rendezvous beside the least that does its work over ZeroMQ: what a connection, an attempt and a death cost.

    python -m bench.handshake --connections 50

`ours` is the rendezvous and its link: frames on TCP, or TLS with a pinned certificate. `sockets` is a ROUTER and a
DEALER with the same messages, plain or under CURVE with the exchange's authenticator. A *connection* is made, says
hello and gets its shard. An *attempt* on an open connection is opened, assigned and reported. A *death* is the closing
of a worker's connection until the driver knows that this worker is gone; with sockets that is an event of a monitor,
and the worker is found by the descriptor that its messages came by. One JSON line: medians of the wall clock and of CPU
of all threads, in microseconds; both take turns, in one process.
"""

from __future__ import annotations

import argparse
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import Any, Protocol, get_origin

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from bench.record import tell
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.transport import authenticator
from vernier.service.cluster.messages import Assign, Hello, Message, Open, Report, Start
from vernier.service.cluster.rendezvous import Attempt, Rendezvous

SECONDS = 30
START = Start(epoch=1, base="", ingestion={"filler": "x" * 1000}, offsets={})
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def report(attempt: str) -> Report:
    """A report of about a kilobyte, otherwise empty."""
    needed = {field.name: nothing(field.type) for field in msgspec.structs.fields(Report) if field.required}
    return Report(**{**needed, "attempt": attempt, "ingestion": {"filler": "x" * 1000}})


def nothing(kind: Any) -> Any:
    """The empty value of a type: zero, an empty collection, or None where that is allowed."""
    plain = get_origin(kind) or kind
    return plain() if plain in (int, str, dict, list) else None


class Worker(Protocol):
    """A worker's end of a connection."""

    def begin(self) -> None:
        """Open an attempt and get a shard."""

    def finish(self) -> None:
        """Report, and wait until the driver has the report."""

    def close(self) -> None:
        """Disconnect."""


class Side(Protocol):
    """A driver that can be connected to."""

    def connect(self) -> Worker:
        """A connection whose worker has been assigned a shard."""

    def lost(self) -> bool:
        """Wait until the driver has noticed that the worker of the current attempt is gone."""

    def close(self) -> None:
        """Stop."""


class OurWorker:
    """A link and the rendezvous that it talks to."""

    def __init__(self, side: Ours) -> None:
        self._side = side
        self._link = Connection(side.rendezvous.address, side.rendezvous.keys)
        self._link.introduce("tcp://worker")
        self.begin()

    def begin(self) -> None:
        """As in Worker."""
        attempt = self._side.current = self._side.rendezvous.begin(START)
        self._link.open(attempt.id, 0, [])
        self._link.assigned(attempt.id, SECONDS)

    def finish(self) -> None:
        """As in Worker."""
        self._link.report(report(self._side.current.id))
        if not self._side.current.ended.wait(SECONDS):
            raise SystemExit("the report did not arrive")

    def close(self) -> None:
        """As in Worker."""
        self._link.close()


class Ours:
    """The rendezvous of a service with one worker."""

    current: Attempt

    def __init__(self, encrypted: bool) -> None:
        self.rendezvous = Rendezvous(1, lambda attempt: None, encrypted=encrypted)

    def connect(self) -> OurWorker:
        """As in Side."""
        return OurWorker(self)

    def lost(self) -> bool:
        """As in Side."""
        return self.current.ended.wait(SECONDS)

    def close(self) -> None:
        """As in Side."""
        self.rendezvous.close()


class SocketWorker:
    """A DEALER."""

    def __init__(self, side: Sockets) -> None:
        self._side = side
        self._socket = side.dealer()
        self._socket.send(_encode(Hello(side.keys.token, "host", 1, "tcp://worker")))
        self.begin()

    def begin(self) -> None:
        """As in Worker."""
        self._attempt = secrets.token_hex(6)
        self._socket.send(_encode(Open(self._attempt, 0, [])))
        assigned = _decoder.decode(self._socket.recv())
        if not isinstance(assigned, Assign) or assigned.attempt != self._attempt:
            raise SystemExit("no shard was assigned")

    def finish(self) -> None:
        """As in Worker."""
        self._side.arrived.clear()
        self._socket.send(_encode(report(self._attempt)))
        if not self._side.arrived.wait(SECONDS):
            raise SystemExit("the report did not arrive")

    def close(self) -> None:
        """As in Worker."""
        self._socket.close(0)


class Sockets:
    """A ROUTER, whose thread alone may use it, with a monitor of its connections."""

    def __init__(self, encrypted: bool) -> None:
        self.keys = Keys.sealed("no certificate") if encrypted else Keys.plain()
        self.arrived, self.gone = threading.Event(), threading.Event()
        self._driver, self._workers = zmq.Context(), zmq.Context()
        self._authenticator = authenticator(self._driver, self.keys) if encrypted else None
        self._router = self._driver.socket(zmq.ROUTER)
        if encrypted:
            self._router.curve_server = True
            self._router.curve_secretkey, self._router.curve_publickey = self.keys.secret, self.keys.public
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._stop, self._stopped = (self._driver.socket(zmq.PAIR) for _ in range(2))
        self._stopped.bind("inproc://stop")
        self._stop.connect("inproc://stop")
        self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._known: dict[bytes, int] = {}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def dealer(self) -> zmq.Socket[bytes]:
        """A worker's socket, connected."""
        made = self._workers.socket(zmq.DEALER)
        if self.keys.encrypted:
            made.curve_secretkey, made.curve_publickey = self.keys.secret, self.keys.public
            made.curve_serverkey = self.keys.public
        made.connect(f"tcp://127.0.0.1:{self.port}")
        return made

    def connect(self) -> SocketWorker:
        """As in Side."""
        return SocketWorker(self)

    def lost(self) -> bool:
        """As in Side."""
        noticed = self.gone.wait(SECONDS)
        self.gone.clear()
        return noticed

    def close(self) -> None:
        """As in Side."""
        self._stop.send(b"")
        self._thread.join()
        self._router.disable_monitor()
        for socket in (self._monitor, self._stop, self._stopped, self._router):
            socket.close(0)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._driver.term()
        self._workers.term()

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._router, self._monitor, self._stopped):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._stopped in ready:
                return
            if self._router in ready:
                self._handle()
            if self._monitor in ready:
                left = int(recv_monitor_message(self._monitor)["value"])
                if any(descriptor == left for descriptor in self._known.values()):
                    self._known = {name: one for name, one in self._known.items() if one != left}
                    self.gone.set()

    def _handle(self) -> None:
        name, frame = self._router.recv_multipart(copy=False)
        message = _decoder.decode(frame.buffer)
        if isinstance(message, Hello) and secrets.compare_digest(message.token, self.keys.token):
            self._known[name.bytes] = int(frame.get(zmq.SRCFD))
        elif name.bytes in self._known and isinstance(message, Open):
            self._router.send_multipart([name.bytes, _encode(Assign(message.attempt, 0, ["tcp://worker"], START))])
        elif name.bytes in self._known and isinstance(message, Report):
            self.arrived.set()


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """A result, and its microseconds by the clock and of CPU."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    result = work()
    return result, ((time.perf_counter_ns() - wall) / 1e3, (time.process_time_ns() - cpu) / 1e3)


def turns(side: Side, attempts: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """One connection, its attempts, and its death in the middle of one."""
    worker, took = timed(side.connect)
    worker.finish()
    yield "connection", took

    def attempt() -> None:
        worker.begin()
        worker.finish()

    def die() -> None:
        worker.close()
        if not side.lost():
            raise SystemExit("the death was not noticed")

    for _ in range(attempts):
        yield "attempt", timed(attempt)[1]
    worker.begin()
    yield "death", timed(die)[1]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=20, help="of each connection")
    parser.add_argument("--connections", type=int, default=50)
    given = parser.parse_args()
    cases = []
    for encrypted in (False, True):
        took: dict[tuple[str, str], list[tuple[float, float]]] = {}
        with closing(Ours(encrypted)) as ours, closing(Sockets(encrypted)) as sockets:
            for _ in range(given.connections):
                for name, side in (("ours", ours), ("sockets", sockets)):
                    for what, one in turns(side, given.attempts):
                        took.setdefault((what, name), []).append(one)
        for what in ("connection", "attempt", "death"):
            case: dict[str, object] = {"encrypted": encrypted, "what": what}
            for name in ("ours", "sockets"):
                wall, cpu = zip(*took[what, name], strict=True)
                case[name] = {"wall_us": round(median(wall), 1), "cpu_us": round(median(cpu), 1)}
            cases.append(case)
    tell({"connections": given.connections, "cases": cases, "load": round(os.getloadavg()[0], 1)})


if __name__ == "__main__":
    main()
