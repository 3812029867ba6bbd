"""Samples of the keys that are sent between workers, and what a service says of them."""

from __future__ import annotations

import numpy as np
import pytest

import vernier as vn
from vernier.operators.engine.hot_keys import hot_keys
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.key_sample import EVERY, KEPT, LEAST, KeySample
from vernier.storage.updates import MIN_TIME, Updates

KEY = np.array([0], np.int64)


def rows(*parts: tuple[int, int]) -> np.ndarray:
    """Rows of each key by their number, mixed."""
    keys = np.repeat([key for key, _ in parts], [count for _, count in parts])
    np.random.default_rng(1).shuffle(keys)
    return np.column_stack((keys, np.arange(len(keys)))).astype(np.int64)


def test_nothing_is_said_of_few_rows() -> None:
    sample = KeySample(1)
    sample.see(rows((7, EVERY * (LEAST - 1))), KEY)
    assert sample.most() is None
    sample.see(rows((7, EVERY)), KEY)
    hot = sample.most()
    assert hot is not None
    assert (hot.words.tolist(), hot.share, hot.samples) == ([7], 1.0, LEAST)


@pytest.mark.parametrize("step", [1, 10, 63, 64, 65, 1_000, 200_000])
def test_the_share_of_a_key_does_not_depend_on_the_sizes_of_steps(step: int) -> None:
    sample, data = KeySample(1), rows((7, 100_000), *((key, 10) for key in range(100, 10_100)))
    for first in range(0, len(data), step):
        sample.see(data[first : first + step], KEY)
    hot = sample.most()
    assert hot is not None
    assert hot.words.tolist() == [7]
    assert hot.samples == KEPT
    assert abs(hot.share - 0.5) < 0.08


def test_the_newest_rows_count() -> None:
    sample = KeySample(1)
    for key in (1, 2):
        sample.see(rows((key, EVERY * KEPT)), KEY)
        hot = sample.most()
        assert hot is not None
        assert hot.words.tolist() == [key]


class Order(vn.Schema):
    """An order of a customer."""

    customer: vn.String
    price: vn.Int64


@pytest.mark.parametrize("at_once", [False, True])
def test_workers_name_the_key_that_most_rows_have(at_once: bool) -> None:
    app = vn.App("orders")
    orders = app.source("orders", Order)
    app.view("spent", orders.group_by("customer").agg(total=vn.sum("price")), key=["customer"])
    app.view("dearest", orders.group_by("customer").agg(most=vn.max("price")), key=["customer"])
    with LocalEngine(compile_app(app), 2) as engine:
        chosen = np.random.default_rng(2).random(40_000) < 0.6
        names = np.where(chosen, "a customer with a long name", [f"c{n}" for n in range(40_000)])
        words = app.sources["orders"].schema.encode(
            {"customer": names.tolist(), "price": list(range(40_000))}, engine.heap
        )
        times = np.zeros(40_000, np.int64) if at_once else np.arange(40_000)
        engine.run_epoch(MIN_TIME, 40_000, {"orders": Updates.of(words, times, 1)})
        for worker in engine.workers:
            found = [hot for hot in hot_keys(worker).values() if hot[1] > 0.1]
            # Sums of one time are added up before they are sent, so no key has many of the rows.
            assert len(found) == (1 if at_once else 2)
            for key, share, _ in found:
                assert key == "customer='a customer with a long name'"
                assert abs(share - 0.6) < 0.1
            worker.state.heap.trim(0)
            assert hot_keys(worker) == {}, "the text of the key is not in memory any more"
