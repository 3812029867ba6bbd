"""Counted progress: each update exactly once from producers that send at least once and may reorder.

A producer states, for an interval of times, how many different updates each of these times has. The partition is
complete as far as statements follow one another without a gap from the start and as many updates have arrived as they
count. A second copy of an update is dropped; a missing update is waited for. Source: differential dataflow's `capture`
module ("CDC"), per partition.

An update is identified by its mark: its time, and a 128-bit hash of source, row, time and diff. While a partition has
updates at or after its frontier, each epoch's facts (partition_report.py) carry the marks of all of them (held and
new), so that every worker recognises the same copies. Marks of complete times are no longer needed. The first statement
of a partition takes effect one epoch after it was read, because only from then on do all workers send marks.
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
    """A statement: the times of [lower, upper) that `counts` names have that many updates, and all other times have
    none."""

    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...]


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a counted partition is complete.

    complete: all updates before this time have arrived. open: the statements from there on that are not complete.
    [given_up, given_up_to): times that became final before they were complete, because the partition was idle; an
    update with such a time is late and not a second copy.
    """

    complete: int = MIN_TIME
    open: tuple[Statement, ...] = ()
    given_up: int = MIN_TIME
    given_up_to: int = MIN_TIME


@dataclass(frozen=True, slots=True)
class Copies:
    """What a partition's marks show. fresh: bool[n], which of the new updates are second copies. held: by mark, for
    marks that are held more than once (which happens if they came before the first statement), the offset of the copy
    to keep."""

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
    """Apply SplitMix64's finaliser, a bijection, to every word."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _M1
    words = (words ^ (words >> np.uint64(27))) * _M2
    return words ^ (words >> np.uint64(31))


def pack(marks: Ints) -> str:
    """Marks as text, for facts."""
    return base64.b64encode(np.ascontiguousarray(marks, "<i8").tobytes()).decode("ascii")


def unpack(text: str) -> Ints:
    """The inverse of `pack`."""
    return np.frombuffer(base64.b64decode(text), "<i8").reshape(-1, 4).astype(np.int64)


def keys_of(marks: Ints) -> list[bytes]:
    """The part of each mark that identifies the update: everything except the offset."""
    packed = np.ascontiguousarray(marks[:, :3]).tobytes()
    return [packed[at : at + 24] for at in range(0, len(packed), 24)]


def advance_counted(
    counted: Counted, statements: Sequence[Statement], held: Sequence[Ints], fresh: Ints, lower: int
) -> tuple[Counted, Copies]:
    """The partition's state after an epoch, and which updates are second copies.

    held: the marks of every worker's held updates, in any order; fresh: those of the new updates, in log order; lower:
    the input frontier of the epoch. O(marks + counts).
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
    """Follow the statements, ordered by their lower bound, as far as their counts are met. here: number of updates by
    time."""
    reached, given_up, given_up_to = counted.complete, counted.given_up, counted.given_up_to
    for statement in statements:
        # The very first statement begins at 0 or before, as times do for most producers; nothing precedes it.
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
