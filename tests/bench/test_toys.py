"""Every benchmark runs to its end at a toy size and says one line of JSON. What it measures here means nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import FULL, SHORT

ROOT = Path(__file__).resolve().parents[2]
RACE = ["--nodes", "50", "--edges", "100", "--batch", "10", "--updates", "40"]
TOYS: dict[str, list[str]] = {
    "race": [*RACE, "--turns", "1", "--players", "vernier,vernier*2,vernier/batch"],
    "sustained": ["--nodes", "50", "--edges", "100", "--updates", "2000", "--window", "100", "--players", "vernier"],
    "profile": [*RACE],
    "engine": [*RACE],
    "linear": ["--rows", "16", "--repeat", "2"],
    "scanner": ["--rows", "100", "--rounds", "1"],
    "storage": ["--edges", "4000", "--batch", "500", "--keys", "20"],
    "steady": ["--epochs", "20", "--warm", "10", "--batch", "10", "--window", "500", "--runs", "1"],
    "memory": ["--edges", "5000", "--epochs", "5", "--batch", "50"],
    "restart": ["--sizes", "1000"],
    "sharing": ["--friendships", "500", "--asks", "5", "--epochs", "5"],
    "flows": ["--events", "400", "--batch", "50", "--delays", "20ms"],
    "seeds": ["--only", "people", "--scale", "0.002"],
    "sql": ["--scale", "0.001", "--queries", "6", "--sizes", "1,10", "--no-spark"],
    "nexmark": ["--events", "400", "--files", "2", "--queries", "2"],
    "recursion": ["--nodes", "30", "--edges", "60", "--batches", "10", "--updates", "30", "--programs", "material"],
    "commit": ["--epochs", "6", "--batches", "3", "--updates", "20"],
    "exchange": ["--rounds", "20", "--runs", "1"],
    "skew": ["--workers", "2", "--updates", "4000", "--epochs", "2"],
    "groups": ["--updates", "300", "--rows", "500", "--epochs", "20", "--turns", "1"],
    "handshake": ["--attempts", "2", "--connections", "2"],
    "stores": ["--edges", "1000", "--epochs", "17", "--batch", "100"],
}
BROKERED: dict[str, list[str]] = {
    "producer": ["--seconds", "2", "--rate", "200", "--rows", "2000", "--policies", "1ms,records(1024)"],
}
SERVED: dict[str, list[str]] = {
    "spark_reads": ["--rows", "2000", "--turns", "1"],
    "door": ["--rows", "1000", "--rounds", "1", "--formats", "json,insert_delete,debezium,arrow"],
    "through": ["--nodes", "50", "--edges", "100", "--batch", "2000", "--batches", "4"],
    "sparks": ["--rows", "500", "--batches", "2"],
    "idle": ["--workers", "1", "--epochs", "2"],
    "freshness": ["--seconds", "3", "--warm", "2", "--rate", "100"],
}
NIGHTLY: dict[str, list[str]] = {
    "scale": ["--measure", "--check", "--loose", "--turns", "1", "--workers", "2,8", "--epochs", "3"],
    "changes": [
        "--rows",
        "5000",
        "--accounts",
        "500",
        "--changes",
        "5",
        "--kill-at",
        "2",
        "--base-epochs",
        "5",
        "--most",
        "0",
    ],
    "checkpoints": ["--epochs", "5"],
    "rescale": [
        "--rows",
        "5000",
        "--accounts",
        "500",
        "--workers",
        "1,2,3,1",
        "--kill-at",
        "2",
        "--kill-worker-at",
        "3",
        "--base-epochs",
        "5",
        "--most",
        "0",
    ],
    "snapshots": ["--rows", "20000", "--nodes", "1000", "--changes", "500", "--kills", "1"],
    "failover": ["--kills", "1"],
    "burst": ["--rate", "20", "--times", "5", "--seconds", "2", "--calm", "4"],
    "capacity": ["--seconds", "2", "--rates", "100"],
    "fanout": ["--seconds", "2", "--subscribers", "10", "--changes", "20"],
    "load": ["--seconds", "6", "--warm", "1", "--rate", "100", "--subscribers", "5", "--slow", "1"],
    "soak": ["--seconds", "10", "--warm", "1", "--rate", "100", "--every", "1"],
}


def run(name: str, arguments: list[str], folder: Path) -> list[Any]:
    """What the benchmark says, as a person calls it. Its temporary files are in the folder."""
    command = [sys.executable, "-m", f"bench.{name}", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, f"{' '.join(command[1:])}: {ran.stderr[-3000:]}"
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def test_every_benchmark_has_a_toy() -> None:
    """Chaos has tests of its own (tests/chaos)."""
    assert {*TOYS, *BROKERED, *SERVED, *NIGHTLY, "chaos"} == SHORT.keys() == FULL.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", TOYS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    assert run(name, TOYS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("name", BROKERED)
def test_it_runs_with_a_broker(name: str, tmp_path: Path) -> None:
    assert run(name, BROKERED[name], tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SERVED)
def test_it_runs_with_a_service(name: str, tmp_path: Path) -> None:
    assert run(name, SERVED[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NIGHTLY)
def test_it_runs_with_a_service_of_its_own_for_a_while(name: str, tmp_path: Path) -> None:
    assert run(name, NIGHTLY[name], tmp_path)


def test_an_unknown_name_is_refused() -> None:
    ran = subprocess.run([sys.executable, "-m", "bench", "none"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "no benchmark none" in ran.stderr
