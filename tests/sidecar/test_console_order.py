"""The console finds, sorts and folds: headings sort, a filter counts, many arrangements fold, labels keep apart."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.conftest import VIEWS, Served
from tests.sidecar.consoles import Console, begin, opened

DAY = datetime.date(2026, 1, 1)
MANY = VIEWS | {f"view_number_{n}": (row_type(node="Int64", rank="Int64"), ["node"]) for n in range(33)}


@pytest.fixture
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateBuilder]:
    """A state with 35 views."""
    made = StateBuilder(tmp_path_factory.mktemp("many") / "state", MANY)
    begin(made)
    yield made
    made.close()


@pytest.fixture
def open_console(serve: Callable[..., Served], browser: Browser) -> Iterator[Callable[..., Console]]:
    with ExitStack() as stack:
        yield lambda builder, **about: stack.enter_context(opened(browser, builder, serve(builder.path).url, **about))


def commit(builder: StateBuilder, view: str, rows: list[tuple[Any, ...]], diff: int = 1) -> None:
    upper = builder.frontier + 1_000_000
    builder.commit(upper, {view: [(row, upper - 1, diff) for row in rows]})


def cells(page: Page, column: int) -> list[str]:
    return page.locator(f"#rows tbody tr:not(.pad):not(.went) td:nth-child({column})").all_inner_texts()


def test_a_heading_sorts_by_mouse_and_keyboard(builder: StateBuilder, open_console: Callable[..., Console]) -> None:
    begin(builder)
    weights = [2.5, None, 10.0, -1.0, float("inf")]
    commit(builder, "pairs", [(weight, n, 0, True, 0, DAY) for n, weight in enumerate(weights)])
    console = open_console(builder, view="pairs")
    page = console.page
    heads = page.locator("#rows th")
    expect(heads).to_have_text(["weight", "src", "dst", "ok", "at", "day"])
    expect(heads.first).to_have_attribute("aria-sort", "none")
    assert cells(page, 1) == ["2.5", "null", "10", "-1", "Infinity"]
    heads.first.locator("button").click()
    expect(heads.first).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("#rows tbody tr:not(.pad) td:first-child")).to_have_text(
        ["null", "-1", "2.5", "10", "Infinity"]
    )
    expect(heads.first.locator("button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(heads.first).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#rows tbody tr:not(.pad) td:first-child")).to_have_text(
        ["Infinity", "10", "2.5", "-1", "null"]
    )
    # What comes and goes takes its place in the order shown.
    commit(builder, "pairs", [(7.0, 9, 0, True, 0, DAY), (7.0, 8, 0, True, 0, DAY)])
    commit(builder, "pairs", [(10.0, 2, 0, True, 0, DAY)], -1)
    rows = page.locator("#rows tbody tr:not(.pad):not(.went) td:nth-child(2)")
    expect(rows).to_have_text(["4", "8", "9", "0", "3", "1"])
    page.keyboard.press("Space")
    expect(heads.first).to_have_attribute("aria-sort", "none")
    expect(rows).to_have_text(["0", "1", "3", "4", "8", "9"])
    assert console.complaints == []


def test_a_filter_says_how_many_of_how_many(builder: StateBuilder, open_console: Callable[..., Console]) -> None:
    begin(builder)
    commit(builder, "pairs", [(None, n // 3, n % 3, n < 12, 0, DAY) for n in range(18_000)])
    console = open_console(builder, view="pairs")
    page = console.page
    expect(page.locator("#count")).to_have_text("18 000")
    page.locator("#find").fill("TRUE")
    expect(page.locator("#count")).to_have_text("12 of 18 000")
    commit(builder, "pairs", [(None, n, 7, True, 0, DAY) for n in range(2)])
    expect(page.locator("#count")).to_have_text("14 of 18 002")
    page.locator("#rows th button", has_text="src").click()
    page.locator("#rows th button", has_text="src").click()
    expect(page.locator("#rows tbody tr:not(.pad) td:nth-child(2)").first).to_have_text("3")
    page.locator("#find").fill("")
    expect(page.locator("#count")).to_have_text("18 002")
    expect(page.locator("#rows tbody tr:not(.pad) td:nth-child(2)").first).to_have_text("5999")
    assert page.locator("#rows tbody tr").count() < 100
    assert console.complaints == []


def test_chips_name_their_columns_and_sort_by_them(many: StateBuilder, open_console: Callable[..., Console]) -> None:
    commit(many, "view_number_0", [(n, 99 - n) for n in range(100)])
    console = open_console(many, view="view_number_0")
    heads = console.page.locator("#rows .chips-head button")
    expect(heads).to_have_text(["node", "rank"])
    expect(console.chips.first).to_have_text("099")
    heads.nth(1).click()
    expect(heads.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(console.chips.first).to_have_text("990")
    console.page.keyboard.press("1")
    expect(heads).to_have_text(["node"])
    assert console.complaints == []


def test_a_phone_shows_the_chosen_view_and_no_empty_panel(
    many: StateBuilder, open_console: Callable[..., Console]
) -> None:
    console = open_console(many, view="view_number_25", width=390)
    page = console.page
    chosen = page.locator("#tabs [aria-selected=true]")
    expect(chosen).to_have_text("view_number_25")
    box = chosen.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("[scrollX, scrollY]") == [0, 0]
    expect(page.locator("#series")).to_be_hidden()  # no update of this view was ever timed
    panel = page.locator("#changes-panel").bounding_box()
    assert panel is not None
    assert panel["height"] < 120
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#tabs [aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tabs [aria-selected=true]")).to_have_text("view_number_26")
    expect(page.locator("#tabs [aria-selected=true]")).to_be_in_viewport(ratio=1)


def test_many_arrangements_fold(many: StateBuilder, open_console: Callable[..., Console]) -> None:
    console = open_console(many)
    page = console.page
    expect(page.locator("#arrangements tbody tr")).to_have_count(8)
    expect(page.locator("#folded summary")).to_contain_text("27 smaller arrangements")
    expect(page.locator("#more-arrangements")).to_be_hidden()
    page.locator("#folded summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#more-arrangements tbody tr")).to_have_count(27)
    expect(page.locator("#more-arrangements")).to_be_visible()
    with page.expect_response("**/v1/traces"):
        pass
    expect(page.locator("#more-arrangements")).to_be_visible()  # another answer does not fold it
    assert console.complaints == []


def test_few_arrangements_do_not_fold(builder: StateBuilder, open_console: Callable[..., Console]) -> None:
    begin(builder)
    page = open_console(builder).page
    expect(page.locator("#arrangements tbody tr")).to_have_count(2)
    expect(page.locator("#folded")).to_be_hidden()


def test_labels_never_lie_on_one_another(builder: StateBuilder, open_console: Callable[..., Console]) -> None:
    begin(builder)
    names = [f"source_number_{n}" for n in range(12)]
    entry = builder.sources["edges"]
    upper = time.time_ns()
    builder.sources = dict.fromkeys(names, msgspec.structs.replace(entry, frontier=upper))
    builder.commit(upper, {"reach": [((50,), upper - 1, 1)]})
    page = open_console(builder).page
    expect(page.locator("#unlabelled")).to_contain_text("Without room for a label: source_number_")
    expect(page.locator("#sources tbody tr")).to_have_count(13)  # with the heading of none
    laid = page.evaluate(
        """async (names) => {
          const { layOut } = await import("/static/labels.js");
          const labels = names.map((text, i) => ({ text, x: 300 + i, width: 90, line: 0 }));
          labels.push({ text: "at the edge", x: 398, width: 80, line: 3 });
          const missing = layOut(labels, 400, 4, 120);
          return { labels, missing: missing.map(({ text }) => text) };
        }""",
        names,
    )
    placed = [one for one in laid["labels"] if one["at"] is not None]
    assert len(placed) >= 4
    assert len(placed) + len(laid["missing"]) == 13
    for one in placed:
        assert one["left"] >= (120 if one["at"] == 3 else 0)
        assert one["left"] + one["width"] <= 400
        for other in placed:
            if other is not one and other["at"] == one["at"]:
                assert one["left"] + one["width"] < other["left"] or other["left"] + other["width"] < one["left"]


def test_the_clock_goes_on_when_no_epoch_comes(builder: StateBuilder, open_console: Callable[..., Console]) -> None:
    begin(builder)
    console = open_console(builder)
    console.commit((9, 1))
    expect(console.chips).to_have_text(["1", "2", "3", "9"])
    behind = console.page.locator("#behind").inner_text()
    expect(console.page.locator("#behind")).not_to_have_text(behind)
