"""The planner of this process: plans that are kept, and a Catalyst process for those that are not."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from vernier.service.errors import SparkFailed
from vernier.service.sql.kept import Kept, key_of
from vernier.service.toolchain.home import import_folder

Leaves = Mapping[str, Any]


class Planner:
    """Plans queries. It starts Catalyst with the first query that is not kept, and ends it with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.started = 0
        """How many times Catalyst was started."""

    def plan(self, query: str, leaves: Leaves, kept: Kept) -> dict[str, Any]:
        """What Catalyst says of a query (service/sql/catalyst.py): `plan`, `output` and `analysed`, or `error`."""
        key = key_of(query, leaves)
        found = kept.get(key)
        if found is None:
            found = self._ask({"query": query, "leaves": dict(leaves)})
            if "plan" in found:
                kept.put(key, found)
        return found

    def close(self) -> None:
        """End the Catalyst process, if it runs."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.communicate(timeout=20)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
            if not line:
                self._process = None
                raise SparkFailed(problem=f"Spark, which plans SQL, ended with status {process.wait()}; is Java there?")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise SparkFailed(problem=f"Spark cannot plan this query: {answer['failed']}")
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            from vernier.service.toolchain.java import java_home

            environment = {
                **os.environ,
                "JAVA_HOME": str(java_home()),
                "PYTHONPATH": os.pathsep.join([str(import_folder()), *sys.path]),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vernier.service.sql.catalyst"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("VERNIER_SQL_DEBUG") else subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env=environment,
                start_new_session=True,
            )
            self.started += 1
        return self._process


PLANNER = Planner()
atexit.register(PLANNER.close)
