"""Small epochs to commit: each adds one batch that holds the epoch's number."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from vernier.storage.blob.segment import Entry
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry
from vernier.storage.state.state import StateDirectory

SPAN = {"updates": 1, "lower": 0, "upper": 1, "since": 0}


def entry(label: str, number: int, size: int = 1) -> Entry:
    return Entry(label, SPAN, {"numbers": np.full(size, number)})


def manifest(epoch: int, refs: list[BatchRef], attempt: str = "a") -> Manifest:
    return Manifest(
        epoch=epoch,
        attempt=attempt,
        lower=epoch,
        upper=epoch + 1,
        committed_ns=epoch,
        workers=1,
        app="app",
        program="p",
        traces={"t": TraceEntry(1, 0, 0, [refs])},
    )


def commit(state: StateDirectory, epoch: int, kept: list[BatchRef] | None = None) -> list[BatchRef]:
    """Commit an epoch with one new batch, whose number is the epoch, after `kept` ones; returns all references."""
    refs = [*(kept or []), *state.write(epoch, "a", 0, [entry("t", epoch)])]
    state.commit(manifest(epoch, refs))
    return refs


def numbers(state: StateDirectory, found: Manifest) -> list[int]:
    """What the batches of a manifest hold, verified."""
    refs = [ref for trace in found.traces.values() for shard in trace.shards for ref in shard]
    return [int(state.open(ref.segment).entry(ref.label).arrays["numbers"][0]) for ref in refs]


def names(path: Path, folder: str) -> list[str]:
    return sorted(os.listdir(path / folder))


def start(program: str, path: Path) -> subprocess.Popen[str]:
    """Start a process of Python and wait until it says something."""
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process
