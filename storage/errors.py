"""Errors that people and programs can act on. A message says what was found, what was expected, and what to do.

Every error of Vernier is a leaf of one of three families. The family says who can do something about it:

- `CallerError`: the caller's request, program or data is at fault; repeating the call changes nothing.
- `StorageError`: files or their device failed. `may_have_happened` says whether the call may have taken effect or
  certainly did not; an idempotent call can be retried.
- `InvariantError`: one of Vernier's own rules is broken. Stop the step and restart from the newest manifest.

A leaf is a class with annotated fields and a message that names them. It is constructed with keywords, and it keeps its
fields when it is pickled between processes:

    class WidthMismatch(InvariantError):
        message = "rows of {found} words do not fit a collection of {expected} words"
        found: int
        expected: int

    raise WidthMismatch(found=2, expected=3)

Messages are lower-case sentences that contain the values and, where there is one, the remedy.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, eq_default=False)
class VernierError(Exception):
    """The root of all errors that Vernier raises on purpose.

    `code` is stable and machine-readable: the class's name in snake case, unless the class sets another. `fields` holds
    the values of the message by name. A class whose message does not fit a template overrides `describe`.
    """

    message: ClassVar[str] = ""
    code: ClassVar[str] = "vernier_error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        # dataclass() keeps an __init__ that the class itself defines.
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        Exception.__init__(self, self.describe())

    @property
    def fields(self) -> dict[str, Any]:
        """The values that the error carries, by name."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def describe(self) -> str:
        """The message. The default fills the class's template from the fields."""
        return self.message.format(**self.fields)

    def __reduce__(self) -> tuple[Callable[..., "VernierError"], tuple[Any, ...]]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))

    @classmethod
    def _restore(cls, args: tuple[Any, ...], state: dict[str, Any]) -> Self:
        error = cls.__new__(cls, *args)
        error.args = args
        error.__dict__.update(state)
        return error


def _rebuild(cls: type[VernierError], args: tuple[Any, ...], state: dict[str, Any]) -> VernierError:
    """Unpickle without calling __init__: pickle passes positional arguments, __init__ takes keywords."""
    return cls._restore(args, state)


# --- the three families -----------------------------------------------------------------------------------------------


class CallerError(VernierError):
    """The caller's request, program or data is at fault (an HTTP 4xx)."""


class StorageError(VernierError):
    """Files, or the device below them, failed or do not contain what they should."""

    may_have_happened: ClassVar[bool] = False


class InvariantError(VernierError):
    """One of Vernier's own rules is broken: stop the step and restart from the newest manifest."""


# --- numbers and batches ----------------------------------------------------------------------------------------------


class DepthMismatch(InvariantError):
    """Collections or times of different loop nesting met."""

    message = (
        "times with {left} coordinates were combined with times with {right}: they belong to different loop scopes"
    )
    left: int
    right: int


class DiffOverflow(CallerError):
    """A multiplicity left the range of int64."""

    message = "{operation}: a multiplicity leaves the range of 64-bit integers (too many copies of one row)"
    operation: str


class HoldWentBack(InvariantError):
    """A reader tried to move its hold back to times that it had already released."""

    message = "a hold at {held} cannot move back to {wanted}: the times between may have been compacted"
    held: list[list[int]]
    wanted: list[list[int]]


class HoldTooEarly(InvariantError):
    """A reader tried to hold times that a trace has already compacted."""

    message = "trace {trace} has compacted the times before {since}: {wanted} can no longer be held"
    trace: str
    since: int
    wanted: int


class CutLost(InvariantError):
    """A reader asked for a trace up to a time that lies inside a batch."""

    message = (
        "trace {trace} cannot be read up to {upper} exactly: one of its batches covers [{first}, {last}); hold the cut "
        "with `distinguish` while it is needed"
    )
    trace: str
    upper: int
    first: int
    last: int


class CountUnderflow(InvariantError):
    """A counted antichain was asked to remove more of a time than it contains."""

    message = "cannot remove {removed} of time {time} from a frontier that counts {held} of it"
    time: tuple[int, ...]
    removed: int
    held: int


# --- files ------------------------------------------------------------------------------------------------------------


class FileMissing(StorageError):
    """A file that should exist does not."""

    message = "{name}: no such file in {where}"
    name: str
    where: str


class FileExists(StorageError):
    """A name that must be new is taken."""

    message = "{name} already exists in {where}"
    name: str
    where: str


class DiskFull(StorageError):
    """The device (or the quota) has no space left; existing files are untouched."""

    message = (
        "no space left in {where} while writing {name}; the previous state is intact: free some space and start again"
    )
    name: str
    where: str


