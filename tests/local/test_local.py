"""`vernier.local`: what notebooks show, and that it is what a test of the same program sees."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

import vernier as vn
from vernier.service.local import Session


class Sale(vn.Schema):
    shop: vn.String
    cents: vn.Int64
    at: vn.TimestampNs


START = 1_772_438_400_000_000_000
"""2026-03-02T08:00:00Z"""


@pytest.fixture
def live() -> Iterator[Session]:
    app = vn.App("sales")
    sales = app.source("sales", Sale)
    app.view("totals", sales.group_by("shop").agg(n=vn.count(), cents=vn.sum("cents"), at=vn.max("at")))
    app.view("large", sales.filter(vn.col("cents") > 50).select("shop"))
    with vn.local(app) as session:
        yield session


def test_advance_gives_what_changed_in_all_views(live: Session) -> None:
    live.insert("sales", ("a", 60, 0), ("b", 5, 0), at=3)
    live.delete("sales", ("b", 5, 0), at=4)
    first = live.advance(4)
    assert first == [("totals", ("a", 1, 60, 0), 3, 1), ("totals", ("b", 1, 5, 0), 3, 1), ("large", ("a",), 3, 1)]
    assert live.frontier == 4
    assert live.advance() == [("totals", ("b", 1, 5, 0), 4, -1)]
    assert live.frontier == 5
    assert live.advance() == []
    live.insert("sales", ("c", 1, 0))
    assert live.advance() == [("totals", ("c", 1, 1, 0), 6, 1)]
    live.finish()
    assert live.rows("totals") == [("a", 1, 60, 0), ("c", 1, 1, 0)]
    assert live.rows("totals", at=3) == [("a", 1, 60, 0), ("b", 1, 5, 0)]
    assert live.changes("totals", since=4, until=5) == [("b", 1, 5, 0, 4, -1)]
    assert live.changes("totals").columns == ("shop", "n", "cents", "at", "time", "diff")


def test_late_updates_and_unknown_names_are_refused(live: Session) -> None:
    live.advance(10)
    with pytest.raises(vn.ProgramError, match="late"):
        live.insert("sales", ("a", 1, 0), at=9)
    with pytest.raises(vn.ProgramError, match="did you mean 'sales'"):
        live.insert("sale", ("a", 1, 0))
    with pytest.raises(vn.ProgramError, match="no view 'total'; did you mean 'totals'"):
        live.rows("total")
    with pytest.raises(vn.ProgramError, match="column 'shop' has none"):
        live.chart("totals", "shop")


def test_instants_are_read_and_shown_as_dates(live: Session) -> None:
    live.insert("sales", ("a", 60, START), at="2026-03-02T08:00:00Z")
    live.advance("2026-03-02T08:00:00.000000001Z")
    table = live.changes("totals")
    assert table == [("a", 1, 60, START, START, 1)]
    assert repr(table).splitlines()[1].split()[3:] == ["2026-03-02T08:00:00.000000000Z"] * 2 + ["1"]
    assert "final before 2026-03-02T08:00:00.000000001Z" in live._repr_html_()


def test_tables_of_hostile_texts_and_of_many_rows(live: Session) -> None:
    live.insert("sales", ("<script>", 60, 0), *[(f"shop {number}", 1, 0) for number in range(200)], at=1)
    live.advance()
    html = live.rows("totals")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == 101
    assert "and 101 more" in html
    assert repr(live.rows("totals")).splitlines()[-1] == "and 101 more"
    assert len(live.rows("totals")) == 201


def test_charts_are_pictures_of_the_changes(live: Session) -> None:
    assert ElementTree.fromstring(live.chart("totals").svg).tag.endswith("svg")
    live.insert("sales", *[(f"<{number}>", number, 0) for number in range(12)], at=5)
    live.delete("sales", ("<11>", 11, 0), at=6)
    live.advance(20)
    one = live.chart("totals")
    assert one.lines == {"": [(5, 12), (6, 11)]}
    assert one.title == "rows of totals"
    many = live.chart("totals", "cents", by="shop")
    assert len(many.lines) == 8
    assert many.lines["<11>"] == [(5, 11), (6, 0)]
    assert "<0>" not in many.lines
    texts = [part.text for part in ElementTree.fromstring(many._repr_svg_()).iter() if part.text]
    assert texts[:1] == ["cents of totals by shop"]
    assert "<11>" in texts
    assert texts[3:5] == ["5", "20"]


def test_a_file_of_updates_and_the_path_of_a_program(tmp_path: Path, root: Path) -> None:
    lines = [{"data": [1, 2], "time": 5, "input": "uses"}]
    folder = root / "examples" / "fraud_rings"
    with vn.local(folder / "program.py") as live:
        live.load(folder / "updates.jsonl")
        live.finish()
        assert live.rows("rings", at="2026-03-02T18:00:00Z")[0] == ("account-1", 3, 3, 2_620_000)
        (tmp_path / "wrong.jsonl").write_text(json.dumps(lines[0]))
        with pytest.raises(vn.VernierError, match="unknown input 'uses'"):
            live.load(tmp_path / "wrong.jsonl")
