"""The console in a real browser: a person sees rows change and frontiers move, looks back, and uses the keyboard."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from tests.sidecar.consoles import SECOND, Console
from vernier.service.config.settings import load
from vernier.service.sidecar.app import STATIC
from vernier.service.sidecar.auth import Access


def test_rows_changes_and_frontiers_move_by_themselves(open_console: Callable[..., Console]) -> None:
    console = open_console()
    page = console.page
    before = page.locator("#frontier").inner_text()
    console.commit((2, -1), (40, 1))
    expect(console.chips).to_have_text(["1", "3", "40"])
    expect(page.locator("#changes li")).to_have_count(2)
    expect(page.locator("#changes .sign").first).to_have_text("+1")
    expect(page.locator("#frontier")).not_to_have_text(before)
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#count")).to_have_text("3")
    frontier = console.commit()
    expect(page.locator("#frontier")).to_have_attribute("title", str(frontier))
    expect(page.locator("#epoch")).to_have_text("3")
    assert console.complaints == []


def test_looking_back_and_going_live_by_keyboard(open_console: Callable[..., Console]) -> None:
    console = open_console()
    page = console.page
    console.commit((40, 1))
    expect(console.chips).to_have_text(["1", "2", "3", "40"])
    page.keyboard.press("[")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#rows .chip")).to_have_text(["1", "2", "3"])
    console.commit((41, 1))
    expect(page.locator("#epoch")).to_have_text("3")
    expect(page.locator("#rows .chip")).to_have_text(["1", "2", "3"])
    page.keyboard.press("l")
    expect(console.chips).to_have_text(["1", "2", "3", "40", "41"])
    page.keyboard.press("/")
    page.keyboard.type("4")
    expect(console.chips).to_have_text(["40", "41"])
    expect(page.locator("#note")).to_contain_text("2 rows with")
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    expect(page.locator("#tabs [aria-selected=true]")).to_have_text("pairs")
    expect(page.locator("#rows th")).to_have_text(["weight", "src", "dst", "ok", "at", "day"])
    page.locator("#tabs [aria-selected=true]").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tabs [aria-selected=true]")).to_have_text("reach")
    for key, panel in (("d", "dataflow"), ("a", "arrangements-panel"), ("x", "letters-panel"), ("f", "frontiers")):
        page.keyboard.press(key)
        expect(page.locator(f"#{panel}")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    assert console.complaints == []


def test_the_slider_shows_what_the_api_answers(open_console: Callable[..., Console]) -> None:
    console = open_console()
    page = console.page
    for n in range(10, 16):
        console.commit((n, 1), (n - 9, -1) if n < 13 else (n + 10, 1))
    expect(console.chips).to_have_text(["10", "11", "12", "13", "14", "15", "23", "24", "25"])
    expect(page.locator("#changes li")).to_have_count(12)  # looking back holds the log as it is
    slider = page.locator("#slider")
    slider.focus()
    for _ in range(3):
        slider.press("PageDown")  # a tenth of the history each
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    as_of = page.locator("#as-of").get_attribute("title")
    rows = console.ask("/v1/views/reach", as_of=as_of)["rows"]
    expect(page.locator("#rows .chip")).to_have_text([str(row["node"]) for row in rows])
    assert rows != console.ask("/v1/views/reach")["rows"]
    page.locator("#changes li").nth(4).click()  # each change leads to the rows as of its nanosecond
    change = page.locator("#changes li").nth(4)
    expect(change).to_have_attribute("aria-selected", "true")
    as_of = page.locator("#as-of").get_attribute("title")
    assert (change.get_attribute("title") or "").endswith(f" at {as_of}")
    rows = console.ask("/v1/views/reach", as_of=as_of)["rows"]
    expect(page.locator("#rows .chip")).to_have_text([str(row["node"]) for row in rows])
    page.locator("#changes").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#changes li").nth(5)).to_have_attribute("aria-selected", "true")
    slider.focus()
    slider.press("End")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    assert console.complaints == []


def test_a_hundred_thousand_rows_stay_smooth(open_console: Callable[..., Console]) -> None:
    console = open_console(view="reach")
    page = console.page
    upper = time.time_ns()
    rows = [((n,), console.builder.frontier + 1, 1) for n in range(10, 100_010)]
    console.builder.commit(upper, {"reach": rows})
    expect(page.locator("#count")).to_have_text(re.compile(r"100\D003"))
    assert page.locator("#rows .chip").count() < 1000
    page.reload()
    expect(page.locator("#count")).to_have_text(re.compile(r"100\D00[03]"))
    expect(page.locator("#note")).to_contain_text(re.compile(r"first 100\D000 rows"))
    page.locator("#rows").focus()
    page.locator("#rows").press("End")
    expect(console.chips.last).to_have_text("100006")
    assert page.locator("#rows .chip").count() < 1000
    for n in range(3):  # a thousand changes at once, thrice: all are in, and the page still answers
        console.commit(*((50_000 + i, (-1) ** (n + 1)) for i in range(1000)))
    page.locator("#find").fill("50500")
    expect(page.locator("#note")).to_contain_text("No row has")
    console.commit(*((50_000 + i, 1) for i in range(1000)))
    expect(console.chips).to_have_text(["50500"])
    assert console.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone_in_both_themes(open_console: Callable[..., Console], scheme: str) -> None:
    console = open_console(width=390, color_scheme=scheme, reduced_motion="reduce")
    page = console.page
    console.commit((4, 1))
    expect(page.locator("#graph .node").first).to_be_attached()
    expect(page.locator("#letters tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in paper.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (sum(channels) / 3 < 80) == (scheme == "dark")
    moving = page.evaluate("document.getAnimations().filter((one) => one.playState === 'running').length")
    assert moving == 0
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    assert console.complaints == []


def test_a_token_is_asked_for_until_it_is_right(
    builder: StateBuilder, serve: Callable[..., Served], browser: Browser
) -> None:
    builder.commit(10, {"reach": [((7,), 1, 1)]})
    http = load(None, {}, {"VERNIER_HTTP__READ_TOKENS": "a-token-for-the-console"}).settings.http
    url = serve(builder.path, access=Access.of(http)).url
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{url}/#view=reach")
        asked = page.locator("#access")
        for typed in ("not-the-one-given-out", "a-token-for-the-console"):
            expect(asked).to_have_count(1)
            asked.locator("input").fill(typed)
            asked.locator("button").click()
            if typed.startswith("not"):
                expect(asked).to_contain_text("this token is unknown")
        expect(asked).to_have_count(0)
        expect(page.locator("#rows .chip")).to_have_text(["7"])
        builder.commit(20, {"reach": [((8,), 11, 1)]})
        expect(page.locator("#rows .chip")).to_have_text(["7", "8"])
        page.reload()
        expect(page.locator("#rows .chip")).to_have_text(["7", "8"])


def test_the_page_asks_nobody_else() -> None:
    ours = [file for file in STATIC.rglob("*") if file.is_file() and "vendor" not in file.parts]
    for file in ours:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file
        assert "https://" not in text, file


def test_modules_can_be_read_in_one_sitting() -> None:
    lengths = {file.name: len(file.read_text().splitlines()) for file in Path(STATIC).glob("*.js")}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_what_is_carried_along_names_its_licence() -> None:
    vendor = STATIC / "vendor"
    told = (vendor / "VENDORED.txt").read_text()
    for file in vendor.rglob("*"):
        if file.is_file() and file.name != "VENDORED.txt":
            assert str(file.relative_to(vendor)) in told
    for folder in (folder for folder in vendor.iterdir() if folder.is_dir()):
        assert (folder / "LICENSE.txt").stat().st_size > 500


def test_seconds_of_history(open_console: Callable[..., Console]) -> None:
    console = open_console()
    expect(console.page.locator("#window")).to_contain_text("kept")
    since = console.page.locator("#since").get_attribute("title")
    assert since == console.ask("/v1/views/reach")["since"]
    assert int(since) < time.time_ns() - 30 * SECOND
