"""Runs queries: small ones at once, longer ones in a few threads, so that they do not delay other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vernier.service.views.deadline import NEVER, Deadline, TooSlow

Result = TypeVar("Result")


class Queries:
    """Runs work with a deadline. threads: how many queries run at once; waiting for a thread counts towards the
    deadline.
    """

    def __init__(self, threads: int, query_ms: int) -> None:
        self.query_ms = query_ms
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="query")

    async def run(self, small: bool, work: Callable[[Deadline], Result]) -> Result:
        """Return the work's result; `small` work runs at once. Raises TooSlow, and what the work raises."""
        if small:
            return work(NEVER)
        deadline = Deadline(self.query_ms)
        running = asyncio.get_running_loop().run_in_executor(self._pool, work, deadline)
        try:
            return await asyncio.wait_for(running, deadline.seconds)
        except TimeoutError:
            raise TooSlow(ms=self.query_ms) from None
        finally:
            # The work may continue in its thread until its next check of the deadline.
            deadline.give_up()

    def close(self) -> None:
        """Accept no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
