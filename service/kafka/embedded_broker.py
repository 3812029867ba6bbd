"""A Kafka broker in a process of its own: for `kafka.embedded`, the demonstration and the tests.

One node, KRaft, loopback only, no security. Its log survives stop(), kill() and a crash of the machine, as Kafka's
does. The broker does not outlive the process that started it: a small watcher ends it, also after a kill -9.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from vernier.service.kafka.broker_errors import BrokerError, PortTaken, explain, port_taken
from vernier.service.kafka.topics import create_topics
from vernier.service.toolchain.jars import kafka_jars
from vernier.service.toolchain.java import find_java
from vernier.service.toolchain.jvm import class_data

LOOPBACK = "127.0.0.1"
MAX_MESSAGE_BYTES = 20 * 2**20  # a 10 MB message, with space for headers and what a client adds

# Blocks until the pipe from the parent closes, which the kernel does however the parent dies, then ends the broker. A
# parent-death signal would not work: it fires when the *thread* that started the broker ends.
_WATCHER = """
import os, select, signal, sys
pid = int(sys.argv[1])
try:
    handle = os.pidfd_open(pid)
    send = lambda number: signal.pidfd_send_signal(handle, number)
    wait = lambda seconds: select.select([handle], [], [], seconds)
except (AttributeError, OSError):
    import time
    handle, send, wait = None, lambda number: os.kill(pid, number), time.sleep
ready = select.select([0] + ([handle] if handle else []), [], [])[0]
if 0 in ready:
    try:
        send(signal.SIGTERM); wait(5); send(signal.SIGKILL)
    except OSError:
        pass
