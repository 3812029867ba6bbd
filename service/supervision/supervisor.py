"""The supervisor behind `vernier up`: starts the service's processes, restarts those that die, and stops all in order.

    broker (when kafka.embedded)  driver (Spark and its query)  sidecar (HTTP)  publisher (output topics)
    and any additional children

Each process runs under the parent watch (service/supervision/parent_watch.py) and logs to a file of its own. A process
that fails before it was ever ready indicates a mistake in the settings or on the machine: everything stops with that
process's last line. A process that dies later is restarted, after growing pauses.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from vernier.service.config.settings import Loaded, Settings
from vernier.service.errors import DiskTooSmall, ProcessFailed, TakenPort
from vernier.service.files.scratch import Scratch
from vernier.service.kafka.broker_errors import BrokerError
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.sidecar.auth import Access
from vernier.service.sidecar.health_probe import address, alive, answers, check_certificate
from vernier.service.status import intake, standby
from vernier.service.status import publisher as publisher_status
from vernier.service.status.publisher import FENCED
from vernier.service.status.trouble import STOPPED
from vernier.service.supervision.child import Child, Say
from vernier.service.supervision.parent_watch import UMASK
from vernier.service.toolchain.first_use import have_jars, have_kernels
from vernier.service.toolchain.jars import kafka_jars, spark_jars
from vernier.service.toolchain.java import find_java
from vernier.storage.errors import StorageError
from vernier.storage.flag import Flag
from vernier.storage.state.state import FOLDERS, LOCK, StateDirectory

LEAST_FREE_BYTES = 256 << 20
STOP_SECONDS = 10
"""The time limit for stopping all processes. Killing one loses no data."""
_BROKER_SECONDS = 2.5
_POLL_SECONDS = 0.1
_BROKER_START_SECONDS = 300
"""How long a slow broker may take to start on a busy machine. A broker that dies is noticed at once."""
_log = logging.getLogger("vernier.up")


@dataclass
class Supervisor:
    """Runs a service until `stop` is called. extra: functions that create additional children."""

    loaded: Loaded
    config: str | Path | None
    flags: Mapping[str, object]
    say: Say = print
    extra: Sequence[Callable[[Supervisor], Child]] = ()
    broker: EmbeddedBroker | None = None
    children: list[Child] = field(default_factory=list)
    _stop: Flag = field(default_factory=Flag)
    _hurry: Flag = field(default_factory=Flag)
    _scratch: Scratch | None = None
    _broker_starter: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _starting: Future[EmbeddedBroker] | None = None
    """The pending start of the broker; None once it has started."""
    _again: bool = False
    """Whether that start replaces a broker that died. It is repeated if it fails."""
    _checking: bool = False
    """Whether the program runs in this process, to be checked."""

    @property
    def settings(self) -> Settings:
        """The service's settings."""
        return self.loaded.settings

    @property
    def url(self) -> str:
        """The address on which the sidecar listens."""
        return address(self.settings.http)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start everything and keep it running; calls `on_ready` once all is ready. Returns after `stop`.

        Raises VernierErrors of one line if it cannot start, or if a process fails before it was ever ready.
        """
        umask = os.umask(UMASK)
        try:
            self._check()
            if self._stop.is_set():
                return
            self._take_scratch()
            self._start()
            self._check_program()
            announced = False
            while not self._stop.wait(_POLL_SECONDS):
                if self._starting is not None:
                    self._look_at_broker(self._starting)
                elif self.broker is not None and not self.broker.running:
                    self.say("broker: died, restarted")
                    self._again = True
                    self._start_broker(self.broker)
                first = [child for child in self.children if not child.last]
                ready = all(child.was_ready and not child.stands_by(self.say) for child in first)
                for child in self.children:
                    if ready or not child.last:
                        child.look(self.say)
                waits = any(child.standby for child in first)
                awaited = first if waits else self.children
                if not announced and all(child.was_ready for child in awaited) and self._queryable():
                    announced = True
                    on_ready()
        finally:
            self._end()
            os.umask(umask)

    def stop(self) -> None:
        """Ask `run` to stop everything; safe in a signal handler. A second call kills what has not stopped yet."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        self._kill_starting()

    def interrupt(self) -> None:
        """`stop`, from a signal handler of the thread that is in `run`: a program that is being checked ends here, by
        KeyboardInterrupt, whatever it is doing."""
        self.stop()
        if self._checking:
            raise KeyboardInterrupt

    def passed_on(self) -> list[str]:
        """The arguments that pass these settings to a child."""
        given = ["--config", str(self.config)] if self.config is not None else []
        for key, value in self.flags.items():
            if value is not None:
                given += ["--set", f"{key}={value}"]
        return given

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Check everything that can be checked before any process starts."""
        settings = self.settings
        if settings.program is None:
            raise ProcessFailed(name="driver", status=2, said="there is no program to run", log="")
        if not settings.program.is_file():
            self._check_program()
        find_java()
        have_jars(self.say)
        spark_jars()
        have_kernels(self.say)
        place = settings.state.place
        place.open().prepare(FOLDERS)
        if place.folder is not None:
            free = shutil.disk_usage(place.folder).free
            if free < LEAST_FREE_BYTES:
                raise DiskTooSmall(path=str(place), free=free >> 20, needed=LEAST_FREE_BYTES >> 20)
        check_certificate(settings.http)
        if Access.of(settings.http).wide_open:
            where = f"{settings.http.host}:{settings.http.port}"
            self.say(f"sidecar: WARNING: http.anonymous is admin: every client of {where} may read, and send updates")
        check_port(settings.http.host, settings.http.port, "http.port")
        if settings.kafka.embedded:
            kafka_jars()

    def _take_scratch(self) -> None:
        root = self.settings.scratch_root
        try:
            self._scratch = Scratch(root)
        except OSError as error:
            said = f"state.scratch: cannot use {root}: {error.strerror}"
            raise ProcessFailed(name="driver", status=2, said=said, log="") from error

    def _start(self) -> None:
        settings = self.settings
        if settings.kafka.embedded:
            self.say("broker: starting")
            port = int(settings.kafka.bootstrap.rpartition(":")[2])
            self.broker = EmbeddedBroker(settings.broker_data, port, heap_mb=settings.shares.broker_heap >> 20)
            self._start_broker(self.broker)
        logs = settings.log_directory
        logs.mkdir(parents=True, exist_ok=True)
        head = StateDirectory(settings.state.place)
        before = _Before()
        self.children = [
            Child(
                "driver",
                "vernier.service.coordinator.driver",
                self.passed_on(),
                logs / "driver.log",
                # The first commit of this driver proves that it has read, computed and written. A driver that starts
                # paused makes no commit; its status file says so. While there is a standby, commits of others count for
                # nothing.
                lambda: (
                    self._driver_waits(head)
                    or (
                        self._driver_owns(head)
                        and (head.head() != before.head or _waits(intake.observed(head.blob), before.driver))
                    )
                ),
                final=STOPPED,
                waits=lambda: self._driver_waits(head),
                started=lambda: before.look(head),
                ended=lambda: self._bury(head),
                until_ready=f"Spark starts and makes the first epoch; its log is {logs / 'driver.log'}",
            ),
            Child(
                "sidecar",
                "vernier.service.sidecar",
                self.passed_on(),
                logs / "sidecar.log",
                lambda: alive(settings.http),
                stop_seconds=10,
                until_ready=f"the HTTP server starts; its log is {logs / 'sidecar.log'}",
            ),
            *([self._publisher(logs, head)] if settings.publishes else []),
            *(make(self) for make in self.extra),
        ]
        if self._scratch is not None:
            for child in self.children:
                child.environment = {"TMPDIR": str(self._scratch.path.absolute())}
        if not settings.publishes:
            publisher_status.delete(settings.state.place.open())

    def _bury(self, head: StateDirectory) -> None:
        """Release the lock of a driver that died, so that neither its successor nor a standby waits until it
        expires."""
        try:
            if head.blob.release_ended(LOCK):
                self.say("driver: its lock on the state is released")
        except StorageError as problem:
            _log.warning("the lock of the driver stays until it expires: %s", problem)

    def _driver_waits(self, head: StateDirectory) -> bool:
        """Whether the driver is a standby now."""
        process = self.children[0].process
        return self.settings.state.standby and process is not None and standby.waits(head.blob, process.pid)

    def _driver_owns(self, head: StateDirectory) -> bool:
        """Whether commits are those of this service's driver."""
        process = self.children[0].process
        if not self.settings.state.standby or process is None:
            return True
        owner = head.blob.owner(LOCK)
        return owner is not None and owner.pid == process.pid and owner.host in ("", socket.gethostname())

    def _queryable(self) -> bool:
        """Whether the sidecar has read an epoch, if there is one. A driver that starts paused makes none."""
        with contextlib.suppress(StorageError):
            return StateDirectory(self.settings.state.place).head() == 0 or answers(self.settings.http)
        return False

    def _check_program(self) -> None:
        """Check that the file contains a program. This imports the engine and may take as long as the program
        likes, so it runs while the processes are starting, and ends when the service stops.
        """
        from vernier.operators.language.collection.app import load_program

        assert self.settings.program is not None
        try:
            self._checking = True
            if not self._stop.is_set():
                load_program(self.settings.program)
        except KeyboardInterrupt:
            if not self._stop.is_set():
                raise
        finally:
            self._checking = False

    def _start_broker(self, broker: EmbeddedBroker) -> None:
        """Start the broker beside the loop: it may take minutes, and the loop must see that the service stops."""
        self._starting = self._broker_starter.submit(broker.start, _BROKER_START_SECONDS)

    def _look_at_broker(self, starting: Future[EmbeddedBroker]) -> None:
        """Notice that the broker is up; the processes that need it wait for it themselves. Raises the error of its
        first start.
        """
        if not starting.done():
            return
        self._starting = None
        error = starting.exception()
        if error is not None and not (self._again and isinstance(error, BrokerError)):
            raise error
        if error is None:
            self.say(f"broker: ready on {self.settings.kafka.bootstrap}")
        else:
            self.say(f"broker: {error}")
            self._stop.wait(1)

    def _kill_starting(self) -> None:
        """Kill a broker that is still starting: it has nothing to finish, and may take long to react to a signal."""
        pid = self.broker.pid if self.broker is not None and self._starting is not None else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _publisher(self, logs: Path, head: StateDirectory) -> Child:
        """The process that publishes the views. It waits for the first epoch and for the brokers by itself. One that
        the publisher of a standby has replaced comes back when the state is this service's again."""
        return Child(
            "publisher",
            "vernier.service.sinks",
            self.passed_on(),
            logs / "publisher.log",
            lambda: True,
            stop_seconds=10,
            last=True,
            final=FENCED,
            again=lambda: self.settings.state.standby and self._driver_owns(head),
        )

    def _end(self) -> None:
        """Stop everything within STOP_SECONDS: first the processes that send messages, then the driver and the sidecar,
        last the broker.
        """
        deadline = time.monotonic() + STOP_SECONDS - _BROKER_SECONDS
        ordered = [*self.children[2:], *self.children[:2]]
        for child in ordered:
            if child.running:
                self.say(f"{child.name}: stopping")
                child.ask()
        while any(child.running for child in ordered) and time.monotonic() < deadline and not self._hurry.is_set():
            self._hurry.wait(_POLL_SECONDS / 2)
        for child in ordered:
            child.stop(0)
        while self._starting is not None and not self._starting.done():
            self._kill_starting()
            self._hurry.wait(_POLL_SECONDS / 2)
        self._broker_starter.shutdown()
        if self.broker is not None:
            self.say("broker: stopping")
            if self._hurry.is_set():
                self.broker.kill()
            self.broker.stop(_BROKER_SECONDS)
        if self._scratch is not None:
            self._scratch.close()


