"""No input is ignored in silence: brokers that do not answer, empty files, settings of no source, byte order marks."""

from __future__ import annotations

import codecs
import gzip
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.test_programs import TEXT as PROGRAM
from tests.service.test_ingest import prepare
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served, builder, serve
from tests.sinks.topic import committed
from vernier.service.cli.main import run
from vernier.service.config.settings import BadSettings, load
from vernier.service.coordinator.driver import Driver
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.reach import REACH_MS

__all__ = ["builder", "serve"]  # fixtures
LINE = '{"input":"edges","data":[1,2],"time":17}\n'


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a process that accepts connections and never answers, like a stopped broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def updates(tmp_path: Path) -> Path:
    """A file of one update."""
    file = tmp_path / "updates.jsonl"
    file.write_text(LINE)
    return file


COMMANDS: list[Callable[[Path], list[str]]] = [
    lambda file: ["send", str(file), "--topic", "t"],
    lambda file: ["dlq", "list"],
    lambda file: ["dlq", "replay"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=["send", "dlq list", "dlq replay"])
def test_a_broker_that_does_not_answer_is_told_soon_with_its_address_and_setting(
    command: Callable[[Path], list[str]], updates: Path, silent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert REACH_MS <= 3_000
    assert run([*command(updates), "--set", f"kafka.bootstrap={silent}"]) == 1
    err = capsys.readouterr().err
    assert err == (
        f"vernier: no kafka broker answers at {silent}; give --bootstrap HOST:PORT, or the setting kafka.bootstrap "
        "(--set, --config or VERNIER_KAFKA__BOOTSTRAP)\n"
    )


@pytest.mark.broker
def test_the_setting_of_the_brokers_counts(broker: EmbeddedBroker, updates: Path) -> None:
    broker.create_topics({"told": 1})
    assert run(["send", str(updates), "--topic", "told", "--set", f"kafka.bootstrap={broker.bootstrap}"]) == 0
    other = ["--set", "kafka.bootstrap=127.0.0.1:1", "--bootstrap", broker.bootstrap]
    assert run(["send", str(updates), "--topic", "told", *other]) == 0
    assert len(committed(broker.bootstrap, "told")) == 2


@pytest.mark.parametrize("where", [["--topic", "t", "--bootstrap", "127.0.0.1:1"], ["--source", "s"]])
def test_send_looks_at_the_file_first(where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, broken, wide = tmp_path / "no.jsonl", tmp_path / "b.jsonl.gz", tmp_path / "w.jsonl"
    broken.write_bytes(b"no gzip")
    wide.write_bytes(LINE.encode("utf-16"))
    for file, said in ((missing, "no such file"), (broken, "not a gzipped file"), (wide, "it is UTF-16")):
        assert run(["send", str(file), *where]) == 1
        assert f"vernier: {file}: {said}" in capsys.readouterr().err


@pytest.mark.broker
def test_a_byte_order_mark_of_utf_8_is_passed_over(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, packed, out = tmp_path / "u.jsonl", tmp_path / "u.jsonl.gz", tmp_path / "out.jsonl"
    file.write_bytes(codecs.BOM_UTF8 + LINE.encode())
    packed.write_bytes(gzip.compress(file.read_bytes()))
    broker.create_topics({"marked": 1})
    for one in (file, packed):
        assert run(["send", str(one), "--topic", "marked", "--bootstrap", broker.bootstrap]) == 0
    assert [json.loads(record.value)["u"] for record in committed(broker.bootstrap, "marked")] == [
        [[[1, 2], "17", 1]]
    ] * 2
    program = tmp_path / "p.py"
    program.write_text(PROGRAM)
    words = ["replay", str(program), "--out", str(out), "--updates"]
    for one in (file, packed):
        assert run([*words, str(one)]) == 0
        assert json.loads(out.read_text().splitlines()[0])["time"] == 17
    file.write_bytes(LINE.encode("utf-16"))
    assert run([*words, str(file)]) == 1
    assert "it is UTF-16, as its byte order mark says; updates are UTF-8" in capsys.readouterr().err


@pytest.mark.broker
def test_a_file_without_updates_is_told(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, out, program = tmp_path / "empty.jsonl", tmp_path / "out.jsonl", tmp_path / "p.py"
    empty.write_text("\n\n")
    program.write_text(PROGRAM)
    broker.create_topics({"nothing": 1})
    for words in (
        ["send", str(empty), "--topic", "nothing", "--bootstrap", broker.bootstrap],
        ["send", str(empty), "--source", "edges"],
        ["replay", str(program), "--updates", str(empty), "--out", str(out)],
    ):
        assert run(words) == 0
        assert f"vernier: {empty} has no updates in it\n" in capsys.readouterr().err
    assert out.read_text() == ""


def test_an_empty_body_is_refused(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    prepare(builder, "edges", "event")
    away = load(None, {"kafka.bootstrap": "127.0.0.1:9"}, {}).settings
    url = serve(builder.path, service=away, ingest_ms=300).url
    kinds = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
    for kind in kinds:
        for body in (b"", b" \n"):
            answer = httpx.post(
                f"{url}/v1/sources/edges", content=body, headers={"content-type": kind}, trust_env=False, timeout=60
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_body"), (kind, body)
            assert "nothing was sent" in answer.json()["detail"]


def test_settings_of_a_source_that_is_not_there_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(PROGRAM)
    flags = {"program": str(program), "state.path": str(tmp_path / "state"), "sources.edge.format": "json"}
    with pytest.raises(BadSettings) as error:
        Driver(load(None, flags, {}).settings)
    assert str(error.value).startswith(
        "sources.edge: no program of this service has a source of this name (the sources are edges"
    )
    assert str(error.value).endswith("); did you mean sources.edges?")
