"""The programs that a service runs: files named in its settings, and programs that joined while it runs.

A program joins when its text is written to the state directory (`programs/<app>.py`), and leaves when that file is
removed. The driver looks for changes between epochs. Whether a program can join depends on what the state holds
(operators/engine/migrate.py). If it cannot, it is set aside as `programs/<app>.refused`, which contains the reason,
and nothing else changes. All programs run as one bundle, so equal collections are computed and stored once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vernier.operators.errors import ProgramError
from vernier.operators.language.collection.app import App, load_program
from vernier.operators.language.collection.bundle import bundle
from vernier.operators.language.collection.sql import front, is_sql
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import CallerError, EpochGone, FileMissing
from vernier.storage.state.state import StateDirectory

FOLDER = "programs"
_PROGRAM, _REFUSED = ".py", ".refused"
_LOOK_SECONDS = 0.1


class NoSuchProgram(CallerError):
    """The program to remove has not joined."""

    message = "program {name!r} has not joined this service (joined programs: {known})"
    name: str
    known: str


class JoinedAlready(CallerError):
    """Two programs of one service have the same name."""

    message = "a program {name!r} has joined this service already; remove it first, or give the app another name"
    name: str


class UnreadableProgram(CallerError):
    """A program's file is missing or is not text."""

    message = "the program {path} cannot be read: {reason}"
    path: str
    reason: str


class ProgramRefused(CallerError):
    """A program cannot join a running service."""

    message = "program {name!r} cannot join: {reason}"
    name: str
    reason: str


class NotJoinedYet(CallerError):
    """A program did not join within the time limit."""

    message = (
        "program {name!r} did not join within {seconds:g} s: no epoch has its views yet; it joins with the next epoch, "
        "if the service that owns {state} is running"
    )
    name: str
    seconds: float
    state: str


@dataclass(frozen=True)
class Program:
    """A program's text. name: its file, or a name in place of one. A program in SQL brings its plans in its text, so
    that no other process needs Java to build it."""

    name: str
    text: str

    @staticmethod
    def of(path: Path) -> Program:
        """Read the program from a file. Raises UnreadableProgram."""
        try:
            name, text = str(path.resolve()), path.read_text("utf-8")
            return Program(name, front().packed(text, name) if is_sql(name, text) else text)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreadableProgram(path=str(path), reason=reason[:1].lower() + reason[1:]) from error

    def load(self) -> App:
        """Build the program. If its file still has this text, the program can import modules beside it. Raises
        ProgramError.
        """
        path = Path(self.name)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.is_file() and path.read_text("utf-8") == self.text:
                return load_program(path)
        return load_program(self.text, self.name)


def compiled(
    programs: Sequence[Program],
    *,
    keep_sources: bool,
    upserts: Mapping[str, Sequence[str]] | None = None,
    push: bool = True,
) -> tuple[App, Plan]:
    """Compile the programs as one bundle; returns it with its plan. Raises ProgramErrors that name the user's line."""
    app = bundle([program.load() for program in programs])
    if upserts is not None:
        _check_keys(app, upserts)
    return app, compile_app(app, keep_sources=keep_sources, upserts=upserts, push=push)


def _check_keys(app: App, upserts: Mapping[str, Sequence[str]]) -> None:
    """Raises ProgramError where a view depends on a key of a source that its messages do not have."""
    for name, (key, where) in app.relied_keys.items():
        given = upserts.get(name, ())
        if {one.lower() for one in given} != {one.lower() for one in key}:
            real = f"key {', '.join(given)}" if given else "no key"
            raise ProgramError(
                problem=f"a lookup depends on the key ({', '.join(key)}) of table {name!r}, but the settings give it "
                f"{real}; leave format and key to the program, or write the lookup as a join",
                where=where,
            )


class Registry:
    """The programs that have joined, stored in a state directory. Every process sees the changes of the others."""

    def __init__(self, files: Blob) -> None:
        self._files = files

    def joined(self) -> list[Program]:
        """All programs that have joined, by name."""
        found = []
        for name in sorted(self._names(_PROGRAM)):
            with contextlib.suppress(FileMissing):  # it has just left
                text = bytes(self._files.get(f"{FOLDER}/{name}{_PROGRAM}")).decode("utf-8")
                found.append(Program(f"{name}{_PROGRAM}", text))
        return found

    def refused(self) -> dict[str, str]:
        """The reasons why programs could not join, by program name."""
        found = {}
        for name in sorted(self._names(_REFUSED)):
            with contextlib.suppress(FileMissing):
                found[name] = bytes(self._files.get(f"{FOLDER}/{name}{_REFUSED}")).decode("utf-8")
        return found

    def add(self, program: Program) -> str:
        """Let a program join; returns its name. Raises JoinedAlready, and ProgramError if it cannot be built."""
        name = program.load().name
        if name in self._names(_PROGRAM):
            raise JoinedAlready(name=name)
        self._files.prepare([FOLDER])
        self._files.delete(f"{FOLDER}/{name}{_REFUSED}")
        self._files.put(f"{FOLDER}/{name}{_PROGRAM}", [program.text.encode()])
        return name

    def remove(self, name: str) -> None:
        """Let a program leave. Raises NoSuchProgram."""
        if name not in self._names(_PROGRAM) and name not in self._names(_REFUSED):
            raise NoSuchProgram(name=name, known=", ".join(sorted(self._names(_PROGRAM))) or "none")
        for end in (_PROGRAM, _REFUSED):
            self._files.delete(f"{FOLDER}/{name}{end}")

    def refuse(self, program: Program, reason: str) -> None:
        """Set aside a program that cannot join."""
        name = program.name.removesuffix(_PROGRAM)
        self._files.put(f"{FOLDER}/{name}{_REFUSED}", [reason.encode()])
        self._files.delete(f"{FOLDER}/{name}{_PROGRAM}")

    def _names(self, end: str) -> set[str]:
        names = (name.removeprefix(f"{FOLDER}/") for name in self._files.list(FOLDER))
        return {name.removesuffix(end) for name in names if name.endswith(end)}


def wait_until_joined(state: StateDirectory, registry: Registry, program: Program, seconds: float) -> int:
    """Wait for the first epoch that has the program's views; returns its number.

    Raises ProgramRefused with the driver's reason, or NotJoinedYet.
    """
    app = program.load()
    deadline = time.monotonic() + seconds
    while True:
        reason = registry.refused().get(app.name)
        if reason is not None:
            raise ProgramRefused(name=app.name, reason=reason)
        with contextlib.suppress(EpochGone):
            newest = state.latest()
            if newest is not None and app.views.keys() <= newest.views.keys():
                return newest.epoch
        left = deadline - time.monotonic()
        if left <= 0:
            raise NotJoinedYet(name=app.name, seconds=seconds, state=state.path)
        time.sleep(min(left, _LOOK_SECONDS))
