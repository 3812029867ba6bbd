"""The console in a real browser: a person sees rows change, frontiers move and the latency histogram fill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from service.sidecar.app import STATIC
from tests import chromium, debian
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served

expect.set_options(timeout=30_000)  # a busy machine is no failure

pytestmark = pytest.mark.timeout(debian.INSTALL_SECONDS)

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.browser() as launched:
        yield launched


@dataclass(slots=True)
class Console:
    """An open console over a state that the test goes on writing; data times follow the clock."""

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

    def nodes(self) -> list[str]:
        """The rows as shown, without those that fade away."""
        texts: list[str] = self.page.locator("#rows .chip:not(.went)").all_inner_texts()
        return texts


@pytest.fixture
def open_console(
    builder: StateBuilder, serve: Callable[..., Served], browser: Browser
) -> Iterator[Callable[..., Console]]:
    """Open the console over three rows: open_console(width=, scheme=)."""
    builder.frontier = time.time_ns() - 60 * SECOND
    builder.stats.observe("view_latency_seconds", "reach", value=0.1, count=3)
    builder.commit(time.time_ns() - 30 * SECOND, {"reach": [((n,), builder.frontier + n, 1) for n in (1, 2, 3)]},
                   since=builder.frontier)  # fmt: skip
    url = serve(builder.path).url
    contexts: list[BrowserContext] = []

    def make(width: int = 1280, scheme: str = "light") -> Console:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
        contexts.append(context)
        console = Console(context.new_page(), builder, url)
        console.page.on("pageerror", lambda error: console.complaints.append(str(error)))
        console.page.on("console", lambda said: said.type == "error" and console.complaints.append(said.text))
        console.page.on(
            "request", lambda asked: asked.url.startswith(url) or console.complaints.append(f"asked {asked.url}")
        )
        console.page.goto(f"{url}/#view=reach")
        expect(console.page.locator("#rows .chip")).to_have_text(["1", "2", "3"])
        return console

    yield make
    for context in contexts:
        context.close()


def test_rows_changes_and_frontiers_move_by_themselves(open_console: Callable[..., Console]) -> None:
    console = open_console()
    page = console.page
    before = page.locator("#frontier").inner_text()
    console.commit((2, -1), (40, 1))
    expect(page.locator("#rows .chip:not(.went)")).to_have_text(["1", "3", "40"])
    expect(page.locator("#changes li")).to_have_count(2)
    expect(page.locator("#changes .sign").first).to_have_text("+1")
    expect(page.locator("#frontier")).not_to_have_text(before)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#count")).to_have_text("3")
    frontier = console.commit()
    expect(page.locator("#frontier")).to_have_attribute("title", str(frontier))
    expect(page.locator("#epoch")).to_have_text("3")
    assert console.complaints == []


def test_latency_fills(open_console: Callable[..., Console]) -> None:
    console = open_console()
    expect(console.page.locator("#updates")).to_have_text("3")
    expect(console.page.locator("#histogram rect.bucket").first).to_be_visible()
    console.commit((7, 1), (8, 1))
    expect(console.page.locator("#updates")).to_have_text("5")
    expect(console.page.locator("#p50")).to_contain_text("ms")
    assert console.complaints == []


def test_looking_back_and_going_live_by_keyboard(open_console: Callable[..., Console]) -> None:
    console = open_console()
    page = console.page
    console.commit((40, 1))
    expect(page.locator("#rows .chip:not(.went)")).to_have_text(["1", "2", "3", "40"])
    page.keyboard.press("[")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#rows .chip")).to_have_text(["1", "2", "3"])
    console.commit((41, 1))
    expect(page.locator("#epoch")).to_have_text("3")
    expect(page.locator("#rows .chip")).to_have_text(["1", "2", "3"])
    page.keyboard.press("l")
    expect(page.locator("#rows .chip:not(.went)")).to_have_text(["1", "2", "3", "40", "41"])
    page.keyboard.press("/")
    page.keyboard.type("4")
    expect(page.locator("#rows .chip:not(.went)")).to_have_text(["40", "41"])
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page.locator("#tabs [aria-selected=true]")).to_have_text("pairs")
    expect(page.locator("#rows th")).to_have_text(["weight", "src", "dst", "ok", "at", "day"])
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    assert console.complaints == []


def test_a_pipeline_that_stops_is_seen(open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.commit((4, 1))
    expect(console.page.locator("#state")).to_have_text("live")
    expect(console.page.locator("#state")).to_contain_text("stale")
    console.commit((5, 1))
    expect(console.page.locator("#state")).to_have_text("live")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone_in_both_themes(open_console: Callable[..., Console], scheme: str, tmp_path: Path) -> None:
    console = open_console(width=390, scheme=scheme)
    console.commit((4, 1))
    width = console.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    paper = console.page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in paper.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (sum(channels) / 3 < 80) == (scheme == "dark")
    console.page.keyboard.press("t")
    assert console.page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    console.page.reload()
    assert console.page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    assert console.complaints == []


def test_the_page_asks_nobody_else() -> None:
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file
        assert "https://" not in text, file
