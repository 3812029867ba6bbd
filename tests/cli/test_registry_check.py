"""`vernier plan` with a schema registry: whether its newest schema fits, and whether it would take the columns."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto as Parsed

from tests.cli.command import Done
from tests.cli.test_plan import make_state, run
from tests.ingest.fake_registry import Fake, registry
from tests.ingest.protofiles import File, encoded, file

HEAD = """
import datetime
import decimal
import vernier as vn

class Use(vn.Schema):
{columns}
app = vn.App("bank", retain="10s")
uses = app.source("uses", Use)
app.view("uses", uses, key=["{key}"])
"""
OLD = {"account": "vn.Int64", "kind": "vn.Int64", "spent": "vn.Int64"}
SUBJECT = "uses-value"


def program(columns: dict[str, str]) -> str:
    lines = "".join(f"    {name}: {kind}\n" for name, kind in columns.items())
    return HEAD.format(columns=lines, key=next(iter(columns)))


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Use", "namespace": "bank", "fields": list(fields)})


AVRO = record(*({"name": name, "type": "long", "doc": f"its {name}"} for name in OLD))
PROTOBUF = file({"Use": {"account": "int64", "kind": "int64 3", "spent": "int64 4"}})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return make_state(tmp_path, program(OLD), [(1, 2, 3)])


def plan(state: Path, fake: Fake, columns: dict[str, str], form: str = "avro", **given: str) -> tuple[Done, Any]:
    """What the command ends with, and what it says about the registry."""
    text = state.parent / "changed.py"
    text.write_text(program(columns), "utf-8")
    flags = {"format": form, "registry": fake.url, **given}
    words = [word for name, value in flags.items() for word in ("--set", f"sources.uses.{name}={value}")]
    done = run("plan", text, "--state", state, "--format", "json", "--set", "state.keep_sources=true", *words)
    listed = json.loads(done.out)["changes"] if done.out else []
    return done, next(((one["fate"], one["schema"], one["about"]) for one in listed if "schema" in one), None)


def fields(fake: Fake) -> Any:
    """Those of the last schema that was compared."""
    return json.loads(fake.posted[-1]["schema"])["fields"]


def test_avro_columns_that_change(state: Path) -> None:
    more = {"owner": 'vn.Int64 = vn.column(was="account")', "spent": "vn.Int64", "note": "vn.String | None",
            "day": "vn.Date = vn.column(default=datetime.date(1970, 1, 3))",
            "paid": 'vn.Decimal(9, 2) = vn.column(default=decimal.Decimal("-0.50"))',
            "tags": "vn.List(vn.String) | None", "place": "vn.Struct(lat=vn.Float64) | None"}  # fmt: skip
    with registry() as fake:
        done, said = plan(state, fake, OLD)
        assert (done.status, said) == (
            0, ("kept", SUBJECT, "the registry has no schema yet: Subject 'uses-value' not found. (error 40401)")
        )  # fmt: skip
        fake.schemas, fake.subjects = {4: {"schema": AVRO}}, {SUBJECT: [4]}
        done, said = plan(state, fake, OLD)
        assert (done.status, said) == (0, ("kept", SUBJECT, "schema 4 fits"))
        assert not fake.posted
        done, said = plan(state, fake, more)
        assert (done.status, said) == (
            0,
            ("changed", SUBJECT, "schema 4 fits; the registry takes one with the columns"),
        )
        assert fake.asked[-1] == "/compatibility/subjects/uses-value/versions/latest?verbose=true"
        null = "null"
        assert fields(fake) == [
            {"name": "owner", "type": "long", "doc": "its account", "aliases": ["account"]},
            {"name": "spent", "type": "long", "doc": "its spent"},
            {"name": "note", "type": [null, "string"], "default": None},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 2},
            {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
             "default": "\xce"},
            {"name": "tags", "type": [null, {"type": "array", "items": "string"}], "default": None},
            {"name": "place", "default": None,
             "type": [null, {"type": "record", "name": "place", "fields": [{"name": "lat", "type": "double"}]}]},
        ]  # fmt: skip
        assert json.loads(fake.posted[-1]["schema"])["namespace"] == "bank"
        fake.incompatible = {"bank": ["no more columns"]}
        done, said = plan(state, fake, more, subject="bank")
        assert (done.status, said[:2]) == (0, ("kept", "bank"))
        fake.subjects["bank"] = [4]
        done, said = plan(state, fake, more, subject="bank")
        assert (done.status, said) == (
            1, ("refused", "bank", "producers could not register the columns: no more columns")
        )  # fmt: skip


def test_a_registry_that_is_ahead_or_away(state: Path) -> None:
    with registry() as fake:
        ahead = record(*({"name": name, "type": "long"} for name in (*OLD, "rate")))
        fake.schemas, fake.subjects = {4: {"schema": AVRO}, 5: {"schema": ahead}}, {SUBJECT: [4, 5]}
        done, said = plan(state, fake, OLD)
        assert done.status == 1
        assert said == (
            "refused", SUBJECT,
            ("schema 5 of the registry does not fit source uses: it has the column 'rate', which the source does not "
            "(it has account, kind, spent)"),
        )  # fmt: skip
        done, said = plan(state, fake, OLD | {"rate": "vn.Int64 | None"})
        assert (done.status, said) == (0, ("kept", SUBJECT, "schema 5 fits"))
        fake.status = 500
        done, said = plan(state, fake, OLD)
        assert (done.status, said) == (1, None)
        assert "did not answer: Error in the backend data store (error 50001)" in done.err


def test_what_compatibility_says_about_a_column_without_default(state: Path) -> None:
    with registry() as fake:
        short = record(*({"name": name, "type": "long"} for name in ("account", "kind")))
        fake.schemas, fake.subjects = {4: {"schema": short}}, {SUBJECT: [4]}
        done, said = plan(state, fake, OLD)
        assert done.status == 1  # the service could not read the messages
        assert said[2] == "schema 4 of the registry does not fit source uses: it has no column 'spent'"
        done, said = plan(state, fake, OLD | {"spent": "vn.Int64 | None"})
        assert (done.status, said[0]) == (0, "changed")


def message(fake: Fake) -> Any:
    """The message of the last schema that was compared."""
    return Parsed.FromString(base64.b64decode(fake.posted[-1]["schema"]))


def proto(one: File, **about: Any) -> dict[str, Any]:
    return {"schema": encoded(one), "schemaType": "PROTOBUF", **about}


def test_protobuf_columns_that_change(state: Path) -> None:
    more = {"owner": 'vn.Int64 = vn.column(was="account")', "spent": "vn.Int64", "note": "vn.String | None",
            "at": "vn.TimestampNs | None", "tags": "vn.Bool | None",
            "place": "vn.Struct(lat=vn.Float64, name=vn.String | None) | None"}  # fmt: skip
    with registry() as fake:
        fake.schemas, fake.subjects = {9: proto(PROTOBUF)}, {SUBJECT: [9]}
        done, said = plan(state, fake, OLD, "protobuf")
        assert (done.status, said) == (0, ("kept", SUBJECT, "schema 9 fits"))
        done, said = plan(state, fake, more, "protobuf", message="Use")
        assert (done.status, said) == (
            0,
            ("changed", SUBJECT, "schema 9 fits; the registry takes one with the columns"),
        )
        file_ = message(fake)
        (use,) = file_.message_type
        assert [(one.name, one.number, one.type_name) for one in use.field] == [
            ("owner", 1, ""), ("spent", 4, ""), ("note", 5, ""), ("at", 6, ".google.protobuf.Timestamp"),
            ("tags", 7, ""), ("place", 8, ".shop.Use.Place"),
        ]  # fmt: skip
        assert ([one.name for one in use.field if one.proto3_optional], list(use.reserved_name)) == (
            ["note", "tags"], ["kind"]
        )  # fmt: skip
        assert [one.name for one in use.nested_type[0].field] == ["lat", "name"]
        assert list(file_.dependency) == ["google/protobuf/timestamp.proto"]
        assert fake.posted[-1]["schemaType"] == "PROTOBUF"
        # The registry's own reader understands what was sent, and so does the service.
        fake.schemas[10] = {"schema": fake.posted[-1]["schema"], "schemaType": "PROTOBUF"}
        fake.subjects[SUBJECT].append(10)
        done, said = plan(state, fake, more, "protobuf")
        assert (done.status, said) == (0, ("kept", SUBJECT, "schema 10 fits"))
        wrong = "{errorType:'FIELD_SCALAR_KIND_CHANGED', description:'The kind of a SCALAR field at path '#/Use/4'…'}"
        fake.incompatible[SUBJECT] = [wrong]
        done, said = plan(state, fake, more | {"rate": "vn.Float64 | None"}, "protobuf")
        assert (done.status, said[2]) == (1, f"producers could not register the columns: {wrong}")
        done, said = plan(state, fake, OLD, "protobuf")
        assert (done.status, said[0]) == (1, "refused")
