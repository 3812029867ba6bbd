"""The live service against recompute-from-scratch: while it runs, and while its processes are killed again and
again."""

import random
import threading
from pathlib import Path

import httpx
import pytest

from tests.live.service import Feeder, Service, wait_for
from tests.live.truth import Truth

KILLS = 10
"""Of each of the four kinds of process."""


class Sampler(threading.Thread):
    """Asks for answers all the time and keeps them with their data times."""

    def __init__(self, service: Service, seed: int) -> None:
        super().__init__(daemon=True)
        self.service, self.chance = service, random.Random(seed)
        self.samples: dict[int, dict[str, set[tuple[int, ...]]]] = {}
        self.stopped = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Every few milliseconds the newest answers, and sometimes those of an earlier time."""
        try:
            while not self.stopped.wait(0.03):
                earlier = self.chance.choice(sorted(self.samples)) if self.samples else None
                self._keep(self.service.read())
                if earlier is not None and self.chance.random() < 0.3:
                    self._keep(self.service.read(earlier - self.chance.randrange(2)))
        except BaseException as error:
            self.failure = error

    def _keep(self, sample: tuple[int, dict[str, set[tuple[int, ...]]]] | None) -> None:
        if sample is not None:
            known = self.samples.setdefault(*sample)
            assert known == sample[1], f"two answers for data time {sample[0]}"

    def finish(self) -> int:
        """Stop; returns how many different data times were seen."""
        self.stopped.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure
        return len(self.samples)


def _check(truth: Truth, samples: dict[int, dict[str, set[tuple[int, ...]]]]) -> None:
    """Every sample equals the recomputed answer as of its data time."""
    for as_of, rows in sorted(samples.items()):
        wanted = truth.answers(as_of)
        for view in wanted:
            assert rows[view] == wanted[view], f"{view} as of {as_of}"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("workers", [1, 2])
def test_every_sampled_answer_is_the_recomputed_one(tmp_path: Path, workers: int) -> None:
    truth = Truth()
    with Service(tmp_path, workers) as service:
        feeder = Feeder(service.bootstrap, workers, 400, workers, truth)
        feeder.start()
        wait_for("the first answers", lambda: service.frontier() > 0)
        sampler = Sampler(service, workers)
        sampler.start()
        wait_for("a hundred samples", lambda: len(sampler.samples) >= 100 or sampler.failure)
        feeder.stop()
        end = feeder.frontier
        wait_for("everything sent is final", lambda: service.frontier() >= end)
        sampler._keep(service.read(end - 1))
        assert sampler.finish() >= 100
        _check(truth, sampler.samples)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(1500)
def test_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    truth = Truth()
    chance = random.Random(7)
    with Service(tmp_path, 2) as service:
        feeder = Feeder(service.bootstrap, 2, 200, 7, truth)
        feeder.start()
        wait_for("the first answers", lambda: service.frontier() > 0)
        sampler = Sampler(service, 7)
        sampler.start()
        kills = ["worker", "driver", "sidecar", "broker"] * KILLS
        chance.shuffle(kills)
        for role in kills:
            threading.Event().wait(chance.random())  # any moment will do: no result depends on it
            service.kill(role, chance)
            sent = feeder.frontier
            wait_for(f"answers go on after the kill of a {role}", lambda: service.frontier() > sent)  # noqa: B023
            assert sampler.failure is None, sampler.failure
        feeder.stop()
        end = feeder.frontier
        wait_for("everything sent is final", lambda: service.frontier() >= end)
        sampler._keep(service.read(end - 1))
        assert sampler.finish() >= len(kills)
        _check(truth, sampler.samples)
        letters = httpx.get(f"{service.url}/v1/dead-letters").json()
        assert not letters.get("dead_letters"), letters
