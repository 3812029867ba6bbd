"""The page of producers: its programs do what it shows."""

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import vernier as vn
from tests.producer.fake import Kafka


def _blocks(root: Path, language: str) -> list[str]:
    text = (root / "docs" / "producer.md").read_text("utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [body for found, body in fenced if found == language]


def test_the_programs_send_what_is_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka(1)
    made = functools.partial(vn.Producer, _make=kafka.make, _end=kafka.end)
    monkeypatch.setattr(vn, "Producer", made)
    names: dict[str, Any] = {}
    first, again = _blocks(root, "python")
    exec(compile(first, "producer.md", "exec"), names)
    (shown,) = _blocks(root, "json")
    sent = [record.value.decode() for record in kafka.log[0]]
    assert [line for line in sent if '"u"' in line] == shown.splitlines()[:-1]
    assert sent[-1] == shown.splitlines()[-1]
    # All of the history is there but the last row.
    names["history"] = [
        ((1, 2), "2026-01-31T12:00:00.000000007Z"),
        ((1, 3), "2026-01-31T12:00:00.000999999Z"),
        ((1, 2), "2026-01-31T12:00:00.004000001Z"),
        ((5, 6), "2026-01-31T12:00:00.004000002Z"),
    ]
    exec(compile(again, "producer.md", "exec"), names)
    more = [record.value.decode() for record in kafka.log[0]][len(sent) :]
    assert [line for line in more if '"u"' in line] == [
        '{"v":1,"t":"1769860800004000001","u":[[[5,6],"1769860800004000002",1]]}'
    ]
