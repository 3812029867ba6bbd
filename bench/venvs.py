"""Pathway, in a separate environment under build/, created when a benchmark needs it."""

import subprocess
import venv
from pathlib import Path

from bench.cargo import BUILD, CannotBuild

PATHWAY = "pathway==0.33.0"


def pathway() -> Path:
    """The Python that has Pathway. Raises CannotBuild when it cannot be installed."""
    folder = BUILD / PATHWAY
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PATHWAY]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotBuild((done.stderr.strip() or "pip failed").splitlines()[-1])
        ready.touch()
    return python
