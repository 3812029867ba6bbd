"""Install the packages of a lock into `.venv`, each checked by its hash: with uv, or with pip where uv cannot.

uv fetches and unpacks in parallel. uv itself is in the lock, so pip fetches that one package and uv all others. The
user decides where packages come from: the configuration of pip (index, proxy, certificates, time-outs) is passed on to
uv at run time, and is never written down. This module needs only the standard library.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vernier.service.toolchain.home import ROOT
from vernier.storage.errors import CallerError

MAKE = ROOT / ".make"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
ALL, RUN = ROOT / "requirements.lock", ROOT / "docker" / "requirements.lock"
BUILT_HERE = "pyspark"
"""The only package that comes as source. It is built with the setuptools of the lock, never with one that was fetched
without a hash.
"""
TOOLS = ("setuptools", "packaging")
"""What set-up itself needs in an environment of run-time packages."""

_PASSED_ON = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
}
_NO_NETWORK = re.compile(
    r"name resolution|NewConnectionError|ConnectTimeout|Max retries|ProxyError|Network is unreachable|dns error"
    r"|connection (refused|reset|broken)|error sending request|tcp connect error|certificate",
    re.IGNORECASE,
)


class SetupError(CallerError):
    """A part of set-up failed. `problem` is one line that includes the remedy."""

    message = "{problem}"
    problem: str


class PackagesError(SetupError):
    """This installer cannot install the packages; another one may."""


class Stopped(Exception):
    """Another part has failed, so this one was ended."""


class Commands:
    """Runs programs for several threads and ends them all when one part fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False

    def run(
        self,
        command: Sequence[str | Path],
        log: Path,
        each: Callable[[str], None] = lambda line: None,
        environment: Mapping[str, str] | None = None,
    ) -> str | None:
        """Run a program; its output goes to `log`, and line by line to `each`. Returns the output only if it failed.

        Raises Stopped if another part has failed meanwhile.
        """
        with self._lock:
            if self._over:
                raise Stopped()
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                cwd=ROOT,
            )
            self._running.add(process)
        said = []
        with process, open(log, "w", encoding="utf-8") as file:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                file.write(line)
                file.flush()
                each(line.strip())
        with self._lock:
            self._running.discard(process)
            if self._over:
                raise Stopped()
        return "".join(said) if process.returncode else None

    def end(self) -> None:
        """Terminate the running programs, and start no more."""
        with self._lock:
            self._over = True
            for process in self._running:
                with contextlib.suppress(OSError):
                    process.terminate()


