"""`vernier sql`: one question, questions from standard input, and the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from tests.sidecar.conftest import builder as builder
from tests.sidecar.conftest import serve as serve
from vernier.service.cli import sql_shell
from vernier.service.cli.main import run
from vernier.service.cli.sql_shell import Shell, is_complete, split
from vernier.service.client.client import connect


def test_questions_are_split_at_semicolons_of_sql() -> None:
    text = "SELECT ';', \";\", $$;$$ -- ;\n/* ; */ FROM v; SELECT 1;;\n SELECT 'it''s; '"
    assert split(text) == ["SELECT ';', \";\", $$;$$ -- ;\n/* ; */ FROM v", "SELECT 1", "SELECT 'it''s; '"]
    assert split(" ; ") == []
    assert [is_complete(one) for one in ("SELECT 1", "SELECT ';", "SELECT 1; -- so", "SELECT 1 -- ;", "")] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_one_question_the_input_and_the_shell(
    builder: StateBuilder,
    serve: Callable[..., Served],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    builder.commit(20, {"reach": [((node,), node, 1) for node in range(20)]}, since=5)
    url = serve(builder.path).url

    assert run(["sql", "-c", "SELECT node FROM reach ORDER BY node DESC LIMIT 2", "--url", url]) == 0
    assert capsys.readouterr() == ("node\n  19\n  18\n", "(2 rows as of 19)\n")
    assert run(["sql", "-c", "SELECT count(*) AS n FROM reach", "--as-of", "9", "--format", "json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "as_of": "9",
        "since": "5",
        "frontier": "20",
        "columns": [{"name": "n", "type": "BIGINT"}],
        "rows": [{"n": 10}],
    }
    assert run(["sql", "-c", "SELECT 1 AS a, [1] AS l; SELECT 2 AS b", "--format", "csv", "--url", url]) == 0
    assert capsys.readouterr().out == "a,l\n1,[1]\nb\n2\n"
    assert run(["sql", "-c", "SELECT nod FROM reach", "--url", url]) == 1
    assert capsys.readouterr().err.startswith("vernier: line 1, column 8: referenced column")
    assert run(["sql", "-c", " ", "--url", url]) == 2
    capsys.readouterr()

    first = ["SELECT count(*)", "AS n FROM reach;", "\\d reach", "\\at 9"]
    lines = iter([*first, "SELECT max(node) AS m FROM reach;", "\\at", "\\x"])
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt.strip())
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with connect(url) as client:
        shell = Shell(client, "table")
        shell.run()
        printed = capsys.readouterr()
        assert " n\n20\n" in printed.out
        assert "column  type\nnode    Int64\n" in printed.out
        assert "\nm\n9\n" in printed.out
        assert "\\x is no command; \\? lists the commands" in printed.err
        assert asked[:3] == ["vernier>", "...>", "vernier>"]
        found = [shell.complete("re", i) for i in range(3)]
        assert found == ["reach", "RECURSIVE", None]
    assert (tmp_path / "vernier" / "sql_history").exists()
    assert sql_shell.HELP.isascii()
