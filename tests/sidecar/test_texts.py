"""Views with texts, decimals, lists and structs: read, filtered, ordered, followed, in every format."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import vernier as vn
from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.conftest import Served

PEOPLE = row_type(
    name="String",
    note="String | None",
    price="Decimal(8, 2)",
    tags="List(String | None)",
    place="Struct(x=Float64, since=Date | None)",
    raw="Binary",
)
LONG = "a name that is much longer than fifteen bytes: "


def person(name: str, note: str | None = None, price: str = "1.50") -> tuple[object, ...]:
    place = {"x": float("inf"), "since": None}
    return (name, note, Decimal(price), [name, None], place, name.encode()[::-1])


FIRST, SECOND, SHORT = person(LONG + "b", "x", "-0.05"), person(LONG + "a"), person("zoë", LONG)


@pytest.fixture
def people(tmp_path: Path, serve: Callable[..., Served]) -> Iterator[tuple[StateBuilder, str]]:
    """Three people, of whom one goes and comes again; the sidecar reads while epochs are committed."""
    builder = StateBuilder(tmp_path / "state", {"people": (PEOPLE, ["name"])})
    builder.commit(10, {"people": [(FIRST, 3, 1), (SECOND, 4, 1)]})
    url = serve(builder.path).url
    yield builder, url
    builder.close()


def get(url: str, path: str, **params: object) -> httpx.Response:
    answer = httpx.get(f"{url}{path}", params=params, trust_env=False)  # type: ignore[arg-type]
    answer.raise_for_status()
    return answer


def follow(builder: StateBuilder, url: str) -> None:
    """Epochs that the sidecar steps through: a row goes, its batches are merged, another one comes."""
    builder.commit(20, {"people": [(SHORT, 12, 1), (FIRST, 15, -1)]}, merge=True, since=5)
    builder.commit(30, {"people": [(person(LONG + "c"), 25, 2)]})
    get(url, "/v1/views/people", as_of=29, wait_ms=10_000)


def names(rows: list[dict[str, object]]) -> list[object]:
    return [row["name"] for row in rows]


def test_rows_have_all_types(people: tuple[StateBuilder, str]) -> None:
    builder, url = people
    rows = get(url, "/v1/views/people", order="-price").json()["rows"]
    assert rows[1] == {
        "name": LONG + "b",
        "note": "x",
        "price": "-0.05",
        "tags": [LONG + "b", None],
        "place": {"x": "Infinity", "since": None},
        "raw": rows[1]["raw"],
    }
    follow(builder, url)
    rows = get(url, "/v1/views/people", order="name").json()["rows"]
    assert names(rows) == [LONG + "a", LONG + "c", "zoë"]
    assert rows[1]["_diff"] == 2
    assert names(get(url, "/v1/views/people", order="-name", as_of=14).json()["rows"]) == [
        "zoë",
        LONG + "b",
        LONG + "a",
    ]
    assert get(url, f"/v1/views/people/rows/{LONG}c").json()["rows"][0]["tags"] == [LONG + "c", None]
    found = httpx.post(f"{url}/v1/views/people/rows", json={"keys": ["zoë", LONG + "absent"]}, trust_env=False).json()
    assert names(found["rows"]) == ["zoë"]
    assert found["missing"] == [LONG + "absent"]


def test_filters_and_orders_are_those_of_the_values(people: tuple[StateBuilder, str]) -> None:
    builder, url = people
    follow(builder, url)

    def where(*conditions: str) -> list[object]:
        return names(get(url, "/v1/views/people", where=list(conditions), order="name").json()["rows"])

    assert where(f"name:lt:{LONG}c") == [LONG + "a"]
    assert where(f"name:ge:{LONG}b") == [LONG + "c", "zoë"]
    assert where(f"name:in:zoë,{LONG}a") == [LONG + "a", "zoë"]
    assert where("note:null") == [LONG + "a", LONG + "c"]
    assert where(f"note:eq:{LONG}") == ["zoë"]
    assert where("price:le:1.5", "price:gt:1.49") == [LONG + "a", LONG + "c", "zoë"]
    assert where('tags:eq:["zoë",null]') == ["zoë"]
    wrong = httpx.get(f"{url}/v1/views/people", params={"where": "price:eq:dear"}, trust_env=False)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_value")


def test_formats_and_changes(people: tuple[StateBuilder, str]) -> None:
    builder, url = people
    follow(builder, url)
    answer = httpx.get(
        f"{url}/v1/views/people", headers={"accept": "application/vnd.apache.arrow.stream"}, trust_env=False
    )
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert sorted(table["name"].to_pylist()) == [LONG + "a", LONG + "c", "zoë"]
    assert set(table["price"].to_pylist()) == {Decimal("1.50")}
    csv = httpx.get(f"{url}/v1/views/people", headers={"accept": "text/csv"}, trust_env=False).text
    assert f"{LONG}c" in csv
    lines = httpx.get(
        f"{url}/v1/views/people/changes",
        params={"since": "10", "until": "30"},
        headers={"accept": "application/x-ndjson"},
        trust_env=False,
    ).text.splitlines()
    changes = [change for line in lines for change in json.loads(line).get("changes", [])]
    assert [(change["row"]["name"], change["time"], change["diff"]) for change in changes] == [
        ("zoë", "12", 1),
        (LONG + "b", "15", -1),
        (LONG + "c", "25", 2),
    ]
    with vn.connect(url) as client:
        assert client.arrow("people")["note"].to_pylist().count(None) == 2
        assert client.key("people", LONG + "a")[0]["price"] == "1.50"
