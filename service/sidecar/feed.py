"""The newest events of one view in one format, encoded once and shared by all subscribers that have caught up.

One task follows the epochs, encodes each outside the event loop, and wakes the subscribers in small groups, so that a
thousand subscribers do not delay a look-up. A subscriber has no queue: it holds its position, a frontier, and asks for
the chunk that begins there (`after`). The memory is bounded: older epochs are dropped when they exceed `kept_bytes`,
and a subscriber whose position is dropped is too slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.problems import about_damage
from vernier.service.views.view import Compacted, View
from vernier.storage.errors import Damaged

_WOKEN_TOGETHER = 32
_CHUNK_BYTES = 64 << 10
_CHUNKS_TOGETHER = 16

Events = Callable[[View, int, int], AsyncIterator[tuple[int, bytes]]]
"""(view, lower, upper) -> the encoded events of that interval, each with the frontier after it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive events. lower, upper: the data times that they cover; turn: the epoch advance that produced them."""

    lower: int
    upper: int
    events: bytes
    turn: int


class Feed:
    """The events of a view from its frontier at the start on, for one event loop.

    frontier: all events before it were published here. start: all events from here up to the frontier are still here.
    beats, beat: how often nothing happened for `heartbeat_s`, and the heartbeat to send then. ended: the (code, detail)
    with which all subscriptions end.
    """

    def __init__(
        self,
        view: View,
        follower: Follower,
        events: Events,
        heartbeat: Callable[[], bytes],
        *,
        heartbeat_s: float,
        kept_bytes: int,
    ) -> None:
        self.view, self.follower = view, follower
        self.frontier = self.start = view.frontier
        self.beats, self.beat = 0, b""
        self.ended: tuple[str, str] | None = None
        self.readers = 0
        self._events, self._heartbeat = events, heartbeat
        self._heartbeat_s, self._kept_bytes = heartbeat_s, kept_bytes
        self._chunks: dict[int, Chunk] = {}
        self._bytes = self._turn = self._turn_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    def after(self, position: int) -> Chunk | None:
        """The chunk that begins at that frontier; None if there is none (not yet, or no longer)."""
        return self._chunks.get(position)

    async def news(self) -> None:
        """Wait for news: chunks, a heartbeat, or the end. Check the state before and after."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    async def run(self) -> None:
        """Follow the epochs until the view changes its type, or the next changes are no longer available."""
        quiet = time.monotonic()
        while self.ended is None:
            seen = self.follower.snapshot
            state = seen.views.get(self.view.name) if seen is not None else self.view
            if seen is not None and state is None and self.view.name in seen.damaged:
                damage = seen.damaged[self.view.name]
                self.ended = (damage.code, about_damage(damage))
            elif state is None or state.stored != self.view.stored:
                about = f"the program has changed; view {self.view.name} was redefined or removed"
                self.ended = ("view_changed", about)
            elif state.frontier > self.frontier:
                try:
                    await self._publish(state)
                except Compacted as error:
                    self.ended = (error.code, str(error))
                except Damaged as error:
                    self.ended = (error.code, about_damage(error))
                quiet = time.monotonic()
            else:
                left = quiet + self._heartbeat_s - time.monotonic()
                if left > 0:
                    await self.follower.woken(left)
                else:
                    self.beats, self.beat = self.beats + 1, self._heartbeat()
                    quiet = time.monotonic()
            await self.wake()

    async def wake(self) -> None:
        """Wake all waiting subscribers, a few at a time."""
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _WOKEN_TOGETHER):
            for waiter in waiting[first : first + _WOKEN_TOGETHER]:
                if not waiter.done():
                    waiter.set_result(None)
            await asyncio.sleep(0)

    async def _publish(self, state: View) -> None:
        """Add what has become final, in chunks of many small events or one large event."""
        self._turn, self._turn_bytes = self._turn + 1, 0
        pending: list[bytes] = []
        size = made = 0
        lower = upper = self.frontier
        async for upper, event in self._events(state, self.frontier, state.frontier):
            pending.append(event)
            size += len(event)
            if size < _CHUNK_BYTES:
                continue
            self._add(state, lower, upper, b"".join(pending))
            lower, pending, size, made = upper, [], 0, made + 1
            if made % _CHUNKS_TOGETHER == 0:
                await self.wake()
        if pending:
            self._add(state, lower, upper, b"".join(pending))

    def _add(self, state: View, lower: int, upper: int, events: bytes) -> None:
        self._chunks[lower] = Chunk(lower, upper, events, self._turn)
        self._bytes += len(events)
        self._turn_bytes += len(events)
        self.view, self.frontier = state, upper
        # The newest epoch does not count, because a subscriber that has everything before it is not slow.
        while self._bytes - self._turn_bytes > self._kept_bytes:
            oldest = self._chunks.pop(self.start)
            self._bytes -= len(oldest.events)
            self.start = oldest.upper
