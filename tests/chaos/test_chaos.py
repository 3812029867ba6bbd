"""The service under load, faults and hostile messages for ten minutes; see bench/chaos."""

import os

import pytest

from bench.chaos.run import Plan, run


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.live
@pytest.mark.timeout(3000)
def test_ten_minutes_of_faults_change_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """CHAOS_SEED repeats the faults of a run that failed."""
    seed = int(os.environ.get("CHAOS_SEED", "15"))
    with capsys.disabled():
        report = run(Plan(600, seed), lambda text: print(f"chaos: {text}", flush=True))
    assert not report.findings.wrong, f"seed {seed}: {report.findings.wrong}"
    assert report.findings.compared["samples"] > 100
    assert report.findings.compared["published changes"] > 1_000
    assert report.findings.compared["dead letters"] == report.numbers["hostile"] > 10
