"""A live service that is stopped in a hurry, and one that is killed: nothing is lost, no file can be read by others,
and the temp folder is empty."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from tests.attack.test_living_in_bounds import Crowds, _rows
from tests.live.service import still_running, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def readable_by_others(folder: Path, pattern: str = "**/*") -> list[str]:
    """The folder, and files and folders in it, that are not for their user alone."""
    found = [folder, *folder.glob(pattern)]
    assert len(found) > 1, folder
    modes = {path: path.lstat().st_mode for path in found}
    return [f"{stat.filemode(mode)} {path}" for path, mode in modes.items() if mode & 0o077 and not stat.S_ISLNK(mode)]


def odd(state: Path) -> list[str]:
    """What in a state directory is neither a file of 0600 nor a folder of 0700."""
    found = {path: path.lstat().st_mode for path in [state, *state.rglob("*")]}
    wanted = {stat.S_IFREG | 0o600, stat.S_IFDIR | 0o700}
    return [f"{stat.filemode(mode)} {path}" for path, mode in found.items() if mode not in wanted]


def check_private(service: Crowds) -> None:
    """Whatever the service has written is for its user alone."""
    assert odd(service.folder / "state") == []
    for name in ("logs", "kafka"):
        assert readable_by_others(service.folder / name) == []
    # Spark gives its checkpoints modes of its own, in a folder that others cannot enter.
    assert readable_by_others(service.folder / "state.scratch", "*") == []


def test_a_second_ctrl_c_and_a_kill_lose_nothing_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with Crowds(tmp_path, stop_ms=600_000) as service:
        service.send("b", [(1, 13)])
        wait_for("it has made an epoch", lambda: _rows(service, "brooded") == {(1, 13)})
        check_private(service)

        # An epoch that does not end, and two wishes to stop.
        service.stay.touch()
        service.send("b", [(2, 13)])
        wait_for("it names the function", lambda: service.says("the function brood"))
        family = [process for process, _ in service.family()]
        up = service.process
        assert up is not None
        up.send_signal(signal.SIGINT)
        wait_for("it stops", lambda: "sidecar: stopping" in (tmp_path / "up.log").read_text("utf-8"))
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
        assert still_running(family, 60) == []
        service.process = None
        assert service.runs == []
        assert list(temporary.iterdir()) == []
        check_private(service)

        # The epoch is made by the next start.
        service.stay.unlink()
        service.start()
        wait_for("it has made the epoch", lambda: _rows(service, "brooded") == {(1, 13), (2, 13)})
        service.kill_all()
        assert list(temporary.iterdir()) == []
        check_private(service)
        service.start()
        assert len(service.runs) == 1
        wait_for("nothing is lost", lambda: _rows(service, "brooded") == {(1, 13), (2, 13)})
    assert list(temporary.iterdir()) == []
