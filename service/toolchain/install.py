"""Set-up: makes `.venv`, `.jars` and the compiled kernels, with as much in parallel as possible. `make setup` runs it.

    python -m vernier.service.toolchain.install check run|dev      is everything there? Says why not, in one line
    python -m vernier.service.toolchain.install run|dev            install what is missing

`run` is what the service needs; `dev` adds the tools of developers. uv fetches the wheels while it builds PySpark in a
separate environment. The kernels are compiled as soon as the wheels are there, and the jars are fetched as soon as
PySpark is there. Class-data archives, which halve the start-up cost of Spark, come last and for developers only; `make
run` makes them while it runs. A finished part stays finished, so an interrupted set-up continues where it stopped. This
module runs on the system's Python and needs only the standard library.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from zlib import crc32

from vernier.service.toolchain.home import ROOT
from vernier.service.toolchain.java import JavaMissing, java_home
from vernier.service.toolchain.packages import MAKE, PYTHON, VENV, Commands, Installer, SetupError, Stopped, locks

GROUPS = ("run", "dev")
LEAST_FREE_MB, FRESH_FREE_MB = 1000, 4000
_UNFINISHED = VENV / ".unfinished"
"""Exists while packages are installed: the contents of `.venv` may then be incomplete."""
_EVERY_SECONDS = 5
"""Interval between status lines if the output is not a terminal."""


def stamp(group: str) -> Path:
    """The file that records what `.venv` was made from."""
    return VENV / (".made-from" if group == "run" else ".made-from-dev")


def wanted(group: str) -> str:
    """The stamp of an up-to-date environment: its locks, and the part of pyproject.toml that affects
    the installation.
    """
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\n[tool.ruff]")[0]
    text = "".join(lock.read_text(encoding="utf-8") for lock in locks(group)) + project
    return f"{crc32(text.encode()):08x}-{len(text)}"


def made(group: str) -> bool:
    """Whether `.venv` was made from the present locks. An environment for developers also serves for running."""
    return any(
        path.is_file() and path.read_text(encoding="utf-8").strip() == wanted(name)
        for name, path in ((one, stamp(one)) for one in ({group, "dev"}))
    )


def missing(group: str) -> str:
    """What is missing, in a few words; empty if all is there. Runs inside `.venv`; about 0.2 s."""
    from vernier.service.toolchain import jars, setup

    if _UNFINISHED.exists():
        return "an install was interrupted"
    if not made(group):
        return "requirements.lock has changed"
    if not (problem := broken(group)):
        home = os.environ.get("JAVA_HOME")
        known = _remembered_java()
        if known is None or not (known / "bin" / "java").exists() or (home and Path(home).resolve() != known.resolve()):
            return "java has not been checked"
        if not jars.present():
            return "jars"
        if not setup.compiled():
            return "kernels"
        if group == "dev" and len({path.name.split("-")[0] for path in MAKE.glob("classes/*.jsa")}) < 2:
            return "archives of class data"
    return problem


def broken(group: str) -> str:
    """What is wrong with the packages of the present environment; empty if they are intact."""
    from vernier.service.toolchain import setup

    try:
        problems = [problem for lock in locks(group) for problem in setup.missing_packages(lock)]
    except ImportError as error:
        problems = [str(error)]
    if len(problems) > 3:
        problems[3:] = [f"{len(problems) - 3} more"]
    if not problems and not _is_ours():
        problems = ["it imports another copy of the project"]
    return "; ".join(problems)


def _is_ours() -> bool:
    """Whether `.venv` imports this checkout. In a copied or moved checkout, `.venv` still refers to the original."""
    links = VENV.glob("lib/python3*/site-packages/__editable__.vernier-*.pth")
    return any(Path(link.read_text(encoding="utf-8").strip()) == ROOT for link in links)


def _remembered_java() -> Path | None:
    try:
        for line in (MAKE / "env").read_text(encoding="utf-8").splitlines():
            if line.startswith("export JAVA_HOME="):
                return Path(shlex.split(line)[1].partition("=")[2])
    except (OSError, ValueError, IndexError):
        pass
    return None


class Board:
    """Shows what the parts of set-up are doing: on a terminal, one line that is overwritten; otherwise a line every few
    seconds and whenever a part is finished.
    """

    def __init__(self, parts: Sequence[str]) -> None:
        self._began = time.monotonic()
        self._now = dict.fromkeys(parts, "waits")
        self._lock = threading.Lock()
        self._last = ""
        self._printed = self._began
        self._terminal = sys.stdout.isatty()

    def tell(self, part: str, now: str) -> None:
        """Report what a part does now."""
        with self._lock:
            self._now[part] = now
            self._show()

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        with self._lock:
            self._print(f"setup: {line}", stays=True)

    def done(self, part: str) -> None:
        """Report that a part is finished."""
        with self._lock:
            self._now[part] = "done"
            left = [name for name, now in self._now.items() if now != "done"]
            self._print(f"{self._head()} {part} done; {f'left: {self._states()}' if left else 'all done'}", stays=True)

    def _head(self) -> str:
        return f"setup: {time.monotonic() - self._began:3.0f} s,"

    def _states(self) -> str:
        return " · ".join(f"{part} {now}" for part, now in self._now.items() if now != "done")

    def _show(self) -> None:
        if self._terminal or time.monotonic() - self._printed >= _EVERY_SECONDS:
            self._print(f"{self._head()} {self._states()}", stays=False)

    def _print(self, line: str, *, stays: bool) -> None:
        if line == self._last:
            return
        self._last, self._printed = line, time.monotonic()
        if self._terminal:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{line if stays else line[: width - 1]}", end="\n" if stays else "", flush=True)
        else:
            print(line, flush=True)


class Setup:
    """One run of set-up. python: the interpreter for `.venv`; group: `run` or `dev`."""

    def __init__(self, group: str, python: str) -> None:
        self._group = group
        self._python = python
        self._commands = Commands()
        self._board = Board(("packages", "pyspark", "jars", "kernels", *(["classes"] if group == "dev" else [])))
        self._packages = Installer(python, self._commands, self._installing, self._board.say)
        self._java = ""

    def run(self) -> None:
        """Install what is missing. Raises SetupError, JavaMissing."""
        self._java = str(java_home())
        install = self._environment()
        if install:
            self._board.tell("packages", "fetching uv")
            self._packages.bootstrap()
        with ThreadPoolExecutor(max_workers=5) as pool:
            wheels = pool.submit(self._wheels, install)
            spark = pool.submit(self._spark, wheels, install)
            parts = [wheels, spark, pool.submit(self._jars, spark), pool.submit(self._kernels, wheels)]
            if self._group == "dev":
                parts.append(pool.submit(self._classes, parts[2], parts[3]))
            try:
                wait(parts, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                self._board.say("stopping; the next set-up goes on from here")
                raise
            finally:
                if any(part.done() and part.exception() is not None for part in parts) or sys.exc_info()[0]:
                    self._commands.end()
            wait(parts)
            failures = [error for part in parts if (error := part.exception()) is not None]
            if failures:
                raise next((error for error in failures if not isinstance(error, Stopped)), failures[0])

    # --- the environment ----------------------------------------------------------------------------------------------

    def _environment(self) -> bool:
        """Make `.venv` unless the existing one can be kept; returns whether packages have to be installed into it."""
        free = shutil.disk_usage(ROOT).free >> 20
        works = PYTHON.exists() and _succeeds([PYTHON, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"])
        said = _asked([PYTHON, "-m", "vernier.service.toolchain.install", "broken", self._group]) if works else ""
        if works and not said and not _UNFINISHED.exists() and made(self._group):
            return False
        if free < LEAST_FREE_MB:
            raise SetupError(
                problem=f"disk full: {free} MB are free here, set-up needs some {FRESH_FREE_MB};"
                " make room and run make setup again"
            )
        if not VENV.exists():
            if free < FRESH_FREE_MB:
                raise SetupError(
                    problem=f"disk full: {free} MB are free here, a fresh set-up needs {FRESH_FREE_MB};"
                    " make room and run make setup again"
                )
            version = _asked([self._python, "--version"])
            self._board.say(f"making .venv with {version} (600 MB of network when nothing is in a cache)")
        elif not works:
            self._board.say(".venv is broken (its python does not run); making it anew")
        elif _UNFINISHED.exists():
            self._board.say("continuing a set-up that was interrupted; what it has fetched is kept")
        elif made(self._group):
            self._board.say(f".venv is incomplete ({said}); making it anew")
        else:
            self._board.say("updating .venv to requirements.lock")
            for group in GROUPS:
                stamp(group).unlink(missing_ok=True)
            _UNFINISHED.touch()
            return True
        self._packages.make_venv()
        _UNFINISHED.touch()
        return True

    def _wheels(self, install: bool) -> None:
        if install:
            self._board.tell("packages", "fetching")
            for lock in locks(self._group):
                self._packages.wheels(lock)
        self._board.done("packages")

    def _spark(self, wheels: Future[None], install: bool) -> None:
        if install:
            self._board.tell("pyspark", "fetching and building (430 MB)")
            self._packages.build()
            self._after(wheels)
            self._packages.source()
            self._packages.project()
            if said := _asked([PYTHON, "-m", "vernier.service.toolchain.install", "broken", self._group]):
                raise SetupError(problem=f".venv is still broken: {said}; see .make/uv.log")
            stamp(self._group).write_text(wanted(self._group) + "\n", encoding="utf-8")
            _UNFINISHED.unlink()
        # written last: once this file exists, the environment works
        words = {"JAVA_HOME": self._java, "PYSPARK_PYTHON": str(PYTHON), "PYSPARK_DRIVER_PYTHON": str(PYTHON)}
        written = MAKE / f"env.{os.getpid()}"
        written.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in words.items()))
        written.replace(MAKE / "env")
        self._board.done("pyspark")

    def _jars(self, spark: Future[None]) -> None:
        self._after(spark)
        self._board.tell("jars", "fetching")
        self._ours("jars", "vernier.service.toolchain.jars")

    def _kernels(self, wheels: Future[None]) -> None:
        self._after(wheels)
        self._board.tell("kernels", "compiling")
        self._ours("kernels", "vernier.service.toolchain.setup", "kernels")

    def _classes(self, jars: Future[None], kernels: Future[None]) -> None:
        """Make the class-data archives. Tests start Spark many times and want them early; `make run` makes its own."""
        self._after(jars)
        self._after(kernels)
        self._board.tell("classes", "running a small service")
        try:
            self._ours("classes", "vernier.service.supervision.class_archives")
        except SetupError as error:  # everything works without them
            self._board.say(f"no archives of class data, so Spark starts slower: {error}")
            self._board.done("classes")

    def _after(self, part: Future[None]) -> None:
        if part.exception() is not None:
            raise Stopped()

    def _ours(self, part: str, module: str, *arguments: str) -> None:
        """Run one of the project's modules in `.venv`; its output becomes the status of the part."""
        log = MAKE / f"{part}.log"
        command = [str(PYTHON), "-m", module, *arguments]
        each: Callable[[str], None] = lambda line: self._board.tell(part, line.removeprefix(f"{part}: "))  # noqa: E731
        said = self._commands.run(command, log, each, {"JAVA_HOME": self._java})
        if said is not None:
            lines = [line for line in said.splitlines() if line.strip()] or ["no output"]
            what = (
                f"the kernels do not compile: {lines[-1]} (all in .make/kernels.log)"
                if part == "kernels"
                else lines[-1]
            )
            raise SetupError(problem=what)
        self._board.done(part)

    def _installing(self, line: str) -> None:
        if line.startswith(("Downloading", "Building", "Collecting")):
            words = line.split()
            part = "pyspark" if words[1].startswith("pyspark") else "packages"
            self._board.tell(part, f"{words[0].lower()} {' '.join(words[1:])}")


def _succeeds(command: Sequence[str | Path]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, cwd=ROOT).returncode == 0
    except OSError:
        return False


def _asked(command: Sequence[str | Path]) -> str:
    """Run a program and return the last line of its output."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=ROOT)
    except OSError as error:
        return str(error)
    lines = (ran.stdout + ran.stderr).strip().splitlines()
    return lines[-1] if lines else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    group = words[-1] if words else ""
    if group not in GROUPS or words[:-1] not in ([], ["check"], ["broken"]):
        print("usage: python -m vernier.service.toolchain.install [check] run|dev", file=sys.stderr)
        return 2
    if words[0] in ("check", "broken"):
        said = missing(group) if words[0] == "check" else broken(group)
        if said:
            print(said)
        return 1 if said else 0
    try:
        Setup(group, sys.executable).run()
    except (SetupError, JavaMissing) as error:
        print(f"\nsetup: {error}" if sys.stdout.isatty() else f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
