"""Dead letters: messages that ingest has refused, as a whole or for some updates, with everything needed to repair and
resend them.

Nothing that reaches the service is dropped silently. What cannot enter goes to the topic `<source>.dlq` with its
original key, value and headers unchanged, and with headers that give the reason, the original place and the frontier at
that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Reason = Literal["decode", "schema", "key", "late", "overflow", "unknown_source", "future", "poison"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""decode: the message cannot be read in its format. schema: a row that does not fit the source's schema, or a diff of
0. key: a message without the key that its format needs. late: a time before the frontier. overflow: a number outside
its type. unknown_source: there is no source for that name or topic. future: a time too far ahead of the broker's.
poison: decoding it kills or hangs the process (service/ingest/quarantine.py)."""

REPLAY_HEADER = "vernier-replay-of"
"""The header of a message that `dlq replay` has sent again: the place at which it came first, as
topic/partition/offset."""
_LONGEST = 120
_LONGEST_DETAIL = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused message. `frontier` is the input frontier (ns) at which it was refused; `source` is None if it is
    unknown."""

    reason: Reason
    detail: str
    topic: str
    partition: int
    offset: int
    frontier: int
    source: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def dlq_topic(self) -> str:
        """The topic that the dead letter is sent to."""
        return f"{self.source or self.topic}.dlq"

    def kafka_headers(self) -> list[tuple[str, bytes | None]]:
        """The original headers, then ours. A dead letter that is refused a second time keeps the first refusal's
        headers."""
        ours: Sequence[tuple[str, str]] = (
            ("vernier-reason", self.reason),
            ("vernier-detail", self.detail),
            ("vernier-topic", self.topic),
            ("vernier-partition", str(self.partition)),
            ("vernier-offset", str(self.offset)),
            ("vernier-frontier", str(self.frontier)),
        )
        return [*self.headers, *((name, text.encode()) for name, text in ours)]


class Refusal(Exception):
    """The reason why a message cannot enter; ingestion catches it and makes a DeadLetter, so it never leaves this
    package."""

    def __init__(self, reason: Reason, detail: str, source: str | None = None) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = clipped(detail)
        self.source = source


def shown(value: object) -> str:
    """A value as refusal details show it: its repr, cut to a length that fits in a header."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to print integers of this length.
        text = f"a {type(value).__name__} of too many digits"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def clipped(detail: str) -> str:
    """A detail that fits in a header: bounded in length, whatever the message, and UTF-8."""
    short = detail if len(detail) <= _LONGEST_DETAIL else f"{detail[: _LONGEST_DETAIL - 4]} ..."
    return short.encode("utf-8", "backslashreplace").decode()
