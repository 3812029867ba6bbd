"""What the data source reads is what the view has, as of each time, in any number of parts, over both ways."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, IsNull, Not, StringContains

from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from tests.sidecar.conftest import Served
from tests.sidecar.conftest import serve as serve
from tests.spark_source.readers import Stream, read, source
from vernier.service.spark_source.filters import pushed
from vernier.service.spark_source.options import BadOption
from vernier.service.spark_source.schema import NegativeRows
from vernier.service.views.part import ViewChanged
from vernier.service.views.query import UnknownViewColumn
from vernier.service.views.view import Compacted, NotYetFinal, UnknownView
from vernier.storage.updates import MIN_TIME, Updates

LONG = "a name that is much longer than fifteen bytes: "
PEOPLE = row_type(
    name="String",
    age="Int64 | None",
    weight="Float64 | None",
    ok="Bool",
    day="Date",
    at="TimestampNs",
    price="Decimal(8, 2)",
    tags="List(String | None)",
    place="Struct(x=Float64, since=TimestampNs | None)",
    raw="Binary",
)
VIEWS = {"people": (PEOPLE, ["name"]), "reach": (row_type(node="Int64"), ["node"])}


def person(number: int) -> tuple[Any, ...]:
    """A row with a value of every type."""
    name = (LONG if number % 2 else "") + str(number)
    age = None if number % 3 == 0 else number
    place = {"x": number / 2, "since": None if number % 2 else number}
    return (
        name, age, None if number % 4 == 0 else number / 3, number % 2 == 0, date(2026, 1, 1 + number % 28),
        10**18 + number, Decimal(number) / 4, [name, None], place, name.encode(),
    )  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Iterator[tuple[StateBuilder, ViewModel]]:
    """Thirty epochs of people who come and go, in three shards; the first ten are compacted."""
    builder, model, chance = StateBuilder(tmp_path / "state", VIEWS, shards=3), ViewModel(), random.Random(5)
    there: set[int] = set()
    for epoch in range(30):
        own: list[Change] = []
        for number in chance.sample(range(40), 8):
            at = epoch * 10 + chance.randrange(10)
            own.append((person(number), at, -1 if number in there else 1))
            there ^= {number}
        model.changes += own
        builder.commit(epoch * 10 + 10, {"people": own}, keep=4, since=95 if epoch == 20 else None, merge=epoch == 20)
    yield builder, model
    builder.close()


def rows(table: Any) -> Counter[str]:
    """The rows of a table, whatever their order."""
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


def expected(model: ViewModel, as_of: int) -> Counter[str]:
    """The model's rows, as Spark shows them: times are numbers."""
    return Counter({repr(row): count for row, count in ((freeze(r), c) for r, c in model_rows(model, as_of))})


