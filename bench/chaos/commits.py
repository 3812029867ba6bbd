"""Commits: follows the epochs of a service through all its sidecars, and when each was seen."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from bisect import bisect_left
from itertools import pairwise

import httpx

POLL_SECONDS = 0.2
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 5.0
"""A pause that is shorter needs no explanation."""
MOST_REASONS = 8
_NUMBER = re.compile(r"\d[\d.]*")


class Commits:
    """Asks each sidecar in a thread of its own. urls: the sidecars' addresses."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.epoch = 0
        self.newest: int | None = None
        """The newest frontier."""
        self.stopped = threading.Event()
        self._times: list[float] = []
        self._frontiers: list[int] = []
        self._answered: dict[str, float] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin."""
        for url in self.urls:
            threading.Thread(target=self._follow, args=(url,), name=f"commits {url}", daemon=True).start()

    @property
    def answering(self) -> list[str]:
        """The sidecars that have answered lately; all if there is none."""
        since = time.monotonic() - 2 * POLL_SECONDS - ANSWER_SECONDS / 2
        return [url for url in self.urls if self._answered.get(url, 0.0) >= since] or self.urls

    def first(self, since_ns: int) -> tuple[float, int] | None:
        """(monotonic time, frontier) of the first commit whose frontier is beyond a data time."""
        with self._lock:
            at = bisect_left(self._frontiers, since_ns + 1)
            return (self._times[at], self._frontiers[at]) if at < len(self._times) else None

    def longest(self, began: float, ended: float) -> float:
        """The longest time between two commits, from the last one before `began` to the first one after `ended`."""
        with self._lock:
            low, high = bisect_left(self._times, began), bisect_left(self._times, ended)
            times = self._times[max(0, low - 1) : high + 1]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    @property
    def age(self) -> float:
        """Seconds since the last commit was seen; 0 if there was none."""
        with self._lock:
            return time.monotonic() - self._times[-1] if self._times else 0.0

    def _follow(self, url: str) -> None:
        with httpx.Client(timeout=ANSWER_SECONDS) as client:
            while not self.stopped.wait(POLL_SECONDS):
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    answer = client.get(f"{url}/v1/frontiers")
                    if answer.status_code == 200:
                        self._see(url, answer.json())

    def _see(self, url: str, said: dict[str, object]) -> None:
        now = time.monotonic()
        upper = said["upper"]
        with self._lock:
            self._answered[url] = now
            epoch = int(str(said["epoch"]))
            if epoch <= self.epoch or not isinstance(upper, list) or not upper:
                return
            self.epoch, self.newest = epoch, int(upper[0])
            self._times.append(now)
            self._frontiers.append(int(upper[0]))


class Told(threading.Thread):
    """Whether the service says why it makes no commits: asks all its sidecars for /readyz during a pause.

    unsaid: the longest time without a commit and without a reason, beyond `PAUSE_SECONDS`; reasons: those that were
    given, each once, with N for its numbers.
    """

    def __init__(self, commits: Commits) -> None:
        super().__init__(name="told", daemon=True)
        self.unsaid = 0.0
        self.reasons: list[str] = []
        self._commits, self._ended = commits, threading.Event()

    def run(self) -> None:
        """Look until `finish`."""
        heard = time.monotonic()
        while not self._ended.wait(POLL_SECONDS):
            now = time.monotonic()
            if self._commits.age < PAUSE_SECONDS or self._reason():
                heard = now
            self.unsaid = max(self.unsaid, now - heard)

    def finish(self) -> None:
        """End."""
        self._ended.set()
        self.join()

    def _reason(self) -> bool:
        for url in self._commits.answering:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                answer = httpx.get(f"{url}/readyz", timeout=ANSWER_SECONDS / 2)
                if answer.status_code == 503:
                    for one in answer.json().get("laggards", []):
                        reason = _NUMBER.sub("N", f"{one.get('laggard')}: {one.get('why')}".partition(";")[0])
                        if reason not in self.reasons and len(self.reasons) < MOST_REASONS:
                            self.reasons.append(reason)
                    return True
        return False
