"""Compares what a live service answers, at any moment, with the answers recomputed from what it was sent."""

import random
import threading

from tests.live.service import Feeder, Service, wait_for
from tests.live.truth import Truth


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


def check(truth: Truth, samples: dict[int, dict[str, set[tuple[int, ...]]]]) -> None:
    """Every sample equals the recomputed answer as of its data time."""
    for as_of, rows in sorted(samples.items()):
        wanted = truth.answers(as_of)
        for view in wanted:
            assert rows[view] == wanted[view], f"{view} as of {as_of}"


class Watched:
    """A service that gets a graph in motion, whose answers are sampled from the first one on."""

    def __init__(self, service: Service, truth: Truth, *, partitions: int, rate: float, seed: int) -> None:
        self.service, self.truth = service, truth
        self.feeder = Feeder(service.bootstrap, partitions, rate, seed, truth)
        self.feeder.start()
        wait_for("the first answers", lambda: service.frontier() > 0)
        self.sampler = Sampler(service, seed)
        self.sampler.start()

    def goes_on(self, when: str) -> None:
        """Wait for answers with what was sent up to now."""
        sent = self.feeder.frontier
        wait_for(f"answers go on {when}", lambda: self.service.frontier() > sent)
        assert self.sampler.failure is None, self.sampler.failure

    def finish(self, least: int) -> int:
        """Stop sending, and check all samples, at least `least`, once everything is final. Returns the frontier."""
        self.feeder.stop()
        end = self.feeder.frontier
        wait_for("everything sent is final", lambda: self.service.frontier() >= end)
        self.sampler._keep(self.service.read(end - 1))
        assert self.sampler.finish() >= least
        check(self.truth, self.sampler.samples)
        return end
