"""Queries: small answers are made at once, longer ones in a few threads, so that they do not hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vernier.service.views.deadline import NEVER, Deadline, TooSlow

Result = TypeVar("Result")


class Queries:
    """Runs work with a deadline. threads: how many run at once; the time that a query waits for one counts, too."""

    def __init__(self, threads: int, query_ms: int) -> None:
        self.query_ms = query_ms
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="query")

    async def run(self, small: bool, work: Callable[[Deadline], Result]) -> Result:
        """What the work gives; `small` work at once. Raises TooSlow, and what the work raises."""
        if small:
            return work(NEVER)
        deadline = Deadline(self.query_ms)
        running = asyncio.get_running_loop().run_in_executor(self._pool, work, deadline)
        try:
            return await asyncio.wait_for(running, deadline.seconds)
        except TimeoutError:
            raise TooSlow(ms=self.query_ms) from None
        finally:
            # It may go on in its thread, up to the next of its steps.
            deadline.give_up()

    def close(self) -> None:
        """Take no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
