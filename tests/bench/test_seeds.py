"""Each experiment of the articles runs at a toy size and makes its tables and its picture. Experiments compare their
answers themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.forms import LowResolution, low_resolution_bytes
from bench.record import ROOT
from bench.seeds.__main__ import EXPERIMENTS
from bench.seeds.representations import curve
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Updates


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.seeds", "--only", name, "--scale", "0.002", "--plots", str(tmp_path)]
    # without cargo, so that no peer is built
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "BENCH_RESULTS": str(tmp_path)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    (key, run), *others = json.loads((tmp_path / "seeds.json").read_text("utf-8"))["runs"].items()
    assert (key, others) == (f"{name} --scale 0.002", [])
    assert run["values"] == json.loads(ran.stdout)
    for table in run["tables"].values():
        assert table["rows"]
        assert {len(row) for row in table["rows"]} == {len(table["head"])}
    assert (tmp_path / f"seeds-{name}.png").exists()


def test_the_formulas_are_those_of_the_article() -> None:
    """16 bytes a key and val and update; ours elides what is constant, so it has less than the formulas say."""
    one_time, _, own, *_ = curve(800)
    assert own["raw_bytes"] == one_time["raw_bytes"] == 32
    assert 32 < own["trie_bytes"] < 48
    assert one_time["key_first_bytes"] == pytest.approx(one_time["elided_bytes"], abs=0.1)  # one time and one diff more
    assert one_time["key_first_bytes"] < own["key_first_bytes"] < own["trie_bytes"]


def test_low_resolution_takes_what_is_said_of_it() -> None:
    rows = [(i // 3, i) for i in range(600)]
    for times in (1, 7, 300):
        updates = Updates.of(rows, [i % times for i in range(600)], 1)
        batch = Batch.build(updates, 1, 0, times, 0)
        assert low_resolution_bytes(batch) == LowResolution.of(batch).nbytes + batch.diffs.nbytes
