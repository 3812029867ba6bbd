"""Counted progress: at-least-once producers that may reorder, and still every update once.

A producer states for an interval of times how many different updates each of them has. The partition is complete as far
as statements follow one another from the start and as many updates are here as they count; a second copy of an update
is dropped, and one that is missing is waited for. Source: differential dataflow's `capture` module ("CDC"), per
partition.

An update is told from others by its mark: source, row, time and diff as a 128-bit hash, with its time. While a
partition has updates behind its frontier, each epoch's facts carry the marks of all of them (held and new), so that
every worker sees the same copies; the marks of what is complete are not needed again. The first statement of a
partition takes effect one epoch after it was seen, because only then do all workers send marks.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from vernier.storage.updates import MIN_TIME

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SEEDS = (0x243F6A8885A308D3, 0x13198A2E03707344)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Statement(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The updates of [lower, upper) are `counts` many at each of its times, and none at times that it does not name."""

    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...]


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a counted partition is complete.

    complete: all updates before this time are here. open: the statements that are not complete, from there on.
    [given_up, given_up_to): times that were final before they were complete, because the partition had given way; an
    update there is late, not a second copy.
    """

    complete: int = MIN_TIME
    open: tuple[Statement, ...] = ()
    given_up: int = MIN_TIME
    given_up_to: int = MIN_TIME


@dataclass(frozen=True, slots=True)
class Copies:
    """What a partition's marks show. fresh: bool[n], which of the new updates are second copies. held: for marks that
    are held more than once, which happens when they came before the first statement, the offset of the one to keep."""

    fresh: Bools
    held: dict[bytes, int]


def marks_of(source: str, words: Ints, time: Ints, diff: Ints, offset: Ints) -> Ints:
    """The marks of n updates: int64[n, 4], columns time, hash, hash, offset of the message."""
    hashes = []
    for seed in _SEEDS:
        state = np.full(len(time), xxhash.xxh3_64_intdigest(source.encode(), seed), np.uint64)
        for column in (*words.T, time, diff):
            state = _mix(state ^ column.astype(np.uint64))
        hashes.append(state.astype(np.int64))
    return np.column_stack((time, *hashes, offset))


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser, a bijection, on every word."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _M1
    words = (words ^ (words >> np.uint64(27))) * _M2
    return words ^ (words >> np.uint64(31))


def pack(marks: Ints) -> str:
    """Marks as a text for facts."""
    return base64.b64encode(np.ascontiguousarray(marks, "<i8").tobytes()).decode("ascii")


def unpack(text: str) -> Ints:
    """The inverse of `pack`."""
    return np.frombuffer(base64.b64decode(text), "<i8").reshape(-1, 4).astype(np.int64)


def keys_of(marks: Ints) -> list[bytes]:
    """What tells updates apart, of each mark: all but the offset."""
    packed = np.ascontiguousarray(marks[:, :3]).tobytes()
    return [packed[at : at + 24] for at in range(0, len(packed), 24)]


def advance_counted(
    counted: Counted, statements: Sequence[Statement], held: Sequence[Ints], fresh: Ints, lower: int
) -> tuple[Counted, Copies]:
    """The partition after an epoch, and which updates are second copies.

    held: the marks of every worker's held updates, in any order; fresh: those of the new ones, in log order; lower: the
    input frontier of the epoch. O(marks + counts).
    """
    kept: dict[bytes, int] = {}
    several: set[bytes] = set()
    waiting = np.concatenate([np.empty((0, 4), np.int64), *held])
    waiting = waiting[waiting[:, 0] >= counted.complete]
    for key, offset in zip(keys_of(waiting), waiting[:, 3].tolist()):
        if key in kept:
            several.add(key)
        kept[key] = min(offset, kept.get(key, offset))
    second = np.zeros(len(fresh), np.bool_)
    for number, (key, time) in enumerate(zip(keys_of(fresh), fresh[:, 0].tolist())):
        if time >= counted.complete:
            second[number] = key in kept
            kept.setdefault(key, 0)
        else:
            second[number] = not counted.given_up <= time < counted.given_up_to
    here: dict[int, int] = {}
    for key in kept:
        time = int.from_bytes(key[:8], "little", signed=True)
        here[time] = here.get(time, 0) + 1
    after = _complete(counted, sorted({*counted.open, *statements}), here, lower)
    return after, Copies(second, {key: kept[key] for key in several})


def _complete(counted: Counted, statements: Sequence[Statement], here: dict[int, int], lower: int) -> Counted:
    """Follow the statements, in order of their lower, as far as their counts are met. `here`: updates by time."""
    reached, given_up, given_up_to = counted.complete, counted.given_up, counted.given_up_to
    for statement in statements:
        # The first statement of all begins at 0 or before, as times do for most producers; nothing precedes it.
        starts = statement.lower <= reached or (reached == MIN_TIME and statement.lower <= 0)
        if not starts or statement.upper <= reached:
            continue
        missing = None
        for time, number in statement.counts:
            if time < reached or here.get(time, 0) >= number:
                continue
            if time >= lower:
                missing = time
                break
            given_up = time if given_up == given_up_to else min(given_up, time)
            given_up_to = max(given_up_to, time + 1)
        reached = statement.upper if missing is None else max(reached, missing)
        if missing is not None:
            break
    left = {_rest(statement, reached) for statement in statements if statement.upper > reached}
    return Counted(reached, tuple(sorted(left)), given_up, given_up_to)


def _rest(statement: Statement, reached: int) -> Statement:
    """A statement without the times that are complete."""
    if statement.lower >= reached:
        return statement
    return Statement(reached, statement.upper, tuple(entry for entry in statement.counts if entry[0] >= reached))
