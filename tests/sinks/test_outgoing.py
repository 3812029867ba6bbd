"""What goes out says exactly what happened: another Vernier's ingestion, and plain readers of keys, get the same
rows."""

import decimal
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.log import Service, Topics, values
from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats.native import Native
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.sinks.history import History, Step
from vernier.service.sinks.outgoing import NotOneRow, Outgoing
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME

LONG = 'a text that is too long to be whole in its words, "quoted"\n'
PLACES = row_type(name="String | None", node="Int64", weight="Float64 | None", paid="Decimal(9, 2)")
VIEWS = {"reach": (row_type(node="Int64"), ["node"]), "places": (PLACES, ["node", "name"])}


def steps_of(state: Path, view: str, frontier: int | None = None, meaning: str | None = None) -> list[Step]:
    """All steps of a view from a frontier on."""
    history = History(StateDirectory(state))
    history.poll()
    return history.steps(view, frontier, meaning, 1 << 30)


def sink(view: str, form: str = "vernier", partitions: int = 2, progress: bool | None = None) -> Outgoing:
    """How a view goes out."""
    return Outgoing(view, f"test.{view}", form, partitions, form == "vernier" if progress is None else progress, "test")


def through_ingestion(steps: Iterable[Step], out: Outgoing, schema: RowType, chance: random.Random) -> Service:
    """A service that has read the messages from a topic, each once or twice, in any order within an epoch."""
    config = SourceConfig("t", clock="event", idle_timeout_ms=None)
    service = Service(
        Ingestion({"in": schema}, IngestionConfig({"in": config}, partitions={"t": out.partitions})), workers=2
    )
    topics = Topics()
    for step in steps:
        sent = [message for message, _ in out.messages(step)]
        if topics.records:  # counting takes effect one epoch after the first counts
            sent += [message for message in sent if chance.random() < 0.5]
            chance.shuffle(sent)
        records = [topics.append("t", message.partition, message.value, 1) for message in sent]
        service.epoch(records, chance)
    for _ in range(2):
        topics.ms += 1
        service.epoch([topics.append("t", p, '{"v":1,"p":{"upper":["-5"]}}') for p in range(out.partitions)], chance)
    return service


def expected(model: ViewModel, schema: RowType) -> Counter[Any]:
    """The updates of a model as ingestion counts them."""
    found: Counter[Any] = Counter()
    for row, at, diff in model.between(MIN_TIME, 1 << 62):
        found["in", tuple(schema.encode_rows([row])[0].tolist()), at, diff] += 1
    return found


CHANGES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from([-2, -1, 1, 2])), max_size=8),
    min_size=1,
    max_size=5,
)


@given(CHANGES, st.integers(1, 3), st.randoms())
def test_another_service_reads_the_same_changes_at_the_same_times(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[tuple[int, int, int]]], partitions: int, chance: Any
) -> None:
    builder = StateBuilder(tmp_path_factory.mktemp("state"), {"reach": VIEWS["reach"]}, shards=2)
    model = ViewModel()
    for number, changes in enumerate(epochs):
        own: list[Change] = [((node,), number * 10 + at, diff) for node, at, diff in changes]
        model.changes += own
        builder.commit((number + 1) * 10, {"reach": own}, keep=50)
    builder.close()
    steps = steps_of(builder.path, "reach")
    assert [(step.lower, step.upper) for step in steps][1:] == [(n * 10, n * 10 + 10) for n in range(1, len(epochs))]
    service = through_ingestion(steps, sink("reach", partitions=partitions), VIEWS["reach"][0], chance)
    assert service.letters == []
    assert service.frontiers[-1] == len(epochs) * 10
    assert service.entered == expected(model, VIEWS["reach"][0])


