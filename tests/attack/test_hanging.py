"""Functions of a program that do not come back are named, with what they were given; slow ones that do are not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vernier as vn
from vernier import col
from vernier.operators.language.expr.running_calls import RUNNING, Call, running
from vernier.service.cluster.call_watch import Watch
from vernier.service.coordinator.stuck_workers import program_frame

HERE = Path(__file__).name


class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64


class Value(vn.Schema):
    value: vn.Int64


class Gate:
    """What a function waits at."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.said: list[str] = []

    def told(self, said: str, seconds: float) -> None:
        """The watch has seen it: let it go on."""
        self.said.append(said)
        self.opened.set()


GATE = Gate()


def _wait(value: Any) -> Any:
    assert GATE.opened.wait(60)
    return value


def waits_at_columns(values: Any) -> Any:
    return _wait(values)


def waits_at_a_row(row: Any) -> list[tuple[int]]:
    return [(_wait(row.value) if row.value == 3 else row.value,)]


def waits_at_a_group(key: Any, rows: Any) -> list[tuple[int]]:
    return [_wait((1,))]


def waits_at_counts(counts: Any) -> Any:
    return _wait(counts)


def waits_at_values(values: Any, counts: Any, offsets: Any) -> Any:
    return _wait(np.zeros(len(offsets) - 1, np.int64))


def _udf(pairs: Any) -> Any:
    return pairs.select("key", value=vn.udf(waits_at_columns, returns=vn.Int64, deterministic=True)(col("value")))


PROGRAMS: list[tuple[Callable[[Any], Any], str, str]] = [
    (_udf, 'waits_at_columns(col("value"))', "(3,)"),
    (lambda p: p.flat_map(waits_at_a_row, returns=Value), "waits_at_a_row", "Row(key=1, value=3)"),
    (lambda p: p.group_by("key").reduce(waits_at_a_group, returns=Value), "waits_at_a_group", "((1,), [((3,), 1)"),
    (lambda p: p.threshold(waits_at_counts), "waits_at_counts", "[1"),
    (
        lambda p: p.group_by("key").agg(n=vn.aggregate(waits_at_values, returns=vn.Int64)("value")),
        "waits_at_values",
        "3",
    ),
]


@pytest.mark.parametrize(("build", "name", "sample"), PROGRAMS)
def test_a_function_that_does_not_come_back_is_named(build: Callable[[Any], Any], name: str, sample: str) -> None:
    global GATE
    GATE = Gate()
    app = vn.App("waiting")
    app.view("made", build(app.source("pairs", Pair)))
    watch = Watch(0.2, GATE.told)
    try:
        with vn.testing.run(app) as t:
            t.insert("pairs", (1, 3), at=1)
            t.advance(2)
    finally:
        watch.stop()
    assert len(GATE.said) == 1
    assert name in GATE.said[0]
    assert HERE in GATE.said[0]
    assert sample in GATE.said[0]
    assert not RUNNING


def test_a_function_that_goes_from_row_to_row_is_not_named_until_it_stays() -> None:
    said: list[str] = []
    watch = Watch(1e6, lambda what, seconds: None)
    watch.stop()
    watch._seconds, watch._on_slow = 10.0, lambda what, seconds: said.append(f"{what} after {seconds}")
    with running(Call("flat_map", "program.py:3", "slow")) as call:
        for turn in range(10):
            call.given = (turn,)
            watch.look(9.0 * turn)
            watch.look(9.0 * turn + 8)
        assert said == []
        watch.look(91.0)
        watch.look(1_000.0)
    watch.look(2_000.0)
    assert said == ["flat_map at program.py:3: the function slow; its input is, for example, (9,) after 10.0"]


def test_a_function_that_holds_the_interpreters_lock_is_found_in_what_the_interpreter_writes() -> None:
    watch = Watch(0.2, lambda what, seconds: None)
    try:
        pattern = re.compile("(a+)+b")
        length = 20
        written = ""
        while not program_frame(written):
            began = time.monotonic()
            pattern.match("a" * length)
            # Long enough to be noticed, however fast the machine is; the watch does nothing meanwhile.
            length += 1 if time.monotonic() - began < 2 else 0
            assert watch._file is not None
            with open(f"/proc/self/fd/{watch._file.fileno()}", encoding="utf-8") as file:
                written = file.read()
    finally:
        watch.stop()
    found = program_frame(written)
    assert found is not None
    assert HERE in found
