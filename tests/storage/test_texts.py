"""Texts: words that order and distinguish as the contents do, dictionaries, and the heap as a cache of them."""

import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.storage.kernels import texts as kernels
from vernier.storage.strings.contents import Contents
from vernier.storage.strings.string_heap import Heap, TextMissing, Texts, TextsCollide, decode, encode, order, unite
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.merge import Merge
from vernier.storage.updates import Ints, Updates

# Near the boundary of what a prefix holds, with equal prefixes and bytes that padding could be taken for.
TEXTS = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda n, tail: b"x" * n + tail, st.integers(12, 17), st.binary(max_size=3)),
    st.sampled_from(
        [b"", b"\0", b"\0\0", b"a", b"a\0", b"a" * 15, b"a" * 15 + b"\0", b"a" * 16, b"\xff" * 15, b"\xff" * 16]
    ),
)


def words_of(heap: Heap, texts: list[bytes]) -> Ints:
    return heap.encode(Contents.of(texts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Of smhasher's reference implementation, seed 0.
        (b"", "00000000000000000000000000000000"),
        (b"hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        (b"hello, world", "8ebc5e3a62ac2f344d41429607bcdc4c"),
        (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
        (b"19 Jan 2038 at 3:14:07 AM", "fcaf37b788599eb8cbb2310295c24f66"),
    ],
)
def test_the_hash_is_murmur3(text: bytes, expected: str) -> None:
    data = np.frombuffer(text + b"\0", np.uint8)
    found = kernels.murmur(data.__array_interface__["data"][0], len(text))
    assert np.array(found, "<i8").tobytes().hex() == expected


@given(st.lists(TEXTS, min_size=1, max_size=30))
def test_contents_come_back_and_order_as_words(texts: list[bytes]) -> None:
    heap = Heap()
    words = words_of(heap, texts)
    assert heap.decode(words).strings() == texts
    exact = heap.comparable(words, (0,))
    for i in range(len(texts) - 1):
        one, two = tuple(words[i]), tuple(words[i + 1])
        assert (one == two) == (texts[i] == texts[i + 1])
        if texts[i][:15] != texts[i + 1][:15] or min(len(texts[i]), len(texts[i + 1])) <= 15:
            assert (one < two) == (texts[i] < texts[i + 1])
        assert (tuple(exact[i]) < tuple(exact[i + 1])) == (texts[i] < texts[i + 1])
    ordered = order(words, np.arange(4, dtype=np.int64), (0,), heap)
    assert [texts[i] for i in ordered] == sorted(texts)


def test_rows_with_distinct_prefixes_are_comparable_as_they_are() -> None:
    heap = Heap()
    words = words_of(heap, [b"a" * 20, b"b" * 20, b"a" * 20, b"short"])
    assert heap.comparable(words, (0,)) is words


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20))
def test_several_texts_in_a_row_are_compared_in_turn(rows: list[tuple[bytes, bytes]]) -> None:
    heap = Heap()
    words = np.hstack([words_of(heap, [row[i] for row in rows]) for i in range(2)])
    ordered = order(words, np.arange(8, dtype=np.int64), (0, 4), heap)
    assert [rows[i] for i in ordered] == sorted(rows)


@given(st.lists(TEXTS, max_size=30))
def test_short_texts_need_no_heap(texts: list[bytes]) -> None:
    if all(len(text) <= 15 for text in texts):
        assert decode(encode(Contents.of(texts), None), None).strings() == texts
    else:
        with pytest.raises(TextMissing, match="no dictionary in memory contains the text"):
            encode(Contents.of(texts), None)


@given(st.lists(TEXTS, max_size=30), st.lists(TEXTS, max_size=30))
def test_dictionaries_hold_what_rows_need(one: list[bytes], two: list[bytes]) -> None:
    heap = Heap()
    rows = words_of(heap, [*one, *two])
    parts = [heap.dictionary(rows[: len(one)], (0,)), heap.dictionary(rows[len(one) :], (0,))]
    assert len(parts[0]) == len({text for text in one if len(text) > 15})
    pairs = list(map(tuple, parts[0].hashes.tolist()))
    assert pairs == sorted(set(pairs))
    other = Heap()
    other.attach([None, *parts])
    assert len(other) == 0
    assert other.decode(rows).strings() == [*one, *two]
    third = Heap()
    for part in parts:
        stored = Texts.of_arrays(part.arrays())
        assert stored is not None
        third.add(stored)
    assert third.decode(rows).strings() == [*one, *two]


def test_dictionaries_go_to_other_processes() -> None:
    heap, other = Heap(), Heap()
    words = words_of(heap, [b"a text of more than fifteen bytes"])
    sent = pickle.dumps(heap.dictionary(words, (0,)))
    received = pickle.loads(sent)
    assert received.address[1] == received.hashes.__array_interface__["data"][0]
    other.attach([received])
    assert other.decode(words).strings() == [b"a text of more than fifteen bytes"]


def test_a_content_that_is_nowhere_is_named() -> None:
    words = words_of(Heap(), [b"a text that no heap remembers"])
    with pytest.raises(TextMissing, match=r"begins with b'a text that no ' and has the hash [0-9a-f]{32}"):
        Heap().decode(words)