def test_every_type_and_a_key_behind_other_columns(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    rows: list[Change] = [
        ((LONG, 1, None, "1.50"), 3, 1),
        ((None, 2, float("nan"), "-0.01"), 4, 1),
        (("", 3, 1e22, "7"), 5, 1),
        ((LONG, 1, None, "1.50"), 6, -1),
    ]
    given_rows = [((*row[:3], decimal.Decimal(row[3])), at, diff) for row, at, diff in rows]
    builder.commit(10, {"places": given_rows})
    builder.close()
    (step,) = steps_of(tmp_path, "places")
    messages = [json.loads(value) for value in messages_of(step)]
    assert messages[0]["u"] == [
        [[LONG, 1, None, "1.50"], "3", 1],
        [[None, 2, "NaN", "-0.01"], "4", 1],
        [["", 3, 1e22, "7.00"], "5", 1],
        [[LONG, 1, None, "1.50"], "6", -1],
    ]
    assert messages[1]["p"]["counts"] == [["3", 1], ["4", 1], ["5", 1], ["6", 1]]
    heap = Heap()
    parsed = Native({"in": PLACES}).decode(values(messages_of(step)[0]), heap)
    assert parsed.refused == []
    read = PLACES.decode_rows(parsed.words["in"], heap)
    assert [(row[0], row[1], str(row[3])) for row in read] == [
        (LONG, 1, "1.50"), (None, 2, "-0.01"), ("", 3, "7.00"), (LONG, 1, "1.50"),
    ]  # fmt: skip


def messages_of(step: Step) -> list[bytes]:
    """The values of a step's messages in the default format."""
    return [message.value or b"" for message, _ in sink("places", partitions=1).messages(step)]


def test_messages_say_who_they_are_and_are_the_same_again(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    builder.commit(10, {"reach": [((node,), 1, 1) for node in range(2_500)]})
    builder.commit(20, {"reach": [((1,), 12, -1)]})
    builder.close()
    out = sink("reach", partitions=2)
    once, again = ([list(out.messages(step)) for step in steps_of(tmp_path, "reach")] for _ in range(2))
    assert once == again
    headers = [dict(headers) for step in once for _, headers in step]
    identities = [one["vernier-message-id"] for one in headers]
    assert len(set(identities)) == len(identities)
    assert headers[-1] == {
        "vernier-format": b"vernier", "vernier-kind": b"progress", "vernier-epoch": b"2",
        "vernier-message-id": f"reach:10:20:1:{headers[-1]['vernier-message-id'].decode()[-1]}".encode(),
    }  # fmt: skip
    sizes = [len(json.loads(m.value or b"")["u"]) for m, _ in once[0] if m.kind == "updates"]
    assert (sum(sizes), max(sizes)) == (2_500, 1_000)


def test_many_times_are_counted_in_several_statements(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    builder.commit(100_000, {"reach": [((at,), at, 1) for at in range(9_000)]})
    builder.close()
    (step,) = steps_of(tmp_path, "reach")
    stated = [
        json.loads(m.value or b"")["p"] for m, _ in sink("reach", partitions=1).messages(step) if b'"p"' in m.value
    ]
    assert [one["upper"] for one in stated] == [["4096"], ["8192"], ["100000"]]
    assert [one["lower"] for one in stated[1:]] == [["4096"], ["8192"]]
    assert sum(len(one["counts"]) for one in stated) == 9_000
    service = through_ingestion([step], sink("reach", partitions=1), VIEWS["reach"][0], random.Random(2))
    assert (service.frontiers[-1], sum(service.entered.values())) == (100_000, 9_000)


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A state whose places come, change and go."""
    builder = StateBuilder(tmp_path, {"places": (row_type(node="Int64", name="String"), ["node"])})
    builder.commit(10, {"places": [((1, "a"), 1, 1), ((2, "b"), 2, 1), ((1, "a"), 5, -1), ((1, LONG), 5, 1)]})
    builder.commit(20, {"places": [((2, "b"), 12, -1), ((1, LONG), 15, -1), ((1, "c"), 15, 1)]})
    builder.close()
    return tmp_path


def test_upserts_are_the_newest_row_of_each_key(keyed: Path) -> None:
    out = sink("places", "upsert", 3, progress=True)
    sent = [m for step in steps_of(keyed, "places") for m, _ in out.messages(step)]
    changes = [(json.loads(m.key or b""), m.value and json.loads(m.value)) for m in sent if m.kind == "updates"]
    assert changes == [
        ({"node": 1}, {"node": 1, "name": "a"}),
        ({"node": 2}, {"node": 2, "name": "b"}),
        ({"node": 1}, {"node": 1, "name": LONG}),
        ({"node": 2}, None),
        ({"node": 1}, {"node": 1, "name": "c"}),
    ]
    assert len({m.partition for m in sent if m.key == b'{"node":1}'}) == 1
    assert [json.loads(m.value or b"")["resolved"] for m in sent if m.kind == "progress"] == ["10"] * 3 + ["20"] * 3


def test_debezium_has_what_was_and_what_is(keyed: Path) -> None:
    out = sink("places", "debezium", 1)
    sent = [json.loads(m.value or b"") for step in steps_of(keyed, "places") for m, _ in out.messages(step)]
    assert [(m["op"], m["before"] and m["before"]["name"], m["after"] and m["after"]["name"]) for m in sent] == [
        ("c", None, "a"), ("c", None, "b"), ("u", "a", LONG), ("d", "b", None), ("u", LONG, "c"),
    ]  # fmt: skip
    assert [m["source"]["ts_ns"] for m in sent] == [1, 2, 5, 12, 15]
    assert sent[0]["source"]["table"] == "places"


def test_several_rows_of_a_key_are_no_upserts(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, {"places": (row_type(node="Int64", name="String"), ["node"])})
    builder.commit(10, {"places": [((1, "a"), 1, 1), ((1, "b"), 1, 1)]})
    builder.close()
    (step,) = steps_of(tmp_path, "places")
    with pytest.raises(NotOneRow, match=r'several rows of the key \{"node":1\} at 1'):
        list(sink("places", "upsert").messages(step))
    assert len(list(sink("places", "vernier").messages(step))) > 0


@pytest.mark.parametrize(
    ("changes", "time"),
    [
        ([[((1, "a"), 1, 1), ((1, "b"), 3, 1)]], 3),  # the second row comes while the first is there
        ([[((1, "a"), 1, 1)], [((1, "b"), 13, 1)]], 13),
        ([[((1, "a"), 1, 1), ((1, LONG), 3, 1), ((1, "a"), 4, -1)]], 3),
        ([[((1, "a"), 1, 1)], [((1, LONG), 13, 1), ((1, "a"), 14, -1)]], 14),  # and the key is not gone
        ([[((1, "a"), 1, 1), ((2, "a"), 1, 1)], [((1, "b"), 13, 1), ((1, "a"), 13, -1), ((2, "b"), 14, 1)]], 14),
    ],
)
def test_several_rows_of_a_key_that_come_one_after_the_other(tmp_path: Path, changes: Any, time: int) -> None:
    builder = StateBuilder(tmp_path, {"places": (row_type(node="Int64", name="String"), ["node"])})
    history = History(StateDirectory(tmp_path))
    out, reached = sink("places", "upsert"), MIN_TIME
    for number, listed in enumerate(changes, 1):
        builder.commit(10 * number, {"places": listed})
        history.poll()
        for step in history.steps("places", reached, history.newest.views["places"].meaning, 100):
            if number == len(changes):
                with pytest.raises(
                    NotOneRow, match=rf"several rows of the key {{\"node\":.}} at {time}; format upsert"
                ):
                    list(out.messages(step))
            else:
                assert list(out.messages(step))
            reached = step.upper
    builder.close()


@pytest.mark.parametrize("columns", [{"node": "Int64"}, {"node": "Int64", "part": "String"}])
def test_the_rows_that_keys_have(tmp_path: Path, columns: dict[str, str]) -> None:
    chance = random.Random(len(columns))
    builder = StateBuilder(tmp_path, {"places": (row_type(**columns, name="String"), list(columns))}, shards=2)
    history, model = History(StateDirectory(tmp_path)), ViewModel()
    for epoch in range(1, 5):
        changes: list[Change] = []
        for _ in range(60):
            row = (chance.randrange(20), *("ab" for _ in range(len(columns) - 1)), chance.choice(["a", "b", LONG]))
            changes.append((row, 10 * epoch - 10 + chance.randrange(10), chance.choice([1, 1, -1])))
        model.changes += changes
        builder.commit(10 * epoch, {"places": changes})
        history.poll()
        assert history.newest is not None
        (step,) = history.steps("places", 10 * epoch - 10, history.newest.views["places"].meaning, 1000)
        assert step.held is not None
        view = step.view.stored
        words = sum(view.field(name).words for name in columns)
        keys = np.unique(np.ascontiguousarray(step.changes.rows)[:, :words], axis=0)[::-1]
        found = step.held.count(keys)
        assert found is not None
        wanted: Counter[int] = Counter()
        for row, count in model.rows(10 * epoch).items():
            wanted[row[0]] += max(count, 0)
        nodes = view.field("node").offset
        assert dict(zip(keys[:, nodes].tolist(), found.tolist())) == {
            key: wanted[key] for key in keys[:, nodes].tolist()
        }
    builder.close()


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"topic test\.a has 0 partitions"):
        Outgoing("a", "test.a", "vernier", 0, True, "test")
