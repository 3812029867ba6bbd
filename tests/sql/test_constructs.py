"""Each construct of docs/sql.md has a file in tests/sql/slt that shows it."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "slt"
ELSEWHERE = {
    "# Programs in SQL": "commands: tests/sql/test_command.py, tests/live/test_sql.py",
    "## SQL in a program in Python": "run as an example by tests/docs",
    "## Plans are kept": "tests/sql/test_command.py",
}
"""Sections of the page without constructs of their own, and what tests them."""
FORMS = {
    "CREATE TABLE name (column TYPE [NOT NULL], …) [WITH (…)]": r"CREATE TABLE \w+ \(\w+ BIGINT NOT NULL, .*\) WITH \(",
    "CREATE VIEW name [(columns)] AS query": r"CREATE VIEW \w+ \(\w+, \w+\) AS SELECT",
    "CREATE MATERIALIZED VIEW name [(columns)] [WITH (key = 'a, b', retain = '10 minutes')] AS query": (
        r"CREATE MATERIALIZED VIEW \w+ \(\w+, \w+\) WITH \(key = '\w+', retain = '10 minutes'\) AS SELECT"
    ),
    "(ERROR AT RECURSION LIMIT n)": r"\(ERROR AT RECURSION LIMIT \d+\)",
    "(RETURN AT RECURSION LIMIT n)": r"\(RETURN AT RECURSION LIMIT \d+\)",
    "GROUP BY session_window(ts, '5 minutes'), user": r"GROUP BY session_window\(ts, '.*'\), \w+",
    "(SELECT name FROM c WHERE c.id = t.id)": r"\(SELECT room FROM rooms WHERE rooms\.id = r\.id\)",
    "ORDER BY … LIMIT n": r"ORDER BY .* LIMIT \d",
    "UNBOUNDED PRECEDING AND CURRENT ROW": r"UNBOUNDED PRECEDING AND CURRENT ROW",
    "row_number() … = 1": r"row_number\(\) .* = 1",
    "ON a < b": r"ON \w\.\w+ < \w\.\w+",
    "avg": r"avg\(.*\) OVER",
    "LIKE … ESCAPE": r"LIKE .* ESCAPE",
    "$": r"regexp_replace\(s, 'a\$'",
    "(?m)": r"'\(\?m\)",
    "x*": r"'a\*'",
    "x+": r"x\+",
    "\\\\z": r"\\z",
}
"""What shows a construct that the page writes with names or parts of its own."""
NO_SQL = {"as_of_join", "cross join", "vernier explain", "tests/sql/slt"}


def _shown(construct: str, text: str) -> bool:
    form = FORMS.get(construct)
    if form is None:
        parts = (r"\s+".join(map(re.escape, part.split())) for part in re.sub(r"'…'", "'", construct).split("…"))
        form = r".*".join(parts)
    return re.search(form, text, re.IGNORECASE) is not None


def test_each_construct_of_the_page_has_a_file(root: Path) -> None:
    page = re.sub(r"```.*?```", "", (root / "docs" / "sql.md").read_text("utf-8"), flags=re.DOTALL)
    files = {one.stem: one.read_text("utf-8") for one in FOLDER.glob("*.slt")}
    everything = "\n".join(files.values())
    missing: list[str] = []
    for section in re.split(r"^(?=#)", page, flags=re.MULTILINE):
        title = section.split("\n", 1)[0]
        if title in ELSEWHERE or not title:
            continue
        for line in section.splitlines():
            spans = re.findall(r"`([^`]+)`", line)
            text = everything
            if title == "## Queries" and line.startswith("| `"):
                text = files[spans.pop(0)]
            missing += [f"{title}: {one}" for one in spans if one not in NO_SQL and not _shown(one, text)]
    assert not missing, missing
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(files)
