"""Sidecars for tests: the application in this process on a free port, over a state that the test builds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, expect

from tests import chromium
from tests.sidecar.builder import StateBuilder, row_type
from vernier.service.sidecar.app import build
from vernier.service.sidecar.context import Context
from vernier.service.sidecar.options import Options

VIEWS = {
    "reach": (row_type(node="Int64"), ["node"]),
    "pairs": (
        row_type(weight="Float64 | None", src="Int64", dst="Int64", ok="Bool", at="TimestampNs", day="Date"),
        ["src", "dst"],
    ),
}
"""One view of a single word, and one with a composite key in the middle and a column of every type."""


@dataclass(slots=True)
class Served:
    """A running sidecar."""

    url: str
    port: int
    context: Context


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser, shared by the tests of a file."""
    with chromium.browser() as launched:
        yield launched


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[StateBuilder]:
    """An empty state for VIEWS, owned by the test."""
    made = StateBuilder(tmp_path / "state", VIEWS)
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start a sidecar over a state: serve(path, **options)."""
    running: list[tuple[uvicorn.Server, threading.Thread, Any]] = []

    def start(state: Path, **about: Any) -> Served:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        app = build(Options(state=state, port=port, **about))
        ready = threading.Event()

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                ready.set()

        server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread, app.state.context))
        assert ready.wait(30)
        return Served(f"http://127.0.0.1:{port}", port, app.state.context)

    yield start
    for server, thread, context in running:
        loop = context.follower._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(context.streams.close)
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def open_console(builder: StateBuilder, serve: Callable[..., Served], browser: Browser) -> Iterator[Callable[..., Any]]:
    """Open the console over three rows: open_console(width=, color_scheme=, view=)."""
    from tests.sidecar.consoles import begin, opened  # loads the planner, which few tests here need

    begin(builder)
    url = serve(builder.path).url
    with ExitStack() as stack:

        def make(**about: Any) -> Any:
            console = stack.enter_context(opened(browser, builder, url, **about))
            if about.get("view", "reach") == "reach":
                expect(console.chips).to_have_text(["1", "2", "3"])
            return console

        yield make