class FileFailed(StorageError):
    """The operating system refused a storage call."""

    message = "{operation} of {name} in {where} failed: {reason}"
    operation: str
    name: str
    where: str
    reason: str


class SyncFailed(FileFailed):
    """A flush to the device failed, so it is unknown what is durable."""

    message = "{operation} of {name} in {where} failed: {reason}; only the next start can determine what is durable"
    may_have_happened: ClassVar[bool] = True


class CreateUnknown(StorageError):
    """It is unknown whether an object was created."""

    message = "creation of {name} in {where} may have succeeded ({reason}); only the next start can determine it"
    may_have_happened: ClassVar[bool] = True
    name: str
    where: str
    reason: str


class NoFileSystem(CallerError):
    """A URI names a file system that does not exist or is not installed."""

    message = "cannot open {uri}: {problem}"
    uri: str
    problem: str


class CacheUnsafe(CallerError):
    """Another user can write to the local cache and could forge the state through it."""

    message = "other users can write to the cache {path}: remove it, or set state.cache"
    path: str


class OwnershipLost(StorageError):
    """The lock of a state directory expired because its holder did not renew it in time, or another process took it
    over."""

    message = "the lock {name} on {where} expired or another process took it over: only a new start may continue"
    may_have_happened: ClassVar[bool] = True
    name: str
    where: str


class Damaged(StorageError):
    """A segment or manifest does not contain what was written to it."""

    message = "{kind} {name}: {problem}"
    kind: str
    name: str
    problem: str


class EntryMissing(StorageError):
    """A segment has no entry under the label that a manifest names."""

    message = "segment {name} has no entry {label!r}"
    name: str
    label: str


class UnknownFormat(StorageError):
    """A file is of a format version that this release does not read."""

    message = "{kind} {name}: format {found}, this release reads {supported}; open it with the release that wrote it"
    kind: str
    name: str
    found: int
    supported: int


class StateInUse(StorageError):
    """Another service holds the state directory."""

    message = "state directory {path} is in use by {holder}; stop that service, or give this one another directory"
    path: str
    pid: int
    host: str = ""
    left_ms: int | None = None

    @property
    def holder(self) -> str:
        """The holder for display; it may not have written its process id yet."""
        holder = f"pid {self.pid}" if self.pid else "another process"
        return f"{holder} on {self.host}" if self.host else holder

    def describe(self) -> str:
        """Names the holder, and how long it holds the lock."""
        holder = self.holder
        if self.left_ms is not None:
            holder += f" (for {self.left_ms / 1000:.0f} s more, unless it renews its lock)"
        return self.message.format(path=self.path, holder=holder)


class NotAcquired(InvariantError):
    """An operation that only the owner of a state directory may perform was tried without owning it."""

    message = "{operation} on state directory {path} needs its lock: call acquire() first"
    path: str
    operation: str


class EpochConflict(StorageError):
    """A manifest does not follow the newest one: another process committed, or this attempt is outdated.

    The directory then differs from what this process believes, so only a restart can continue.
    """

    may_have_happened: ClassVar[bool] = True

    message = "cannot commit epoch {epoch} of attempt {attempt} to {path}: the newest epoch there is {latest}"
    path: str
    epoch: int
    attempt: str
    latest: int


class EpochGone(CallerError):
    """The manifest of an epoch was garbage-collected or never existed."""

    message = "epoch {epoch} is no longer in state directory {path}; the newest is {latest}"
    path: str
    epoch: int
    latest: int


class NothingCommitted(CallerError):
    """A reader opened the state before the first commit."""

    message = "state directory {path} holds no epoch yet: the service has not committed anything"
    path: str


class NoIntactManifest(StorageError):
    """Manifests exist, but none is usable. Starting from an empty state would lose what they describe."""

    message = "state directory {path}: none of its {count} manifests is intact; the newest: {problem}"
    path: str
    count: int
    problem: str


class ManifestMissing(StorageError):
    """HEAD names an epoch whose manifest does not exist."""

    message = (
        "state directory {path}: HEAD names epoch {epoch}, but its manifest is missing ({newest}): the folder "
        "epochs was emptied or belongs to another state; restore it from a copy of the state"
    )
    path: str
    epoch: int
    newest: str


class SegmentsMissing(InvariantError):
    """A commit named segments that were never written."""

    message = "cannot commit epoch {epoch} to {path}: these segments do not exist: {segments}"
    path: str
    epoch: int
    segments: str
