"""The console's panels show the numbers that the API gives; what is wrong is said in words; all users can use it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from tests.sidecar.consoles import Console, begin, opened
from tests.sidecar.process import running

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"


@pytest.fixture
def console(builder: StateBuilder, serve: Callable[..., Served], browser: Browser) -> Iterator[Console]:
    """The console over a state with a plan, latencies and dead letters."""
    begin(builder)
    with opened(browser, builder, serve(builder.path).url) as made:
        expect(made.chips).to_have_text(["1", "2", "3"])
        yield made


def digits(text: str | None) -> str:
    """Without what groups digits."""
    return re.sub(r"\s", "", text or "")


def test_latency(console: Console) -> None:
    page = console.page
    console.commit((7, 1), (8, 1))
    expect(page.locator("#updates")).to_have_text("5")
    about = console.ask("/v1/latency")["views"]["reach"]
    expect(page.locator("#p50")).to_have_text(f"{about['quantiles']['0.5'] * 1000:.0f} ms")
    expect(page.locator("#p99")).to_have_text(f"{about['quantiles']['0.99'] * 1000:.0f} ms")
    expect(page.locator("#histogram rect.bucket")).to_have_count(sum(count > 0 for count in about["histogram"]))
    for n in range(20, 60):
        console.commit((n, 1))
        if len(console.ask("/v1/latency")["views"]["reach"]["series"]) > 2:
            break
        page.wait_for_timeout(500)  # steps of the series are two seconds long
    expect(page.locator("#series path.p99")).to_be_attached()
    page.locator("#series").focus()
    page.keyboard.press("Home")
    expect(page.locator("#series-at")).to_contain_text("p50")
    expect(page.locator("#series line.cursor")).to_be_attached()
    assert console.complaints == []


def test_dataflow(console: Console) -> None:
    page = console.page
    body = console.ask("/v1/dataflow")
    operators = {op["id"]: op for op in body["plan"]["operators"]}
    shown = page.locator("#graph .node")
    expect(shown).to_have_count(21)  # all 30 without what only passes rows on, and without arrangements of views
    titles = set(page.locator("#graph .node .title").all_text_contents())
    assert {"edges", "roots", "⟳ reach", "distinct", "group by node", "histogram"} <= titles
    expect(page.locator("#graph .loop-name")).to_have_text(["loop reach · 17 rounds", "loop bfs · 9 rounds"])
    expect(page.locator("#loops .rounds")).to_have_text(["17", "9"])
    # The hottest is what takes the most time, loops aside: a view with its arrangement is one.
    spent = {int(name): one["total"] for name, one in body["operators"]["seconds"].items()}
    views = {op["id"]: op["inputs"][0] for op in operators.values() if op["kind"] == "view"}
    for view, kept in views.items():
        spent[view] += spent.pop(kept)
    hidden = {"enter", "leave", "loop"}
    hottest = max((i for i in spent if operators[i]["kind"] not in hidden), key=spent.__getitem__)
    first = page.locator("#hot button").first
    expect(first).to_have_attribute("data-id", str(hottest))
    first.click()
    expect(page.locator("#operator-name")).to_have_text(operators[hottest]["name"])
    total = next(one["value"] for one in body["operators"]["updates"] if one["operator"] == str(hottest))
    assert f"{total:.0f}inall" in digits(page.locator("#operator-facts").inner_text())
    node = page.locator(f"#graph .node[data-id='{hottest}']")
    expect(node).to_have_attribute("aria-pressed", "true")
    node.focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#graph .node:focus")).not_to_have_attribute("data-id", str(hottest))
    before = page.locator("#graph").get_attribute("width")
    page.keyboard.press("+")
    assert page.locator("#graph").get_attribute("width") != before
    assert console.complaints == []


@pytest.mark.slow
def test_arrangements_sources_and_dead_letters(console: Console) -> None:
    page = console.page
    console.commit((7, 1), (8, 1))
    expect(page.locator("#arrangements svg.batches rect")).to_have_count(2)
    traces = {trace["trace"]: trace for trace in console.ask("/v1/traces")["traces"]}
    line = page.locator("#arrangements tbody tr", has_text="view:reach")
    expect(line.locator("td").nth(3)).to_have_text(str(traces["view:reach"]["updates"]))
    assert sum(len(shard) for shard in traces["view:reach"]["shards"]) == 2
    expect(page.locator("#arrangement-total")).to_contain_text("2 arrangements, 0 shared, 5 updates")
    cells = page.locator("#sources tbody tr").first.locator("td")
    expect(cells.nth(0)).to_have_text("edges")
    expect(cells.nth(3)).to_have_text("41")
    expect(cells.nth(4)).to_have_text("7")
    expect(cells.nth(5)).to_have_text("5")
    expect(cells.nth(6)).to_have_text(re.compile(r"1\D234"))
    expect(cells.nth(8)).to_have_text("2")
    letters = console.ask("/v1/dead-letters")
    expect(page.locator("#letter-count")).to_have_text("2")
    expect(page.locator("#letters tbody tr")).to_have_count(len(letters["dead_letters"]))
    newest = page.locator("#letters tbody tr").first
    expect(newest).to_contain_text("graph:0@9")
    expect(newest).to_contain_text("cannot be read: <b>byte 9</b>")  # data is text, never HTML
    expect(newest).to_contain_text("what?")
    expect(page.locator("#letter-help")).to_contain_text("vernier dlq replay edges")
    assert console.complaints == []


def test_a_question_in_sql(console: Console) -> None:
    page = console.page
    page.keyboard.press("q")
    question, note = page.locator("#question"), page.locator("#question-note")
    expect(question).to_have_attribute("placeholder", 'SELECT count(*) FROM "reach"')
    page.locator("#question-run").click()
    expect(page.locator("#question-rows td")).to_have_text(["3"])
    asked = "SELECT node, node * 9007199254740993 AS big, '<b>' AS text, NULL AS none FROM reach ORDER BY node"
    question.fill(asked)
    question.press("Control+Enter")
    expect(note).to_contain_text("3 rows as of ")
    expect(page.locator("#question-rows th")).to_have_text(["node", "big", "text", "none"])
    first = page.locator("#question-rows tbody tr").first.locator("td")
    expect(first).to_have_text(["1", "9007199254740993", "<b>", "null"])
    # Keys that are typed are text; a question has the time that the console shows.
    question.press("End")
    question.press("l")
    expect(question).to_have_value(f"{asked}l")
    console.commit((4, 1))
    expect(console.chips).to_have_text(["1", "2", "3", "4"])
    question.blur()
    page.keyboard.press("[")
    expect(console.chips).to_have_text(["1", "2", "3"])
    question.fill("SELECT count(*) AS n FROM reach")
    question.press("Control+Enter")
    expect(page.locator("#question-rows td")).to_have_text(["3"])
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(console.chips).to_have_text(["1", "2", "3", "4"])
    page.locator("#question-run").click()
    expect(page.locator("#question-rows td")).to_have_text(["4"])
    assert console.complaints == []
    question.fill("SELECT * FROM reech")
    question.press("Control+Enter")
    expect(note).to_have_text("line 1, column 15: there is no view 'reech'; did you mean 'reach'?")
    expect(page.locator("#question-table")).to_be_hidden()


def _violations(page: Page) -> list[str]:
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(builder: StateBuilder, serve: Callable[..., Served], browser: Browser, scheme: str) -> None:
    begin(builder)
    # Motion is off, so that no colour is looked at half way; the page's own policy would refuse the checker's code.
    with opened(browser, builder, serve(builder.path).url, color_scheme=scheme, reduced_motion="reduce") as console:
        expect(console.page.locator("#letters tbody tr")).to_have_count(2)
        expect(console.page.locator("#graph .node").first).to_be_attached()
        assert _violations(console.page) == []
        console.page.keyboard.press("2")
        expect(console.page.locator("#rows th").first).to_be_visible()
        console.page.keyboard.press("?")
        assert _violations(console.page) == []


def commit_until(console: Console, state: str, first: int) -> None:
    """Make epochs until the page has this state: on a busy machine it may see one only when that is old."""
    for row in range(first, first + 20):
        console.commit((row, 1))
        console.page.wait_for_timeout(500)
        if console.page.locator("#state").inner_text() == state:
            break
    expect(console.page.locator("#state")).to_have_text(state)


@pytest.mark.slow
def test_a_pipeline_that_stops_is_told_with_the_next_step(console: Console) -> None:
    page = console.page
    commit_until(console, "live", 100)
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#state")).to_contain_text("stale")
    expect(page.locator("#notice-title")).to_contain_text("No epoch for")
    expect(page.locator("#notice")).to_contain_text("vernier status")
    expect(page.locator("#notice")).to_contain_text("its newest epoch")  # why, as /readyz has it
    assert _violations(page) == []
    commit_until(console, "live", 200)
    expect(page.locator("#notice")).to_be_hidden()


def test_what_holds_answers_back_is_told_while_epochs_go_on(console: Console) -> None:
    page = console.page
    why = "its frontier has been at 5 for 9.0 s while 3 updates wait"
    lagging = {"ready": False, "laggards": [{"laggard": "source edges", "why": why}]}
    page.route("**/readyz", lambda route: route.fulfill(status=503, json=lagging))
    commit_until(console, "held back", 100)
    expect(page.locator("#notice")).to_contain_text(f"source edges: {why}")
    page.unroute("**/readyz")
    commit_until(console, "live", 200)


def test_a_sidecar_that_goes_and_comes_back(builder: StateBuilder, browser: Browser) -> None:
    begin(builder)
    with running(builder.path) as first:
        port = first.port
        with opened(browser, builder, first.url) as console:
            page = console.page
            expect(console.chips).to_have_text(["1", "2", "3"])
            console.commit((40, 1))
            expect(console.chips).to_have_text(["1", "2", "3", "40"])
            first.end()
            expect(page.locator("#state")).to_have_text("no sidecar")
            expect(page.locator("#notice-title")).to_contain_text("does not answer")
            expect(page.locator("#notice")).to_contain_text("committed at")
            expect(page.locator("#notice")).to_contain_text("vernier up")
            expect(console.chips).to_have_text(["1", "2", "3", "40"])  # what is there stays
            console.commit((41, 1), (1, -1))
            with running(builder.path, port=port):
                expect(console.chips).to_have_text(["2", "3", "40", "41"])
                console.commit((42, 1))
                expect(console.chips).to_have_text(["2", "3", "40", "41", "42"])
                expect(page.locator("#state")).to_have_text("live")
                expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.slow
def test_before_the_first_epoch(builder: StateBuilder, serve: Callable[..., Served], browser: Browser) -> None:
    with opened(browser, builder, serve(builder.path).url) as console:
        expect(console.page.locator("#state")).to_have_text("no epoch")
        expect(console.page.locator("#notice-title")).to_contain_text("no epoch has been committed")
        begin(builder)
        expect(console.chips).to_have_text(["1", "2", "3"])
        expect(console.page.locator("#notice-title")).not_to_contain_text("no epoch has been committed")
