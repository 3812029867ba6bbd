"""Lanes: how runs of one slice on several workers send words to one another without leaving their kernels.

A lane is memory with one writer and one reader: a ring of words, and a few control words. There is one from each worker
to each other one, in memory that all of them have mapped (operators/runtime/lanes.py). Through it travels a stream of
messages, each HEADER words and a payload of any size: the writer writes as much as fits, and while it waits for room or
for others it reads what has come, so no size and no order of arrival can block two workers.

*Order.* All workers run the same operators and rounds in the same order, so message number i on every lane belongs to
the same point of the slice, and no message says which one. A worker leaves such a point when it has written all of its
messages and read one from every other worker. So a worker is at most one point ahead, and the one that is behind has
all it waits for.
*Rounds.* Each header proposes the least round for which the sender has work. The first exchange of a round is run with
the rows of that round before it is known to take place: if no worker has proposed it, no worker had rows for it.
*Whole or not at all.* A worker that gives up sends a header with its status in place of its next message, and reads
until it has such a header from every other worker. A worker that finds one does the same. So all of them drop the
slice, every lane is empty, and each knows the statuses of all. The last point of a slice carries no rows: a worker that
has been through it knows that no worker has given up.
*Led slices.* Worker 0 may know alone which slice comes next. Then the others already wait for it in their kernels, and
its first message says which it is (`tell`, `hear`): they have done what Python does before a slice. It is the only
point at which not all write.
*A failure in the middle.* While it waits, a worker calls `check`, which Python provides, now and then; when that
does not say GOES_ON, it leaves at once, and what is in the lanes stays. An attempt begins where its writer
says, with the mark of the attempt, so later attempts never read what earlier ones have left.
*Cost.* Some hundred nanoseconds a message, and waiting for the slowest.
"""

from numba import njit

from vernier.operators.kernels.runs import (
    CHECK,
    CHECK_SAID,
    CLOCK,
    CLOCK_KIND,
    CROWDED,
    FUTEX,
    INDEX,
    LANES,
    LOOKS,
    NANOSECONDS,
    PROPOSED,
    SECONDS,
    SENT_WORDS,
    SLEEP,
    STREAMS,
    SYSCALL,
    WAITED,
    WORKERS,
)
from vernier.storage.kernels.fences import acquire, core, fence, give_way, release
from vernier.storage.kernels.held import store
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import copy_bytes, load
from vernier.storage.kernels.separate import invoke, read_clock

HEAD, CORE, START, MARK, MARK_WORDS = 0, 1, 2, 3, 2
TAIL, ASLEEP, ROOM = 8, 16, 24
"""Control words of a lane. The writer's: the number of words that it has ever written, its core, and where an attempt
begins, with the attempt's mark. The reader's, in other cache lines: the number of words that it has read, and whether
it sleeps. Then the words of the ring."""

(OUT, IN, SIZE, OPEN, BEGUN, AT, LEFT, WRITTEN, TO, WANTED, READ, STATUS, ROUND, LAST, STREAM_WORDS) = range(15)
"""Words of a stream, what a worker knows of another one: the lanes to it and from it, and the words of their rings;
whether each has begun in this attempt; where the payload that is being sent is, how many words of it, and how many
words of the message are written; where the payload that comes is to be written (0: nowhere yet), how many words it has
(-1: the header has not come), how many of them are read; what the header said; and whether what is being sent is a
header that gives up."""
HEADER = 3

NONE = 1 << 62
"""No round."""
PEER, ABORTED, REFUSED = 113, 114, 115
"""Statuses: another worker has given up; the attempt has failed; a worker cannot run the slice here."""

GOES_ON = 1
"""What `check` returns while the attempt goes on."""

_TURNS = 512
"""How often a worker yields its core before it sleeps, some 200 microseconds."""
_CROWDED_NANOSECONDS, _CROWDED_CALLS = 100_000, 64
"""If a turn takes longer than this, other threads want the core. Then the worker sleeps instead of yielding for some
calls: a thread that is woken gets the core sooner than one that has yielded it."""
_NAP_NANOSECONDS, _LONG_NAPS = 2_000_000, 6
"""The longest sleep in an exchange. A worker that waits for a slice doubles it, at most this number of times."""
_SHORT_TURNS = 64
"""While a worker has something to send it yields, and calls `check` once in this many turns."""


