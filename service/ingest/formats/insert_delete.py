"""The insert_delete format: `{"insert":row}` or `{"delete":row}`, one or an array of them per message (Feldera's
format).

A row is an object by name or an array in column order. `time` and, in a topic of several sources, `input` may be
members next to it. Progress is `{"resolved":"<ns>"}`.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.enveloped import Enveloped, Events, Found, Line, Members, Opened, Text
from vernier.service.ingest.formats.judge import judge_time, load
from vernier.service.ingest.formats.messages import NO_TIME, Ints, Progress
from vernier.service.ingest.formats.sieve import Bools
from vernier.service.ingest.rejects import Refusal, shown
from vernier.service.kernels.json_members import INSTANT, NULL, ROW, THERE
from vernier.service.kernels.json_nested import split_lists
from vernier.service.kernels.json_values import SPAN_START
from vernier.storage.updates import MIN_TIME

_NONE = msgspec.Raw()
_OPEN_LIST = ord("[")
_MEMBERS = Members([("insert", ROW), ("delete", ROW), ("time", INSTANT)], [], others=False)
_INSERT, _DELETE, _TIME = range(3)


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    insert: msgspec.Raw = _NONE
    delete: msgspec.Raw = _NONE
    time: msgspec.Raw = _NONE
    input: msgspec.Raw = _NONE
    resolved: msgspec.Raw = _NONE


_one = msgspec.json.Decoder(_Event).decode
_many = msgspec.json.Decoder(list[_Event]).decode


class InsertDelete(Enveloped):
    """Reads a topic of inserts and deletes; see messages.Format."""

    def __init__(self, sources: Mapping[str, RowType]) -> None:
        super().__init__(sources, _open)

    def find(self, text: Text, starts: Ints, good: Bools) -> Sequence[Events]:
        events = []
        first = text[np.minimum(starts[:-1], max(len(text) - 1, 0))]
        lists = np.flatnonzero(good & (first == _OPEN_LIST) & (np.diff(starts) > 1))
        found = _MEMBERS.find(text, starts)
        taken = good & found.good & _is_event(found)
        if taken.any():
            events.append(_events(found, np.flatnonzero(taken), np.flatnonzero(taken)))
        if len(lists):
            spans = (starts[lists] << SPAN_START) | (starts[lists + 1] - starts[lists])
            of, offsets, data, whole = split_lists(text, spans)
            found = _MEMBERS.find(data, offsets, wrapped=True)
            message = np.repeat(lists, np.diff(of))
            taken[lists] = whole
            taken[message[~(found.good & _is_event(found))]] = False
            events.append(_events(found, np.flatnonzero(taken[message]), message[taken[message]]))
        good &= taken
        return events


def _is_event(found: Found) -> Bools:
    """Which messages have one row, and neither null nor anything else."""
    inserts, deletes = found.there[:, _INSERT] == THERE, found.there[:, _DELETE] == THERE
    events: Bools = (inserts != deletes) & (found.there != NULL).all(axis=1)
    return events


def _events(found: Found, at: Ints, message: Ints) -> Events:
    """The events at these places, which belong to these messages."""
    inserts, timed = found.there[at, _INSERT] == THERE, found.there[at, _TIME] == THERE
    rows = np.where(inserts, found.cells[at, _INSERT], found.cells[at, _DELETE])
    time = np.where(timed, found.cells[at, _TIME], NO_TIME)
    return Events(found.text, message, rows, np.where(inserts, 1, -1), time)


def _open(value: bytes | None) -> Opened:
    try:
        if value is None:
            raise Refusal("decode", "the message is empty: it has no value")
        if value.lstrip()[:1] == b"[":
            return [_line(event) for event in _many(value)]
        event = _one(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _explained(value, error) from error
    if event.resolved != _NONE:
        if (event.insert, event.delete) != (_NONE, _NONE):
            raise Refusal("decode", "the message is progress and an update; send them one after the other")
        return Progress(0, MIN_TIME, judge_time(load(bytes(event.resolved)), "resolved", closed=True))
    return [_line(event)]


def _line(event: _Event) -> Line:
    given = [(row, diff) for row, diff in ((event.insert, 1), (event.delete, -1)) if row != _NONE]
    if len(given) != 1:
        found = "both insert and delete" if given else "neither insert nor delete"
        raise Refusal("decode", f"an event has {found}; it should have one of them")
    (row, diff) = given[0]
    return Line(bytes(row), diff, _or_none(event.time), _or_none(event.input))


def _or_none(raw: msgspec.Raw) -> bytes | None:
    return None if raw == _NONE else bytes(raw)


def _explained(value: bytes | None, error: Exception) -> Refusal:
    """The refusal of a message that is not an event: it is not JSON at all, or something else."""
    try:
        found = load(value)
    except Refusal as refusal:
        return refusal
    return Refusal("decode", f"the message is {shown(found)}, but it should be an insert or a delete ({error})")
