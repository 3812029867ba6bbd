"""Clients of the sidecar for a benchmark, in separate processes: many change streams, and a prober of keys.

`python -m bench.clients streams URL --view V --count N --slow M --slow-view W --seconds S`: N subscribers that check
their events, and M that stop reading for half of the time; `python -m bench.clients probe URL --seconds S`: a look-up
of the same key every few milliseconds, however long the last one took. Each prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

PROBE_SECONDS = 0.005
_SMALL_BUFFER = 64 << 10
_ID = b'"id":"'


@dataclass
class Published:
    """The events of one view that every subscriber must get: the checksum of each, by the frontier after it."""

    checksums: dict[int, int] = field(default_factory=dict)


class Subscriber(asyncio.Protocol):
    """One change stream as lines of JSON. ids: those of its events; wrong: violations that were found.

    Each event's checksum is compared with that of other subscribers. Events of a `whole` stream are parsed: each must
    begin where the last one ended, and have every change between its bounds once, in the order of time.
    """

    def __init__(self, published: Published, host: str, view: str, whole: bool) -> None:
        self.published, self.host, self.view, self.whole = published, host, view, whole
        self.ids: list[int] = []
        self.wrong: list[str] = []
        self.bytes = self.events = 0
        self.code: str | None = None
        self.closed = False
        self._rest = b""
        self._body = False
        self._frontier: int | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        head = f"GET /v1/views/{self.view}/changes?snapshot=false HTTP/1.1\r\nhost: {self.host}\r\n"
        transport.write(f"{head}accept: application/x-ndjson\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        data = self._rest + data
        if not self._body:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            self._body = True
            if b" 200 " not in head[:20]:
                self.wrong.append(head[:20].decode())
        # HTTP chunks begin with their length on a separate line, and end with a line break.
        while True:
            line, found, after = data.partition(b"\r\n")
            if not found:
                break
            size = int(line, 16)
            if len(after) < size + 2:
                break
            for event in after[:size].splitlines():
                self._take(event)
            data = after[size + 2 :]
        self._rest = data

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def _take(self, event: bytes) -> None:
        at = event.find(_ID, 0, 60)
        if at < 0:
            about = json.loads(event)
            if about["event"] == "error":
                self.code = about["code"]
            return
        self.events += 1
        frontier = int(event[at + len(_ID) : event.index(b'"', at + len(_ID))])
        checksum, shared = zlib.crc32(event), self.published
        if shared.checksums.setdefault(frontier, checksum) != checksum:
            self.wrong.append(f"another event {frontier}")
        self.ids.append(frontier)
        if self.whole:
            self._check(json.loads(event))

    def _check(self, event: dict[str, Any]) -> None:
        lower, upper = int(event["lower"]), int(event["upper"])
        if self._frontier not in (None, lower):
            self.wrong.append(f"{self._frontier} was followed by {lower}")
        self._frontier = upper
        changes = [(int(change["time"]), tuple(change["row"].values())) for change in event.get("changes", ())]
        if changes != sorted(set(changes)) or (changes and not lower <= changes[0][0] <= changes[-1][0] < upper):
            self.wrong.append(f"changes of [{lower}, {upper})")

    def judge(self, all_ids: Sequence[int]) -> None:
        """Record an error unless it has all events from its first to its last one, once and in order."""
        if not self.ids:
            self.wrong.append("no event")
            return
        start = bisect_left(all_ids, self.ids[0])
        if list(all_ids[start : start + len(self.ids)]) != self.ids:
            self.wrong.append("events are missing, twice or in another order")


def itself(one: Subscriber) -> Callable[[], Subscriber]:
    """Makes the protocol of a connection, for asyncio."""
    return lambda: one


async def streams(given: argparse.Namespace) -> dict[str, Any]:
    """Many subscribers, some of them slow."""
    loop, where = asyncio.get_running_loop(), urlsplit(given.url)
    sent, sent_slow = Published(), Published()
    quick: list[Subscriber] = []
    slow: list[Subscriber] = []
    for i in range(given.count):
        one = Subscriber(sent, where.netloc, given.view, whole=i % 20 == 0)
        quick.append(one)
        await loop.create_connection(itself(one), where.hostname, where.port)
    for _ in range(given.slow):
        one = Subscriber(sent_slow, where.netloc, given.slow_view, whole=False)
        slow.append(one)
        # With a small buffer here, the sidecar's buffers fill.
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        own.setblocking(False)
        await loop.sock_connect(own, (where.hostname, where.port))
        await loop.create_connection(itself(one), sock=own)
    all_open = time.monotonic()
    for one in slow:
        while not one.ids and not one.wrong and not one.closed:
            await asyncio.sleep(0.05)
        assert one.transport is not None
        one.transport.pause_reading()
    await asyncio.sleep(given.seconds / 2)
    for one in slow:
        assert one.transport is not None
        one.transport.resume_reading()
    await asyncio.sleep(max(0.0, all_open + given.seconds - time.monotonic()))
    for one in quick:
        assert one.transport is not None
        one.transport.close()
    ends = [one.ids[-1] for one in quick if one.ids]
    all_ids = sorted(sent.checksums)
    for one in quick:
        one.judge(all_ids)
    return {
        "view": given.view,
        "subscribers": given.count,
        "seconds": given.seconds,
        "right": sum(not one.wrong for one in quick),
        "parsed_whole": sum(one.whole for one in quick),
        "wrong": sorted({why for one in quick for why in one.wrong})[:5],
        "ended_early": sum(one.closed and one.code is not None for one in quick),
        "events": sum(one.events for one in quick),
        "events_each_least": min(one.events for one in quick),
        "mb": round(sum(one.bytes for one in quick) / 2**20, 1),
        "behind_at_the_end": sum(end < max(ends) for end in ends),
        "slow": given.slow,
        "slow_told": sum(one.code == "slow_consumer" for one in slow),
        "slow_closed": sum(one.closed for one in slow),
    }


async def probe(given: argparse.Namespace) -> dict[str, Any]:
    """Look-ups at fixed moments: a late answer delays the following look-ups, and their delay counts, too."""
    where = urlsplit(given.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    request = f"GET {where.path} HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode()
    took: list[float] = []
    began = time.monotonic()
    for turn in range(int(given.seconds / PROBE_SECONDS)):
        due = began + turn * PROBE_SECONDS
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        took.append((time.monotonic() - max(due, began)) * 1e3)
    writer.close()
    p50, p99 = np.quantile(took, (0.5, 0.99))
    return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2), "longest_ms": round(max(took), 1)}


async def ask(given: argparse.Namespace) -> dict[str, Any]:
    """As many requests as are answered on a number of connections, for machines without wrk. The numbers mean the same,
    but this client saturates a core long before the sidecar does. A # in a path stands for a random node."""
    where = urlsplit(given.url)
    took: list[float] = []
    failed = size = 0
    chance = random.Random(0)
    began = time.monotonic()

    async def one() -> None:
        nonlocal failed, size
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        body = (given.body or "").encode()
        about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        while (at := time.monotonic()) - began < given.seconds:
            path = chance.choice(given.paths).replace("#", str(chance.randrange(1000)))
            head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nhost: {where.netloc}\r\n{about}\r\n"
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            failed += answer.split(b" ", 2)[1] != b"200"
            size += len(answer) + length
            took.append(time.monotonic() - at)
        writer.close()

    await asyncio.gather(*(one() for _ in range(given.connections)))
    p50, p99 = np.quantile(took, (0.5, 0.99)) * 1e6
    spent = int((time.monotonic() - began) * 1e6)
    quantiles = {"p50_us": int(p50), "p99_us": int(p99)}
    return {"requests": len(took), "us": spent, **quantiles, "failed": failed, "mb": round(size / 2**20, 1)}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("streams", "probe", "ask"))
    parser.add_argument("url")
    parser.add_argument("--view", default="reach")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--slow-view", default="distances")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--paths", nargs="*", default=[])
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--body")
    given = parser.parse_args()
    print(json.dumps(uvloop.run({"streams": streams, "probe": probe, "ask": ask}[given.what](given))))


if __name__ == "__main__":
    main()
