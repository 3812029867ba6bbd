"""The service under load, faults and hostile messages; see bench/chaos."""

import os

import pytest

from bench.chaos.run import Plan, run
from tests.profiles import NIGHTLY

MINUTES = 10 if NIGHTLY else 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.live
@pytest.mark.timeout(3000)
def test_minutes_of_faults_change_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """CHAOS_SEED repeats the faults of a run that failed."""
    seed = int(os.environ.get("CHAOS_SEED", "15"))
    with capsys.disabled():
        report = run(Plan(60 * MINUTES, seed), lambda text: print(f"chaos: {text}", flush=True))
    assert not report.findings.wrong, f"seed {seed}: {report.findings.wrong}"
    assert report.findings.compared["samples"] > 10 * MINUTES
    assert report.findings.compared["published changes"] > 100 * MINUTES
    assert report.findings.compared["dead letters"] == report.numbers["hostile"] > MINUTES
