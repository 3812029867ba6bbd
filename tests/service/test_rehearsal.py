"""A standby's workers decode real messages before they have a state, long texts included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ingest.log import Topics, batch
from vernier.service.cluster.rehearsal import Rehearsal
from vernier.service.config.programs import Program
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.storage.blob.location import BlobLocation

PROGRAM = """
import vernier as vn

class Note(vn.Schema):
    who: vn.Int64
    text: vn.String

app = vn.App("notes")
notes = app.source("notes", Note)
app.view("notes", notes, key=["who"])
"""
LONG = "a text that is longer than fifteen bytes"


@pytest.mark.parametrize("form", ["json", "insert_delete", "vernier", "debezium", "upsert"])
def test_long_texts_are_decoded(tmp_path: Path, form: str) -> None:
    row = {"who": 1, "text": LONG}
    message = {
        "json": {"data": [1, LONG], "diff": 1},
        "vernier": {"v": 1, "t": "5", "u": [[[1, LONG], "5", 1]]},
        "insert_delete": {"insert": row},
        "debezium": {"before": None, "after": row, "op": "c", "source": {"ts_ns": 5}},
        "upsert": {"text": LONG},
    }[form]
    topics = Topics()
    topics.append("notes", 0, json.dumps(message), key=json.dumps({"who": 1}).encode())
    ingestion = IngestionConfig(
        {"notes": SourceConfig("notes", form, key=("who",) if form == "upsert" else ())}, {"notes": 1}
    )
    state = BlobLocation(str(tmp_path / "state"))
    rehearsal = Rehearsal(
        state, (Program("notes.py", PROGRAM),), ingestion, {"keep_sources": False, "push": True, "upserts": {}}
    )
    assert list(rehearsal(iter([batch(topics.records)]))) == []
