"""What a driver does after a query has failed: try again after a pause, or end."""

from __future__ import annotations

import time
from collections.abc import Callable

from vernier.service.config.sections import Epoch
from vernier.service.coordinator.consumer_lag import LagUnknown
from vernier.service.errors import CoresLost, ProgramFailed, ProgramStopped, SparkFailed, StateDamaged
from vernier.service.status.trouble import Trouble, Troubles

FAILURES_IN_A_ROW = 6
"""After this many query failures without a commit in between, the process ends so that a fresh one replaces it."""

_LONGEST_PAUSE = 5.0


class Failures:
    """The failures in a row of one driver's queries. reached: the newest commit at its start; check_owned: raises
    OwnershipLost if the state belongs to another driver by now."""

    def __init__(self, settings: Epoch, troubles: Troubles, reached: int, check_owned: Callable[[], None]) -> None:
        self._settings, self._troubles, self._check_owned = settings, troubles, check_owned
        self._reached = reached
        self._count, self._began_ns = 0, 0

    def after(self, cause: BaseException, reached: int) -> float:
        """Report a failure to readers; returns the seconds after which to try again. reached: the newest commit now.

        Raises ProgramStopped if trying again is pointless or not wanted, and OwnershipLost or SparkFailed if another
        process should try.
        """
        # A driver that slept while another one took over finds epochs gone, which looks like damage, for ever.
        self._check_owned()
        self._count = 1 if reached > self._reached else self._count + 1
        self._reached = reached
        reason = str(cause).splitlines()[0]
        if self._count == 1:
            self._began_ns = time.time_ns()
        # A program that fails on its data fails in any process, so Spark can keep running.
        faulty = isinstance(cause, ProgramFailed)
        never = isinstance(cause, ProgramFailed) and cause.final
        stop = never or (faulty and self._settings.on_error == "stop")
        why = "it would fail in the same way again" if never else "epoch.on_error is stop"
        self._troubles.report(
            Trouble(
                epoch=reached + 1,
                reason=reason,
                program=faulty,
                tries=self._count,
                since_ns=self._began_ns,
                stopped=stop,
                why=why,
            )
        )
        if stop:
            raise ProgramStopped(reason=reason, why=why) from cause
        # Wait while brokers are unreachable or files are damaged: a new process would find the same.
        lasting = faulty or isinstance(cause, (LagUnknown, StateDamaged))
        if isinstance(cause, CoresLost):
            raise cause
        if (self._count >= FAILURES_IN_A_ROW and not lasting) or getattr(cause, "may_have_happened", False):
            raise SparkFailed(problem=f"the query failed {self._count} times in a row, now: {reason}") from cause
        longest = self._settings.retry_ms / 1000 if faulty else _LONGEST_PAUSE
        return min(longest, 0.1 * 2.0 ** min(self._count, 20))
