"""The folder for what Vernier makes on a machine: in the checkout that it runs from, else in the user's
cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def checkout() -> Path | None:
    """The checkout that this code belongs to, or None for an installed package."""
    return ROOT if (ROOT / "pyproject.toml").is_file() else None


def import_folder() -> Path:
    """The folder that `import vernier` finds it in, for other processes' PYTHONPATH: the checkout, or site-packages."""
    return ROOT if (ROOT / "vernier.py").is_file() else ROOT.parent


def cache_folder() -> Path:
    """The folder of caches that outlive a run: `.make` of the checkout, else `$XDG_CACHE_HOME/vernier`."""
    if (root := checkout()) is not None:
        return root / ".make"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vernier"


def settle_caches() -> None:
    """Let an installed package store compiled kernels in the user's cache folder. Call before numba is imported."""
    if checkout() is None:
        os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "compiled"))
