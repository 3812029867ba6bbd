"""A bad cable: forwards the frames between two interfaces later than they came, loses some, and resets connections.

    python -m tests.cluster.link OUTER INNER --delay-ms 50 --lose-in 0.2 --reset-seconds 3

Kernels without `netem` have no other way. It runs in the switch's namespace (`network.py`): OUTER leads to the host,
INNER to the switch. The frames have the kernel's own headers (PACKET_VNET_HDR), so they may be segments of 64 kB whose
checksums are not computed yet. It prints one line when it forwards.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

_PACKET, _ALL = 17, 3
_LEVEL, _MEMBERSHIP, _VNET_HEADER, _IGNORE_OUTGOING = 263, 1, 15, 23
_BUFFER_FORCE = 33
_LARGEST = 70_000
_HEADER, _ETHERNET = 10, 14
_RESET, _ACK = 0x04, 0x10


@dataclass
class Way:
    """One direction. waiting: frames, and when they leave."""

    come: socket.socket
    go: socket.socket
    delay: float
    lose: float
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)

    def put(self, frame: bytes, now: float) -> None:
        """A frame has come."""
        self.waiting.append((now + self.delay, frame))

    def leave(self, now: float) -> None:
        """Send what is due."""
        while self.waiting and self.waiting[0][0] <= now:
            with contextlib.suppress(OSError):  # as on a cable: what does not go is lost
                self.go.send(self.waiting.popleft()[1])


def interface(name: str) -> socket.socket:
    """A socket that sees each frame that comes to an interface, whatever its target."""
    made = socket.socket(_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    made.bind((name, 0))
    made.setsockopt(_LEVEL, _VNET_HEADER, 1)
    made.setsockopt(_LEVEL, _IGNORE_OUTGOING, 1)
    made.setsockopt(_LEVEL, _MEMBERSHIP, struct.pack("iHH8s", socket.if_nametoindex(name), 1, 0, b""))
    made.setsockopt(socket.SOL_SOCKET, _BUFFER_FORCE, 8 << 20)
    return made


def forward(ways: list[Way], reset_seconds: float, chance: random.Random, now: Callable[[], float]) -> None:
    """Forward for ever. reset_seconds: from one connection that is reset to the next; 0: none is."""
    following = now() + reset_seconds
    while True:
        due = [way.waiting[0][0] for way in ways if way.waiting]
        ready, _, _ = select.select([way.come for way in ways], [], [], max(0.0, min(due) - now()) if due else None)
        moment = now()
        for way, back in (ways, ways[::-1]):
            if way.come in ready:
                frame = way.come.recv(_LARGEST)
                if reset_seconds and moment >= following and (both := resets(frame)) is not None:
                    following = moment + reset_seconds
                    way.put(both[0], moment)
                    back.put(both[1], moment)
                elif chance.random() >= way.lose:
                    way.put(frame, moment)
            way.leave(moment)


def resets(frame: bytes) -> tuple[bytes, bytes] | None:
    """Frames that reset the connection of a frame, for its receiver and for its sender; None if it has no data of
    TCP."""
    ethernet, packet = frame[_HEADER : _HEADER + _ETHERNET], frame[_HEADER + _ETHERNET :]
    if ethernet[12:14] != b"\x08\x00" or packet[9] != socket.IPPROTO_TCP:
        return None
    ip = (packet[0] & 15) * 4
    length = struct.unpack("!H", packet[2:4])[0]
    source, target, sequence, acknowledged, offset, flags = struct.unpack("!HHIIBB", packet[ip : ip + 14])
    size = length - ip - (offset >> 4) * 4
    if size <= 0 or not flags & _ACK:
        return None
    here, there = packet[12:16], packet[16:20]
    ahead = _reset(ethernet, here, there, (source, target), sequence, acknowledged)
    turned = ethernet[6:12] + ethernet[:6] + ethernet[12:]
    return ahead, _reset(turned, there, here, (target, source), acknowledged, (sequence + size) % 2**32)


def _reset(ethernet: bytes, here: bytes, there: bytes, ports: tuple[int, int], sequence: int, ack: int) -> bytes:
    tcp = struct.pack("!HHIIBBHHH", *ports, sequence, ack, 5 << 4, _RESET | _ACK, 0, 0, 0)
    pseudo = here + there + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", _checksum(pseudo + tcp)) + tcp[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0, here, there)
    ip = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
    return bytes(_HEADER) + ethernet + ip + tcp


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main() -> None:
    """Forward until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outer")
    parser.add_argument("inner")
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--lose-out", type=float, default=0, help="share of the frames that the host sends")
    parser.add_argument("--lose-in", type=float, default=0, help="share of the frames for the host")
    parser.add_argument("--reset-seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outer, inner = interface(given.outer), interface(given.inner)
    delay = given.delay_ms / 1000
    ways = [Way(outer, inner, delay, given.lose_out), Way(inner, outer, delay, given.lose_in)]
    print("forwarding", flush=True)
    forward(ways, given.reset_seconds, random.Random(given.seed), time.monotonic)


if __name__ == "__main__":
    main()
