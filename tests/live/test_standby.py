"""Two services on one state: one makes epochs, the other stands by and takes over when the first one's host dies."""

import contextlib
import random
import time
from pathlib import Path

import httpx
import pytest

from tests.live.service import Feeder, Service, wait_for
from tests.live.truth import Truth
from tests.live.watched import Sampler, check
from tests.profiles import NIGHTLY
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.status import standby
from vernier.storage.blob.location import BlobLocation

TAKEOVERS = 3 if NIGHTLY else 1


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_standby_takes_over_and_loses_nothing(tmp_path: Path) -> None:
    truth, chance = Truth(), random.Random(5)
    state = tmp_path / "state"

    def service(number: int) -> Service:
        folder = tmp_path / f"host-{number}"
        folder.mkdir(exist_ok=True)
        return Service(
            folder,
            1,
            kafka={"bootstrap": broker.bootstrap},
            state={"path": str(state), "standby": True, "scratch": str(folder / "scratch")},
            log={"directory": str(folder / "logs")},
        )

    def stands_by() -> list[str]:
        return standby.living(BlobLocation.of(state).open())

    with EmbeddedBroker(tmp_path / "kafka") as broker, contextlib.ExitStack() as hosts:
        broker.create_topics({"graph": 1})
        active = hosts.enter_context(service(0))
        assert not stands_by()
        feeder = Feeder(broker.bootstrap, 1, 200, 5, truth)
        feeder.start()
        wait_for("the first answers", lambda: active.frontier() > 0)
        seconds, samplers = [], []
        for number in range(1, 1 + TAKEOVERS):
            waiting = hosts.enter_context(service(number))
            wait_for("the other one stands by", stands_by)
            log = waiting.folder / "up.log"
            wait_for("its supervisor says so", lambda log=log: "driver: standby" in log.read_text())
            samplers.append(Sampler(waiting, number))
            samplers[-1].start()
            wait_for("samples of both", lambda one=samplers[-1]: len(one.samples) >= 10 or one.failure)
            active.kill_all()
            active.process = None
            began, before = time.monotonic(), waiting.frontier()
            wait_for("the standby makes epochs", lambda one=waiting, since=before: one.frontier() > since + 10**9)
            seconds.append(time.monotonic() - began)
            assert not stands_by()
            wait_for("its supervisor says that, too", lambda log=log: "driver: took over" in log.read_text())
            active = waiting
        # A driver that dies alone comes back as a standby if there is another one, or else goes on.
        other = hosts.enter_context(service(9))
        wait_for("one stands by", stands_by)
        killed = active.kill("driver", chance)
        before = other.frontier()
        wait_for("the other one makes epochs", lambda: other.frontier() > before + 10**9)
        wait_for("the first one stands by", lambda: [name for name in stands_by() if str(killed) not in name])
        feeder.stop()
        end = feeder.frontier
        wait_for("everything sent is final", lambda: other.frontier() >= end)
        for sampler in samplers:
            sampler.finish()
            check(truth, sampler.samples)
        last = other.read(end - 1)
        assert last is not None
        check(truth, dict([last]))
        assert active.read(end - 1) == last, "sidecars of two hosts answer alike"
        assert httpx.get(f"{active.url}/readyz", timeout=5).status_code == 200
    print("takeovers, seconds to the next second of answers:", [round(one, 1) for one in seconds])
