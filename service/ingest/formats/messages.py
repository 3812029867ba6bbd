"""What every format returns for a batch of messages: updates in log order, progress and refusals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vernier.service.ingest.rejects import Reason
from vernier.storage.strings.string_heap import Heap

Ints = npt.NDArray[np.int64]

NO_TIME = -(2**63)
"""The time of an update that was sent without one; no data time has this value."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: message number `message` of the batch cannot enter."""

    message: int
    reason: Reason
    detail: str
    source: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """A promise: no update before `upper` (ns) follows in this partition; CLOSED promises that none follows at all.

    With `counts` it instead states how many different updates exist at each time of [lower, upper); times without a
    count have none. These updates may come before or after the statement, and more than once.
    """

    message: int
    lower: int
    upper: int
    counts: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """A decoded batch: n updates in message order.

    source: int64[n] positions in `names`; message: int64[n]; time: int64[n] in ns, NO_TIME where none was sent; diff:
    int64[n]; words[name]: int64[k, width], the rows of that source's k updates in the same order. marks: int8[m], what
    each message is to a snapshot (table_snapshots.Mark), in formats that say so.
    """

    names: tuple[str, ...]
    source: Ints
    message: Ints
    time: Ints
    diff: Ints
    words: Mapping[str, Ints]
    progress: Sequence[Progress] = field(default=())
    refused: Sequence[Refused] = field(default=())
    marks: npt.NDArray[np.int8] | None = None


class Format(Protocol):
    """Reads the messages of one topic, whose sources it knows by name."""

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch; a message enters as a whole or not at all. Never raises because of a message's contents.

        heap: receives the contents of long texts.
        """
