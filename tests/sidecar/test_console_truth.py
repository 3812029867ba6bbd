"""What the console says holds: columns fit without traffic, a lost sidecar is not live, changes name their columns."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from playwright.sync_api import expect

from tests.sidecar.builder import StateBuilder
from tests.sidecar.consoles import Console

DAY = datetime.date(2026, 1, 1)
PAIR = (1.5, 1, 2, True, 0, DAY)
"""A row of the view `pairs`: weight, src, dst, ok, at, day."""


def commit(builder: StateBuilder, *changes: tuple[tuple[object, ...], int]) -> None:
    upper = builder.frontier + 1_000_000
    builder.commit(upper, {"pairs": [(row, upper - 1, diff) for row, diff in changes]})


def test_columns_fit_their_values_although_nothing_changes(open_console: Callable[..., Console]) -> None:
    console = open_console(view="pairs")
    commit(console.builder, ((123456789.125, *PAIR[1:]), 1))
    console.page.reload()
    cell = console.page.locator("#rows tbody td").first
    expect(cell).to_have_text("123456789.125")
    console.page.wait_for_function(
        "() => { const cell = document.querySelector('#rows tbody td'); return cell.scrollWidth <= cell.clientWidth }"
    )


def test_a_change_of_a_row_is_one_line_from_old_to_new(open_console: Callable[..., Console]) -> None:
    console = open_console(view="pairs")
    expect(console.page.locator("#note")).to_have_text("No rows at this time.")
    commit(console.builder, (PAIR, 1))
    expect(console.page.locator("#changes li")).to_have_count(1)
    commit(console.builder, (PAIR, -1), ((2.5, *PAIR[1:]), 1))
    expect(console.page.locator("#changes li")).to_have_count(2)
    expect(console.page.locator("#changes li .what").first).to_contain_text("weight 1.5 → 2.5")
    expect(console.page.locator("#changes li .what").first).to_contain_text("src 1")


def test_an_unknown_view_in_the_address_is_said(open_console: Callable[..., Console]) -> None:
    console = open_console(view="raech")
    expect(console.page.locator("#note")).to_contain_text("There is no view “raech”")


def test_live_is_not_claimed_when_the_sidecar_is_gone(open_console: Callable[..., Console]) -> None:
    console = open_console()
    expect(console.page.locator("#live")).to_have_text("● Live")
    console.page.context.set_offline(True)
    expect(console.page.locator("#live")).to_have_text("◌ Cut off")
    console.page.context.set_offline(False)
    expect(console.page.locator("#live")).to_have_text("● Live")