@borrowing
def _stream(run, peer):  # type: ignore[no-untyped-def]
    return load(run, STREAMS) + 8 * STREAM_WORDS * peer


@borrowing
def _now(run):  # type: ignore[no-untyped-def]
    read_clock(load(run, CLOCK), load(run, CLOCK_KIND), run + 8 * SECONDS)
    return load(run, SECONDS) * 1_000_000_000 + load(run, NANOSECONDS)


@borrowing
def _expect(run, peer):  # type: ignore[no-untyped-def]
    """Nothing has come of a worker's next message."""
    stream = _stream(run, peer)
    store(stream, WANTED, -1)
    store(stream, READ, 0)
    store(stream, STATUS, 0)
    store(stream, TO, 0)


@borrowing
def begin_streams(run):  # type: ignore[no-untyped-def]
    """Begin a slice: nothing is being sent, and nothing has come."""
    for peer in range(load(run, WORKERS)):
        stream = _stream(run, peer)
        store(stream, LEFT, 0)
        store(stream, WRITTEN, HEADER)
        store(stream, LAST, 0)
        _expect(run, peer)


@borrowing
def post(run, peer, at, words):  # type: ignore[no-untyped-def]
    """Begin to send `words` words at the address `at` to a worker, which must stay there until `deliver` has ended."""
    stream = _stream(run, peer)
    store(stream, AT, at)
    store(stream, LEFT, words)
    store(stream, WRITTEN, 0)
    _expect(run, peer)


@borrowing
def wanted(run, peer):  # type: ignore[no-untyped-def]
    """How many words come from a worker."""
    return load(_stream(run, peer), WANTED)


@borrowing
def accept(run, peer, to):  # type: ignore[no-untyped-def]
    """Where to write the words that come from a worker."""
    store(_stream(run, peer), TO, to)


@borrowing
def said(run, peer):  # type: ignore[no-untyped-def]
    """The status with which another worker has given up."""
    return load(_stream(run, peer), STATUS)


@borrowing
def _begin(run, stream):  # type: ignore[no-untyped-def]
    """Begin the lanes in this attempt. Returns whether both have begun."""
    mark = load(run, LANES)
    lane = load(stream, OUT)
    if load(stream, OPEN) == 0:
        store(lane, START, load(lane, HEAD))
        store(lane, MARK + 1, load(mark, 1))
        release(lane + 8 * MARK, load(mark, 0))
        store(stream, OPEN, 1)
    lane = load(stream, IN)
    if acquire(lane + 8 * MARK) != load(mark, 0) or acquire(lane + 8 * (MARK + 1)) != load(mark, 1):
        return False
    release(lane + 8 * TAIL, acquire(lane + 8 * START))
    store(stream, BEGUN, 1)
    return True


@borrowing
def _opened(run, peer):  # type: ignore[no-untyped-def]
    """The stream of a worker, whose lane to it has begun."""
    stream = _stream(run, peer)
    if load(stream, OPEN) == 0:
        _begin(run, stream)
    return stream


@borrowing
def _copy_in(ring, size, at, source, count):  # type: ignore[no-untyped-def]
    """Copy words into a ring, from place `at` on."""
    first = min(count, size - at)
    copy_bytes(ring + 8 * at, source, 8 * first)
    copy_bytes(ring, source + 8 * first, 8 * (count - first))


@borrowing
def _write(run, stream, status):  # type: ignore[no-untyped-def]
    """Write what fits of the message. Returns whether anything did."""
    written = load(stream, WRITTEN)
    left = HEADER + load(stream, LEFT) - written
    if left == 0 or load(stream, OPEN) == 0:
        return False
    lane, size = load(stream, OUT), load(stream, SIZE)
    head, ring = load(lane, HEAD), lane + 8 * ROOM
    count = min(left, size - (head - acquire(lane + 8 * TAIL)))
    if count <= 0 or (written == 0 and count < HEADER):
        return False
    at = head % size
    if written == 0:
        store(ring, at, load(stream, LEFT))
        store(ring, (at + 1) % size, status)
        store(ring, (at + 2) % size, load(run, PROPOSED))
        _copy_in(ring, size, (at + HEADER) % size, load(stream, AT), count - HEADER)
    else:
        _copy_in(ring, size, at, load(stream, AT) + 8 * (written - HEADER), count)
    store(stream, WRITTEN, written + count)
    store(lane, CORE, core())
    release(lane + 8 * HEAD, head + count)
    store(run, SENT_WORDS, load(run, SENT_WORDS) + count)
    fence()
    if acquire(lane + 8 * ASLEEP) != 0 and load(run, SYSCALL) != 0:
        invoke(load(run, SYSCALL), (load(run, FUTEX), lane, 1, 1, 0, 0, 0))
    return True


