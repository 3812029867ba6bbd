"""A run's folder: its own while it runs, gone when it ends or, where it was killed, at the next start."""

import subprocess
import sys
from pathlib import Path

from vernier.service.files.scratch import Scratch

HOLDER = """
import sys
from pathlib import Path
from vernier.service.files.scratch import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / "file").touch()
print(scratch.path, flush=True)
sys.stdin.read()
"""


def folders(root: Path) -> list[Path]:
    return sorted(one for one in root.iterdir() if one.is_dir())


def test_a_run_removes_its_own_folder_alone(tmp_path: Path) -> None:
    one, two = Scratch(tmp_path / "scratch"), Scratch(tmp_path / "scratch")
    assert folders(tmp_path / "scratch") == sorted((one.path, two.path))
    assert one.path.stat().st_mode & 0o777 == 0o700
    one.close()
    assert folders(tmp_path / "scratch") == [two.path]
    two.close()
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["lock"]


def test_what_a_killed_run_left_goes_with_the_next_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdin is not None
    left = Path(killed.stdout.readline().strip())
    beside = Scratch(tmp_path)
    assert (left / "file").exists()  # it lives
    killed.kill()
    killed.wait()
    killed.stdin.close()
    killed.stdout.close()
    assert (left / "file").exists()
    Scratch(tmp_path).close()
    assert folders(tmp_path) == [beside.path]
    beside.close()
