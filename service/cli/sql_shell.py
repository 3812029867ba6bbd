"""The shell of `vernier sql`: reads questions, with history and completion, and prints their answers."""

from __future__ import annotations

import os
import re
import readline
import sys
from contextlib import suppress
from pathlib import Path

from vernier.service.cli.display import instant, json_line, show_arrow, shown, table
from vernier.service.client.client import Answer, Client
from vernier.storage.errors import CallerError

HELP = """\
A question is one SELECT and ends with a semicolon; AS OF TIME at its end sets the time of all views.
  \\d             the views          \\d VIEW        the columns of one
  \\at TIME       ask as of TIME     \\at            ask as of the newest final time again
  \\format NAME   table, json, csv   \\q             leave (or Ctrl-D)"""
_KEYWORDS = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT FULL USING ON AS OF WITH RECURSIVE UNION ALL EXCEPT INTERSECT
DISTINCT COUNT SUM AVG MIN MAX CASE WHEN THEN ELSE END BETWEEN NULL OVER PARTITION QUALIFY data_time()
"""
_PARTS = re.compile(
    r"""'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\$\$.*?(?:\$\$|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|[^;'"$/-]+|.""", re.DOTALL
)


class BadCommand(CallerError):
    """A command of the shell that does not exist, or lacks its argument."""

    message = "{problem}; \\? lists the commands"
    problem: str


def split(text: str) -> list[str]:
    """The questions of a text, without the semicolons between them. Semicolons in strings and comments do not count."""
    found, last = list[str](), ""
    for part in _PARTS.findall(text):
        if part == ";":
            found.append(last)
            last = ""
        else:
            last += part
    return [one.strip() for one in [*found, last] if one.strip()]


def is_complete(text: str) -> bool:
    """Whether a question ends here: with a semicolon outside strings and comments."""
    parts = [part for part in _PARTS.findall(text) if part.strip() and not part.startswith(("--", "/*"))]
    return bool(parts) and parts[-1] == ";"


class Shell:
    """Asks questions of one client. as_of: of questions that do not say their own."""

    def __init__(self, client: Client, form: str, as_of: str | None = None, wait_ms: int = 0) -> None:
        self._client, self._form, self._as_of, self._wait_ms = client, form, as_of, wait_ms
        self._words: list[str] = []

    def ask(self, question: str) -> None:
        """Print the answer to one question. Raises ServerError, Unreachable."""
        about = {"as_of": self._as_of, "wait_ms": self._wait_ms}
        if self._form == "arrow":
            show_arrow(self._client.sql_arrow(question, **about))  # type: ignore[arg-type]
        elif self._form == "csv":
            print(self._client.sql_csv(question, **about), end="")  # type: ignore[arg-type]
        else:
            _show(self._client.sql(question, **about), self._form)  # type: ignore[arg-type]

    def run(self) -> None:
        """Read questions from the terminal until it ends. Errors are printed, and the shell goes on."""
        history = self._open_history()
        print("one SELECT, then a semicolon; \\? for help")
        with suppress(EOFError):
            while self._turn():
                pass
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1_000)
            readline.write_history_file(history)

    def command(self, line: str) -> bool:
        """Run a command of the shell; returns whether the shell goes on. Raises BadCommand."""
        name, _, given = line.strip().rstrip(";").partition(" ")
        given = given.strip()
        match name:
            case "\\q":
                return False
            case "\\?":
                print(HELP)
            case "\\d" if given:
                print(table(("column", "type"), [list(one.values()) for one in self._client.view(given)["columns"]]))
            case "\\d":
                views = [[one["name"], one["rows"], ", ".join(one["key"])] for one in self._client.views()]
                print(table(("view", "rows", "key"), views))
            case "\\at":
                self._as_of = given or None
            case "\\format" if given in ("table", "json", "csv"):
                self._form = given
            case _:
                raise BadCommand(problem=f"{line.strip()} is no command")
        return True

    def complete(self, text: str, state: int) -> str | None:
        """The completions of a word, for readline."""
        if state == 0 or not self._words:
            names = []
            with suppress(CallerError):
                for view in self._client.views():
                    names += [view["name"], *(column["name"] for column in view["columns"])]
            self._words = list(dict.fromkeys([*names, *_KEYWORDS.split()]))
        near = [word for word in self._words if word.casefold().startswith(text.casefold())]
        return near[state] if state < len(near) else None

    def _turn(self) -> bool:
        try:
            text = input("vernier> ")
            if text.lstrip().startswith("\\"):
                return self.command(text)
            while text.strip() and not is_complete(text):
                text += "\n" + input("    ...> ")
            for question in split(text):
                self.ask(question)
        except KeyboardInterrupt:
            print()
        except CallerError as error:
            print(f"vernier: {error}", file=sys.stderr)
        return True

    def _open_history(self) -> Path:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        history = Path(home) / "vernier" / "sql_history"
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_completer(self.complete)
        readline.set_completer_delims(" \t\n,()=<>+-*/;")
        readline.parse_and_bind("tab: complete")
        return history


def _show(answer: Answer, form: str) -> None:
    names = [name for name, _ in answer.columns]
    if form == "json":
        times = {"as_of": str(answer.as_of), "since": str(answer.since), "frontier": str(answer.frontier)}
        columns = [{"name": name, "type": kind} for name, kind in answer.columns]
        print(json_line(times | {"columns": columns, "rows": list(answer)}))
        return
    kinds = [kind for _, kind in answer.columns]
    print(table(names, [shown([row[name] for name in names], kinds) for row in answer]))
    plural = "" if len(answer) == 1 else "s"
    print(f"({len(answer)} row{plural} as of {instant(answer.as_of)})", file=sys.stderr)
