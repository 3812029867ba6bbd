"""Watch: observes a service during the run: samples for the truth, the age of answers, memory."""

from __future__ import annotations

import json
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from bench.chaos.memory import Peaks
from bench.chaos.truth import VIEWS, Answers
from bench.chaos.verify import row_of
from tests.live.service import Service

REACH_NS = 90 * 10**9
"""How far back samples are requested: well within what the program retains, even while processes are stopped."""
ALLOWED = frozenset({200, 409, 410, 503})


class Watch(threading.Thread):
    """Queries at regular intervals. oldest: the greatest age of an answer in seconds; wrong: the errors."""

    def __init__(self, service: Service, peaks: Peaks, seed: int, every: float = 0.4) -> None:
        super().__init__(name="watch", daemon=True)
        self.service, self.peaks, self._every = service, peaks, every
        self._chance = random.Random(f"watch {seed}")
        self._samples: dict[int, bytes] = {}
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.frontier = 0
        self.oldest = 0.0
        self.aging = False
        """Set when there are answers: from then on their age counts."""
        self.stopped = threading.Event()
        self._client = httpx.Client(timeout=10)

    def run(self) -> None:
        """Query until stopped."""
        turn = 0
        while not self.stopped.wait(self._every):
            turn += 1
            earlier = None
            if self.frontier and self._chance.random() < 0.5:
                earlier = self.frontier - 1 - self._chance.randrange(REACH_NS)
            try:
                self.sample(earlier)
            except (httpx.HTTPError, json.JSONDecodeError):
                self.statuses[0] += 1
            except Exception as error:
                self.wrong.append(f"a sample: {error!r}")
            if self.aging:
                self.oldest = max(self.oldest, (time.time_ns() - self.frontier) / 1e9)
            if turn % 5 == 0:
                self.peaks.look(self.service.family())
        self._client.close()

    def sample(self, as_of: int | None) -> None:
        """All views at one time; two answers for one time must be the same."""
        params = {"views": ",".join(VIEWS), "limit": "100000"}
        if as_of is not None:
            params["as_of"] = str(as_of)
        answer = self._client.get(f"{self.service.url}/v1/read", params=params)
        self.statuses[answer.status_code] += 1
        if answer.status_code not in ALLOWED:
            self.wrong.append(f"GET /v1/read: {answer.status_code} {answer.text[:200]}")
        if answer.status_code != 200:
            return
        body = answer.json()
        if any(view.get("next_cursor") for view in body["views"].values()):
            raise ValueError("an answer is longer than a page")
        self.frontier = max(self.frontier, int(body["frontier"]))
        rows = {view: sorted(json.dumps(row) for row in body["views"][view]["rows"]) for view in VIEWS}
        packed = zlib.compress(json.dumps(rows).encode())
        known = self._samples.setdefault(int(body["as_of"]), packed)
        if known != packed:
            self.wrong.append(f"two answers for data time {body['as_of']}")

    @property
    def samples(self) -> Mapping[int, Answers]:
        """By data time, as collections; unpacked one by one."""
        return _Unpacked(self._samples)


class _Unpacked(Mapping[int, Answers]):
    def __init__(self, packed: dict[int, bytes]) -> None:
        self._packed = packed

    def __getitem__(self, time: int) -> Answers:
        said: dict[str, list[str]] = json.loads(zlib.decompress(self._packed[time]))
        found: Answers = {}
        for view, rows in said.items():
            found[view] = Counter()
            for text in rows:
                row: dict[str, Any] = json.loads(text)
                found[view][row_of(view, row)] += row.get("_diff", 1)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)
