"""Find phrases that no page, docstring, comment or message may use, because readers stumble over them.

python tools/prose.py      prints each with its place, and exits 1 if there is any

Each pattern has the plain words to write instead. A program's own identifiers are not looked at.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTEAD = {
    r"nobody|no one": "no reader, no process, … (the noun)",
    r"whoever|whomever": "the process that, callers that, …",
    r"who asks|who ask": "callers, clients, readers",
    r"(?:is|are|was|were|be|been) told": "the active voice: X sends, X logs, X reports",
    r"so many": "at most N, a number of, in chunks of",
    r"mend(?:s|ed|ing)?": "repair, correct, fix",
    r"lets? go of": "free, release, drop",
    r"g[ia]ves? back|given back|giving back": "release, free, return",
    r"strangers?": "unknown clients, unauthenticated connections",
    r"said (?:once|twice)": "defined once, stated twice",
    r"never heard of": "that have produced no record",
    r"knocks?": "connects",
    r"treads? on": "interfere with",
}
"""Pattern, and what to write instead."""
PAGES = ("README.md", "CONTRIBUTING.md", "docs", "examples")
CODE = ("storage", "operators", "service", "bench", "tests", "tools", "vernier.py", "setup.py")
HISTORY = "docs/notebook/"
"""Dated notes stay as they were written."""
_HABITS = re.compile("|".join(rf"(?P<_{number}>\b(?:{pattern})\b)" for number, pattern in enumerate(INSTEAD)), re.I)


def main() -> int:
    """Look through all tracked files."""
    tracked = subprocess.run(["git", "ls-files", *PAGES, *CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    found = 0
    for name in tracked.stdout.splitlines():
        if name.startswith(HISTORY) or not name.endswith((".md", ".py")) or name == "tools/prose.py":
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for line, words in _prose(text) if name.endswith(".py") else enumerate(text.splitlines(), 1):
            for hit in _HABITS.finditer(words):
                advice = list(INSTEAD.values())[int(str(hit.lastgroup)[1:])]
                print(f"{name}:{line + words[: hit.start()].count(chr(10))}: {hit[0]!r}: write {advice}")
                found += 1
    return int(found > 0)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The comments and strings of a Python file, with their first lines."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield token.start[0], token.string


if __name__ == "__main__":
    sys.exit(main())