def test_a_heap_lets_go_of_what_is_much() -> None:
    heap = Heap()
    texts = [hashlib.sha256(b"%d" % i).digest() for i in range(1000)]
    words = words_of(heap, texts)
    kept = heap.dictionary(words, (0,))
    heap.trim(limit=1 << 20)
    assert len(heap) == 1000
    heap.trim(limit=1 << 10)
    assert len(heap) == 0
    with pytest.raises(TextMissing):
        heap.decode(words)
    heap.attach([kept])
    assert heap.decode(words[5:7]).strings() == texts[5:7]
    assert len(heap) == 2


def test_two_contents_of_one_hash_are_told_and_nothing_else_is() -> None:
    heap = Heap()
    words = words_of(heap, [b"the one text of this hash", b"another text of some length"])
    pair = words[:1, 2:]
    same = Texts(pair, np.array([0, 25]), np.frombuffer(b"the one text of this hash", np.uint8))
    heap.add(same)
    assert len(heap) == 2
    planted = Texts(pair, np.array([0, 25]), np.frombuffer(b"the one TEXT of this hash", np.uint8))
    with pytest.raises(TextsCollide, match=r"b'the one text of this hash' and b'the one TEXT of this hash'"):
        heap.add(planted)
    longer = Texts(pair, np.array([0, 26]), np.frombuffer(b"the one text of this hash!", np.uint8))
    with pytest.raises(TextsCollide):
        heap.add(longer)


def test_a_peer_is_sent_each_text_once() -> None:
    heap = Heap()
    words = words_of(heap, [b"%d: a text of some length" % i for i in range(300)])
    assert len(heap.unsent(1, words[:10], (0,))) == 10
    assert len(heap.unsent(1, words[5:200], (0,))) == 190
    assert len(heap.unsent(2, words[:10], (0,))) == 10
    assert len(heap.unsent(1, words, (0,))) == 100
    heap.forget_sent()
    assert len(heap.unsent(1, words[:10], (0,))) == 10


def test_batches_have_dictionaries_of_their_own_rows() -> None:
    heap = Heap()
    texts = [b"%d: a text of some length" % i for i in range(30)]
    words = words_of(heap, texts)

    def batch(rows: slice, diff: int, time: int) -> Batch:
        given = np.hstack((np.arange(30).reshape(-1, 1), words))[rows]
        return Batch.build(Updates.of(given, time, diff), 1, time, time + 1, time)

    one, two = batch(slice(0, 20), 1, 1), batch(slice(10, 30), -1, 2)
    assert one.settle((1,), heap) is one.settle((1,), heap)
    two.settle((1,), heap)
    assert one.texts is not None
    assert len(one.texts) == 20
    reopened = Batch.open(one.meta(), one.arrays())
    assert reopened.texts is not None
    assert reopened.nbytes == one.nbytes
    cache = Heap()
    cache.attach([reopened.texts, two.texts])
    merged = Merge(reopened, two, 5).finish()
    found = merged.settle((1,), cache)
    assert len(found) == 20  # ten went away when both times became one, and more than its rows are looked through
    assert len(cache) == 0
    assert merged.origins == ()
    alone = Heap()
    alone.attach([found])
    assert sorted(alone.decode(np.ascontiguousarray(merged.to_updates().rows[:, 1:])).strings()) == sorted(
        [*texts[:10], *texts[20:]]
    )
    last = Merge(merged, batch(slice(0, 10), -1, 6), 7).finish()
    assert last.updates == 10
    assert len(last.settle((1,), heap)) == 10


def test_batches_without_texts_keep_no_origins() -> None:
    one, two = (Batch.build(Updates.of([[1], [2]], time, 1), 1, time, time + 1, time) for time in (1, 2))
    assert Merge(one, two, 5).finish().origins == ()


def test_a_merge_finds_two_contents_of_one_hash() -> None:
    batches = []
    for time, text in ((1, b"the one text of this hash"), (2, b"the one TEXT of this hash")):
        words = words_of(Heap(), [b"the one text of this hash"])
        batches.append(Batch.build(Updates.of(words, time, 1), 1, time, time + 1, time))
        batches[-1].texts = Texts(words[:, 2:].copy(), np.array([0, 25]), np.frombuffer(text, np.uint8))
    with pytest.raises(TextsCollide, match=r"b'the one text of this hash' and b'the one TEXT of this hash'"):
        Merge(batches[0], batches[1], 5).finish().settle((0,), Heap())


@given(st.lists(st.lists(TEXTS, max_size=10), max_size=4))
def test_dictionaries_unite(parts: list[list[bytes]]) -> None:
    heaps = [Heap() for _ in parts]
    rows = [words_of(heap, texts) for heap, texts in zip(heaps, parts, strict=True)]
    united = unite([heap.dictionary(own, (0,)) for heap, own in zip(heaps, rows, strict=True)])
    pairs = list(map(tuple, united.hashes.tolist()))
    assert pairs == sorted(set(pairs))
    heap = Heap()
    heap.attach([united])
    assert [heap.decode(own).strings() for own in rows] == parts
    assert len(united) == len({text for texts in parts for text in texts if len(text) > 15})
    for own, texts in zip(rows, parts, strict=True):
        assert len(united.only(own, (0,))) == len({text for text in texts if len(text) > 15})
