"""The native format: `{"v":1,"t":"<ns>","u":[[row,"<ns>",diff],...],"input":"edges"}`, and progress.

A message has one message time `t` and a batch of updates, each with its own data time of at least `t`. Progress is
`{"v":1,"p":{"lower":["<ns>"],"upper":["<ns>"],"counts":[["<ns>",n],...]}}`. lower and upper are frontiers, so `[]` is
that of a partition that is complete. Source: the capture format of differential dataflow (its `capture` module, "CDC").
"""

import re
from collections.abc import Mapping
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
from vernier.service.kernels.json_messages import NATIVE_NAMES, scan_native
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, MIN_TIME

_LEAST_BYTES = len("[[1],2,3],") - 1
_VERSION = 1
_TIME = rb'\["(0|-?[1-9][0-9]{0,18})"\]'
_PROGRESS = re.compile(rb'\{"v":1,"p":\{"lower":' + _TIME + rb',"upper":' + _TIME + rb"\}\}")
"""A progress message as producers write it. One comes with each batch of updates, and reading it as any JSON value
takes three times as long."""


class Native:
    """Reads a topic of native messages; see messages.Format."""

    def __init__(self, sources: Mapping[str, RowType]) -> None:
        self._sources = dict(sources)
        self._scanner = Scanner(sources, NATIVE_NAMES, scan_native, self._judge, _LEAST_BYTES)

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages."""
        return self._scanner.decode(values, heap)

    def _judge(self, value: bytes | None) -> Verdict:
        plain = _PROGRESS.fullmatch(value) if value is not None else None
        if plain is not None:
            lower, upper = int(plain[1]), int(plain[2])
            if MIN_TIME <= lower <= upper < CLOSED:
                return Progress(0, lower, upper)
        message = load(value)
        if not isinstance(message, dict):
            raise Refusal(
                "decode",
                f"a native message is an object, not {shown(message)}; bare rows need the source's format: json",
            )
        version = message.get("v")
        if not isinstance(version, int) or isinstance(version, bool) or version != _VERSION:
            found = f"v is {shown(version)}" if "v" in message else "the message has no v"
            way = "" if "v" in message else "; rows alone need the source's format: json"
            raise Refusal("decode", f"{found}, but this release reads version {_VERSION}{way}")
        if "p" in message:
            only_members(message, ("v", "p"), "a progress message")
            return _judge_progress(message["p"])
        if message.get("restarts") is True:
            raise Refusal(
                "decode",
                "the message replaces everything its topic contained before, which a source cannot retract; read it"
                " with a new state, from a topic that begins with it",
            )
        only_members(message, ("v", "t", "u", "input"), "a native message")
        for name in ("t", "u"):
            if name not in message:
                raise Refusal(
                    "decode", f"the message has no {name!r}, and no 'p' that would make it a progress message"
                )
        source, row_type = source_of(message.get("input"), self._sources, "the message")
        try:
            return _judge_updates(message, source, row_type)
        except Refusal as refusal:
            raise Refusal(refusal.reason, refusal.detail, source) from refusal


def _judge_updates(message: dict[str, Any], source: str, row_type: RowType) -> list[Judged]:
    least = judge_time(message["t"], "t")
    if not isinstance(message["u"], list):
        raise Refusal("decode", f"u is {shown(message['u'])}, but it should be an array of updates")
    updates = []
    for number, update in enumerate(message["u"]):
        what = f"update {number}"
        if not isinstance(update, list) or len(update) != len(("row", "time", "diff")):
            raise Refusal("decode", f"{what} is {shown(update)}, but it should be [row, time, diff]")
        cells = judge_row(update[0], row_type, f"the row of {what}")
        time = judge_time(update[1], f"the time of {what}")
        diff = judge_diff(update[2], f"the diff of {what}")
        if time < least:
            raise Refusal("decode", f"{what} is at {time}, before the time of its message, {least}")
        updates.append(Judged(source, cells, time, diff))
    return updates


def _judge_progress(value: object) -> Progress:
    if not isinstance(value, dict):
        raise Refusal("decode", f"p is {shown(value)}, but it should be an object with lower and upper")
    only_members(value, ("lower", "upper", "counts"), "p")
    if "upper" not in value:
        raise Refusal("decode", "p has no upper")
    upper = _judge_frontier(value["upper"], "upper of p")
    counts = None if value.get("counts") is None else _judge_counts(value["counts"])
    if counts is not None and "lower" not in value:
        raise Refusal("decode", "p has counts but no lower, so the start of the counted interval is unknown")
    lower = _judge_frontier(value["lower"], "lower of p") if "lower" in value else upper
    if lower > upper:
        raise Refusal("decode", f"lower of p is {lower}, after its upper {upper}")
    for time, _ in counts or ():
        if not lower <= time < upper:
            raise Refusal("decode", f"p counts updates at {time}, which is not in its interval {lower} to {upper}")
    return Progress(0, lower, upper, counts)


def _judge_frontier(value: object, what: str) -> int:
    if not isinstance(value, list) or len(value) > 1:
        raise Refusal("decode", f"{what} is {shown(value)}, but it should be an array of one time, or [] when complete")
    return judge_time(value[0], what, closed=True) if value else CLOSED


def _judge_counts(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list):
        raise Refusal("decode", f"counts of p is {shown(value)}, but it should be an array of [time, number]")
    counts: dict[int, int] = {}
    for entry in value:
        if not isinstance(entry, list) or len(entry) != len(("time", "number")):
            raise Refusal("decode", f"counts of p has {shown(entry)}, but it should have [time, number]")
        time, number = judge_time(entry[0], "a time in counts"), entry[1]
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < CLOSED:
            raise Refusal(
                "decode", f"counts of p has {shown(number)} updates at {time}, which is not a number of updates"
            )
        if time in counts:
            raise Refusal("decode", f"counts of p has the time {time} twice")
        counts[time] = number
    return tuple(sorted(counts.items()))
