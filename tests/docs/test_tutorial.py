"""The tutorial: a reader who types what it says sees what it shows."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.command import VERNIER, environment
from tests.docs.session import Session
from tests.live.service import free_port, wait_for
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served, serve
from vernier.operators.language.collection.app import load_program
from vernier.operators.testing import Run, run

__all__ = ["serve"]


class Standin:
    """What `vernier up` and `vernier send` do, without Spark and Kafka: the program runs in this process, its changes
    are committed to a state directory, and the real sidecar answers from that."""

    def __init__(self, session: Session, serve: Callable[..., Served], stack: ExitStack) -> None:
        self.session, self.serve, self.stack = session, serve, stack
        self.program: Run | None = None

    def up(self, words: list[str]) -> str:
        app = load_program(Path(words[2]))
        self.program = self.stack.enter_context(run(app))
        views = {name: (view.node.schema, view.key) for name, view in app.views.items()}
        self.builder = StateBuilder(Path(".run/state"), views, app=app.name)
        self.stack.callback(self.builder.close)
        self.session.url = self.serve(self.builder.path).url
        return f"broker: starting\nready: {self.session.url}\n"

    def send(self, words: list[str]) -> str:
        assert self.program is not None
        source, lines = words[words.index("--source") + 1], Path(words[2]).read_text("utf-8").splitlines()
        now = time.time_ns()
        for i, line in enumerate(map(json.loads, lines)):
            about = line if isinstance(line, dict) and "data" in line else {"data": line}
            self.program.update(source, [(about["data"], now + i, about.get("diff", 1))])
        upper = now + len(lines)
        before = self.program.frontier
        self.program.advance(upper)
        self.builder.commit(upper, {view: self.program.changes(view, since=before) for view in self.builder.views})
        wait_for("the sidecar has read the epoch", lambda: self._frontier() >= upper)
        lines_sent = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
        return f"sent {lines_sent} to {source}\nvisible at {upper - 1}\ntoken\n"

    def _frontier(self) -> int:
        return int(httpx.get(f"{self.session.url}/v1/frontiers").json().get("upper", [0])[0])


@pytest.fixture
def session(tmp_path: Path, serve: Callable[..., Served]) -> Iterator[Session]:
    with ExitStack() as stack:
        session = Session(tmp_path)
        standin = Standin(session, serve, stack)
        session.instead |= {"vernier up": standin.up, "vernier send": standin.send}
        yield session


def test_a_reader_sees_what_the_page_shows(session: Session) -> None:
    assert session.follow("tutorial.md") > 20


class Service:
    """`vernier up` itself, on ports of its own."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.process: subprocess.Popen[str] | None = None

    def up(self, words: list[str]) -> str:
        ports = ("--set", f"kafka.bootstrap=127.0.0.1:{free_port()}", "--set", f"http.port={free_port()}")
        self.process = subprocess.Popen(
            [*VERNIER, *words[1:], *ports],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        printed = ""
        for line in self.process.stdout:
            printed += line
            if line.startswith("ready: "):
                self.session.url = line.removeprefix("ready: ").strip()
                break
        return printed

    def down(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=120)


def follow(page: str, folder: Path) -> int:
    """Follow a page with a real service; the number of its blocks."""
    session = Session(folder)
    service = Service(session)
    session.instead["vernier up"] = service.up
    try:
        return session.follow(page)
    finally:
        service.down()


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_so_does_a_reader_with_a_real_service(tmp_path: Path) -> None:
    assert follow("tutorial.md", tmp_path) > 20