@borrowing
def _read(run, stream, skips):  # type: ignore[no-untyped-def]
    """Read what has come of the message, or skip its payload. Returns whether anything has."""
    if load(stream, BEGUN) == 0 and not _begin(run, stream):
        return False
    lane, size = load(stream, IN), load(stream, SIZE)
    tail = load(lane, TAIL)
    there = acquire(lane + 8 * HEAD) - tail
    ring, at = lane + 8 * ROOM, tail % size
    if load(stream, WANTED) < 0:
        if there < HEADER:
            return False
        store(stream, WANTED, load(ring, at))
        store(stream, STATUS, load(ring, (at + 1) % size))
        store(stream, ROUND, load(ring, (at + 2) % size))
        release(lane + 8 * TAIL, tail + HEADER)
        return True
    to, read = load(stream, TO), load(stream, READ)
    count = min(there, load(stream, WANTED) - read)
    if count <= 0 or (to == 0 and not skips):
        return False
    if not skips:
        first = min(count, size - at)
        copy_bytes(to + 8 * read, ring + 8 * at, 8 * first)
        copy_bytes(to + 8 * (read + first), ring, 8 * (count - first))
    store(stream, READ, read + count)
    release(lane + 8 * TAIL, tail + count)
    return True


@borrowing
def _check(run, shares):  # type: ignore[no-untyped-def]
    """Call `check`. Returns whether it has ended the attempt, or was interrupted."""
    store(load(run, CHECK_SAID), 0, 0)
    invoke(load(run, CHECK), (shares,))
    return 0 if load(load(run, CHECK_SAID), 0) == GOES_ON else 1


@borrowing
def _wait(run, turn, waiting, nap):  # type: ignore[no-untyped-def]
    """Wait a little, in the turn-th turn without news. waiting: a worker whose message has not come; -1 while this one
    has something to send. nap: for how many nanoseconds at most. Returns what `check` says."""
    looks = load(run, LOOKS)
    if turn < looks:
        return 0
    turn -= looks
    if waiting < 0:
        give_way()
        return _check(run, 0) if turn % _SHORT_TURNS == _SHORT_TURNS - 1 else 0
    lane = load(_stream(run, waiting), IN)
    if turn == 0 and looks > 0 and core() == load(lane, CORE):
        return _check(run, 1)
    if turn < _TURNS and looks > 0 and load(run, CROWDED) == 0:
        began = _now(run)
        give_way()
        if _now(run) - began > _CROWDED_NANOSECONDS:
            store(run, CROWDED, _CROWDED_CALLS)
        return 0
    if load(run, SYSCALL) != 0:
        head = acquire(lane + 8 * HEAD)
        release(lane + 8 * ASLEEP, 1)
        fence()
        if head == load(lane, TAIL) and acquire(lane + 8 * HEAD) == head:
            store(run, SLEEP, 0)
            store(run, SLEEP + 1, nap)
            invoke(load(run, SYSCALL), (load(run, FUTEX), lane, 0, head & 0xFFFFFFFF, run + 8 * SLEEP, 0, 0))
        release(lane + 8 * ASLEEP, 0)
    return _check(run, 0)


