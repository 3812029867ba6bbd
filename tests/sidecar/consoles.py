"""An open console in a real browser over a state that a test builds."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from tests.sidecar.builder import StateBuilder
from tests.sidecar.process import ROOT
from vernier.operators.language.collection.app import load_program
from vernier.operators.planning.planner import compile_app
from vernier.storage.blob.segment import Entry
from vernier.storage.state.manifest import sources_of

expect.set_options(timeout=30_000)  # a busy machine is no failure

SECOND = 1_000_000_000


@dataclass
class Console:
    """An open console; data times follow the clock. complaints: errors and foreign requests of the page."""

    page: Page
    builder: StateBuilder
    url: str
    complaints: list[str] = field(default_factory=list)

    def commit(self, *changes: tuple[int, int]) -> int:
        """Commit (node, diff) now; returns the new frontier."""
        upper = max(time.time_ns(), self.builder.frontier + 1000)
        listed = [((node,), upper - len(changes) + i, diff) for i, (node, diff) in enumerate(changes)]
        self.builder.stats.observe("view_latency_seconds", "reach", value=0.1, count=max(1, len(listed)))
        self.builder.commit(upper, {"reach": listed})
        return upper

    def hear(self, said: ConsoleMessage) -> None:
        """Keep the errors in the page's console. A 503 of /readyz is an answer: on a slow machine epochs grow old."""
        if said.type == "error" and not said.location["url"].endswith("/readyz"):
            self.complaints.append(said.text)

    @property
    def chips(self) -> Locator:
        """The rows as shown, without those that fade away."""
        return self.page.locator("#rows .chip:not(.went)")

    def ask(self, path: str, **parameters: Any) -> dict[str, Any]:
        """What the sidecar answers to the same question."""
        body: dict[str, Any] = httpx.get(f"{self.url}{path}", params=parameters).raise_for_status().json()
        return body


def begin(builder: StateBuilder) -> None:
    """Three rows, a plan with counters, and two dead letters; the history goes back a minute."""
    plan = compile_app(load_program(ROOT / "configs" / "demo.py")).explain()
    (builder.path / "plan.json").write_text(json.dumps(plan))
    stats = builder.stats
    for op in plan["operators"]:
        stats.add("operator_updates_total", str(op["id"]), "out", by=1000 + op["id"])
        stats.observe("operator_duration_seconds", str(op["id"]), value=0.001 * (1 + op["id"]))
    stats.set("fixpoint_rounds", "reach", value=17)
    stats.set("fixpoint_rounds", "bfs", value=9)
    stats.observe("view_latency_seconds", "reach", value=0.1, count=3)
    stats.add("source_updates_total", "edges", "+", by=1234)
    stats.add("source_errors_total", "edges", "decode", by=2)
    builder.frontier = time.time_ns() - 60 * SECOND
    builder.sources = sources_of({
        "edges": {
            "topic": "graph", "format": "vernier", "clock": "event", "held": 5, "frontier": str(builder.frontier),
            "partitions": {"0": {"frontier": str(builder.frontier), "lag": 7}},
        }
    })  # fmt: skip
    builder.offsets = {"graph": {0: 41}}
    letters = [
        {
            "reason": "decode", "detail": f"cannot be read: <b>byte {n}</b>", "source": "edges", "topic": "graph",
            "partition": 0, "offset": n, "frontier": builder.frontier, "key": None, "headers": [], "bytes": 5,
            "value": base64.b64encode(b"what?").decode(),
        }
        for n in (4, 9)
    ]  # fmt: skip
    interval = {"updates": 2, "lower": builder.frontier, "upper": builder.frontier + 1, "since": builder.frontier}
    rows = [((n,), builder.frontier + n, 1) for n in (1, 2, 3)]
    builder.commit(
        time.time_ns() - 30 * SECOND,
        {"reach": rows},
        since=builder.frontier,
        dead=[Entry("dead-letters", {**interval, "letters": letters}, {})],
    )


@contextmanager
def opened(browser: Browser, builder: StateBuilder, url: str, **about: Any) -> Iterator[Console]:
    """The console at a view (`view`), in a window of `width`; the rest is playwright's (color_scheme and so on)."""
    width, view = about.pop("width", 1280), about.pop("view", "reach")
    context = browser.new_context(viewport={"width": width, "height": 900}, **about)
    console = Console(context.new_page(), builder, url)
    console.page.on("pageerror", lambda error: console.complaints.append(str(error)))
    console.page.on("console", console.hear)
    console.page.on(
        "request", lambda asked: asked.url.startswith(url) or console.complaints.append(f"asked {asked.url}")
    )
    console.page.goto(f"{url}/#view={view}")
    try:
        yield console
    finally:
        context.close()
