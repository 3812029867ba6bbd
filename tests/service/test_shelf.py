"""The shelf: what the driver lays out is what workers of its host read, or they notice that it is gone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vernier.service.cluster.shelf import Borrower, Place, Rows, Shelf
from vernier.service.errors import RowsGone


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    """A shelf."""
    made = Shelf()
    yield made
    made.close()


def found(borrower: Borrower, laid: list[Rows]) -> list[bytes]:
    """What a worker finds."""
    return [borrower.read(one) if isinstance(one, Place) else one for one in laid]


@given(st.lists(st.lists(st.binary(max_size=9000), min_size=1, max_size=3), max_size=6))
@settings(max_examples=50, deadline=None)
def test_everything_is_found_while_the_next_is_laid(epochs: list[list[bytes]]) -> None:
    shelf, borrower, before = Shelf(), Borrower(), None
    try:
        for streams in epochs:
            laid = shelf.lay(streams)
            assert all(isinstance(one, Place) == bool(stream) for one, stream in zip(laid, streams, strict=True))
            assert found(borrower, laid) == streams
            assert [shelf.read(one) if isinstance(one, Place) else one for one in laid] == streams
            if before is not None:
                assert found(borrower, before[0]) == before[1]
            before = laid, streams
    finally:
        shelf.close()


def test_what_is_laid_over_is_gone(shelf: Shelf) -> None:
    borrower = Borrower()
    (old,), (kept,) = shelf.lay([b"one"]), shelf.lay([b"two"])
    assert found(borrower, [old, kept]) == [b"one", b"two"]
    shelf.lay([b"six"])
    assert found(borrower, [kept]) == [b"two"]
    assert isinstance(old, Place)
    for read in (borrower.read, Borrower().read, shelf.read):
        with pytest.raises(RowsGone):
            read(old)


def test_a_place_that_cannot_be_opened_is_not_seen(shelf: Shelf) -> None:
    sample = shelf.sample
    assert Borrower().sees(sample)
    for wrong in (
        Place(1 << 30, sample.descriptor, sample.number, sample.begin, sample.size),
        Place(sample.pid, 1 << 20, sample.number, sample.begin, sample.size),
        Place(sample.pid, sample.descriptor, sample.number + 1, sample.begin, sample.size),
        Place(sample.pid, sample.descriptor, sample.number, sample.begin, 1 << 30),
    ):
        assert not Borrower().sees(wrong)


def test_another_process_finds_it(shelf: Shelf) -> None:
    (place,) = shelf.lay([b"for a worker"])
    assert isinstance(place, Place)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(Borrower().read, [place]) == b"for a worker"


def test_a_closed_shelf_is_not_seen() -> None:
    shelf = Shelf()
    shelf.close()
    assert not Borrower().sees(shelf.sample)
