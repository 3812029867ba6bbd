"""Run an example and show the rows of its views at the moments that its folder names.

python tools/example.py NAME              all moments of examples/NAME/moments.txt: a data time and what happens then
python tools/example.py NAME --at TIME    one data time: nanoseconds since 1970 or RFC 3339
python tools/example.py                   the names
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
MOST = 16
"""How many rows of a view are shown."""
sys.path.insert(0, str(ROOT))

from vernier.service.cli.display import table  # noqa: E402
from vernier.service.codec.instants import parse_instant  # noqa: E402
from vernier.service.observability.progress import Quiet  # noqa: E402
from vernier.service.replay.replay import Request, replay  # noqa: E402
from vernier.service.replay.rows_at import RowsAt  # noqa: E402


def names() -> list[str]:
    """The examples."""
    return sorted(path.parent.name for path in EXAMPLES.glob("*/program.py"))


def moments(name: str) -> list[tuple[str, str]]:
    """The data times that an example shows, as texts, and what happens at each."""
    lines = (EXAMPLES / name / "moments.txt").read_text(encoding="utf-8").splitlines()
    return [(time, what) for time, _, what in (line.partition("  ") for line in lines)]


def show(name: str, times: list[tuple[str, str]]) -> Iterator[str]:
    """The lines that show an example at these times: each time, then the rows of every view as a table."""
    folder = EXAMPLES / name
    updates = sorted(folder.glob("*.jsonl"))
    for time, what in times:
        yield f"{time}{': ' if what else ''}{what}"
        request = Request(folder / "program.py", updates, None, rows_at=parse_instant(time))
        found = replay(request, Quiet()).found
        assert found is not None
        yield from _tables(found)


def _tables(found: RowsAt) -> Iterator[str]:
    for view in found.views:
        columns = found.columns(view)
        present = found.rows(view)
        rows = [[row[column] for column in columns] for row in present[:MOST]]
        yield f"\n  {view}" + (":" if rows else ": no rows")
        if rows:
            yield from (f"    {line}" for line in table(columns, rows).splitlines())
        if len(present) > MOST:
            yield f"    and {len(present) - MOST} more"
    yield ""


def main() -> None:
    """Show the example that the arguments name."""
    parser = argparse.ArgumentParser(description="Run an example and show the rows of its views.")
    parser.add_argument("name", nargs="?", choices=names())
    parser.add_argument("--at", metavar="TIME", help="a data time: nanoseconds since 1970 or RFC 3339")
    asked = parser.parse_args()
    if asked.name is None:
        print("examples: " + ", ".join(names()))
        return
    for line in show(asked.name, moments(asked.name) if asked.at is None else [(asked.at, "")]):
        print(line)


if __name__ == "__main__":
    main()
