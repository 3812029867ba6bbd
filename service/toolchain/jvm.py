"""Starts the service's JVMs, and lets them share class data.

Reading and verifying classes is half of a JVM's work before Spark's first micro-batch. A class-data archive, made once
per machine (service/supervision/class_archives.py), is mapped into memory instead. The JVM itself checks that the
archive fits its version and class path, and otherwise runs without it.

Spark's own launcher starts a JVM to find out how to start a JVM. `launch_java` starts PySpark's gateway directly,
before any PySpark module is imported, so that the JVM starts in parallel with those imports.
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
from vernier.service.toolchain.home import cache_folder, import_folder
from vernier.service.toolchain.jars import kafka_jars, spark_jars
from vernier.service.toolchain.java import find_java, java_home
from vernier.storage.errors import VernierError

Kind = Literal["spark", "kafka"]
RECORD = "VERNIER_RECORD_CLASSES"
"""Set while archives are made: each JVM then writes one when it ends."""

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
"""The Java options that Spark needs; a test compares them with Spark's own list."""

QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
"""Epochs are short and the workers need the cores: quick code at once beats perfect code in five minutes."""

_OF_A_LAUNCHER = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH")
"""Environment variables of users with their own Spark. It is then started by its own launcher, as they
configured it.
"""


def class_path(kind: Kind) -> list[Path]:
    """The class path of a JVM, in a stable order. Raises JarsError."""
    if kind == "kafka":
        return kafka_jars()
    return [*spark_jars(), *sorted((spark_home() / "jars").glob("*.jar"))]


def spark_home() -> Path:
    """PySpark's folder, found without importing PySpark. Raises SparkFailed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkFailed(problem="pyspark is not installed")
    return Path(found.origin).parent


def archive(kind: Kind, path: Sequence[Path]) -> Path:
    """The path of the class-data archive for this Java and class path, which may not exist. Costs one stat per jar."""
    java = java_home() / "release"
    parts = [java.read_text(encoding="utf-8", errors="replace") if java.is_file() else str(java)]
    for jar in path:
        about = jar.stat()
        parts.append(f"{jar} {about.st_size} {about.st_mtime_ns}")
    return cache_folder() / "classes" / f"{kind}-{crc32(json.dumps(parts).encode()):08x}.jsa"


def class_data(kind: Kind, path: Sequence[Path], *, record: bool = True) -> list[str]:
    """The flags that make a JVM use the archive, if it exists, or record it. record: whether this JVM
    may record one.
    """
    wanted = archive(kind, path)
    # Without these flags the JVM writes its complaints about an archive to the standard output of the program.
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if record and os.environ.get(RECORD):
        wanted.parent.mkdir(parents=True, exist_ok=True)
        return [*quiet, f"-XX:ArchiveClassesAtExit={recorded(wanted)}"]
    return [*quiet, f"-XX:SharedArchiveFile={wanted}"] if wanted.is_file() else []


def recorded(wanted: Path) -> Path:
    """Where a JVM writes an archive; it is renamed once it is complete."""
    return wanted.with_suffix(".new")


@dataclass
class Gateway:
    """A JVM with PySpark's gateway, which may still be starting.

    port_file: the file to which it writes its port; scratch: the folder of its temporary files.
    """

    process: subprocess.Popen[bytes]
    port_file: Path
    scratch: Path

    def connect(self, seconds: float = 120) -> Mapping[str, str]:
        """Wait until the JVM is up; returns the environment variables by which PySpark finds it. Raises SparkFailed."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        try:
            while not self.port_file.is_file():
                if (status := self.process.poll()) is not None:
                    raise SparkFailed(problem=f"spark's java ended with status {status} as it started")
                if time.monotonic() > deadline:
                    self.process.kill()
                    raise SparkFailed(problem=f"spark's java was not up within {seconds:.0f} s")
                pause.wait(0.01)
            data = self.port_file.read_bytes()
        finally:
            shutil.rmtree(self.port_file.parent, ignore_errors=True)
        port, length = struct.unpack_from(">ii", data)
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": data[8 : 8 + length].decode()}

    def end(self) -> None:
        """Let the JVM end. It also ends by itself when this process is gone."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        if os.environ.get(RECORD):
            self.process.wait()


def early(arguments: Sequence[str]) -> Gateway | None:
    """Launch Spark's JVM for the driver's command line, before the driver has imported its modules.

    Returns None if that fails. The driver itself then meets the same problem and reports it.
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
    """Start Spark's JVM and return at once, so that it starts in parallel with this process.

    Returns None if Spark's own launcher has to start it. scratch: for its temporary files. Raises JarsError,
    JavaMissing.
    """
    conf, master = settings.spark.conf, settings.spark.master
    if not re.fullmatch(r"local(\[.*\])?", master or "local") or any(name in os.environ for name in _OF_A_LAUNCHER):
        return None
    if any(key.startswith(("spark.driver.", "spark.submit.", "spark.jars", "spark.files")) for key in conf):
        return None
    prepare_environment(settings)
    path = class_path("spark")
    port_file = Path(tempfile.mkdtemp(prefix="gateway-", dir=scratch)) / "port"
    command = [str(find_java()), f"-Xmx{settings.shares.driver_heap >> 20}m", *MODULES]
    command += [*java_options(settings, scratch), *class_data("spark", path)]
    process = subprocess.Popen(
        [*command, "-cp", os.pathsep.join(str(jar) for jar in path), "org.apache.spark.api.python.PythonGatewayServer"],
        # the JVM ends with this pipe, hence with this process, however that ends
        stdin=subprocess.PIPE,
        env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(port_file), "SPARK_HOME": str(spark_home())},
        process_group=0,  # Ctrl-C must reach this process only, which ends its queries first
    )
    return Gateway(process, port_file, scratch)


def prepare_environment(settings: Settings) -> None:
    """Set the environment of Spark and its workers; call before the JVM starts."""
    os.environ["JAVA_HOME"] = str(java_home())
    # Spark resolves its machine's host name before it reads a setting, and in a container that name may not resolve.
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", settings.exchange.host)
    # Workers must run this interpreter with these packages, wherever the service was started.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = [str(import_folder()), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:-UsePerfData")


def java_options(settings: Settings, scratch: Path) -> list[str]:
    """The options of Spark's JVM."""
    level = "info" if settings.log.level == "debug" else "warn"
    return [
        f"-Dlog4j2.configurationFile=file://{Path(__file__).resolve().with_name('log4j2.properties')}",
        f"-Dvernier.log={level}",
        # Hadoop sets the mode of checkpoint files by forking chmod; VFORK is the cheapest fork.
        "-Djdk.lang.Process.launchMechanism=VFORK",
        *QUICK_START,
        # Java's temporary files go to the folder of the run, and are removed with it.
        f"-Djava.io.tmpdir={scratch}",
    ]
