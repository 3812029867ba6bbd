"""Callbacks: what a function of Python says to the kernel that calls it, and what happens to what it raises."""

import signal
import threading

import numba
import pytest
from numba import njit

from vernier.operators.runtime.callback import Callback
from vernier.storage.kernels.held import store
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.separate import invoke

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it needs compiled kernels")


@njit(nogil=True)
def called(address, said, number, turns):  # type: ignore[no-untyped-def]
    """Do something else for some turns, then call. Returns what was said."""
    for turn in range(turns):
        store(said, 0, load(said, 0) + turn)
    store(said, 0, 0)
    invoke(address, (number,))
    return load(said, 0)


def twice(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return 2 * number


def test_it_says_what_the_function_returns() -> None:
    callback = Callback(twice, 1)
    assert [called(callback.address, callback.said, number, 0) for number in (3, 5)] == [6, 10]
    callback.fail()


def test_it_says_nothing_if_the_function_raises_and_keeps_the_error() -> None:
    callback = Callback(twice, 1)
    assert called(callback.address, callback.said, 3, 0) == 6
    assert called(callback.address, callback.said, -3, 0) == 0
    with pytest.raises(ValueError, match="-3"):
        callback.fail()
    callback.fail()
    assert called(callback.address, callback.said, 4, 0) == 8


def test_a_signal_during_the_kernel_ends_the_call_and_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    callback, turns, said = Callback(twice, 1), 1 << 20, []

    def interrupted() -> None:
        threading.Timer(0.02, signal.raise_signal, [signal.SIGINT]).start()
        while True:
            said.append(called(callback.address, callback.said, 7, turns))
            callback.fail()

    called(callback.address, callback.said, 1, turns)  # compiled
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert set(said) == {0, 14}
    assert capfd.readouterr() == ("", "")
