"""Errors of running a service: attempts, workers, Spark. Errors that concern one module only are defined there."""

from vernier.storage.errors import CallerError, InvariantError, StorageError


class ProtocolBroken(InvariantError):
    """A frame between driver and worker, or between workers, is malformed."""

    message = "a message between processes of the service cannot be read: {problem}"
    problem: str


class AttemptCancelled(InvariantError):
    """The attempt that a worker runs for is over; its work is discarded."""

    message = "attempt {attempt} was cancelled: {reason}"
    attempt: str
    reason: str


class RowsGone(InvariantError):
    """What the driver laid out for a worker is not there (any more)."""

    message = "the messages of this attempt are no longer where the driver laid them"


class DeadlinePassed(InvariantError):
    """Another process did not answer in time."""

    message = "attempt {attempt}: no {what} within {seconds:g} s"
    attempt: str
    what: str
    seconds: float


class DriverGone(InvariantError):
    """The driver closed its end of the connection, so the worker has nothing left to do."""

    message = "the driver at {address} is gone"
    address: str


class NoAttempt(InvariantError):
    """A worker's function ran in another Spark job."""

    message = "a worker was started outside of an epoch's attempt"


class OtherPlan(InvariantError):
    """A worker compiles the program to a different plan than the driver."""

    message = "a worker's plan of {name} is {found}, the driver's {wanted}: they run different releases of vernier"
    name: str
    found: str
    wanted: str


class EpochFailed(InvariantError):
    """All attempts of an epoch failed."""

    message = "epoch {epoch} failed {attempts} times, the last time: {reason}"
    epoch: int
    attempts: int
    reason: str


class ProgramFailed(CallerError):
    """The program fails on the data of this epoch, so that repeating the attempt is useless.

    final: a later attempt fails in the same way.
    """

    message = "epoch {epoch} cannot be made: {reason}"
    epoch: int
    reason: str
    final: bool = False


class ProgramStopped(CallerError):
    """The program failed on its data, and either the settings say to stop then or another attempt is useless."""

    message = (
        "{reason}; stopped, because {why}: nothing is lost and answers stay readable; "
        "correct the program or its data and start again"
    )
    reason: str
    why: str = "epoch.on_error is stop"


class OperatorNeeded(CallerError):
    """The service cannot continue without a decision of an operator. It stops; answers stay readable."""

    message = "{reason}"
    reason: str


class DeadLettersNotSent(StorageError):
    """Dead letters of a committed epoch did not reach their topic. They are sent before the next epoch."""

    message = (
        "the dead letters of epoch {epoch} were not sent ({reason}); they are kept, and sent before the next epoch"
    )
    epoch: int
    reason: str


class StrangePositions(StorageError):
    """A publisher's topic of positions is unreadable. Guessing would send changes twice or never."""

    message = "topic {topic} has positions that this release cannot read ({problem}); use the release that wrote them"
    topic: str
    problem: str


class PublisherFenced(CallerError):
    """Another publisher of the same app has taken over."""

    message = "another publisher of app {app} has taken over; end that service, or publish here under another app name"
    app: str


class StateDamaged(StorageError):
    """A file that the newest epoch needs does not contain what was written to it."""

    message = (
        "the state {path} is damaged: {problem}; no epoch is made until {file} is restored from a copy of the state: "
        "see docs/state.md, Damage"
    )
    path: str
    problem: str
    file: str


class WrongState(CallerError):
    """The state directory belongs to another app."""

    message = (
        "state directory {path} was made by {found}, this is {wanted}; give the service another state.path, or keep "
        "the app's name: vn.App(…) in Python, SET name = '…' in SQL, where it is the file's otherwise"
    )
    path: str
    found: str
    wanted: str


class ProgramChanged(CallerError):
    """The program differs from the one that made the state, and the state does not suffice to compute it."""

    message = (
        "the program has changed, and state {path} cannot continue with it: {what} is new and depends on "
        "history that is not "
        "kept: {why}; revert the change, or read the topics again from their beginning with `vernier up --rebuild`"
    )
    path: str
    what: str
    why: str


class SparkFailed(StorageError):
    """Spark could not start or lost its query."""

    message = "{problem}"
    problem: str


class CoresLost(StorageError):
    """Spark has lacked cores for all workers for too long."""

    message = (
        "Spark has had cores for {slots} of {workers} tasks for {seconds:.0f} s (spark.gone_ms), {why}: its "
        "application may be gone, so a driver goes on with a new one"
    )
    slots: int
    workers: int
    seconds: float
    why: str


class SnapshotUnreadable(StorageError):
    """The snapshot of a source cannot be read."""

    message = "the snapshot of source {source} cannot be read: {problem}"
    source: str
    problem: str


class SnapshotChanged(CallerError):
    """What a snapshot is read from is not what it was when the first pieces entered."""

    message = (
        "the snapshot of source {source} was interrupted after {done} of {pieces} pieces, and {problem}; give it back "
        "as it was, or begin again with `vernier up --rebuild`"
    )
    source: str
    done: int
    pieces: int
    problem: str


class SnapshotShares(CallerError):
    """The topic of a source that begins with a snapshot is already read for another source."""

    message = (
        "source {source} cannot begin with a snapshot beside source {other}, whose messages are read from the same "
        "topic, {topic}: give it a topic of its own, or begin again with `vernier up --rebuild`"
    )
    source: str
    other: str
    topic: str


class OffsetsBeyond(CallerError):
    """A source is to be followed from offsets that its topic does not have."""

    message = "sources.{source}.snapshot.follow: partition {partition} of topic {topic} {problem}"
    source: str
    topic: str
    partition: int
    problem: str


class Stopping(CallerError):
    """The service was asked to stop; no further epoch begins."""

    message = "the service is stopping"


class ProcessFailed(CallerError):
    """A process of the service ended before it was ever ready."""

    message = "{said}"
    name: str
    status: int
    said: str
    log: str

    def describe(self) -> str:
        """The process's own last line, if it has the usual form, else its status and where its log is."""
        if self.said.startswith(f"{self.name}: "):
            return self.said
        end = f"{self.name} ended with status {self.status} before it was ready"
        more = f"; its log is {self.log}" if self.log else ""
        return f"{end}: {self.said or 'it printed nothing'}{more}"


class TakenPort(CallerError):
    """Another process listens on a port that the service needs."""

    message = "port {port} on {host} is taken ({reason}); end the process that has it, or set {setting}"
    host: str
    port: int
    setting: str
    reason: str


class DiskTooSmall(CallerError):
    """The disk is (almost) full."""

    message = "disk full: {free} MB are free for {path}, a service needs {needed}; make room or set state.path"
    path: str
    free: int
    needed: int
