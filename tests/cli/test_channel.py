"""Channels between a process and one that it forks."""

import multiprocessing
import os
from typing import Any

import numpy as np
import pytest

from vernier.service.replay import channel
from vernier.service.replay.channel import Channel


def _answer(end: Channel) -> None:
    """Send back what comes, until None does; end at a text."""
    while (message := end.receive()) is not None:
        if isinstance(message, str):
            os._exit(3)
        end.send(message)


@pytest.fixture
def other() -> Any:
    context = multiprocessing.get_context("fork")
    mine, theirs = Channel.pair(context)
    process = context.Process(target=_answer, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    yield mine
    process.terminate()
    process.join()
    mine.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("rows", [0, 1, 1000, channel.ROOM // 8 // 4, channel.ROOM // 8])
def test_arrays_arrive_whole_and_as_copies(other: Channel, rows: int) -> None:
    # Two arrays of half of the room do not fit beside what aligns them, so both ways are covered.
    sent = {"one": np.arange(2 * rows).reshape(-1, 2), "other": np.arange(rows)[::-1], "words": ["a", 1, None]}
    kept: list[dict[str, Any]] = []
    for _ in range(3):
        other.send(sent)
        kept.append(other.receive())
        sent["one"] = sent["one"] + 1
    for turn, message in enumerate(kept):
        assert (message["one"] == np.arange(2 * rows).reshape(-1, 2) + turn).all()
        assert (message["other"] == np.arange(rows)[::-1]).all()
        assert message["words"] == ["a", 1, None]
        message["one"] += 1  # its own: neither read-only nor the next message's


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_end_of_the_other_side_is_noticed(other: Channel) -> None:
    other.send("end")
    with pytest.raises((EOFError, ConnectionError)):
        other.receive()
    with pytest.raises(BrokenPipeError):
        other.send(np.arange(10))
