"""Prefix sums against a loop over the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection
from tests.profiles import examples
from vernier.operators.errors import BadValue, ProgramError

Answered = Iterable[tuple[tuple[Any, ...], int]]


class Entry(vn.Schema):
    book: vn.Int64 | None
    pos: vn.Int64 | None
    amount: vn.Int64 | None


class Question(vn.Schema):
    pos: vn.Int64
    note: vn.Int64
    book: vn.Int64 | None


SCHEMAS: dict[str, type[vn.Schema]] = {"entries": Entry, "questions": Question}
books = st.sampled_from((0, 1, None))
places = st.sampled_from((-(2**63), -5, -1, 0, 1, 2, 3, 4, 6, 7, 2**40, 2**63 - 1))
amounts = st.sampled_from((None, -3, 0, 1, 5))
changes_of_both = st.fixed_dictionaries(
    {
        "entries": updates(st.tuples(books, st.one_of(st.none(), places), amounts)),
        "questions": updates(st.tuples(places, st.integers(0, 1), books), most=6),
    }
)


@pytest.mark.parametrize("within", [True, False])
@examples(40)
@given(changes=changes_of_both, cuts=cuts, workers=st.sampled_from((1, 2)))
def test_a_prefix_sum_is_its_loop(
    within: bool, changes: dict[str, list[Change]], cuts: list[int], workers: int
) -> None:
    def build(entries: vn.Collection, questions: vn.Collection) -> vn.Collection:
        return entries.prefix_sum("amount", at=questions, by="pos", within="book" if within else (), name="total")

    def answer(entries: Collection, questions: Collection) -> Answered:
        for (pos, note, book), count in questions.items():
            total = 0
            for (there, place, amount), copies in entries.items():
                if place is not None and place <= pos and (not within or there == book):
                    total += (amount or 0) * copies
            yield (pos, note, book, total), count

    check(build, SCHEMAS, answer, changes, cuts, workers)


def test_few_bits_and_a_nullable_question() -> None:
    app = vn.App("t")
    questions = app.source("questions", Question)
    asked = app.source("entries", Entry)
    app.view("v", questions.prefix_sum("note", at=asked, by="pos", bits=4))
    with vn.testing.run(app) as t:
        t.update("questions", [((place, 1, None), 1, 1) for place in range(16)])
        t.update("entries", [((1, place, 2), 2, 1) for place in (0, 7, 15, None)])
        t.advance(3)
        assert t.rows("v") == [(1, None, 2, 0), (1, 0, 2, 1), (1, 7, 2, 8), (1, 15, 2, 16)]
        t.insert("questions", (16, 1, None), at=3)
        with pytest.raises(BadValue, match=r"16 is outside of \[0, 2\*\*4\) of prefix_sum"):
            t.finish()


@pytest.mark.parametrize(
    ("column", "arguments", "problem"),
    [
        ("amount", {"by": "note"}, "no column 'note'"),
        ("amuont", {"by": "pos"}, "did you mean 'amount'"),
        ("amount", {"by": "pos", "within": "amount"}, "no column 'amount' in at= of prefix_sum"),
        ("amount", {"by": "pos", "within": "pos"}, "cannot have it in within="),
        ("amount", {"by": "pos", "bits": 65}, "bits from 1 to 64"),
        ("amount", {"by": "pos", "name": "note"}, "a column 'note' already"),
    ],
)
def test_wrong_prefix_sums_are_told(column: str, arguments: dict[str, Any], problem: str) -> None:
    app = vn.App("t")
    entries, questions = app.source("entries", Entry), app.source("questions", Question)
    with pytest.raises(ProgramError, match=problem):
        entries.prefix_sum(column, at=questions, **arguments)