def block(lock: Path, names: Sequence[str], *, but: bool = False) -> str:
    """The lock's entries of these packages, or with `but` the entries of all others."""
    entries = re.split(r"^(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = ((re.match(r"[A-Za-z0-9._-]+", entry), entry) for entry in entries)
    return "".join(entry for name, entry in found if name and (name[0] in names) != but)


def locks(group: str) -> list[Path]:
    """The lock files of an environment to run in (`run`) or to develop in (`dev`)."""
    MAKE.mkdir(exist_ok=True)
    return [_kept("run.lock", RUN.read_text(encoding="utf-8") + block(ALL, TOOLS)) if group == "run" else ALL]


def _kept(name: str, text: str) -> Path:
    path = MAKE / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


def pip_options(listing: str) -> dict[str, str]:
    """Parse the output of `pip config list` to options by name; the environment overrides files."""
    options: dict[str, str] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    at: dict[str, int] = {}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, dot, option = key.partition(".")
        rank = ranks.get(section)
        if not equals or not dot or rank is None:
            continue
        option = option.lstrip(".").replace("_", "-")
        with contextlib.suppress(ValueError, SyntaxError):
            if rank >= at.get(option, 0):
                options[option], at[option] = " ".join(str(ast.literal_eval(value)).split()), rank
    return options


def uv_environment(options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Convert pip's options to variables of uv. own: the present environment; its variables for uv take precedence."""
    passed: dict[str, str] = {}
    for option, variable in _PASSED_ON.items():
        value = options.get(option)
        if option == "find-links" and value:  # uv refuses a missing folder, pip ignores it
            value = ",".join(one for one in value.split() if "//" in one or os.path.isdir(one))
        if value and variable not in own and variable not in passed:
            passed[variable] = value
    if "UV_INDEX_URL" in own:
        passed.pop("UV_DEFAULT_INDEX", None)
    if "UV_INDEX" in passed:  # like pip, take a package from any index that has it; the hashes identify it
        passed.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if proxy := options.get("proxy"):
        for variable in ("HTTPS_PROXY", "HTTP_PROXY"):
            if variable not in own and variable.lower() not in own:
                passed[variable] = proxy if "//" in proxy else f"http://{proxy}"
    return passed


class Installer:
    """Installs locked packages into environments.

    python: the interpreter for `.venv`. report: receives the installers' output, line by line. say: receives messages
    for the user.
    """

    def __init__(
        self,
        python: str,
        commands: Commands,
        report: Callable[[str], None] = lambda line: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._python = python
        self._commands = commands
        self._report = report
        self._say = say
        self._environment: dict[str, str] = {}
        self._flags: list[str] = []
        self._pip: list[str] = []
        self.uv: Path | None = None
        """The uv program; None while only pip is available."""

    def bootstrap(self) -> None:
        """Install uv as the lock names it. If that fails, pip does everything. Raises SetupError if pip does not work
        either.
        """
        entry = block(ALL, ["uv"])
        self._pip = self._find_pip()
        listed = subprocess.run([*self._pip, "config", "list"], capture_output=True, text=True, errors="replace")
        options = pip_options(listed.stdout)
        self._environment = uv_environment(options, os.environ)
        self._flags = ["--no-index"] if options.get("no-index", "") in ("1", "true", "True", "yes") else []
        folder, stamp = MAKE / "uv", MAKE / "uv" / "lock"
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == entry):
            shutil.rmtree(folder, ignore_errors=True)
            command = [
                *self._pip,
                "install",
                "--disable-pip-version-check",
                "--no-input",
                "--quiet",
                "--require-hashes",
            ]
            command += ["--no-deps", "--only-binary", ":all:", "--target", str(folder)]
            said = self._commands.run([*command, "-r", str(_kept("uv.lock", entry))], MAKE / "pip.log")
            if said is not None:
                if _NO_NETWORK.search(said) or "No space left" in said:
                    raise explain(said, MAKE / "pip.log")
                self._say(f"cannot install uv ({explain(said, MAKE / 'pip.log')}); pip installs one package at a time")
                return
            stamp.write_text(entry, encoding="utf-8")
        self.uv = folder / "bin" / "uv"

    def make_venv(self) -> None:
        """Make `.venv` from nothing, without pip in it."""
        shutil.rmtree(VENV, ignore_errors=True)
        self._venv(VENV)

    def wheels(self, lock: Path) -> None:
        """Install everything in the lock that need not be built into `.venv`. Raises PackagesError, SetupError."""
        wanted = _kept(f"wheels-{lock.name}", block(lock, [BUILT_HERE], but=True))
        if self.uv is not None:
            try:
                self._uv(wanted, PYTHON, MAKE / "uv.log", "--only-binary", ":all:")
                return
            except PackagesError as error:
                self._fall_back(error)
        self._pip_into_venv(wanted, "--only-binary", ":all:")

    def build(self) -> None:
        """Let uv fetch and build the source package in a separate environment, in parallel with the wheels.

        `source` finds the result in uv's cache. Does nothing without uv.
        """
        if self.uv is None:
            return
        place = MAKE / "build"
        shutil.rmtree(place, ignore_errors=True)
        try:
            self._venv(place)
            tools = _kept("setuptools.lock", block(ALL, ["setuptools"]))
            self._uv(tools, place / "bin" / "python", MAKE / "build.log", "--only-binary", ":all:")
            self._uv(self._source(), place / "bin" / "python", MAKE / "build.log")
        except PackagesError as error:
            self._fall_back(error)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def source(self) -> None:
        """Install the source package into `.venv`, after `wheels` and `build`."""
        if self.uv is not None:
            try:
                self._uv(self._source(), PYTHON, MAKE / "uv.log")
                return
            except PackagesError as error:
                self._fall_back(error)
        self._pip_into_venv(self._source(), "--no-build-isolation")

    def project(self) -> None:
        """Install this checkout into `.venv` as editable, so that edits take effect without another install."""
        words = ["--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=compat", "-e", "."]
        if self.uv is not None:
            command = [str(self.uv), "pip", "install", "--offline", "--python", str(PYTHON), *words]
            if (said := self._commands.run(command, MAKE / "project.log")) is not None:
                raise explain(said, MAKE / "project.log")
            return
        self._run_pip(words)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _source(self) -> Path:
        return _kept("source.lock", block(ALL, [BUILT_HERE]))

    def _fall_back(self, error: PackagesError) -> None:
        if self.uv is not None:
            self._say(f"uv failed ({error}); pip installs one package at a time")
        self.uv = None

    def _find_pip(self) -> list[str]:
        """The pip of the given Python; if it has none, the pip bundled with Python, installed in a folder of ours."""
        if subprocess.run([self._python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return [self._python, "-m", "pip"]
        own = MAKE / "pip"
        if subprocess.run([str(own / "bin" / "python"), "-m", "pip", "--version"], capture_output=True).returncode:
            shutil.rmtree(own, ignore_errors=True)
            self._venv(own, "--clear")
        return [str(own / "bin" / "python"), "-m", "pip"]

    def _venv(self, place: Path, *flags: str) -> None:
        if not flags:
            flags = ("--without-pip",)
        said = self._commands.run([self._python, "-m", "venv", *flags, place], MAKE / "venv.log")
        if said is not None:
            shutil.rmtree(place, ignore_errors=True)
            last = next((line for line in reversed(said.splitlines()) if line.strip()), "no output")[:160]
            raise SetupError(
                problem=f"{self._python} cannot make a virtual environment"
                f" (debian: apt-get install python3-venv): {last}"
            )

    def _uv(self, lock: Path, python: Path, log: Path, *flags: str) -> None:
        assert self.uv is not None
        command = [str(self.uv), "pip", "install", "--python", str(python), "--require-hashes", "--no-deps"]
        command += ["--no-build-isolation", *self._flags, *flags, "-r", str(lock)]
        # The package consists of archives already: compressing them again costs half a minute and saves nothing.
        stored = _kept("stored.cfg", "[bdist_wheel]\ncompression=stored\n")
        environment = {**self._environment, "DIST_EXTRA_CONFIG": str(stored)}
        if (said := self._commands.run(command, log, self._report, environment)) is not None:
            raise explain(said, log)

    def _pip_into_venv(self, lock: Path, *flags: str) -> None:
        self._run_pip(["--require-hashes", "--no-deps", *flags, "-r", str(lock)])

    def _run_pip(self, words: Sequence[str]) -> None:
        log = MAKE / "pip.log"
        if subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True).returncode:
            said = self._commands.run([PYTHON, "-m", "ensurepip", "--default-pip"], log)
            if said is not None:
                raise explain(said, log)
        command = [
            str(PYTHON),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "install",
            "--progress-bar",
            "off",
        ]
        stored = _kept("stored.cfg", "[bdist_wheel]\ncompression=stored\n")
        said = self._commands.run([*command, *words], log, self._report, {"DIST_EXTRA_CONFIG": str(stored)})
        if said is not None:
            found = explain(said, log)
            raise SetupError(problem=found.problem)


def explain(said: str, log: Path) -> SetupError:
    """Turn an installer's output into one line. Only an error that another installer may avoid is a PackagesError."""
    where = f"(all in {os.path.relpath(log, ROOT)})"
    if re.search("No space left|Disk quota", said):
        free = shutil.disk_usage(ROOT).free >> 20
        return SetupError(
            problem=f"disk full while installing: {free} MB are free here; make room and run make setup again"
        )
    if re.search("hash mismatch|do not match the hashes", said, re.IGNORECASE):
        which = re.search(r"(?:mismatch for|from) [`']?([^\s`']+)", said, re.IGNORECASE)
        package = which[1].rsplit("/", 1)[-1] if which else "one of them"
        return SetupError(problem=f"a package is not the one in requirements.lock: {package} {where}")
    if _NO_NETWORK.search(said):
        return PackagesError(
            problem=f"no network for pip: check the connection, HTTPS_PROXY or pip's configuration {where}"
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = (
        [line for line in lines if re.match(r"(ERROR|error|× |╰─▶|Caused by)", line)] or lines[-1:] or ["no output"]
    )
    return PackagesError(problem=f"packages cannot be installed: {causes[-1][:200]} {where}")
