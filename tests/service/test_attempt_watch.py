"""Who waits for the end of an attempt looks at it now and then."""

from __future__ import annotations

import threading

from vernier.service.cluster.messages import Start
from vernier.service.cluster.rendezvous import Attempt
from vernier.service.coordinator.attempt_watch import AttemptWatch, TimeLimit, await_end

START = Start(epoch=1, base="", ingestion={}, offsets={})


class Looks(AttemptWatch):
    """Looks `times` times, and ends the attempt then if it should."""

    def __init__(self, attempt: Attempt, times: int, ends: bool = False) -> None:
        super().__init__(attempt, 0.002)
        self.left, self.ends, self.threads = times, ends, set[int]()

    def look(self) -> bool:
        self.threads.add(threading.get_ident())
        self.left -= 1
        if self.left == 0 and self.ends:
            self.attempt.ended.set()
        return self.left > 0


def test_watches_look_until_they_have_seen_enough_or_the_attempt_ends() -> None:
    attempt = Attempt("a", START, 1)
    few, many, gone = Looks(attempt, 2), Looks(attempt, 5, ends=True), list[str]()
    never = TimeLimit(attempt, 60, lambda: gone.append("a"))
    await_end(attempt, [few, many, never])
    assert (few.left, many.left, gone) == (0, 0, [])
    assert few.threads == many.threads == {threading.get_ident()}


def test_the_end_is_awaited_when_nobody_looks_any_more() -> None:
    attempt, given_up = Attempt("a", START, 1), threading.Event()
    waiting = threading.Thread(target=await_end, args=(attempt, [TimeLimit(attempt, 0.001, given_up.set)]))
    waiting.start()
    assert given_up.wait(60)
    waiting.join(0.05)
    assert waiting.is_alive()
    attempt.ended.set()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_watch_may_have_a_thread_of_its_own() -> None:
    attempt = Attempt("a", START, 1)
    watch = Looks(attempt, 3, ends=True)
    watch.begin()
    assert attempt.ended.wait(60)
    watch.cancel()
    assert threading.get_ident() not in watch.threads
