"""The service's JVMs: how they are started, and the classes they share.

Half of what a JVM does until Spark's first micro-batch is reading and verifying classes. An archive of class data, made
once a machine (service/supervision/class_archives.py), is mapped into memory instead. The JVM itself checks that an
archive is of its own version and class path, and goes on without one that is not.

Spark's own launcher starts a JVM to find out how to start a JVM. `launch_java` starts PySpark's gateway directly,
before anything of PySpark is imported, so that it comes up meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from zlib import crc32

from vernier.service.config.settings import Settings, load
from vernier.service.errors import SparkFailed
from vernier.service.toolchain.home import cache_folder
from vernier.service.toolchain.jars import kafka_jars, spark_jars
from vernier.service.toolchain.java import find_java, java_home
from vernier.storage.errors import VernierError

Kind = Literal["spark", "kafka"]
RECORD = "VERNIER_RECORD_CLASSES"
"""Set while an archive is made: JVMs then write one when they end."""

_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULES = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
]
"""What Spark wants of Java; a test compares it with Spark's own list."""

_OF_A_LAUNCHER = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH")
"""Variables of people who have a Spark of their own; it is started as they want it, by its own launcher."""


def class_path(kind: Kind) -> list[Path]:
    """The archives of a JVM, in an order that does not change. Raises JarsError."""
    if kind == "kafka":
        return kafka_jars()
    return [*spark_jars(), *sorted((spark_home() / "jars").glob("*.jar"))]


def spark_home() -> Path:
    """PySpark's folder. Imports nothing of it. Raises SparkFailed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkFailed(problem="pyspark is not installed")
    return Path(found.origin).parent


def archive(kind: Kind, path: Sequence[Path]) -> Path:
    """The archive of class data for this Java and class path, whether it is there or not. Costs a stat an archive."""
    java = java_home() / "release"
    parts = [java.read_text(encoding="utf-8", errors="replace") if java.is_file() else str(java)]
    for jar in path:
        about = jar.stat()
        parts.append(f"{jar} {about.st_size} {about.st_mtime_ns}")
    return cache_folder() / "classes" / f"{kind}-{crc32(json.dumps(parts).encode()):08x}.jsa"


def class_data(kind: Kind, path: Sequence[Path], *, record: bool = True) -> list[str]:
    """Flags by which a JVM uses the archive, if there is one, or records it. record: whether it is worth recording."""
    wanted = archive(kind, path)
    # What the JVM thinks of an archive it would write into the output of whatever runs inside.
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if record and os.environ.get(RECORD):
        wanted.parent.mkdir(parents=True, exist_ok=True)
        return [*quiet, f"-XX:ArchiveClassesAtExit={recorded(wanted)}"]
    return [*quiet, f"-XX:SharedArchiveFile={wanted}"] if wanted.is_file() else []


def recorded(wanted: Path) -> Path:
    """Where a JVM writes an archive, which is not there before it is whole."""
    return wanted.with_suffix(".new")


@dataclass
class Gateway:
    """A JVM with PySpark's gateway, perhaps not up yet. told: where it tells its port; scratch: its temporary files."""

    process: subprocess.Popen[bytes]
    told: Path
    scratch: Path

    def connect(self, seconds: float = 120) -> Mapping[str, str]:
        """Wait until it is up; returns the variables by which PySpark finds it. Raises SparkFailed."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        try:
            while not self.told.is_file():
                if (status := self.process.poll()) is not None:
                    raise SparkFailed(problem=f"spark's java ended with status {status} as it started")
                if time.monotonic() > deadline:
                    self.process.kill()
                    raise SparkFailed(problem=f"spark's java was not up within {seconds:.0f} s")
                pause.wait(0.01)
            data = self.told.read_bytes()
        finally:
            shutil.rmtree(self.told.parent, ignore_errors=True)
        port, length = struct.unpack_from(">ii", data)
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": data[8 : 8 + length].decode()}

    def end(self) -> None:
        """Let the JVM end; it does so by itself, too, when this process is gone."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if os.environ.get(RECORD):
            self.process.wait()


def early(arguments: Sequence[str]) -> Gateway | None:
    """Spark's JVM for the driver's command line, launched before the driver has imported what it needs.

    None where it cannot be: whatever is wrong, the driver says it in its turn.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[])
    given, _ = parser.parse_known_args(arguments)
    try:
        settings = load(given.config, dict(pair.split("=", 1) for pair in given.set)).settings
        return launch_java(settings, Path(tempfile.mkdtemp(prefix="d-")))
    except (VernierError, ValueError, OSError):
        return None


def launch_java(settings: Settings, scratch: Path) -> Gateway | None:
    """Start Spark's JVM and return at once, so that it comes up while this process does other things.

    None where Spark's own launcher has to start it. scratch: for its temporary files. Raises JarsError, JavaMissing.
    """
    conf, master = settings.spark.conf, settings.spark.master
    if not re.fullmatch(r"local(\[.*\])?", master or "local") or any(name in os.environ for name in _OF_A_LAUNCHER):
        return None
    if any(key.startswith(("spark.driver.", "spark.submit.", "spark.jars", "spark.files")) for key in conf):
        return None
    prepare_environment(settings)
    path = class_path("spark")
    told = Path(tempfile.mkdtemp(prefix="gateway-", dir=scratch)) / "port"
    command = [str(find_java()), f"-Xmx{settings.shares.driver_heap >> 20}m", *MODULES]
    command += [*java_options(settings, scratch), *class_data("spark", path)]
    process = subprocess.Popen(
        [*command, "-cp", os.pathsep.join(str(jar) for jar in path), "org.apache.spark.api.python.PythonGatewayServer"],
        # It ends when this pipe does, which is when this process ends, however it does
        stdin=subprocess.PIPE,
        env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told), "SPARK_HOME": str(spark_home())},
        process_group=0,  # Ctrl-C is for this process, which ends its queries first
    )
    return Gateway(process, told, scratch)


def prepare_environment(settings: Settings) -> None:
    """What Spark and its workers find in their environment, before the JVM starts."""
    os.environ["JAVA_HOME"] = str(java_home())
    # Spark looks its machine's own name up before it reads a setting, and in a container that name may be nobody's.
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", settings.exchange.host)
    # Workers must be this interpreter with these packages, wherever the service was started.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:-UsePerfData")


def java_options(settings: Settings, scratch: Path) -> list[str]:
    """The options of Spark's JVM."""
    level = "info" if settings.log.level == "debug" else "warn"
    return [
        f"-Dlog4j2.configurationFile=file://{Path(__file__).resolve().with_name('log4j2.properties')}",
        f"-Dvernier.log={level}",
        # Checkpoint files are given their mode by a forked chmod; this is the cheapest fork there is.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # Epochs are short and the cores are the workers': quick code at once beats perfect code in five minutes.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        # What Java unpacks and notes goes where the rest of the run's files are, and away with them.
        f"-Djava.io.tmpdir={scratch}",
        "-XX:-UsePerfData",
    ]
