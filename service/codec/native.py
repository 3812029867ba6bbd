"""Writes native messages, for everything that sends them: producers, `vernier send`, updates over HTTP, output topics.

The format is described in docs/messages.md, and service/ingest/formats/native.py reads it. An update is its JSON text
`[row,"<ns>",diff]`; equal updates give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vernier.storage.updates import CLOSED


def update(row: bytes, time: int, diff: int) -> bytes:
    """An update's text. row: a JSON array or object."""
    return b'[%b,"%d",%d]' % (row, time, diff)


def updates_message(time: int, updates: Iterable[bytes], source: str | None = None, *, restarts: bool = False) -> bytes:
    """A message of updates, none of which is before the message time.

    source: needed where several sources share a topic. restarts: the updates replace all earlier ones of the topic.
    """
    named = b"" if source is None else b',"input":' + msgspec.json.encode(source)
    instead = b',"restarts":true' if restarts else b""
    return b'{"v":1,"t":"%d"%b%b,"u":[%b]}' % (time, named, instead, b",".join(updates))


def progress_message(upper: int, lower: int | None = None, counts: Sequence[tuple[int, int]] | None = None) -> bytes:
    """A promise that no update before `upper` follows in the partition; CLOSED: none follows at all.

    With counts (time, number) the message says how many updates [lower, upper) has at each time.
    """
    said: dict[str, object] = {} if lower is None else {"lower": [str(lower)]}
    said["upper"] = [] if upper == CLOSED else [str(upper)]
    if counts is not None:
        said["counts"] = [[str(time), number] for time, number in counts]
    return msgspec.json.encode({"v": 1, "p": said})
