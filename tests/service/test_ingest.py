"""Updates over HTTP reach a real broker, and their tokens say when they are visible, whatever has restarted."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.attack.hostile_binary import bomb
from tests.service.test_send import read
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served, builder, serve
from vernier.service.cli.main import run
from vernier.service.client.client import Client, NotVisible, ServerError, connect
from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.sidecar.writes.read_tokens import ReadToken
from vernier.storage.state.manifest import sources_of

__all__ = ["builder", "serve"]  # fixtures
_NUMBER = itertools.count()


def prepare(builder: StateBuilder, topic: str, clock: str, form: str = "vernier") -> None:
    """What a service leaves behind that has a source `edges`, and no epoch with updates of it."""
    (builder.path / "plan.json").write_text(
        json.dumps({"app": "test", "sources": {"edges": [["src", "Int64"], ["dst", "Int64"]]}, "arrangements": []})
    )
    about = {"topic": topic, "format": form, "clock": clock, "on_late": "reject", "resolution": "exact"}
    builder.sources = sources_of({"edges": about})
    builder.commit(10, {"reach": [((1,), 3, 1)]})


def ingestion(topic: str, **last: int) -> dict[str, Any]:
    """Ingestion's state: the last arrival stamp by partition."""
    clocks = {number.removeprefix("p"): {"active_ms": 1, "last": at} for number, at in last.items()}
    return {"frontier": 0, "topics": {topic: clocks}}


def visible(client: Client, token: str) -> bool:
    return bool(client.visible(token, wait_ms=0)["visible"])


