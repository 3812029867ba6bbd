"""Channels between a process and one that it forks."""

import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from vernier.service.replay import channel
from vernier.service.replay.channel import Channel

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def _answer(end: Channel) -> None:
    """Send back what comes, until None does; end at a text."""
    while (message := end.receive()) is not None:
        if isinstance(message, str):
            os._exit(3)
        end.send(message)


@pytest.fixture
def other() -> Iterator[Channel]:
    context = multiprocessing.get_context("fork")
    mine, theirs = Channel.pair(context)
    process = context.Process(target=_answer, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    yield mine
    process.terminate()
    process.join()
    mine.close()


@pytest.mark.parametrize("rows", [0, 1, 1000, channel.ROOM // 32 - 1, channel.ROOM // 32, channel.ROOM // 8])
def test_arrays_arrive_whole_and_as_copies(other: Channel, rows: int) -> None:
    # 32 bytes a row and 5 more in three arrays; the fourth is pickled, because it is not contiguous.
    sent = {
        "odd": np.arange(5, dtype=np.int8),
        "one": np.arange(2 * rows).reshape(-1, 2),
        "two": np.arange(2 * rows) + 7,
        "other": np.arange(rows)[::-1],
        "words": ["a", 1, None],
    }
    kept: list[dict[str, Any]] = []
    for _ in range(3):
        other.send(sent)
        kept.append(other.receive())
        sent["one"] = sent["one"] + 1
    for turn, message in enumerate(kept):
        assert (message["odd"] == np.arange(5)).all()
        assert (message["one"] == np.arange(2 * rows).reshape(-1, 2) + turn).all()
        assert (message["two"] == np.arange(2 * rows) + 7).all()
        assert (message["other"] == np.arange(rows)[::-1]).all()
        assert message["words"] == ["a", 1, None]
        message["one"] += 1  # its own: neither read-only nor the next message's


def test_the_end_of_the_other_side_is_noticed(other: Channel) -> None:
    other.send("end")
    with pytest.raises((EOFError, ConnectionError)):
        other.receive()
    with pytest.raises(BrokenPipeError):
        other.send(np.arange(10))
