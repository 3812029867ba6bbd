"""Plans that are kept, by the text of the query, the columns of its leaves and the versions that made it.

They lie in `VERNIER_SQL_PLANS`, if that is set, else in `.vernier` beside the program if it is there, else in the cache
folder. A file is written whole and renamed, so several processes may plan at once. A file that cannot be read counts as
missing.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import xxhash

from vernier.operators.sql.trees import compact
from vernier.service.toolchain.home import cache_folder

FORMAT = 5
"""Version of what a plan on disk means; raise it when catalyst.py asks Catalyst for something else."""
FOLDER = ".vernier"
VARIABLE = "VERNIER_SQL_PLANS"


def spark_version() -> str:
    """The installed PySpark's version, without importing it."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "none"


def key_of(query: str, leaves: Mapping[str, Any]) -> str:
    """The name of a plan."""
    parts = json.dumps([FORMAT, spark_version(), query, sorted(leaves.items())], sort_keys=True)
    return xxhash.xxh3_128_hexdigest(parts.encode())


def folder_of(program: str) -> Path:
    """Where the plans of a program are kept. program: its file, or a name in place of one."""
    if (given := os.environ.get(VARIABLE)) is not None:
        return Path(given)
    beside = Path(program).parent / FOLDER
    return beside if Path(program).is_file() and beside.is_dir() else cache_folder() / "sql"


class Kept:
    """The plans of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """A plan, or None."""
        with contextlib.suppress(OSError, ValueError, EOFError):
            found: dict[str, Any] = json.loads(gzip.decompress((self.folder / f"{key}.json.gz").read_bytes()))
            return found
        return None

    def put(self, key: str, plan: Mapping[str, Any]) -> None:
        """Keep a plan. A folder that cannot be written is no error: the next process plans again."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part = self.folder / f"{key}.{os.getpid()}.part"
            part.write_bytes(gzip.compress(json.dumps(compact(dict(plan))).encode(), mtime=0))
            part.rename(self.folder / f"{key}.json.gz")
