"""Errors of running a service: attempts, workers, the engine underneath. Those of one module's own stand beside it."""

from vernier.storage.errors import CallerError, InvariantError, StorageError


class ProtocolBroken(InvariantError):
    """A frame between driver and worker, or between workers, is not what it should be."""

    message = "a message between processes of the service cannot be read: {problem}"
    problem: str


class AttemptCancelled(InvariantError):
    """The attempt a worker works for is over; its work is thrown away."""

    message = "attempt {attempt} was cancelled: {reason}"
    attempt: str
    reason: str


class DeadlinePassed(InvariantError):
    """Someone did not answer in time."""

    message = "attempt {attempt}: no {what} within {seconds:g} s"
    attempt: str
    what: str
    seconds: float


class DriverGone(InvariantError):
    """The driver's end of the connection closed: a worker has nobody to work for."""

    message = "the driver at {address} is gone"
    address: str


class NoAttempt(InvariantError):
    """A worker's function ran in some other Spark job."""

    message = "a worker was started outside of an epoch's attempt"


class OtherPlan(InvariantError):
    """A worker does not compile the program to the plan that the driver has."""

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
    """The program, or the data it got, cannot make this epoch; repeating changes nothing. final: nor does it later."""

    message = "epoch {epoch} cannot be made: {reason}"
    epoch: int
    reason: str
    final: bool = False


class ProgramStopped(CallerError):
    """The program failed on its data, and either the settings say to stop then or trying again is of no use."""

    message = (
        "{reason}; stopped, because {why}: nothing is lost and answers stay readable; "
        "mend the program or its data and start again"
    )
    reason: str
    why: str = "epoch.on_error is stop"


class OperatorNeeded(CallerError):
    """The service cannot go on before somebody decides; it stops, and answers stay readable."""

    message = "{reason}"
    reason: str


class LettersNotSent(StorageError):
    """Dead letters of a committed epoch did not reach their topic; they are sent before the next epoch."""

    message = (
        "the dead letters of epoch {epoch} were not sent ({reason}); they are kept, and sent before the next epoch"
    )
    epoch: int
    reason: str


class StrangePositions(StorageError):
    """What a publisher's topic says of its positions cannot be read; guessing would send changes twice or never."""

    message = "topic {topic} has positions that this release cannot read ({problem}); use the release that wrote them"
    topic: str
    problem: str


class PublisherFenced(CallerError):
    """Another publisher of the same app has taken over."""

    message = "another publisher of app {app} has taken over; end that service, or publish here under another app name"
    app: str


class StateDamaged(StorageError):
    """A file that the newest epoch needs does not hold what was written to it."""

    message = (
        "the state {path} is damaged: {problem}; no epoch is made before {file} is put back from a copy of the state: "
        "see docs/state.md, Damage"
    )
    path: str
    problem: str
    file: str


class WrongState(CallerError):
    """The state directory belongs to another app."""

    message = "state directory {path} was made by {found}, this is {wanted}; give the service another state.path"
    path: str
    found: str
    wanted: str


class ProgramChanged(CallerError):
    """The program is not what the state was made by, and cannot be computed from what the state holds."""

    message = (
        "the program has changed, and state {path} cannot go on under it: {what} is new and follows from what is not "
        "kept: {why}; take the change back, or read the topics again from their beginning with `vernier up --rebuild`"
    )
    path: str
    what: str
    why: str


class SparkFailed(StorageError):
    """Spark could not start or lost its query."""

    message = "{problem}"
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
        """What the process itself said last, if it said it in our way."""
        if self.said.startswith(f"{self.name}: "):
            return self.said
        end = f"{self.name} ended with status {self.status} before it was ready"
        more = f"; its log is {self.log}" if self.log else ""
        return f"{end}: {self.said or 'it said nothing'}{more}"


class TakenPort(CallerError):
    """Somebody else listens where we should."""

    message = "port {port} on {host} is taken ({reason}); end the process that has it, or set {setting}"
    host: str
    port: int
    setting: str
    reason: str


class NoRoom(CallerError):
    """The disk is (almost) full."""

    message = "disk full: {free} MB are free for {path}, a service needs {needed}; make room or set state.path"
    path: str
    free: int
    needed: int
