"""Fetch the Java archives that do not come with PySpark: Spark's Kafka connector and a Kafka broker.

Maven is not needed. PySpark contains Ivy, which knows the public repository by itself, so no address is written down.
`jars.lock` beside this file names every archive and its sha256. Nothing is resolved at set-up, and nothing else can be
installed. A set is assembled in a temporary folder, checked, and moved into place in one step, so an interrupted fetch
leaves nothing that looks complete.

    python -m vernier.service.toolchain.jars            fetch what is missing
    python -m vernier.service.toolchain.jars lock       resolve again and rewrite jars.lock
    python -m vernier.service.toolchain.jars path       print the folder
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vernier.service.toolchain.home import cache_folder, checkout
from vernier.service.toolchain.ivy import BrokenCache, JarsError, retrieve
from vernier.service.toolchain.java import JavaMissing

Set = Literal["spark", "kafka"]
SETS: tuple[Set, ...] = ("spark", "kafka")
LOCK = Path(__file__).with_name("jars.lock")
STAMP = "jars.json"
NEEDED_BYTES = 200 * 2**20

# The input of `lock`: (group, artifact, version, with its runtime dependencies?). The version of the token provider is
# one that the repository is certain to serve; it matters for delegation tokens only. The logger lets a broker say why
# it died.
ROOTS: dict[Set, tuple[tuple[str, str, str, bool], ...]] = {
    "spark": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", False),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", False),
        ("org.apache.kafka", "kafka-clients", "3.9.2", False),
        ("org.apache.commons", "commons-pool2", "2.13.1", False),
    ),
    "kafka": (
        ("org.apache.kafka", "kafka_2.13", "4.3.0", True),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", False),
    ),
}


@dataclass(frozen=True)
class Jar:
    """One archive: Maven coordinates and the sha256 of its bytes (hex, empty if unknown)."""

    group: str
    artifact: str
    version: str
    sha256: str = ""

    @property
    def name(self) -> str:
        """The file name."""
        return f"{self.artifact}-{self.version}.jar"


def jars_dir() -> Path:
    """Return the folder of the sets: VERNIER_JARS_DIR, or `.jars` in the checkout, or one in the user's
    cache folder.
    """
    if chosen := os.environ.get("VERNIER_JARS_DIR"):
        return Path(chosen).resolve()
    root = checkout()
    return root / ".jars" if root is not None else cache_folder() / "jars"


def locked(which: Set) -> list[Jar]:
    """Return the archives of one set as jars.lock names them, in its order. Reads one small file."""
    jars = []
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, coordinates, digest = line.split()
            if name == which:
                group, artifact, version = coordinates.split(":")
                jars.append(Jar(group, artifact, version, digest.removeprefix("sha256:")))
    return jars


def spark_jars() -> list[Path]:
    """Return the connector's archives for `spark.jars`. Raises JarsError if they were not fetched;
    costs a few stats.
    """
    return _ready("spark")


def kafka_jars() -> list[Path]:
    """Return the class path of the broker. Raises JarsError if it was not fetched; costs a few stats."""
    return _ready("kafka")


def present() -> bool:
    """Whether every set has been fetched; costs a few stats."""
    return all(_whole(jars_dir() / which, locked(which)) for which in SETS)


def _ready(which: Set) -> list[Path]:
    home = jars_dir()
    if not _whole(home / which, locked(which)):
        raise JarsError(
            problem=f"the {which} jars are not in {home}; "
            "run `make setup` or `python -m vernier.service.toolchain.jars`"
        )
    return [home / which / jar.name for jar in locked(which)]


def _whole(folder: Path, jars: Sequence[Jar]) -> bool:
    """Whether the folder holds exactly these archives, judged by its stamp and their sizes."""
    try:
        stamp = json.loads((folder / STAMP).read_bytes())
        return {jar.name: jar.sha256 for jar in jars} == {name: it["sha256"] for name, it in stamp.items()} and all(
            (folder / name).stat().st_size == it["size"] for name, it in stamp.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fetch(say: Callable[[str], None] = lambda line: None) -> None:
    """Fetch every set that is missing; quick if there are none. `say` receives progress lines.

    Takes ~10 s and 55 MB of network when fresh. Several processes may call it at once. Raises JarsError (no network,
    disk full, an archive that is not served or not the locked one) and JavaMissing.
    """
    home = jars_dir()
    if present():
        return
    with _one_line_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with _only_one(home, say):
            for left in home.glob(".fetch-*"):  # left by a killed fetch: we hold the lock, so no process uses it
                shutil.rmtree(left, ignore_errors=True)
            try:
                for which in SETS:
                    if not _whole(home / which, locked(which)):
                        _fetch_set(home, which, say)
            except (JarsError, OSError):
                if shutil.disk_usage(home).free < NEEDED_BYTES:  # otherwise the cache would keep the disk full
                    shutil.rmtree(home / ".ivy", ignore_errors=True)
                raise
            shutil.rmtree(home / ".ivy", ignore_errors=True)


def _fetch_set(home: Path, which: Set, say: Callable[[str], None]) -> None:
    free = shutil.disk_usage(home).free
    if free < NEEDED_BYTES:
        raise JarsError(problem=_disk_full(home))
    jars = locked(which)
    try:
        _fetch_once(home, which, jars, say)
    except BrokenCache as first:
        say(f"{first}; trying again with an empty cache")
        shutil.rmtree(home / ".ivy", ignore_errors=True)
        _fetch_once(home, which, jars, say)


def _fetch_once(home: Path, which: Set, jars: Sequence[Jar], say: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as temporary:
        folder = Path(temporary) / which
        folder.mkdir()
        got = 0

        def count(name: str) -> None:
            nonlocal got
            got += 1
            say(f"jars: {which} {got}/{len(jars)} {name}")

        retrieve(home, folder, [(jar.group, jar.artifact, jar.version, False) for jar in jars], poms=False, each=count)
        stamp = {}
        for jar in jars:
            path = folder / jar.name
            if not path.is_file():
                raise BrokenCache(problem=f"ivy did not fetch {jar.name}")
            digest = _sha256(path)
            if digest != jar.sha256:
                raise BrokenCache(
                    problem=f"{jar.name} has sha256 {digest}, service/toolchain/jars.lock wants {jar.sha256}"
                )
            stamp[jar.name] = {"size": path.stat().st_size, "sha256": digest}
        _write(folder / STAMP, json.dumps(stamp, indent=1))
        for path in folder.iterdir():  # the rename must not become durable before the bytes
            _sync(path)
        _sync(folder)
        if (home / which).exists():
            (home / which).rename(Path(temporary) / "old")
        folder.rename(home / which)
        _sync(home)


def lock(say: Callable[[str], None] = lambda line: None) -> None:
    """Resolve ROOTS and their dependencies again and rewrite jars.lock. Takes about a minute; needs network."""
    home = jars_dir()
    text = [
        "# every archive that set-up fetches; written by `python -m vernier.service.toolchain.jars lock`,",
        "# read by service/toolchain/jars.py",
    ]
    with _one_line_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with _only_one(home, say):
            for which in SETS:
                with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as temporary:
                    folder = Path(temporary) / which
                    folder.mkdir()
                    pattern = "[organisation]/[artifact]/[revision].[ext]"
                    retrieve(home, folder, ROOTS[which], poms=True, pattern=pattern, each=say)
                    for path in sorted(folder.glob("*/*/*.jar")):
                        group, artifact = path.parts[-3:-1]
                        text.append(f"{which} {group}:{artifact}:{path.stem} sha256:{_sha256(path)}")
            shutil.rmtree(home / ".ivy", ignore_errors=True)
    _write(LOCK, "\n".join(text) + "\n")


@contextmanager
def _only_one(home: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the folder's lock; the kernel releases it if the process dies."""
    with open(home / ".lock", "w", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"jars: another process is fetching into {home}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_line_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise JarsError(problem=_disk_full(home)) from error
        raise JarsError(problem=f"cannot write the jars: {error.strerror}: {error.filename}") from error


def _disk_full(home: Path) -> str:
    free = shutil.disk_usage(home).free // 2**20
    return (
        f"disk full: {free} MB are free for {home}, the jars need {NEEDED_BYTES // 2**20};"
        " free some or set VERNIER_JARS_DIR"
    )


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _progress() -> Callable[[str], None]:
    """Show progress: on a terminal one line that is overwritten, elsewhere every tenth line, so that
    logs stay short.
    """
    if sys.stderr.isatty():
        return lambda line: print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def say(line: str) -> None:
        step = re.match(r"jars: \w+ (\d+)/(\d+)", line)
        if not step or int(step[1]) % 10 == 0 or step[1] == step[2]:
            print(line, file=sys.stderr, flush=True)

    return say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words not in ([], ["fetch"], ["lock"], ["path"]):
        print("usage: python -m vernier.service.toolchain.jars [fetch|lock|path]", file=sys.stderr)
        return 2
    if words == ["path"]:
        print(jars_dir())
        return 0
    try:
        (lock if words == ["lock"] else fetch)(_progress())
    except (JarsError, JavaMissing) as error:
        print(f"{chr(13) + chr(27) + '[K' if sys.stderr.isatty() else ''}{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
