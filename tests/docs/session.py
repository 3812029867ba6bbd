"""Runs a page of the documentation from top to bottom: its files, programs and commands, and compares what they print.

What a page may contain, by the language of its fenced blocks:

- `python` whose first line is `# NAME.py` (with or without a remark behind it) is a file; any other one is run, and a
  `text` block right after it is what it prints.
- `yaml` whose first line is `# NAME.yaml` is a file.
- `console` has lines `$ COMMAND`, each followed by what the command prints. `cat` of a file that is not there yet
  writes it: the page shows a file that its reader writes.
- `sh` is what a reader does once to set up a machine; it is not run.

In what is printed, a line `...` stands for any lines and `…` for anything within a line. Nanoseconds of the wall clock
(19 digits) differ with every run: the first time such a number appears, whatever is printed in its place is learned,
and later blocks and commands have it instead.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from vernier.service.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:8642"
"""The address of the sidecar on every page."""
TRIES = 3
_LATE = "Python worker failed to connect back"
"""Spark's error if a Python process for a data source has not started within ten seconds: Spark's own limit, which is
too short on a busy machine. Nothing has been read or written then, so the block is run again."""
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|yaml))\b")
_INSTANT = re.compile(r"\b\d{19}\b")


class Block(NamedTuple):
    """A fenced block: its language, its text and its first line's number on the page."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page in docs/."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _BLOCK.finditer(text)]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is printed after it."""
    command, printed = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, "".join(printed)
            command, printed = line[2:], []
        elif command.endswith("\\"):
            command = command[:-1] + line.strip()
        else:
            printed.append(line + "\n")
    if command:
        yield command, "".join(printed)


@dataclass
class Session:
    """A reader who follows one page in an empty folder.

    instead: commands that something else runs, by their first two words ("vernier up"): it receives all words and
    returns what is printed. url: where the service really listens, once there is one.
    """

    folder: Path
    instead: dict[str, Callable[[list[str]], str]] = field(default_factory=dict)
    url: str = URL
    known: dict[str, str] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)

    def follow(self, page: str) -> int:
        """Run all blocks of a page; returns how many. Raises AssertionError that names the page's line."""
        listed = blocks(page)
        with contextlib.chdir(self.folder), _importable(self.folder):
            for i, block in enumerate(listed):
                after = listed[i + 1] if i + 1 < len(listed) else None
                self._run(page, block, after.text if after is not None and after.language == "text" else "")
        return len(listed)

    def _run(self, page: str, block: Block, after: str) -> None:
        named = _FILE.match(block.text)
        if block.language in ("python", "yaml") and named:
            Path(named[1]).write_text(block.text, "utf-8")
        elif block.language == "python":
            self._compare(f"{page}:{block.line}", after, self._python(self._now(block.text), f"{page}:{block.line}"))
        elif block.language == "console":
            for command, printed in commands(block.text):
                self._compare(f"{page}:{block.line}: $ {command}", printed, self._command(self._now(command), printed))
        else:
            assert block.language in ("text", "sh"), f"{page}:{block.line}: a block of {block.language!r} is not run"

    def _now(self, text: str) -> str:
        """The text with the numbers and the address of this run."""
        return _INSTANT.sub(lambda found: self.known.get(found[0], found[0]), text).replace(URL, self.url)

    def _python(self, text: str, where: str) -> str:
        for again in reversed(range(TRIES)):
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, where, "exec", dont_inherit=True), self.names)
            except Exception as error:
                if not again or _LATE not in str(error):
                    raise
            else:
                break
        return printed.getvalue()

    def _command(self, command: str, printed: str) -> str:
        words = shlex.split(command)
        if words[0] == "cat" and not Path(words[1]).exists():
            Path(words[1]).write_text(printed, "utf-8")
        if (instead := self.instead.get(" ".join(words[:2]))) is not None:
            return instead(words)
        given, pipe, rest = command.rpartition(" | ")
        words = shlex.split(rest)
        if words[0] == "vernier" and not set(words) & {"&&", ";", ">", "&"}:
            return self._vernier(words, self._shell(given) if pipe else "")
        return self._shell(command)

    def _vernier(self, words: list[str], given: str) -> str:
        """Run `vernier` in this process, which saves starting one for each command."""
        if (instead := self.instead.get(" ".join(words[:2]))) is not None:
            Path(".given").write_text(given, "utf-8")
            return instead([".given" if word == "-" else word for word in words])
        if words[1] in ("query", "watch", "status", "send", "sql"):
            words += ["--url", self.url]
        both = io.StringIO()
        with (
            contextlib.redirect_stdout(both),
            contextlib.redirect_stderr(both),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8")),
        ):
            run(words[1:])
        return both.getvalue()

    def _shell(self, command: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "/usr/bin:/bin")])
        done = subprocess.run(
            ["bash", "-c", command],
            env={
                "PATH": path,
                "PYTHONPATH": str(ROOT),
                "HOME": str(self.folder),
                "BENCH_RESULTS": str(self.folder / "results"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        return done.stdout

    def _compare(self, where: str, page: str, printed: str) -> None:
        """Compare, and learn the numbers of this run. What is printed ends with a line break or not, as it likes."""
        pattern, learned = "", list[str]()
        for line in page.replace(URL, self.url).splitlines():
            pattern += r"(?:.*\n)*?" if line == "..." else self._line(line, learned) + r"\n"
        found = re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n")
        assert found, f"{where}: the page has\n{page}\nbut this was printed:\n{printed}"
        self.known |= {number: found[f"n{number}"] for number in learned}

    def _line(self, line: str, learned: list[str]) -> str:
        pattern, at = "", 0
        for number in _INSTANT.finditer(line):
            pattern += _any(line[at : number.start()])
            if number[0] in self.known:
                pattern += self.known[number[0]]
            elif number[0] in learned:
                pattern += f"(?P=n{number[0]})"
            else:
                learned.append(number[0])
                pattern += rf"(?P<n{number[0]}>\d{{19}})"
            at = number.end()
        return pattern + _any(line[at:])


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Programs of a page import its files; afterwards these are forgotten."""
    sys.path.insert(0, str(folder))
    before = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]


def _any(text: str) -> str:
    return ".*?".join(map(re.escape, text.split("…")))
