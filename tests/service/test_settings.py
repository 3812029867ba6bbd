"""Settings: who overrides whom, where values came from, what is refused, and that secrets stay secret."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from vernier.operators.language.collection.app import App
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import Schema
from vernier.service.config.carry import carried
from vernier.service.config.redaction import MASK
from vernier.service.config.settings import BadSettings, Settings, load, masked
from vernier.service.config.streams import Source
from vernier.service.sidecar.__main__ import options_of
from vernier.storage.blob.location import BlobLocation


class Row(Schema):
    node: Int64


def program(on_late: str = "dead_letter") -> App:
    """A program with two sources."""
    app = App("app", on_late=on_late)
    app.source("edges", Row)
    app.source("roots", Row)
    return app


def write(tmp_path: Path, text: str) -> Path:
    """A settings file."""
    path = tmp_path / "service.yaml"
    path.write_text(text, "utf-8")
    return path


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    config = write(tmp_path, "kafka: {bootstrap: 'file:1', heap_mb: 100}\nhttp: {port: 1}\nworkers: 3\n")
    environment = {"VERNIER_KAFKA__BOOTSTRAP": "env:1", "VERNIER_HTTP__PORT": "2", "HOME": "/nowhere"}
    loaded = load(config, {"http.port": "3", "workers": None}, environment)
    settings = loaded.settings
    assert (settings.kafka.bootstrap, settings.http.port, settings.workers) == ("env:1", 3, 3)
    assert (settings.kafka.heap_mb, settings.state.keep) == (100, Settings().state.keep)
    shown = {line.partition(" = ")[0]: line.partition("# ")[2] for line in loaded.lines()}
    assert shown["kafka.bootstrap"] == "VERNIER_KAFKA__BOOTSTRAP"
    assert shown["http.port"] == "--set http.port"
    assert shown["kafka.heap_mb"] == str(config)
    assert shown["state.keep"] == "default"


def test_sources_by_name_from_every_layer(tmp_path: Path) -> None:
    config = write(tmp_path, "sources:\n  edges: {topic: graph, clock: event}\n")
    settings = load(config, {"sources.edges.lateness": "5s"}, {"VERNIER_SOURCES__EDGES__FORMAT": "json"}).settings
    ingestion = settings.ingestion(program(), {"graph": 2})
    edges, roots = ingestion.sources["edges"], ingestion.sources["roots"]
    assert (edges.topic, edges.clock, edges.format, edges.lateness_ns) == ("graph", "event", "json", 5_000_000_000)
    assert (roots.topic, roots.clock, roots.format) == ("roots", "arrival", "vernier")
    assert ingestion.partitions == {"graph": 2}
    assert ingestion.heartbeat_topic == "app.heartbeat"


def test_an_earlier_name_of_a_setting_works_and_says_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "v.yaml"
    file.write_text("sources:\n  edges: {resolution: millisecond}\n")
    loaded = load(file, {}, {})
    assert loaded.settings.source("edges").rounding == "millisecond"
    assert loaded.origins["sources.edges.rounding"] == str(file)
    assert "the setting sources.edges.resolution was renamed to sources.edges.rounding" in caplog.text
    assert load(file, {"sources.edges.rounding": "exact"}, {}).settings.source("edges").rounding == "exact"
    over = load(file, {"sources.edges.resolution": "exact"}, {"VERNIER_SOURCES__EDGES__RESOLUTION": "millisecond"})
    assert over.settings.source("edges").rounding == "exact"
    with pytest.raises(BadSettings, match=r"unknown setting sources\.edges\.resolution"):
        load(None, {"sources.edges.resolution": "exact", "sources.edges.rounding": "exact"}, {})


def test_the_program_says_what_happens_to_late_updates_unless_the_settings_do() -> None:
    settings = load(None, {"sources.edges.on_late": "reject"}, {}).settings
    assert settings.ingestion(program(), {}).sources["roots"].on_late == "reject"
    ingestion = settings.ingestion(program("advance"), {})
    assert (ingestion.sources["edges"].on_late, ingestion.sources["roots"].on_late) == ("reject", "advance")


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        ({"kafka.bootstap": "x"}, {}, "unknown setting kafka.bootstap; did you mean kafka.bootstrap?"),
        ({"sources.edges.topc": "x"}, {}, "unknown setting sources.edges.topc; did you mean sources.edges.topic?"),
        ({"wrokers": "1"}, {}, "did you mean workers?"),
        ({}, {"VERNIER_HTTP__PROT": "1"}, "VERNIER_HTTP__PROT: unknown setting http.prot; did you mean http.port?"),
        ({}, {"VERNIER_SOURCES__EDGES__TOPC": "1"}, "did you mean sources.edges.topic?"),
        ({"http.port": "x"}, {}, "--set http.port: http.port: input should be a valid integer"),
        ({"epoch.heartbeat_ms": "soon"}, {}, "epoch.heartbeat_ms"),
        ({"kafka.sasl_password": "x"}, {}, "is a secret; set VERNIER_KAFKA__SASL_PASSWORD"),
    ],
)
def test_refused_with_the_way_out(flags: dict[str, str], environment: dict[str, str], said: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load(None, flags, environment)
    assert said in str(refused.value)


def test_durations_have_units(clean_environment: pytest.MonkeyPatch) -> None:
    epoch = load(None, {"epoch.heartbeat_ms": "2s", "epoch.timeout_ms": "5000"}).settings.epoch
    assert (epoch.heartbeat_ms, epoch.timeout_ms) == (2_000, 5_000)


@pytest.mark.parametrize("given", ["5", "5.5", 5], ids=["text", "fraction", "number"])
def test_a_lateness_without_unit_names_two(tmp_path: Path, given: object) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(json.dumps({"sources": {"edges": {"lateness": given}}}), "utf-8")
    with pytest.raises(BadSettings, match=f"{given} has no unit; write {given}s for seconds") as refused:
        load(config, {}, {})
    assert "sources.edges.lateness" in str(refused.value)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    loaded = load(None, {}, {"VERNIER_KAFKA__SASL_PASSWORD": "hunter2", "VERNIER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"})
    told = "\n".join(loaded.lines()) + json.dumps(masked(loaded.settings)) + repr(loaded)
    assert "hunter2" not in told
    assert MASK in told
    assert loaded.settings.kafka_client()["sasl_plain_password"] == "hunter2"
    kept = tmp_path / "password"
    kept.write_text("hunter3\n", "utf-8")
    from_file = load(None, {"kafka.sasl_password_file": str(kept)}, {}).settings
    assert from_file.password() == "hunter3"


def test_tokens_are_secrets_of_the_environment_and_of_files() -> None:
    loaded = load(
        None, {"http.read_tokens_file": "/kept/tokens"}, {"VERNIER_HTTP__ADMIN_TOKENS": "hunter2-hunter2-hunter2"}
    )
    told = "\n".join(loaded.lines()) + json.dumps(masked(loaded.settings)) + repr(loaded)
    assert "hunter2" not in told
    assert masked(loaded.settings)["http"]["read_tokens_file"] == "/kept/tokens"
    with pytest.raises(BadSettings, match=r"set VERNIER_HTTP__READ_TOKENS, or http\.read_tokens_file") as refused:
        load(None, {"http.read_tokens": "hunter3"}, {})
    assert "hunter3" not in str(refused.value)
    options = {"ssl.key.password": "hunter4", "client.id": "vernier"}
    shown = masked(Settings.model_validate({"kafka": {"options": options}}))["kafka"]["options"]
    assert shown == {"ssl.key.password": MASK, "client.id": "vernier"}


def test_a_file_that_is_no_yaml_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="is not valid YAML"):
        load(write(tmp_path, "a: [1"), {}, {})
    with pytest.raises(BadSettings, match="must be a mapping"):
        load(write(tmp_path, "- 1"), {}, {})
    with pytest.raises(BadSettings, match="cannot read the settings"):
        load(tmp_path / "none.yaml", {}, {})


def test_state_is_a_directory_or_somewhere_else(tmp_path: Path) -> None:
    near = load(None, {"state.path": str(tmp_path / "state")}, {}).settings
    assert near.state.place.folder == tmp_path / "state"
    assert near.log_directory == tmp_path / "logs"
    relative = load(None, {"state.path": "here/state"}, {}).settings
    assert relative.state.place.uri == str(Path("here/state").absolute())
    far = load(None, {"state.path": "s3://bucket/a", "state.cache": str(tmp_path), "state.cache_mb": "5"}, {}).settings
    assert (far.state.place, far.state.place.folder) == (BlobLocation("s3://bucket/a", str(tmp_path), 5 << 20), None)
    assert (far.log_directory, far.broker_data) == (Path(".run/logs"), Path(".run/kafka"))


def test_settings_are_carried_by_name() -> None:
    @dataclass
    class Kind:
        clock: str
        records: int | None = 7
        unknown: str = "as it was"

    found = carried(Kind, Source(clock="event"), records=3)
    assert found == Kind("event", 3, "as it was")
    assert carried(Kind, Source()).records is None
    limits = options_of(load(None, {"http.max_rows": 17, "http.query_threads": 3, "http.heartbeat_ms": 500}, {}))
    assert (limits.max_rows, limits.query_threads, limits.heartbeat_s) == (17, 3, 0.5)