@pytest.mark.broker
def test_sent_read_and_visible(
    builder: StateBuilder, serve: Callable[..., Served], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"ingest-{next(_NUMBER)}"
    broker.create_topics({topic: 2})
    prepare(builder, topic, "event")
    settings = load(None, {"kafka.bootstrap": broker.bootstrap}, {}).settings
    served = serve(builder.path, service=settings)
    with connect(served.url) as client:
        first = client.send("edges", [{"data": [n, n + 1], "time": 12} for n in range(40)], resolved=13)
        table = pa.table({"src": [7], "dst": [8], "_time": [15], "_diff": [-1]})
        token = client.send("edges", table)
        assert client.send("edges", b'{"data":{"src":5,"dst":6},"time":"14"}\n') != token
    messages = [json.loads(record.value) for records in read(broker, topic).values() for record in records]
    assert {"v": 1, "p": {"upper": ["13"]}} in messages
    rows = [tuple(update[0]) for message in messages for update in message.get("u", ())]
    assert sorted(rows) == sorted([(n, n + 1) for n in range(40)] + [(7, 8), (5, 6)])
    ends = {partition: len(records) for partition, records in read(broker, topic).items()}
    with connect(served.url) as client:
        assert not visible(client, first)
        builder.commit(12, offsets={topic: ends})  # read, and held until their time
        while not (looked := client.visible(first, views=["reach"]))["read"]:
            pass
        assert (looked["visible"], looked["as_of"]) == (False, None)
        with pytest.raises(NotVisible, match="not visible after 0 s in reach, pairs"):
            client.wait(first, timeout=0)
        waiting: list[int] = []
        waiter = threading.Thread(target=lambda: waiting.append(connect(served.url).wait(token, timeout=60)))
        waiter.start()
        builder.commit(15, offsets={topic: ends})
        assert client.wait(first, timeout=60) == 12
        assert not visible(client, token)
        builder.commit(16, offsets={topic: ends})
        waiter.join(60)
        assert waiting == [15]
    with connect(serve(builder.path, service=settings).url) as another:
        assert [visible(another, one) for one in (first, token)] == [True, True]
    file = tmp_path / "more.jsonl"
    file.write_text('{"data":[1,2],"time":20}\n\n{"data":[1,2],"time":21,"diff":-1}\n')
    assert run(["send", str(file), "--source", "edges", "--url", served.url]) == 0
    assert sum(map(len, read(broker, topic).values())) == sum(ends.values()) + 1  # both are of one row


@pytest.mark.broker
def test_a_body_enters_whole_or_not_at_all(
    builder: StateBuilder, serve: Callable[..., Served], broker: EmbeddedBroker
) -> None:
    topic = f"ingest-{next(_NUMBER)}"
    broker.create_topics({topic: 1})
    prepare(builder, topic, "arrival", "json")
    settings = load(None, {"kafka.bootstrap": broker.bootstrap}, {}).settings
    with connect(serve(builder.path, service=settings).url) as client:
        with pytest.raises(ServerError, match="line 3: ") as error:
            client.send("edges", [(1, 2), (3, 4), (5, "x")])
        assert (error.value.status, error.value.problem) == (422, "bad_update")
        assert read(broker, topic) == {0: []}
        client.send("edges", [(1, 2), {"src": 3, "dst": 4}])
    (records,) = read(broker, topic).values()
    assert [json.loads(record.value)["data"] for record in records] == [[1, 2], [3, 4]]


def test_what_is_refused(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    prepare(builder, "edges", "event")
    away = load(None, {"kafka.bootstrap": "127.0.0.1:9"}, {}).settings
    url = serve(builder.path, service=away, ingest_ms=300, max_ingests=1).url

    def post(source: str, body: str | bytes, kind: str = "application/json", **params: str) -> tuple[int, str]:
        answer = httpx.post(f"{url}/v1/sources/{source}", content=body, headers={"content-type": kind}, params=params,
                            trust_env=False, timeout=60)  # fmt: skip
        return answer.status_code, answer.json()["code"]

    good = '[{"data":[1,2],"time":20}]'
    assert post("edge", good) == (404, "unknown_source")
    assert post("edges", good, "text/plain") == (415, "unknown_content_type")
    assert post("edges", "[") == (400, "bad_body")
    assert post("edges", '[{"data":[1],"time":20}]') == (422, "bad_update")
    assert post("edges", '[{"data":[1,2],"time":9}]') == (422, "bad_update")  # before the frontier
    assert post("edges", '[{"data":[1,2],"time":20,"diff":2147483649}]') == (422, "bad_update")
    deep = "[" * 3_000 + "]" * 3_000
    for kind in ("application/json", "application/x-ndjson"):
        assert post("edges", f'{{"data":{deep}}}', kind) == (400, "bad_body")
        assert post("edges", deep, kind) == (400, "bad_body")
    for codec in ("lz4", "zstd"):
        small = bomb(codec)
        assert len(small) < 500_000
        assert post("edges", small, "application/vnd.apache.arrow.stream") == (413, "body_too_large")
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = httpx.post(
        f"{url}/v1/sources/edges", content=gzip.compress(good.encode()), headers=packed, trust_env=False
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unknown_content_encoding")
    assert post("edges", good, after="x") == (400, "bad_token")
    assert post("edges", good) == (503, "kafka_unavailable")
    assert httpx.get(f"{url}/v1/tokens/x", trust_env=False).json()["code"] == "bad_token"
    nothing = httpx.post(f"{url}/v1/sources/edges", json=[], trust_env=False).json()
    assert (nothing["updates"], nothing["offsets"]) == (0, {})
    assert httpx.get(f"{url}/v1/tokens/{nothing['token']}", trust_env=False).json()["visible"] is True
    off = serve(builder.path, service=away, max_ingests=0).url
    assert httpx.post(f"{off}/v1/sources/edges", json=[], trust_env=False).json()["code"] == "ingest_off"
    builder.sources = sources_of({"edges": {"topic": "edges", "format": "avro", "clock": "event"}})
    builder.commit(20)
    other = serve(builder.path, service=away).url
    assert httpx.post(f"{other}/v1/sources/edges", json=[], trust_env=False).json()["code"] == "not_writable"
    (builder.path / "plan.json").unlink()
    assert httpx.post(f"{other}/v1/sources/edges", json=[], trust_env=False).json()["code"] == "no_plan"


def test_too_many_at_once(builder: StateBuilder, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(builder, "edges", "event")
    begun, go_on = threading.Event(), threading.Event()

    def stuck(*_: object) -> dict[int, int]:
        begun.set()
        assert go_on.wait(60)
        return {0: 1}

    monkeypatch.setattr("vernier.service.sidecar.writes.delivery.Delivery.deliver", stuck)
    url = serve(builder.path, service=load(None, {}, {}).settings, max_ingests=1).url
    first = threading.Thread(target=lambda: connect(url).send("edges", [{"data": [1, 2], "time": 20}]))
    first.start()
    assert begun.wait(60)
    with pytest.raises(ServerError) as error:
        connect(url).send("edges", [{"data": [1, 2], "time": 20}])
    assert (error.value.status, error.value.problem) == (429, "too_many_ingests")
    go_on.set()
    first.join(60)
    connect(url).send("edges", [{"data": [1, 2], "time": 20}])


def test_arrivals_are_visible_behind_the_stamps_that_the_ingestion_gave(
    builder: StateBuilder, serve: Callable[..., Served]
) -> None:
    prepare(builder, "t", "arrival")
    token = ReadToken("edges", "t", {0: 5, 1: 3}, None, "exact").encode()
    with connect(serve(builder.path).url) as client:
        builder.commit(20, offsets={"t": {0: 5, 1: 2}}, ingestion=ingestion("t", p0=15, p1=18))
        assert not visible(client, token)
        # Both partitions are read; 30 may be the time of an update that waits.
        builder.commit(25, offsets={"t": {0: 5, 1: 3}}, ingestion=ingestion("t", p0=30, p1=18))
        while not (looked := client.visible(token))["read"]:
            pass
        assert not looked["visible"]
        # Later stamps are of later updates: 30 stays the bound for requests here.
        builder.commit(31, offsets={"t": {0: 9, 1: 3}}, ingestion=ingestion("t", p0=60, p1=18))
        assert client.wait(token, timeout=60) == 30
    # A sidecar that looks for the first time knows no better bound than 60, and waits for that.
    with connect(serve(builder.path).url) as late:
        assert not visible(late, token)
        builder.commit(61, offsets={"t": {0: 9, 1: 3}}, ingestion=ingestion("t", p0=99, p1=18))
        assert late.wait(token, timeout=60) == 60


def test_the_first_epoch_is_waited_for(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    token = ReadToken("edges", "t", {0: 1}, 7, "exact").encode()
    found: list[int] = []
    with connect(serve(builder.path).url) as client:
        with pytest.raises(ServerError) as error:
            client.wait(token, timeout=0)
        assert error.value.problem == "no_epoch"
        waiter = threading.Thread(target=lambda: found.append(client.wait(token, timeout=60)))
        waiter.start()
        builder.commit(8, offsets={"t": {0: 1}})
        waiter.join(60)
    assert found == [7]


def test_receipts_of_several_requests_are_one() -> None:
    one, two = ReadToken("s", "t", {0: 5, 1: 3}, 7, "exact"), ReadToken("s", "t", {1: 2, 2: 9}, 4, "exact")
    assert two.after(one) == one.after(two) == ReadToken("s", "t", {0: 5, 1: 3, 2: 9}, 7, "exact")
    assert ReadToken.decode(one.encode()) == one
    millisecond = ReadToken("s", "t", {0: 1}, 1_000_001, "millisecond")
    assert [millisecond.has_passed(1_000_001, frontier) for frontier in (2_000_000, 2_000_001)] == [False, True]
    assert not one.has_passed(None, 10)
