"""Worker processes that wait in their kernels for small epochs: the same changes as one worker, whatever the epochs."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.cli.command import PATIENCE, ROOT, environment

SECONDS, MOST_SWITCHES = 2.0, 200


def start(*words: object) -> subprocess.Popen[str]:
    """Epochs in a process of their own: it forks."""
    command = [sys.executable, "-m", "tests.cli.led", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)


def ran(workers: int, seed: int, *how: str) -> Any:
    """The changes of all epochs, and of each its kind and whether worker 0 led it."""
    process = start(workers, seed, *how)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return json.loads(out)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_led_epochs_and_others_change_the_same(workers: int, seed: int) -> None:
    expected, kinds = ran(1, seed)
    found, how = ran(workers, seed)
    assert found == expected
    assert [kind for kind, _ in how] == [kind for kind, _ in kinds]
    # After an epoch that kernels could not run, they pause for one.
    assert sum(led for _, led in how) >= 8, how
    assert all(kind == "small" for kind, led in how if led), how


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", range(3, 6))
def test_epochs_that_are_too_long_for_one_slice_change_the_same(workers: int, seed: int) -> None:
    expected, _ = ran(1, seed, "short")
    found, how = ran(workers, seed, "short")
    assert found == expected
    assert any(led for _, led in how)


@pytest.fixture
def idle() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A process that has had its epochs, and its other workers, which wait for the next."""
    process = start(3, 1, "idle")
    assert process.stdout is not None
    assert process.stdout.readline()
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    yield process, children
    process.kill()
    process.wait(PATIENCE)
    process.stdout.close()
    psutil.wait_procs(children, PATIENCE)


def test_workers_that_wait_sleep(idle: tuple[subprocess.Popen[str], list[psutil.Process]]) -> None:
    _, children = idle
    time.sleep(SECONDS)
    before = [sum(child.num_ctx_switches()) for child in children]
    time.sleep(SECONDS)
    after = [sum(child.num_ctx_switches()) for child in children]
    assert all(b - a < MOST_SWITCHES for a, b in zip(before, after, strict=True)), (before, after)


def test_workers_that_wait_end_with_their_parent(idle: tuple[subprocess.Popen[str], list[psutil.Process]]) -> None:
    process, children = idle
    process.kill()
    assert psutil.wait_procs(children, PATIENCE)[1] == []