@dataclass
class _Before:
    """The state's newest epoch and its driver, before a driver starts."""

    head: int = 0
    driver: str = ""

    def look(self, state: StateDirectory) -> None:
        """Read both."""
        self.head, self.driver = state.head(), intake.observed(state.blob).driver


def _waits(observed: intake.Observed, before: str) -> bool:
    """Whether a new driver has started and waits for an operator."""
    return observed.driver != before and not observed.open


def check_port(host: str, port: int, setting: str) -> None:
    """Raises TakenPort if no process could listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            raise TakenPort(host=host, port=port, setting=setting, reason=error.strerror or str(error)) from error


def up(
    loaded: Loaded,
    config: str | Path | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    say: Say = print,
    extra: Sequence[Callable[[Supervisor], Child]] = (),
    on_ready: Callable[[Supervisor], None] | None = None,
) -> None:
    """Run a service in the foreground until SIGINT or SIGTERM. config, flags: what `loaded` was made from.

    Raises VernierErrors of one line, after everything that was started has been stopped.
    """
    supervisor = Supervisor(loaded, config, dict(flags or {}), say, extra)
    before = {}

    def stop(number: int, frame: FrameType | None) -> None:
        supervisor.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop)
    try:
        supervisor.run((lambda: on_ready(supervisor)) if on_ready is not None else lambda: None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