def freeze(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with its decimals at the scale of their column."""
    return tuple(one.quantize(Decimal("0.01")) if isinstance(one, Decimal) else one for one in row)


def model_rows(model: ViewModel, as_of: int) -> list[tuple[tuple[Any, ...], int]]:
    """The rows as of a time; rows with lists cannot be keys of a dictionary, so they are counted by text."""
    total: dict[str, tuple[tuple[Any, ...], int]] = {}
    for row, at, diff in model.changes:
        if at <= as_of:
            total[repr(row)] = row, total.get(repr(row), (row, 0))[1] + diff
    return [(row, count) for row, count in total.values() if count]


@pytest.mark.parametrize("partitions", ["1", "2", "3", "7"])
def test_rows_as_of_any_time_in_any_number_of_parts(state: tuple[StateBuilder, ViewModel], partitions: str) -> None:
    builder, model = state
    for as_of in (95, 120, 204, 299):
        table = read(state=builder.path, view="people", as_of=str(as_of), partitions=partitions)
        assert rows(table) == expected(model, as_of)
    assert rows(read(state=builder.path, view="people")) == expected(model, 299)


def test_both_ways_read_the_same(state: tuple[StateBuilder, ViewModel], serve: Callable[..., Served]) -> None:
    builder, _ = state
    url = serve(builder.path).url
    for options in ({"as_of": "150"}, {"since": "150", "until": "260"}, {"as_of": "200", "columns": "at,name"}):
        near = read(state=builder.path, view="people", partitions="2", **options)
        far = read(url=url, view="people", **options)
        assert near.schema == far.schema
        assert rows(near) == rows(far)
        assert len(near)


def test_changes_of_an_interval(state: tuple[StateBuilder, ViewModel]) -> None:
    builder, model = state
    for since, until in ((96, 300), (130, 131), (200, 260)):
        table = read(state=builder.path, view="people", since=str(since), until=str(until), partitions="2")
        wanted = Counter(repr((*freeze(row), at, diff)) for row, at, diff in model.changes if since <= at < until)
        assert rows(table) == wanted
    everything = read(state=builder.path, view="people", changes="true")
    assert everything.column("_time").to_numpy().min() > 95


FILTERS: list[tuple[Any, Callable[[tuple[Any, ...]], bool]]] = [
    (EqualTo(("name",), LONG + "7"), lambda row: row[0] == LONG + "7"),
    (In(("name",), ("8", LONG + "9")), lambda row: row[0] in ("8", LONG + "9")),
    (GreaterThan(("age",), 20), lambda row: row[1] is not None and row[1] > 20),
    (Not(EqualTo(("age",), 20)), lambda row: row[1] is not None and row[1] != 20),
    (IsNull(("age",)), lambda row: row[1] is None),
    (IsNotNull(("weight",)), lambda row: row[2] is not None),
    (EqualTo(("ok",), True), lambda row: row[3]),
    (EqualTo(("day",), date(2026, 1, 5)), lambda row: row[4] == date(2026, 1, 5)),
    (GreaterThan(("at",), 10**18 + 12), lambda row: row[5] > 10**18 + 12),
]


def test_filters_are_evaluated_on_words(state: tuple[StateBuilder, ViewModel], serve: Callable[..., Served]) -> None:
    builder, model = state
    url = serve(builder.path).url
    for given, holds in FILTERS:
        wanted = Counter(repr(freeze(row)) for row, count in model_rows(model, 299) for _ in range(count) if holds(row))
        assert rows(read(given, state=builder.path, view="people", pushdown="true", partitions="2")) == wanted
        assert rows(read(given, url=url, view="people", pushdown="true")) == wanted
        changed = read(given, state=builder.path, view="people", since="200", pushdown="true")
        assert rows(changed) == Counter(
            repr((*freeze(row), at, diff)) for row, at, diff in model.changes if at >= 200 and holds(row)
        )


def test_conditions_as_an_option(state: tuple[StateBuilder, ViewModel], serve: Callable[..., Served]) -> None:
    builder, model = state
    wanted = Counter(repr(freeze(r)) for r, n in model_rows(model, 299) for _ in range(n) if r[3] and r[5] > 10**18 + 9)
    where = f'["ok:eq:true","at:gt:{10**18 + 9}"]'
    assert rows(read(state=builder.path, view="people", where=where, partitions="3")) == wanted
    assert rows(read(url=serve(builder.path).url, view="people", where=where)) == wanted
    with pytest.raises(UnknownViewColumn, match="no column 'okk', did you mean 'ok'"):
        read(state=builder.path, view="people", where="okk:eq:true")
    stream = Stream(state=builder.path, view="people", since="250", where="ok:eq:true")
    changed = Counter(repr((*freeze(r), at, diff)) for r, at, diff in model.changes if at >= 250 and r[3])
    assert Counter(map(repr, stream.turn())) == changed


def test_what_has_another_meaning_stays_with_spark() -> None:
    left = [
        EqualTo(("weight",), 0.5), StringContains(("name",), "a"), In(("name",), ("a,b",)), EqualTo(("name",), "null"),
        EqualTo(("place", "x"), 1.0), Not(IsNull(("age",))), EqualTo(("_time",), 3), In(("age",), (1, None)),
    ]  # fmt: skip
    assert pushed(left, PEOPLE) == ((), left)


def test_a_stream_restarted_after_each_batch_has_each_change_once(tmp_path: Path) -> None:
    builder, model, chance = (
        StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]}, shards=2),
        ViewModel(),
        random.Random(8),
    )
    stream = None
    total: Counter[tuple[Any, ...]] = Counter()
    started = 0
    for number in range(24):
        lower = number * 10
        own: list[Change] = [
            ((chance.randrange(9),), lower + chance.randrange(10), chance.choice([1, 1, -1])) for _ in range(5)
        ]
        model.changes += own
        # At times the stream is behind by more epochs than are kept, and reads the trace.
        builder.commit(
            lower + 10, {"reach": own}, keep=3, since=lower - 90 if number == 20 else None, merge=number == 20
        )
        if number == 5:
            stream, started = Stream(state=builder.path, view="reach", changes="true", partitions="2"), lower + 9
        if stream is not None and chance.random() < 0.6:
            stream.restart()
            total.update({(row[0], row[1]): row[2] for row in []})
            for node, at, diff in stream.turn(most=7, twice=number % 2 == 0):
                total[node, at] += diff
    assert stream is not None
    while batch := stream.turn():
        for node, at, diff in batch:
            total[node, at] += diff
    builder.close()
    wanted: Counter[tuple[Any, ...]] = Counter({(row[0], started): n for row, n in model.rows(started).items()})
    for row, at, diff in model.between(started + 1, 1 << 62):
        wanted[row[0], at] += diff
    assert {one: n for one, n in total.items() if n} == {one: n for one, n in wanted.items() if n}


def test_a_stream_over_http(tmp_path: Path, serve: Callable[..., Served]) -> None:
    builder, model = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]}), ViewModel()

    def commit(number: int) -> None:
        own: list[Change] = [((number % 3,), number * 10 + 1, 1), ((number,), number * 10 + 2, 1)]
        model.changes += own
        builder.commit(number * 10 + 10, {"reach": own}, keep=50)

    commit(0)
    stream = Stream(url=serve(builder.path).url, view="reach", since="0")
    found: list[tuple[Any, ...]] = []
    for number in range(1, 5):
        commit(number)
        while len(found) < 2 * number:
            found += stream.turn()
        stream.restart()
    builder.close()
    while len(found) < 10:
        found += stream.turn(twice=True)
    assert Counter(found) == Counter((row[0], at, diff) for row, at, diff in model.changes)


def test_a_quiet_view_makes_few_batches(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]})
    builder.commit(10, {"reach": [((1,), 1, 1)]})
    stream = Stream(state=builder.path, view="reach", changes="true")
    assert stream.turn() == [(1, 9, 1)]
    offsets = set()
    for number in range(2, 100):
        builder.commit(number * 10, keep=3)
        assert stream.turn() == []
        assert stream.offset is not None
        offsets.add(stream.offset["frontier"])
    assert 2 < len(offsets) < 8  # it follows, so that a restart finds its position in the history
    builder.close()


@pytest.mark.slow
def test_a_million_rows_over_both_ways(tmp_path: Path, serve: Callable[..., Served]) -> None:
    count = 1_000_000

    class Wide(StateBuilder):
        def updates(self, view: str, changes: Any) -> Updates:
            rows = np.column_stack((np.arange(count), np.arange(count) * 7))
            return Updates.of(rows, np.arange(count) % 1_000, np.ones(count, np.int64)).consolidate()

    builder = Wide(tmp_path / "state", {"pairs": (row_type(node="Int64", m="Int64"), ["node"])}, shards=2)
    builder.commit(1_000, {})
    builder.close()
    near = read(state=builder.path, view="pairs", as_of="998", partitions="3")
    far = read(url=serve(builder.path).url, view="pairs", as_of="998")
    order = [("node", "ascending")]
    assert len(near) == count - count // 1_000
    assert near.sort_by(order).equals(far.sort_by(order))


def test_multiplicities(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]})
    builder.commit(10, {"reach": [((1,), 1, 3), ((2,), 2, 1), ((3,), 5, -2)]})
    builder.close()
    assert read(state=builder.path, view="reach", as_of="4").to_pydict() == {"node": [1, 1, 1, 2]}
    with pytest.raises(NegativeRows, match="rows of multiplicity -2"):
        read(state=builder.path, view="reach")
    assert read(state=builder.path, view="reach", diff="true").to_pydict() == {"node": [1, 2, 3], "_diff": [3, 1, -2]}


def test_what_cannot_be_read(state: tuple[StateBuilder, ViewModel]) -> None:
    builder, _ = state
    given = {"state": str(builder.path), "view": "people"}
    for error, options in (
        (Compacted, {"as_of": "94"}),
        (Compacted, {"since": "95"}),
        (NotYetFinal, {"as_of": "300"}),
        (NotYetFinal, {"until": "301"}),
        (UnknownView, {"view": "peple"}),
        (BadOption, {"viw": "people"}),
        (BadOption, {"as_of": "yesterday"}),
        (BadOption, {"as_of": "99", "since": "99"}),
        (BadOption, {"partitions": "0"}),
        (BadOption, {"url": "http://127.0.0.1:1"}),
    ):
        with pytest.raises(error):
            read(**{**given, **options})
    stream = source(**given)
    with pytest.raises(BadOption, match="option changes: is missing"):
        stream.streamReader(stream.schema())


def test_a_view_that_is_redefined_ends_the_stream(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]})
    builder.commit(10, {"reach": [((1,), 1, 1)]})
    stream = Stream(state=builder.path, view="reach", changes="true")
    assert stream.turn() == [(1, 9, 1)]
    builder.close()
    other = StateBuilder(tmp_path / "state", {"reach": (row_type(node="Int64", n="Int64"), ["node"])}, program="p2")
    other.commit(20, {"reach": [((1, 2), 11, 1)]})
    other.close()
    stream.restart()
    with pytest.raises(ViewChanged, match="view reach has been redefined"):
        stream.turn()


def test_the_first_rows_are_those_before_since(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]})
    builder.commit(10, {"reach": [((1,), 1, 1), ((2,), 5, 1)]})
    builder.close()
    stream = Stream(state=builder.path, view="reach", since="3", snapshot="true")
    assert stream.turn() == [(1, 2, 1)]
    assert stream.turn() == [(2, 5, 1)]
    assert Stream(state=builder.path, view="reach", since="3").turn() == [(2, 5, 1)]
    assert Stream(state=builder.path, view="reach", since=str(MIN_TIME)).turn() == [(1, 1, 1), (2, 5, 1)]
