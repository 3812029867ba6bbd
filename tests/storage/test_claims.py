"""Claims in an object store: locks whose silent holders are replaced, without clocks that agree, and leases."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.crash.simstore import SimStore
from tests.storage.clock import Clock, blob_of
from vernier.storage.blob.blob import HeldLock, Owner
from vernier.storage.blob.leases import BEATS, LOCK_MS, MARGIN_MS, TTL_MS
from vernier.storage.blob.object_store import ObjectBlob
from vernier.storage.errors import OwnershipLost


class Slow(SimStore):
    """What the thread of heartbeats writes is on its way until `goes_on`."""

    def __init__(self) -> None:
        super().__init__()
        self._begun, self.goes_on = threading.Event(), threading.Event()

    def put(self, name: str, data: bytes) -> None:
        if threading.current_thread().name == "beating":
            self._begun.set()
            assert self.goes_on.wait(60)
        super().put(name, data)

    def begin(self, beat: Callable[[], None]) -> threading.Thread:
        """Start a heartbeat, and wait until it is on its way."""
        beating = threading.Thread(target=beat, name="beating")
        beating.start()
        assert self._begun.wait(60)
        return beating


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_until_it_is_given_back(store: SimStore, clock: Clock) -> None:
    one, two = blob_of(store, clock), blob_of(store, clock)
    held = one.lock("LOCK")
    assert held is not None
    assert (held.alone, two.lock("LOCK")) == (True, None)
    owner = two.owner("LOCK")
    assert isinstance(owner, Owner)
    assert owner.left_ms == LOCK_MS
    held.release()
    held.release()
    assert two.owner("LOCK") == Owner(0, "", 0)
    again = two.lock("LOCK")
    assert again is not None
    assert again.alone
    assert two.list("LOCK") == ["LOCK/000000000002"]


def test_heartbeats_keep_a_lock_and_their_end_loses_it(store: SimStore, clock: Clock) -> None:
    one, two = blob_of(store, clock), blob_of(store, clock)
    held = one.lock("LOCK")
    assert held is not None
    for _ in range(5 * BEATS):
        clock.ms += LOCK_MS // BEATS
        one.claims.beat()
        held.check()
        assert two.lock("LOCK") is None
    owner = two.owner("LOCK")
    assert owner is not None
    assert owner.left_ms == LOCK_MS
    for silent in range(1, BEATS):
        clock.ms += LOCK_MS // BEATS
        assert two.lock("LOCK") is None
        owner = two.owner("LOCK")
        assert owner is not None
        assert owner.left_ms == LOCK_MS - silent * (LOCK_MS // BEATS)
    held.check()
    clock.ms += LOCK_MS // BEATS
    taken = two.lock("LOCK")
    assert taken is not None
    assert not taken.alone
    one.claims.beat()
    with pytest.raises(
        OwnershipLost, match=r"lock LOCK/000000000001 on sim://state expired or another process took it over"
    ):
        held.check()
    held.release()
    assert two.lock("LOCK") is None
    taken.check()


def test_a_holder_that_was_silent_goes_on_if_nobody_has_taken_the_lock(store: SimStore, clock: Clock) -> None:
    one, two = blob_of(store, clock), blob_of(store, clock)
    held = one.lock("LOCK")
    assert held is not None
    clock.ms += 100 * LOCK_MS
    held.check()
    one.claims.beat()
    assert two.lock("LOCK") is None
    clock.ms += 100 * LOCK_MS
    assert clock.taken(two) is not None
    with pytest.raises(OwnershipLost):
        held.check()


def test_a_holder_that_was_silent_stops_while_the_store_does_not_say_who_has_the_lock(
    store: SimStore, clock: Clock
) -> None:
    class Cut(SimStore):
        """A store that cannot be reached once the clock has gone on."""

        def names(self, folder: str) -> list[str]:
            if clock.ms > 1_000_000:
                raise OSError("timed out")
            return super().names(folder)

    held = blob_of(Cut(), clock).lock("LOCK")
    assert held is not None
    clock.ms += LOCK_MS - 1
    held.check()
    clock.ms += 1
    with pytest.raises(OwnershipLost):
        held.check()


def test_time_in_which_nobody_looks_at_a_lock_does_not_count(store: SimStore, clock: Clock) -> None:
    """The store was gone for all, or the one that waits stood still: the holder has had no chance."""
    one, two = blob_of(store, clock), blob_of(store, clock)
    assert one.lock("LOCK") is not None
    assert two.lock("LOCK") is None
    for _ in range(BEATS - 1):
        clock.ms += 100 * LOCK_MS
        assert two.lock("LOCK") is None
    one.claims.beat()
    assert two.lock("LOCK") is None
    for _ in range(BEATS):
        clock.ms += LOCK_MS // BEATS
        taken = two.lock("LOCK")
    assert taken is not None


def test_clocks_that_do_not_agree_do_not_matter_to_a_lock(store: SimStore, clock: Clock) -> None:
    early, late = Clock(), Clock()
    early.ms, late.ms = 5, 10**15
    holder = blob_of(store, early)
    assert holder.lock("LOCK") is not None
    assert blob_of(store, late).lock("LOCK") is None
    assert late.taken(blob_of(store, late)) is not None
    holder.claims.beat()
    again = blob_of(store, early)
    assert again.lock("LOCK") is None
    assert early.taken(again) is not None


def test_a_holder_that_slept_finds_that_it_was_overtaken(store: SimStore, clock: Clock) -> None:
    """Its clock may have stood still meanwhile: what it would write then counts for nothing."""
    still = Clock()
    one, two = blob_of(store, still), blob_of(store, clock)
    held = one.lock("LOCK")
    taken = clock.taken(two)
    assert held is not None
    assert taken is not None
    one.claims.beat()
    with pytest.raises(OwnershipLost):
        held.check()
    held.release()
    two.claims.beat()
    taken.check()


def test_a_claim_of_an_earlier_release_is_watched_for_its_fifteen_seconds(store: SimStore, clock: Clock) -> None:
    store.put("LOCK/000000000007", b'{"owner":"a","host":"h","pid":1,"until_ms":1}')
    two = blob_of(store, clock)
    assert clock.taken(two, 14_000) is None
    assert clock.taken(two, 5_000) is not None


def test_of_two_who_take_a_lock_at_once_one_gets_it(store: SimStore, clock: Clock) -> None:
    class Racing(SimStore):
        """Another process is quicker by a call."""

        def create(self, name: str, data: bytes) -> None:
            assert blob_of(store, clock).lock("LOCK") is not None
            super().create(name, data)

    racing = Racing()
    racing.objects = store.objects
    assert blob_of(racing, clock).lock("LOCK") is None

    class Careless(SimStore):
        """Makes objects as if there were none; both believe that they did, and the last one is right."""

        def create(self, name: str, data: bytes) -> None:
            self.put(name, data)
            self.put(name, data.replace(b'"owner":"', b'"owner":"z'))

    assert blob_of(Careless(), clock).lock("LOCK") is None


class Repeating(SimStore):
    """A store that does a request and answers 503, whose client then repeats it."""

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        super().create(name, data)


def test_a_lock_that_was_made_before_an_error_is_this_process_s_own(clock: Clock) -> None:
    store = Repeating()
    one, two = blob_of(store, clock), blob_of(store, clock)
    lock = one.lock("LOCK")
    assert lock is not None
    assert two.lock("LOCK") is None
    lock.release()
    assert two.lock("LOCK") is not None


def test_the_time_of_a_lock_is_a_setting(store: SimStore, clock: Clock) -> None:
    holder, other = ObjectBlob("sim://state", store, clock, beating=False, lock_ms=8_000), blob_of(store, clock)
    held = holder.lock("LOCK")
    assert held is not None
    assert clock.taken(other) is None, "each claim says itself how long it is valid"
    assert clock.taken(other, 8_000) is not None
    with pytest.raises(OwnershipLost):
        held.check()


def test_a_process_of_this_machine_that_has_ended_holds_no_lock(store: SimStore, clock: Clock) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def there(machine: str) -> ObjectBlob:
        return ObjectBlob("sim://state", store, clock, beating=False, machine=machine)

    def dies_with(machine: str) -> None:
        held = there(machine).lock("LOCK")
        assert held is not None
        text = store.read(held.name)
        assert f'"pid":{os.getpid()}'.encode() in text
        store.put(held.name, text.replace(f'"pid":{os.getpid()}'.encode(), f'"pid":{ended.pid}'.encode()))

    dies_with("one")
    assert there("two").lock("LOCK") is None
    assert there("").lock("LOCK") is None
    assert not there("two").release_ended("LOCK")
    taken = there("one").lock("LOCK")
    assert taken is not None
    assert taken.alone
    assert taken.name == "LOCK/000000000002"
    assert not there("one").release_ended("LOCK"), "it lives"
    taken.release()
    # The supervisor releases it, so that a standby elsewhere goes on at once.
    dies_with("one")
    assert there("one").release_ended("LOCK")
    assert not there("one").release_ended("LOCK")
    elsewhere = there("two").lock("LOCK")
    assert elsewhere is not None
    assert elsewhere.alone
    assert elsewhere.name == "LOCK/000000000004"


def test_who_takes_a_lock_while_it_is_released_for_the_dead_keeps_it(store: SimStore, clock: Clock) -> None:
    """What is written for the dead holder has its number, and the higher number counts."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    one = ObjectBlob("sim://state", store, clock, beating=False, machine="one")
    held = one.lock("LOCK")
    assert held is not None
    dead = store.read(held.name).replace(f'"pid":{os.getpid()}'.encode(), f'"pid":{ended.pid}'.encode())
    store.put(held.name, dead)
    taken: list[HeldLock | None] = []

    class Slow(SimStore):
        """The lock expires and is taken between the look and the release."""

        def put(self, name: str, data: bytes) -> None:
            taken.append(clock.taken(ObjectBlob("sim://state", store, clock, beating=False, machine="two")))
            super().put(name, data)

    slow = Slow()
    slow.objects = store.objects
    assert ObjectBlob("sim://state", slow, clock, beating=False, machine="one").release_ended("LOCK")
    (found,) = taken
    assert found is not None
    found.check()
    assert one.lock("LOCK") is None


