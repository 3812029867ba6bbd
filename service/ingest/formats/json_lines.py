"""The json format: one update per message, `{"input":"edges","data":[1,2],"time":17,"diff":1}`, or a bare row.

`data` is an array in column order or an object by name; `time` (ns or RFC 3339) and `diff` (default 1) are optional,
and null means the same as leaving them out. If the topic has one source, a message may be the row itself: an array, or
an object with the columns and, if no column has their names, `time` and `diff`. Progress is `{"resolved":"<ns>"}`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.judge import (
    Judged,
    judge_diff,
    judge_row,
    judge_time,
    load,
    only_members,
    source_of,
)
from vernier.service.ingest.formats.messages import Parsed, Progress
from vernier.service.ingest.formats.scan import Scanner, Verdict
from vernier.service.ingest.rejects import Refusal, shown
from vernier.service.kernels.json_messages import LINE_NAMES, scan_lines
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME

_MEMBERS = tuple(name.decode() for name in LINE_NAMES)


def judge_resolved(value: bytes | None) -> Progress:
    """The progress in a message of a format whose rows are not in JSON. Raises Refusal."""
    message = load(value)
    if not isinstance(message, dict) or set(message) != {"resolved"}:
        raise Refusal("decode", f"the message is {shown(message)}, but progress is an object with only resolved")
    return Progress(0, MIN_TIME, judge_time(message["resolved"], "resolved", closed=True))


class JsonLines:
    """Reads a topic of json messages; see messages.Format."""

    def __init__(self, sources: Mapping[str, RowType]) -> None:
        self._sources = dict(sources)
        only = next(iter(sources.values())) if len(sources) == 1 else None
        # The scanner takes a member called `time` for the update's time. If a column has such a name, the judge must
        # decide.
        self._bare = only is not None and not set(only.names) & {*_MEMBERS, "resolved"}
        self._scanner = Scanner(sources, LINE_NAMES, self._scan, self._judge, least_bytes=0)

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages."""
        return self._scanner.decode(values, heap)

    def _scan(self, *arrays: Any) -> int:
        """Call the kernel and tell it whether a bare row may be an object."""
        inputs, outputs = arrays[:6], arrays[6:]
        kernel: Callable[..., int] = scan_lines
        return kernel(*inputs, self._bare, *outputs)

    def _judge(self, value: bytes | None) -> Verdict:
        message = load(value)
        if isinstance(message, dict) and "data" in message:
            only_members(message, _MEMBERS, "the message")
            return [self._judge_update(message, message["data"], message.get("input"))]
        if isinstance(message, dict) and len(message) == 1 and "resolved" in message and not self._names_resolved():
            return Progress(0, MIN_TIME, judge_time(message["resolved"], "resolved", closed=True))
        if len(self._sources) > 1:
            known = ", ".join(sorted(self._sources))
            what = f"the message {shown(message)} has no data"
            raise Refusal(
                "decode", f"{what}, and a bare row does not name its source in a topic that carries several ({known})"
            )
        if not isinstance(message, (dict, list)):
            raise Refusal("decode", f"the message is {shown(message)}, but it should be an update or a row")
        if isinstance(message, list):
            return [self._judge_update({}, message, None)]
        columns = next(iter(self._sources.values())).names
        own = {name: message[name] for name in ("time", "diff") if name in message and name not in columns}
        row = {name: given for name, given in message.items() if name not in own}
        return [self._judge_update(own, row, None)]

    def _judge_update(self, members: dict[str, Any], row: object, name: object) -> Judged:
        source, row_type = source_of(name, self._sources, "the message")
        try:
            cells = judge_row(row, row_type, "the row")
            time = None if members.get("time") is None else judge_time(members["time"], "time")
            diff = 1 if members.get("diff") is None else judge_diff(members["diff"], "diff")
        except Refusal as refusal:
            raise Refusal(refusal.reason, refusal.detail, source) from refusal
        return Judged(source, cells, time, diff)

    def _names_resolved(self) -> bool:
        """Whether the topic's only source has a column called `resolved`, so that a message with this member is a
        row."""
        return len(self._sources) == 1 and "resolved" in next(iter(self._sources.values())).names
