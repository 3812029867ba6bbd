"""Programs in SQL on the command line: replay and explain, and a program seen before, which needs no Java."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import vernier

PROGRAM = """
CREATE TABLE edges (src BIGINT NOT NULL, dst BIGINT NOT NULL) WITH (format = 'json', clock = 'event');
CREATE TABLE roots (node BIGINT NOT NULL) WITH (retain = '1 hour');

CREATE VIEW steps AS SELECT a.src, b.dst FROM edges a JOIN edges b ON a.dst = b.src;
CREATE MATERIALIZED VIEW two_steps WITH (key = 'src') AS SELECT src, count(*) AS paths FROM steps GROUP BY src;
CREATE MATERIALIZED VIEW reach WITH (key = 'node', retain = '10 minutes') AS
  WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 1000)
    r (node BIGINT) AS (SELECT node FROM roots UNION SELECT e.dst FROM r JOIN edges e ON r.node = e.src)
  SELECT * FROM r;
"""
UPDATES = [
    {"input": "roots", "data": [1], "time": 1},
    {"input": "edges", "data": [1, 2], "time": 5},
    {"input": "edges", "data": [2, 3], "time": 6},
    {"input": "edges", "data": [1, 2], "time": 9, "diff": -1},
]
CHANGES = [
    ("reach", [1], 1, 1),
    ("reach", [2], 5, 1),
    ("reach", [3], 6, 1),
    ("two_steps", [1, 1], 6, 1),
    ("reach", [2], 9, -1),
    ("reach", [3], 9, -1),
    ("two_steps", [1, 1], 9, -1),
]


@pytest.mark.spark
@pytest.mark.slow
def test_a_program_seen_before_needs_no_java(tmp_path: Path) -> None:
    (tmp_path / ".vernier").mkdir()
    program, updates, out = tmp_path / "graph.sql", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    program.write_text(PROGRAM)
    updates.write_text("".join(json.dumps(one) + "\n" for one in UPDATES))
    replay = ("replay", str(program), "--updates", str(updates), "--out", str(out))
    without_java = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    for environment in ({}, without_java):
        ran = vernier(*replay, cwd=tmp_path, more=environment)
        assert ran.status == 0, ran.err
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert [(one["view"], one["data"], one["time"], one["diff"]) for one in lines] == CHANGES
    shown = vernier("explain", str(program), cwd=tmp_path, more=without_java)
    assert shown.status == 0, shown.err
    assert "reach" in shown.out
    assert "history of source roots" in shown.out
    assert len(list((tmp_path / ".vernier").iterdir())) >= 4