@njit(cache=True)
def deliver(run, whole):  # type: ignore[no-untyped-def]
    """Send what was posted, until the headers of all others have come, and then, with `whole`, also the payloads, for
    which `accept` has a place. Returns a status: 0, PEER or ABORTED."""
    turn, began = 0, -1  # the clock is read if there is something to wait for
    while True:
        news, waiting, sending, given_up = False, -1, False, False
        for peer in range(load(run, WORKERS)):
            if peer == load(run, INDEX):
                continue
            stream = _opened(run, peer)
            news = _write(run, stream, 0) or news
            news = _read(run, stream, False) or news
            sending = sending or load(stream, WRITTEN) < HEADER + load(stream, LEFT)
            if load(stream, WANTED) < 0 or (whole and load(stream, READ) < load(stream, WANTED)):
                waiting = peer
            given_up = given_up or load(stream, STATUS) != 0
        if given_up:
            return give_up(run, PEER)
        if waiting < 0 and not (whole and sending):
            break
        if news:
            turn = 0
            continue
        if began < 0:
            began = _now(run)
        if _wait(run, turn, -1 if whole and sending else waiting, _NAP_NANOSECONDS) != 0:
            return ABORTED
        turn += 1
    store(run, CROWDED, max(0, load(run, CROWDED) - 1))
    if began >= 0:
        store(run, WAITED, load(run, WAITED) + _now(run) - began)
    return 0


@njit(cache=True)
def give_up(run, status):  # type: ignore[no-untyped-def]
    """Tell all workers, after the message that is being sent, that this one gives up with a status, and read until all
    have done the same. Returns the status, or ABORTED."""
    turn = 0
    while True:
        news, waiting, sending = False, -1, False
        for peer in range(load(run, WORKERS)):
            if peer == load(run, INDEX):
                continue
            stream = _opened(run, peer)
            if load(stream, LAST) == 0 and load(stream, WRITTEN) == HEADER + load(stream, LEFT):
                store(stream, LEFT, 0)
                store(stream, WRITTEN, 0)
                store(stream, LAST, 1)
            news = _write(run, stream, status if load(stream, LAST) != 0 else 0) or news
            if load(stream, STATUS) == 0:
                if load(stream, READ) == load(stream, WANTED):
                    _expect(run, peer)
                news = _read(run, stream, True) or news
            sending = sending or load(stream, LAST) == 0 or load(stream, WRITTEN) < HEADER
            if load(stream, STATUS) == 0:
                waiting = peer
        if waiting < 0 and not sending:
            break
        if news:
            turn = 0
        elif _wait(run, turn, -1 if sending else waiting, _NAP_NANOSECONDS) != 0:
            return ABORTED
        else:
            turn += 1
    return status


@njit(cache=True)
def agree(run):  # type: ignore[no-untyped-def]
    """The least round that any worker has proposed; NONE if there is none. After `deliver`."""
    least = load(run, PROPOSED)
    for peer in range(load(run, WORKERS)):
        if peer != load(run, INDEX):
            least = min(least, load(_stream(run, peer), ROUND))
    return least


@njit(cache=True)
def meet(run):  # type: ignore[no-untyped-def]
    """A point of the slice at which nothing but headers is sent. Returns a status."""
    for peer in range(load(run, WORKERS)):
        post(run, peer, 0, 0)
    return deliver(run, True)


@njit(cache=True)
def tell(run, at, words):  # type: ignore[no-untyped-def]
    """Send `words` words at the address `at` to all others, before the first point of a slice. Returns a status."""
    for peer in range(load(run, WORKERS)):
        if peer == load(run, INDEX):
            continue
        post(run, peer, at, words)
        stream, turn = _opened(run, peer), 0
        while load(stream, WRITTEN) < HEADER + words:
            if not _write(run, stream, 0) and _wait(run, turn, -1, _NAP_NANOSECONDS) != 0:
                return ABORTED
            turn += 1
    return 0


@njit(cache=True)
def hear(run, peer, at, words):  # type: ignore[no-untyped-def]
    """Wait for the `words` words that a worker tells, and write them to the address `at`. Returns a status."""
    stream, turn, looking = _opened(run, peer), 0, load(run, LOOKS) + _TURNS
    accept(run, peer, at)
    while load(stream, READ) < words:
        if _read(run, stream, False):
            turn = 0
        elif _wait(run, turn, peer, _NAP_NANOSECONDS << min(max(turn - looking, 0), _LONG_NAPS)) != 0:
            return ABORTED
        else:
            turn += 1
    return 0
