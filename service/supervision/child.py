"""A process of the service under the supervisor: how it is started, watched, restarted and stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vernier.service.errors import ProcessFailed
from vernier.service.supervision.parent_watch import command
from vernier.storage.errors import StorageError

LARGEST_LOG = 32 << 20
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
_STEADY_SECONDS = 30
_STANDBY_SECONDS = 0.5
WORD_SECONDS = 10
"""How often a process that is not ready yet is mentioned."""
_log = logging.getLogger("vernier.up")

Say = Callable[[str], None]


@dataclass
class Child:
    """A process of the service.

    `ready`, `waits`, `again` and `started` may raise StorageErrors: a state that cannot be read for a while ends no
    process, and what was known of one stays.

    module, arguments: what it runs. ready: whether it is in operation; polled until true. stop_seconds: how long it may
    take to stop by itself. environment: added to the supervisor's own. last: it starts after all others are ready and
    none of them waits. waits: whether it is ready but does not work yet, because it is a standby.
    started: called before each start, so that `ready` can tell what this start has reached. ended: called whenever it
    has died or was killed.
    final: an exit status after which it is not restarted, because the new process would end in the same way, until
    `again` says that it would not.
    """

    name: str
    module: str
    arguments: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    stop_seconds: float = 30
    last: bool = False
    final: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    was_ready: bool = False
    deaths: int = 0
    left: bool = False
    until_ready: str = ""
    """What it does until it is ready, for people who wait for it."""
    standby: bool | None = None
    """None until it is known. A standby that took over stays so until it is started again."""
    waits: Callable[[], bool] = lambda: False
    again: Callable[[], bool] = lambda: False
    started: Callable[[], None] = lambda: None
    ended: Callable[[], None] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    _since: float = 0.0
    _look_at: float = 0.0
    _not_before: float = 0.0
    _word_at: float = 0.0
    _died: float | None = None
    """When it died, until it is ready again."""

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; its output is appended to its log."""
        self.started()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command(self.module, self.arguments),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach the supervisor only, which stops everything in order
                env={**os.environ, **self.environment},
            )
        self._since, self.standby = time.monotonic(), None
        self._word_at = self._since + WORD_SECONDS

    def ask(self) -> None:
        """Ask the process to stop (SIGTERM)."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float | None = None) -> None:
        """Ask the process to stop and wait for it. If it does not stop in time, kill it with everything it started.

        seconds: replaces `stop_seconds`.
        """
        self.ask()
        process, self.process = self.process, None
        if process is None:
            return
        seconds = self.stop_seconds if seconds is None else seconds
        try:
            process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            _log.warning("%s did not stop in time and is killed", self.name)
            # Kill its whole session, which includes its children.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if process.returncode:
            self.ended()

    def look(self, say: Say) -> None:
        """Check readiness, and restart the process if it died. Raises ProcessFailed if it was never ready."""
        if self.running:
            if not self.was_ready and self._holds(self.ready):
                self.was_ready = True
                say(f"{self.name}: ready")
            elif self._died is not None and self._holds(self.ready):
                say(f"{self.name}: ready again, {time.monotonic() - self._died:.1f} s after it died")
                self._died = None
            elif not self.was_ready and not self.standby and time.monotonic() >= self._word_at:
                self._word_at += WORD_SECONDS
                say(f"{self.name}: not ready yet after {time.monotonic() - self._since:.0f} s: {self.until_ready}")
            if self.deaths and time.monotonic() - self._since > _STEADY_SECONDS:
                self.deaths = 0
            self._trim()
            return
        now = time.monotonic()
        if self.left:
            if now < self._look_at:
                return
            self._look_at = now + _STANDBY_SECONDS
            self.left = not self._holds(self.again)
            if self.left:
                return
        if self.process is not None:
            status = self.process.returncode
            said = self.last_line()
            self.stop()
            if status == self.final and self.was_ready:
                self.left = True
                say(said)
                return
            if not self.was_ready:
                raise ProcessFailed(name=self.name, status=status, said=said, log=str(self.log))
            pause = _PAUSES[min(self.deaths, len(_PAUSES) - 1)]
            self.deaths += 1
            self._died = self._died or now
            self._not_before = now + pause
            say(f"{self.name}: {_how(status)}, restarting in {pause:g} s; last in its log: {said}")
        if now >= self._not_before:
            if not self.was_ready:
                say(f"{self.name}: starting")
            try:
                self.start()
            except StorageError as problem:
                if not self.was_ready:
                    raise
                self._not_before = now + _PAUSES[min(self.deaths, len(_PAUSES) - 1)]
                self.deaths += 1
                _log.warning("%s is not started yet: %s", self.name, problem)

    def stands_by(self, say: Say) -> bool:
        """Whether the process is a standby now. Looks at most every `_STANDBY_SECONDS`, and no more once it works."""
        now = time.monotonic()
        if self.standby is not False and self.running and now >= self._look_at:
            before = self.standby
            with contextlib.suppress(StorageError):
                self.standby = self.waits()
            self._look_at = now + _STANDBY_SECONDS
            if self.standby and not before:
                say(f"{self.name}: standby; another service owns the state, and this one takes over when that ends")
            elif before and not self.standby:
                say(f"{self.name}: took over")
        return bool(self.standby)

    def last_line(self) -> str:
        """The last line of the log."""
        with contextlib.suppress(OSError), open(self.log, "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode("utf-8", "replace").splitlines()
            mine = [line for line in lines if line.startswith(f"{self.name}: ")]
            return (mine or lines or [""])[-1].strip()[:500]
        return ""

    def _holds(self, ask: Callable[[], bool]) -> bool:
        with contextlib.suppress(StorageError):
            return ask()
        return False

    def _trim(self) -> None:
        """Rotate the log when it is large; one older log is kept."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > LARGEST_LOG:
                shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)


def _how(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