# --- leases, and the thread that keeps claims alive -------------------------------------------------------------------


def test_leases_run_out_with_their_readers(store: SimStore, clock: Clock) -> None:
    reader, other, collector = (blob_of(store, clock) for _ in range(3))
    one, _ = reader.hold("leases/7"), other.hold("leases/8")
    assert len(collector.present("leases")) == 2
    clock.ms += TTL_MS - 1
    assert len(collector.present("leases")) == 2
    reader.claims.beat()
    clock.ms += 1
    assert len(collector.present("leases")) == 0
    one.release()
    again = reader.hold("leases/9")
    clock.ms += MARGIN_MS
    reader.claims.beat()
    clock.ms += TTL_MS - 1
    assert [name.partition(".")[0] for name in collector.present("leases")] == ["leases/9"]
    again.release()
    assert store.names("leases") == []


def test_a_lock_is_extended_in_time_where_only_leases_were_held_before(store: SimStore, clock: Clock) -> None:
    """So it is with a standby that takes the lock, beside another one that would take it next."""
    standby = ObjectBlob("sim://state", store, clock, beating=False, lock_ms=1_000)
    standby.hold("standby/a")
    held: list[HeldLock] = []

    class Stopping(threading.Event):
        """The lock is taken as soon as the thread that extends claims pauses."""

        def wait(self, timeout: float | None = None) -> bool:
            if held:
                return True
            lock = standby.lock("LOCK")
            assert lock is not None
            assert timeout is not None
            held.append(lock)
            clock.ms += round(1000 * timeout)
            return False

    began = clock.ms
    standby.claims._run(Stopping())
    assert clock.ms - began <= 1_000 // BEATS
    assert b'"beats":1' in store.read("LOCK/000000000001")


