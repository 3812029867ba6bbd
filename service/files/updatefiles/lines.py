"""Reads update files with one JSON object per line, plain or compressed."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa

from vernier.operators.errors import listed
from vernier.service.files.updatefiles.marks import UTF16, is_utf16, without_mark
from vernier.service.files.updatefiles.problems import COLUMNS, BadUpdate, BadUpdateFile, Sources, source_of
from vernier.service.ingest.formats.judge import Judged, judge_diff, judge_row, judge_time, load, only_members
from vernier.service.ingest.formats.messages import NO_TIME, Parsed
from vernier.service.ingest.formats.scan import Scanner
from vernier.service.ingest.rejects import Refusal, shown
from vernier.service.kernels.json_messages import LINE_NAMES, scan_lines
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Updates

_BLOCK = 1 << 24
_MEMBERS = tuple(name.decode() for name in LINE_NAMES)


def read_lines(path: Path, sources: Sources, heap: Heap | None) -> Iterator[tuple[int, dict[str, Updates]]]:
    """Yield (bytes of the file read so far, the updates in the piece), piece by piece. heap: receives long texts.

    Raises BadUpdate, and what gzip raises.
    """
    scanner = Scanner(sources, LINE_NAMES, _scan, lambda value: _judge(value, sources), least_bytes=0)
    lines, rest, first = 0, b"", True
    with path.open("rb") as raw:
        stream: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw
        while True:
            block = stream.read(_BLOCK)
            if first and is_utf16(block):
                raise BadUpdateFile(file=str(path), problem=UTF16)
            whole = rest + (without_mark(block) if first else block)
            first = False
            end = len(whole) if not block else whole.rfind(b"\n") + 1
            whole, rest = whole[:end], whole[end:]
            if whole:
                values = split_lines(whole)
                yield raw.tell(), _line_updates(scanner.decode(values, heap), values, sources, str(path), lines + 1)
                lines += len(values)
            if not block:
                return


def _scan(*arrays: Any) -> int:
    """Call the kernel with bare rows disabled."""
    kernel: Callable[..., int] = scan_lines
    return kernel(*arrays[:6], False, *arrays[6:])


def split_lines(text: bytes) -> pa.LargeBinaryArray:
    """The lines of a text, each with its newline, without a copy."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    tail = [len(text)] if not len(ends) or ends[-1] != len(text) else []
    offsets = np.concatenate(([0], ends, tail)).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def _line_updates(
    parsed: Parsed, values: pa.LargeBinaryArray, sources: Sources, file: str, first: int
) -> dict[str, Updates]:
    """The updates of a piece whose first line has number `first`."""
    bad = {refused.message: refused.detail for refused in parsed.refused if values[refused.message].as_py().strip()}
    timeless = parsed.message[parsed.time == NO_TIME]
    if len(timeless):
        # The line is an array instead of an object, or an object without time; checking it strictly tells which.
        line = int(timeless.min())
        try:
            _judge(values[line].as_py(), sources)
        except Refusal as refusal:
            bad.setdefault(line, refusal.detail)
    if bad:
        line = min(bad)
        raise BadUpdate(file=file, unit="line", number=first + line, problem=bad[line])
    result = {}
    for number, name in enumerate(parsed.names):
        mine = parsed.source == number
        result[name] = Updates.of(parsed.words[name], parsed.time[mine], parsed.diff[mine])
    return result


def _judge(value: bytes | None, sources: Sources) -> list[Judged]:
    """Parse one line strictly. Raises Refusal."""
    try:
        line = load(value.strip() if value else value)
    except Refusal as refusal:
        raise Refusal(refusal.reason, refusal.detail.replace(" at line 1 column ", " at column ")) from refusal
    if not isinstance(line, dict):
        raise Refusal("decode", f"the line is {shown(line)}, but an update is an object with {listed(COLUMNS)}")
    only_members(line, _MEMBERS, "the line")
    name = source_of(line.get("input"), sources)
    for member in ("data", "time"):
        if line.get(member) is None:
            raise Refusal("schema", f"the line has no {member}")
    cells = judge_row(line["data"], sources[name], "data")
    time = judge_time(line["time"], "time")
    diff = 1 if line.get("diff") is None else judge_diff(line["diff"], "diff")
    return [Judged(name, cells, time, diff)]
