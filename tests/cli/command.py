"""`vernier` as users run it: a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
VERNIER = (sys.executable, "-m", "vernier.service.cli.main")
PATIENCE = 800


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without settings of the person who runs the tests; our packages can be imported anywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VERNIER_")}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | dict(more or {})


def start(*words: object, cwd: Path, **about: object) -> subprocess.Popen[str]:
    """A running command."""
    return subprocess.Popen(
        [*VERNIER, *map(str, words)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **about,  # type: ignore[call-overload]
    )


def vernier(*words: object, cwd: Path, given: str | None = None, more: Mapping[str, str] | None = None) -> Done:
    """A command that has ended. more: further variables of its environment."""
    done = subprocess.run(
        [*VERNIER, *map(str, words)],
        cwd=cwd,
        env=environment(more),
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def succeed(commands: Sequence[Sequence[object]], cwd: Path) -> None:
    """Run commands, two at a time; all of them must succeed in silence."""
    waiting, running = list(commands), []
    try:
        while waiting or running:
            while waiting and len(running) < 2:
                running.append(start(*waiting.pop(0), cwd=cwd))
            process = running.pop(0)
            _, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, err) == (0, ""), process.args
    finally:
        for process in running:
            process.kill()
            process.communicate()
