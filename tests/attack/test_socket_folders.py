"""A scratch folder may have a path of any length: Spark's Python workers start with it."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vernier.service.coordinator.session import LONGEST_SOCKET_FOLDER

_SESSION = """
import sys
from pathlib import Path
from vernier.service.config.settings import load
from vernier.service.coordinator.session import start_session

spark = start_session(load(None, {"workers": 1}, {}).settings, "folders", Path(sys.argv[1]))
print("enabled:", spark.conf.get("spark.python.unix.domain.socket.enabled"))
print("sum:", spark.sparkContext.parallelize([1, 2], 1).map(lambda n: n + 1).sum())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("more", "sockets"), [(0, "true"), (1, "false"), (4, "false"), (80, "false")])
def test_python_workers_start_whatever_the_folder_is_called(more: int, sockets: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s-") as short:
        folder = Path(short) / ("x" * (LONGEST_SOCKET_FOLDER + more - len(short) - 1))
        folder.mkdir()
        ran = subprocess.run([sys.executable, "-c", _SESSION, str(folder)], capture_output=True, text=True)
    assert f"enabled: {sockets}\n" in ran.stdout, ran.stderr[-2000:]
    assert "sum: 5\n" in ran.stdout, ran.stderr[-2000:]