@pytest.mark.parametrize("kind", ["lock", "lease"])
def test_a_heartbeat_that_is_under_way_does_not_undo_a_release(clock: Clock, kind: str) -> None:
    store = Slow()
    blob = blob_of(store, clock)
    held = blob.lock("LOCK") if kind == "lock" else blob.hold("leases/7")
    assert held is not None
    beating = store.begin(blob.claims.beat)
    releasing = threading.Thread(target=held.release)
    releasing.start()
    # If the release does not wait for the heartbeat, it is done by now.
    releasing.join(0.2)
    store.goes_on.set()
    for thread in (beating, releasing):
        thread.join(60)
    other = blob_of(store, clock)
    assert (other.owner("LOCK") or Owner(0, "", 0)) == Owner(0, "", 0)
    assert other.list("leases") == []


@pytest.mark.parametrize("kind", ["lock", "lease"])
def test_a_store_that_does_not_answer_a_heartbeat_does_not_hold_up_a_release(
    clock: Clock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vernier.storage.blob.leases.RELEASE_SECONDS", 0.05)
    store = Slow()
    blob = blob_of(store, clock)
    held = blob.lock("LOCK") if kind == "lock" else blob.hold("leases/7")
    assert held is not None
    beating = store.begin(blob.claims.beat)
    held.release()
    store.goes_on.set()
    beating.join(60)
    with pytest.raises(OwnershipLost):
        held.check()
    for _ in range(BEATS + 2):
        clock.ms += TTL_MS // BEATS
        blob.claims.beat()
    other = blob_of(store, clock)
    if kind == "lease":
        assert other.present("leases") == []
        return
    for _ in range(BEATS + 1):
        clock.ms += LOCK_MS // BEATS
        if (taken := other.lock("LOCK")) is not None:
            break
    assert taken is not None


def test_a_thread_keeps_claims_alive() -> None:
    def now() -> int:
        return time.time_ns() // 1_000_000

    store = SimStore()
    one, two = ObjectBlob("sim://state", store, now), ObjectBlob("sim://state", store, now)
    held = one.lock("LOCK")
    assert held is not None
    first = store.read("LOCK/000000000001")
    deadline = time.monotonic() + 60
    while store.read("LOCK/000000000001") == first:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert two.lock("LOCK") is None
    held.release()
