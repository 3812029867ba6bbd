"""Packets of words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vernier.service.replay import packet
from vernier.service.replay.packet import pack, unpack

words = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(words, max_size=4),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=4),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
def test_packets_give_back_what_they_were_made_of(
    numbers: list[int], shapes: list[tuple[int, int]], step: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    matrices = [draw.integers(-(2**62), 2**62, (rows * step, width))[::step] for rows, width in shapes]
    made = pack(numbers, matrices)
    assert made is not None
    got, found = unpack(made, len(numbers), [width for _, width in shapes])
    assert got == numbers
    assert all(np.array_equal(one, other) for one, other in zip(matrices, found, strict=True))


def test_what_is_too_large_is_no_packet() -> None:
    assert pack((1, 2, 3), [np.zeros((packet.MOST // 4 - 1, 4), np.int64)]) is not None
    assert pack((1, 2, 3), [np.zeros((packet.MOST // 4, 4), np.int64)]) is None
