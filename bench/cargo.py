"""The peers in Rust: crates under bench/peers, built with cargo into build/peers."""

import shutil
import subprocess
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
BUILD = Path(__file__).resolve().parent.parent / "build" / "peers"


class CannotBuild(Exception):
    """A peer that this machine cannot build; the message says why."""


def built(name: str) -> Path:
    """The program of the crate bench/peers/NAME, built if it has changed. Raises CannotBuild."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise CannotBuild("no cargo here")
    # A copy, so that cargo writes nothing into the source tree; kept, so that it builds once.
    source = BUILD / name
    for file in sorted((PEERS / name).rglob("*")):
        copy = source / file.relative_to(PEERS / name)
        # Files that are equal are not copied: cargo goes by modification times, which git changes needlessly.
        if file.is_file() and not (copy.is_file() and copy.read_bytes() == file.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    command = [cargo, "build", "--release", "--quiet", "--target-dir", str(BUILD / "target")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotBuild((done.stderr.strip() or "cargo failed").splitlines()[-1])
    return BUILD / "target" / "release" / f"vernier-peer-{name}"
