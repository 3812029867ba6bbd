"""Errors that people and programs can act on: what was found, what was meant, the way out.

Every error of Vernier is a leaf of one of three families, which say who can do something about it:

- `CallerError`: the caller's request, program or data is at fault; asking again changes nothing.
- `StorageError`: files or their device failed. `may_have_happened` tells whether the call surely had no effect or
  perhaps took effect; a call that is idempotent can be tried again.
- `InvariantError`: a rule of ours is broken. Stop the step and start again from the newest manifest.

A leaf is a class with annotated fields and a message that names them; it is made with keywords and pickles between
processes with its fields:

    class WidthMismatch(InvariantError):
        message = "rows of {found} words do not fit a collection of {expected} words"
        found: int
        expected: int

    raise WidthMismatch(found=2, expected=3)

Messages are lower-case sentences with the values in them and, where there is one, the way out.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, eq_default=False)
class VernierError(Exception):
    """The root of all errors that Vernier raises on purpose.

    `code` is stable and machine-readable (snake case of the class's name unless the class says otherwise); `fields` are
    the values of the message by name. A message that a template cannot give overrides `describe`.
    """

    message: ClassVar[str] = ""
    code: ClassVar[str] = "vernier_error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        # An __init__ that the class defines itself is left as it is.
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        Exception.__init__(self, self.describe())

    @property
    def fields(self) -> dict[str, Any]:
        """The values that the error carries, by name."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def describe(self) -> str:
        """The message; the default fills the class's template from the fields."""
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
    """Unpickle without calling __init__, whose keywords pickle knows nothing of."""
    return cls._restore(args, state)


# --- the three families -----------------------------------------------------------------------------------------------


class CallerError(VernierError):
    """The caller's request, program or data is at fault (an HTTP 4xx)."""


class StorageError(VernierError):
    """Files, or the device below them, failed or do not hold what they should."""

    may_have_happened: ClassVar[bool] = False


class InvariantError(VernierError):
    """A rule of Vernier's own is broken: stop the step and restart from the newest manifest."""


# --- numbers and batches ----------------------------------------------------------------------------------------------


class DepthMismatch(InvariantError):
    """Collections or times of different loop nesting met."""

    message = "times of {left} coordinates met times of {right}: they belong to different loop scopes"
    left: int
    right: int


class DiffOverflow(CallerError):
    """A multiplicity left the range of int64."""

    message = "{operation} of multiplicities leaves the range of 64-bit integers: too many copies of one row"
    operation: str


class HoldWentBack(InvariantError):
    """A reader wanted times back that it had let go."""

    message = "a hold of {held} cannot go back to {wanted}: what lies between may have been folded"
    held: list[list[int]]
    wanted: list[list[int]]


class HoldTooEarly(InvariantError):
    """A reader wanted to hold times that a trace has folded already."""

    message = "trace {trace} has folded the times before {since}: {wanted} cannot be held any more"
    trace: str
    since: int
    wanted: int


class CutLost(InvariantError):
    """A reader wanted a trace up to a time that lies inside a layer."""

    message = (
        "trace {trace} cannot be read up to {upper} exactly: a layer of it covers [{first}, {last}); hold the cut with "
        "`distinguish` while it is needed"
    )
    trace: str
    upper: int
    first: int
    last: int


class CountUnderflow(InvariantError):
    """A counted antichain was told to give back a time that it does not hold."""

    message = "cannot take {removed} of time {time} out of a frontier that counts {held} of it"
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

    message = "{name}: exists already in {where}"
    name: str
    where: str


class DiskFull(StorageError):
    """The device (or the quota) has no room; what was there before is untouched."""

    message = "no space left in {where} while writing {name}; the state before it is intact: make room and start again"
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
    """A flush to the device failed, so nobody knows what is durable."""

    message = "{operation} of {name} in {where} failed: {reason}; only the next start can tell what is durable"
    may_have_happened: ClassVar[bool] = True


class CreateUnknown(StorageError):
    """Nobody could tell whether an object was made."""

    message = "create of {name} in {where} may have happened ({reason}); only the next start can tell"
    may_have_happened: ClassVar[bool] = True
    name: str
    where: str
    reason: str


class NoFileSystem(CallerError):
    """A URI names a file system that is not there."""

    message = "cannot open {uri}: {problem}"
    uri: str
    problem: str


class CacheUnsafe(CallerError):
    """The local cache could be written by somebody else, who could so forge the state."""

    message = "the cache {path} is not only ours to write: remove it, or set state.cache"
    path: str


class OwnershipLost(StorageError):
    """The lock of a state directory ran out, because its holder could not renew it in time, or was overtaken."""

    message = "the claim {name} on {where} has run out or was overtaken: only a new start may go on"
    may_have_happened: ClassVar[bool] = True
    name: str
    where: str


class Damaged(StorageError):
    """A segment or manifest does not hold what was written to it."""

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

    def describe(self) -> str:
        """Names the holder, unless it has not written its process id yet."""
        holder = f"pid {self.pid}" if self.pid else "another process"
        if self.host:
            holder += f" on {self.host}"
        if self.left_ms is not None:
            holder += f" (for {self.left_ms / 1000:.0f} s more, unless it goes on)"
        return self.message.format(path=self.path, holder=holder)


class NotAcquired(InvariantError):
    """Something only the owner of a state directory may do was tried without owning it."""

    message = "{operation} on state directory {path} needs its lock: call acquire() first"
    path: str
    operation: str


class EpochConflict(StorageError):
    """A manifest does not follow the newest one: somebody else committed, or this attempt is an old one.

    What there is then is not what this process believes, so only a new start may go on.
    """

    may_have_happened: ClassVar[bool] = True

    message = "cannot commit epoch {epoch} of attempt {attempt} to {path}: the newest epoch there is {latest}"
    path: str
    epoch: int
    attempt: str
    latest: int


class EpochGone(CallerError):
    """The manifest of an epoch was collected, or never existed."""

    message = "epoch {epoch} is not in state directory {path} any more; the newest is {latest}"
    path: str
    epoch: int
    latest: int


class NothingCommitted(CallerError):
    """A reader came before the first commit."""

    message = "state directory {path} holds no epoch yet: the service has not committed anything"
    path: str


class NoIntactManifest(StorageError):
    """There are manifests, but none that can be used; starting from nothing would lose what they stood for."""

    message = "state directory {path}: none of its {count} manifests is whole, the newest because: {problem}"
    path: str
    count: int
    problem: str


class ManifestMissing(StorageError):
    """HEAD names an epoch whose manifest is not there."""

    message = (
        "state directory {path}: HEAD names epoch {epoch}, and there is no manifest of it ({newest}): the folder "
        "epochs was emptied or is another state's; put it back from a copy of the state"
    )
    path: str
    epoch: int
    newest: str


class SegmentsMissing(InvariantError):
    """An epoch was to be committed that names segments nobody has written."""

    message = "cannot commit epoch {epoch} to {path}: segments it names are not there: {segments}"
    path: str
    epoch: int
    segments: str
