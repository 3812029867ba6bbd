"""The sidecar's process: starts before the state, ends cleanly, survives kill -9, says what is wrong in one line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import VIEWS
from tests.sidecar.process import ROOT, running
from vernier.service.sidecar.__main__ import main


def test_starts_before_there_is_a_state_and_ends_at_once_with_open_streams(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(state, "--log-level", "warning") as sidecar:
        assert httpx.get(f"{sidecar.url}/readyz", trust_env=False).json()["code"] == "no_epoch"
        builder = StateBuilder(state, VIEWS)
        builder.commit(10, {"reach": [((1,), 3, 1)]})
        while httpx.get(f"{sidecar.url}/v1/views", trust_env=False).status_code != 200:
            pass
        with httpx.stream("GET", f"{sidecar.url}/v1/views/reach/changes", timeout=30, trust_env=False) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: snapshot"
            status, errors = sidecar.end(signal.SIGTERM)
            assert (status, errors) == (0, "")
            list(lines)
        builder.close()


def test_kill_and_restart_goes_on_and_leaves_no_lease(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    builder.commit(10, {"reach": [((1,), 3, 1)]})
    with running(tmp_path) as first:
        rows = f"{first.url}/v1/views/reach"
        assert httpx.get(rows, trust_env=False).json()["rows"] == [{"node": 1}]
        port = first.port
        first.end(signal.SIGKILL)
        for upper in (20, 30, 40, 50):
            builder.commit(upper, {"reach": [((upper,), upper - 1, 1)]}, keep=2)
        assert 1 not in builder.state.epochs()
        with running(tmp_path, port=port):
            assert [row["node"] for row in httpx.get(rows, trust_env=False).json()["rows"]] == [1, 20, 30, 40, 50]
    builder.close()


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [
            sys.executable,
            "-m",
            "vernier.service.sidecar",
            "--state",
            str(tmp_path),
            "--port",
            str(taken.getsockname()[1]),
        ]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("sidecar: cannot listen on 127.0.0.1:")
    assert "in use" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "none.yaml"], "cannot read the settings"),
        (["--set", "http.max_row=3"], "did you mean http.max_rows?"),
        (["--host", "0.0.0.0"], "set VERNIER_HTTP__READ_TOKENS or http.read_tokens_file"),
        (["--set", "http.tls_cert=a.pem"], "set both tls_cert and tls_key"),
        (["--set", "http.tls_cert=a.pem", "--set", "http.tls_key=b.pem"], "no such file"),
        (["--set", "http.admin_tokens_file=none"], "http.admin_tokens_file: no such file or directory: none"),
    ],
)
def test_settings_that_cannot_be_are_one_line(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--state", str(tmp_path), "--port", "0", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sidecar: ")
    assert said in line
