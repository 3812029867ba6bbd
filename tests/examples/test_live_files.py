"""What the READMEs of the examples use to run them live: settings, and updates that can be sent in order."""

from __future__ import annotations

import json

import pytest

from tests.examples.data import EXAMPLES, NAMES, program
from vernier.service.codec.instants import parse_instant
from vernier.service.config.settings import load


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_name_the_sources_of_the_program(name: str, clean_environment: pytest.MonkeyPatch) -> None:
    settings = load(EXAMPLES / name / "settings.yaml", {}).settings
    assert str(settings.program) == f"examples/{name}/program.py"
    assert set(settings.sources) == set(program(name).sources)
    assert {source.topic for source in settings.sources.values()} == {name}
    assert {source.clock for source in settings.sources.values()} == {"event"}


@pytest.mark.parametrize("name", NAMES)
def test_the_updates_are_in_the_order_of_time_and_the_last_message_follows_them(name: str) -> None:
    times = [
        parse_instant(json.loads(line)["time"])
        for file in sorted((EXAMPLES / name).glob("*.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]
    assert times == sorted(times)
    last = json.loads((EXAMPLES / name / "last.json").read_text("utf-8"))
    assert last == {"v": 1, "p": {"upper": [str(times[-1] + 1)]}}


@pytest.mark.parametrize("name", NAMES)
def test_the_view_of_the_picture_is_one_of_the_program(name: str) -> None:
    page = (EXAMPLES / name / "README.md").read_text("utf-8")
    (view,) = {line.split()[2] for line in page.splitlines() if line.strip().startswith("vernier query ")}
    assert view in program(name).views
    assert f"![The view {view} in the console](console.png)" in page
    assert (EXAMPLES / name / "console.png").read_bytes().startswith(b"\x89PNG")