"""


class EmbeddedBroker:
    """A single-node Kafka broker over the data in a folder.

    `data_dir` is created if it is missing and formatted at the first start. `port` 0 takes a free port at the first
    start and keeps it for later starts of this object. `heap_mb` bounds the Java heap; the process takes ~150 MB more.
    `properties` are added to the server's own (`log.retention.ms`, …). `cluster` is the id of the Kafka cluster, a
    random one by default; brokers of one cluster have the same. Usable as a context manager. start, stop, kill and
    restart are not thread-safe.
    """

    def __init__(
        self,
        data_dir: str | Path,
        port: int = 0,
        *,
        heap_mb: int = 384,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        properties: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.data_dir = Path(data_dir).absolute()
        self.heap_mb = heap_mb
        self.max_message_bytes = max_message_bytes
        self.properties = dict(properties or {})
        self._wanted_port = port
        self._port = port
        self._controller_port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    # --- what others read ---------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port of the listener; 0 before the first start with port=0."""
        return self._port

    @property
    def bootstrap(self) -> str:
        """The address for clients' `bootstrap_servers`: `127.0.0.1:<port>`."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id while the broker runs; else None."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def log_file(self) -> Path:
        """The file with what the broker printed since its last start: warnings and errors."""
        return self.data_dir / "broker.log"

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, timeout_seconds: float = 60) -> Self:
        """Start the broker and return when it answers a metadata request; does nothing if it already runs.

        Takes ~3 s, ~4 s the first time. Raises PortTaken, BrokerError (another broker on the same folder, disk full,
        not ready in time), JarsError and JavaMissing.
        """
        if self.running:
            return self
        deadline = time.monotonic() + timeout_seconds
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._refuse_second()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)
        tries = 1 if self._wanted_port or self._port else 5
        while True:
            self._choose_ports()
            self._write_properties()
            self._format(deadline)
            self._spawn()
            try:
                self._wait_ready(deadline)
            except PortTaken:
                # another process took the free port after we had found it and before the broker used it; choose again
                self._end(signal.SIGKILL, 10)
                tries -= 1
                if tries <= 0:
                    raise
                self._port = 0
            except BaseException:
                self._end(signal.SIGKILL, 10)
                raise
            else:
                return self

    def stop(self, timeout_seconds: float = 20) -> None:
        """Let the broker shut down (about a second), then kill it if it has not; does nothing if it does not run."""
        self._end(signal.SIGTERM, timeout_seconds)

    def kill(self) -> None:
        """End the broker at once, as a crash does (SIGKILL); its log recovers at the next start."""
        self._end(signal.SIGKILL, 10)

    def restart(self, timeout_seconds: float = 60) -> Self:
        """Stop and start on the same data and the same port."""
        self.stop()
        return self.start(timeout_seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def create_topics(self, topics: Mapping[str, int], **options: object) -> dict[str, int]:
        """Create topics on this broker; see the function `create_topics`."""
        return create_topics(self.bootstrap, topics, **options)  # type: ignore[arg-type]

    # --- parts --------------------------------------------------------------------------------------------------------

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "log"

    @property
    def _scratch(self) -> Path:
        return self.data_dir / "tmp"

    @property
    def _config(self) -> Path:
        return self.data_dir / "server.properties"

    def _refuse_second(self) -> None:
        """Refuse a second broker on the same folder. Kafka's own lock does so, too, but only after its start-up."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid = int((self.data_dir / "broker.pid").read_text(encoding="ascii"))
            if str(self._config) in psutil.Process(pid).cmdline():
                raise BrokerError(
                    problem=f"{self.data_dir} is in use by the broker with pid {pid}; stop that one first"
                )

    def _choose_ports(self) -> None:
        with socket.socket() as one, socket.socket() as two:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((LOOPBACK, self._port))
            except PermissionError as error:
                raise BrokerError(problem=f"port {self._port} needs privileges; choose one above 1023") from error
            except OSError as error:
                raise port_taken(self._port) from error
            two.bind((LOOPBACK, 0))
            self._port = one.getsockname()[1]
            self._controller_port = two.getsockname()[1]

    def _write_properties(self) -> None:
        server = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self._log_dir),
            # the arrival clock reads the broker's timestamps, so producers must not choose them
            "log.message.timestamp.type": "LogAppendTime",
            "message.max.bytes": str(self.max_message_bytes),
            "replica.fetch.max.bytes": str(self.max_message_bytes),
            "fetch.max.bytes": str(max(55 * 2**20, self.max_message_bytes)),
            # a mistyped name must be an error, not a new topic
            "auto.create.topics.enable": "false",
            # one node: nothing to replicate, no other replica to wait for
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # after a kill, the node is admitted again only when its old session has expired (9 s by default)
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # small: Kafka's defaults are for dedicated machines
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
            **self.properties,
        }
        text = "".join(f"{name}={_escaped(value)}\n" for name, value in server.items())
        self._config.write_text(text, encoding="utf-8")

    def _java(self, *options: str, record: bool = False) -> list[str]:
        jars = kafka_jars()
        return [
            str(find_java()),
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # starts sooner; peak speed does not matter here
            *class_data("kafka", jars, record=record),
            # The folder for native libraries that Java unpacks. Those of a broker that was killed are deleted at the
            # next start.
            f"-Djava.io.tmpdir={self._scratch}",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            "-Dlog4j2.level=WARN",
            *options,
            "-cp",
            os.pathsep.join(str(path) for path in jars),
        ]

    def _format(self, deadline: float) -> None:
        """Format in a separate folder and move it into place, so an interrupted format is repeated and not taken for
        complete."""
        if (self._log_dir / "meta.properties").exists():
            return
        with tempfile.TemporaryDirectory(prefix=".format-", dir=self.data_dir) as temporary:
            config = Path(temporary) / "server.properties"
            fresh = Path(temporary) / "log"
            own = self._config.read_text(encoding="utf-8")
            config.write_text(f"{own}log.dirs={_escaped(str(fresh))}\n", encoding="utf-8")  # the last value counts
            chance = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")
            cluster = self.cluster or chance
            tool = ["kafka.tools.StorageTool", "format", "--config", str(config), "--cluster-id", cluster]
            try:
                ran = subprocess.run(
                    self._java("-Xmx96m") + tool,
                    capture_output=True,
                    text=True,
                    timeout=max(1.0, deadline - time.monotonic()),
                )
            except subprocess.TimeoutExpired as error:
                raise BrokerError(problem=f"formatting {self.data_dir} took too long; is the disk busy?") from error
            if ran.returncode != 0 or not (fresh / "meta.properties").exists():
                raise explain(
                    ran.stdout + ran.stderr, f"formatting {self.data_dir} failed", self.data_dir, self.heap_mb
                )
            if self._log_dir.exists():  # without meta.properties it was never formatted completely
                shutil.rmtree(self._log_dir)
            fresh.rename(self._log_dir)

    def _spawn(self) -> None:
        with open(self.log_file, "wb") as log:
            self._process = subprocess.Popen(
                [
                    *self._java(f"-Xmx{self.heap_mb}m", "-XX:+ExitOnOutOfMemoryError", record=True),
                    "kafka.Kafka",
                    str(self._config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                start_new_session=True,  # Ctrl-C is for the service, which stops the broker last
            )
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHER, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (self.data_dir / "broker.pid").write_text(str(self._process.pid), encoding="ascii")

    def _wait_ready(self, deadline: float) -> None:
        assert self._process is not None
        pause = threading.Event()
        while self._process.poll() is None:
            if _listens(self._port) and _answers(self.bootstrap):
                return
            if time.monotonic() > deadline:
                raise BrokerError(problem=f"the broker did not answer on {self.bootstrap} in time; see {self.log_file}")
            pause.wait(0.05)
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        if re.search(r"Address already in use|BindException", text):
            raise port_taken(self._port)
        raise explain(
            text,
            f"the broker ended with status {self._process.returncode} (see {self.log_file})",
            self.data_dir,
            self.heap_mb,
        )

    def _end(self, number: signal.Signals, timeout_seconds: float) -> None:
        process, self._process = self._process, None
        watcher, self._watcher = self._watcher, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(number)
            try:
                process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            (self.data_dir / "broker.pid").unlink(missing_ok=True)
            shutil.rmtree(self._scratch, ignore_errors=True)
        if watcher is not None:  # the watcher has seen the broker's end and exits by itself
            if watcher.stdin is not None:
                watcher.stdin.close()
            try:
                watcher.wait(10)
            except subprocess.TimeoutExpired:
                watcher.kill()
                watcher.wait()


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex((LOOPBACK, port)) == 0


def _answers(bootstrap: str) -> bool:
    """Whether a metadata request is answered, with a live broker and a controller."""
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap, client_id="vernier-ready", request_timeout_ms=5000, bootstrap_timeout_ms=5000
        )
    except KafkaError:
        return False
    try:
        cluster = admin.describe_cluster()
        return bool(cluster.get("brokers"))
    except KafkaError:
        return False
    finally:
        admin.close()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
