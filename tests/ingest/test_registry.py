"""Avro messages with the id of a schema in a registry, which is asked over HTTP as its documentation says."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.ingest.fake_registry import registry
from tests.ingest.log import EDGES, Service, Topics, batch
from vernier.service.config.settings import load
from vernier.service.ingest.config import IngestionConfig, SourceConfig, SourceMisfit
from vernier.service.ingest.formats.registry import Registry, RegistryAway
from vernier.service.ingest.ingestion import Ingestion

ID = "sources.edges.registry"
FIELDS = [{"name": "src", "type": "long"}, {"name": "dst", "type": "int"}]


def record(*fields: dict[str, Any]) -> str:
    """A record schema."""
    return json.dumps({"type": "record", "name": "Edge", "fields": list(fields)})


def message(number: int, schema: str, row: dict[str, Any]) -> bytes:
    """A message in Confluent's framing."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def service(url: str, auth_file: str | None = None) -> Service:
    """A service that reads edges with schemas of a registry."""
    source = SourceConfig("edges", "avro", registry=Registry(url, auth_file))
    return Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": source}, {"edges": 1})))


def rows(one: Service) -> list[tuple[int, ...]]:
    """What has entered."""
    return sorted(row for _, row, _, _ in one.entered)


def test_schemas_come_from_the_registry_and_what_does_not_fit_is_refused_with_the_reason() -> None:
    good, other = record(*FIELDS), record(FIELDS[1], FIELDS[0])
    more, less = record(*FIELDS, {"name": "note", "type": "string"}), record(FIELDS[0])
    wrong = record(FIELDS[0], {"name": "dst", "type": "string"})
    with registry() as fake:
        fake.schemas = {number: {"schema": text} for number, text in enumerate((good, other, more, less, wrong), 1)}
        fake.schemas[6] = {"schema": 'syntax = "proto3"; message Edge {}', "schemaType": "PROTOBUF"}
        fake.schemas[7] = {"schema": good, "references": [{"name": "org.Node", "subject": "node", "version": 1}]}
        one, log = service(fake.url), Topics()
        given = {"src": 1, "dst": 2, "note": "x"}
        sent = [
            log.append("edges", 0, message(number, text, given | ({"dst": "x"} if number == 5 else {})))
            for number, text in enumerate((good, other, more, less, wrong, good, good, good), 1)
        ]
        one.epoch([*sent, log.append("edges", 0, message(1, good, {"src": 3, "dst": 4}))])
        one.epoch([log.append("edges", 0, message(2, other, {"src": 5, "dst": 6})), log.append("edges", 0, b"{}")])
        one.epoch([log.append("edges", 0, b"")])
        assert rows(one) == [(1, 2), (1, 2), (3, 4), (5, 6)]
        assert [(letter.reason, letter.detail) for letter in one.letters] == [
            (
                "schema",
                (
                    "schema 3 of the registry does not fit source edges: it has the column 'note', which the "
                    "source does not (it has src, dst)"
                ),
            ),
            ("schema", "schema 4 of the registry does not fit source edges: it has no column 'dst'"),
            ("schema", one.letters[2].detail),
            (
                "schema",
                (
                    "schema 6 of the registry cannot be read: it is PROTOBUF; only records of Avro without "
                    "references are read"
                ),
            ),
            (
                "schema",
                (
                    "schema 7 of the registry cannot be read: it refers to org.Node; only records of Avro without "
                    "references are read"
                ),
            ),
            ("decode", "the registry has no schema 8: Schema 8 not found (error 40403)"),
            ("decode", "the message does not begin with a zero byte and the id of its schema"),
            ("decode", "the message is empty: it has no value"),
        ]
        assert one.letters[2].detail.startswith("schema 5 of the registry does not fit source edges: column 'dst'")
        # Each id costs one request, also for other readers in the process; one that is unknown may be added later.
        assert sorted(fake.asked) == [f"/schemas/ids/{number}" for number in range(1, 9)]
        fake.schemas[8] = {"schema": good}
        again = service(fake.url)
        again.epoch([log.append("edges", 0, message(number, good, given)) for number in (1, 8)])
        assert rows(again) == [(1, 2), (1, 2)]
        assert fake.asked[8:] == ["/schemas/ids/8"]


def test_a_registry_that_is_away_loses_no_message() -> None:
    good, log = record(*FIELDS), Topics()
    with registry() as fake:
        sent = log.append("edges", 0, message(1, good, {"src": 1, "dst": 2}))
        one = service(fake.url)
        fake.schemas, fake.status = {1: {"schema": good}}, 500
        with pytest.raises(RegistryAway, match=r"did not answer: Error in the backend data store \(error 50001\)"):
            one.epoch([sent])
        with pytest.raises(RegistryAway):  # nor does the quarantine convict it
            one.ingestion.quarantine([batch([sent])], {}, {}, 5.0)
        fake.status = 200
        one.epoch([sent])
        assert rows(one) == [(1, 2)]
        assert not one.letters
    with pytest.raises(RegistryAway, match="refused"):
        one.epoch([log.append("edges", 0, message(2, good, {"src": 1, "dst": 2}))])


def test_the_registry_is_asked_with_credentials(tmp_path: Path) -> None:
    good, log = record(*FIELDS), Topics()
    with registry() as fake:
        fake.schemas, fake.wanted = {1: {"schema": good}}, f"Basic {base64.b64encode(b'ada:secret').decode()}"
        sent = log.append("edges", 0, message(1, good, {"src": 1, "dst": 2}))
        with pytest.raises(RegistryAway, match="Unauthorized"):
            service(fake.url).epoch([sent])
        (tmp_path / "auth").write_text("ada:secret\n", "utf-8")
        one = service(fake.url, str(tmp_path / "auth"))
        one.epoch([sent])
        assert rows(one) == [(1, 2)]


def test_the_settings_name_the_registry(tmp_path: Path) -> None:
    found = load(None, {ID: "http://registry:8081", f"{ID}_auth_file": str(tmp_path / "auth")}).settings
    assert found.source("edges").registry == "http://registry:8081"
    with pytest.raises(SourceMisfit, match=r"set sources\.edges\.registry, schema_file or schema_folder"):
        Ingestion({"edges": EDGES}, IngestionConfig({"edges": SourceConfig("edges", "avro")}, {"edges": 1}))
