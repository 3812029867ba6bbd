"""The flows of bench.flows hold as much at the end as at the beginning; without compaction they hold all events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("more", [(), ("--open", "--flows", "pairs", "--pauses", "100us")])
def test_the_state_stays(more: tuple[str, ...], tmp_path: Path) -> None:
    plot = tmp_path / "flows.png"
    command = ["--events", "1000", "--batch", "50", "--delays", "10ms", "--plot", str(plot), *more]
    ran = subprocess.run([sys.executable, "-m", "bench.flows", *command], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    for one in map(json.loads, ran.stdout.splitlines()):
        compacted, plain = ([tenth["updates"] for tenth in one[form]["tenths"]] for form in ("compacted", "plain"))
        assert len(compacted) == len(plain) == 10
        # The last six tenths have 600 events. Epochs of open runs are cut by the clock, which moves a few of the
        # updates that wait.
        assert plain[-1] - plain[3] >= 480
        assert compacted[-1] - compacted[3] <= 120
    assert plot.exists()
    assert ran.stderr.count("compacted") >= 1
