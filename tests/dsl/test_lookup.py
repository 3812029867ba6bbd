"""lookup: each change with what the other side holds at its time, and no later revision."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

import vernier as vn
from vernier import col
from vernier.operators.failures import JoinOverflow
from vernier.operators.kernels.joining import multiply

Update = tuple[tuple[Any, ...], int, int]


class Order(vn.Schema):
    order: vn.Int64
    item: vn.Int64 | None


class Price(vn.Schema):
    item: vn.Int64
    price: vn.Int64


def answer(
    orders: Sequence[Update], prices: Sequence[Update], epochs: Sequence[int] = (), workers: int = 1
) -> list[Update]:
    app = vn.App("t")
    found = app.source("orders", Order).lookup(app.source("prices", Price), on="item")
    app.view("v", found.select("order", "item", "price"))
    with vn.testing.run(app, epochs=epochs, workers=workers) as t:
        t.update("orders", orders)
        t.update("prices", prices)
        t.finish()
        return t.changes("v")


@pytest.mark.parametrize("epochs", [(), (4,), range(1, 20)])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_order_keeps_the_price_of_its_time(epochs: Sequence[int], workers: int) -> None:
    prices = [((7, 100), 2, 1), ((7, 100), 6, -1), ((7, 110), 6, 1), ((8, 1), 3, 2)]
    orders = [((1, 7), 1, 1), ((2, 7), 2, 1), ((3, 7), 5, 1), ((4, 7), 6, 1), ((5, 8), 4, 3), ((6, None), 4, 1)]
    assert answer(orders, prices, epochs, workers) == [
        ((2, 7, 100), 2, 1),
        ((5, 8, 1), 4, 6),
        ((3, 7, 100), 5, 1),
        ((4, 7, 110), 6, 1),
    ]


def test_a_product_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(JoinOverflow, match="lookup on item"):
        answer([((1, 7), 5, 2**40)], [((7, 1), 1, 2**40)])


WORD = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**31, -(2**31), 2**32, 2**62, -(2**63)])


_product: Any = njit(lambda a, b: multiply(a, b))


@given(WORD, WORD)
def test_products_of_a_kernel_are_exact_or_told(a: int, b: int) -> None:
    fits = -(2**63) <= a * b < 2**63
    assert _product(a, b) == (a * b if fits else 0, not fits)


def test_a_join_whose_product_does_not_fit_is_an_error() -> None:
    app = vn.App("t")
    app.view("v", app.source("orders", Order).join(app.source("prices", Price), on="item"))
    with vn.testing.run(app) as t:
        t.update("orders", [((1, 7), 5, 2**40)])
        t.update("prices", [((7, 1), 5, 2**40)])
        with pytest.raises(JoinOverflow, match="join on item"):
            t.finish()


def test_it_has_no_place_in_a_loop() -> None:
    app = vn.App("t")
    prices = app.source("prices", Price)

    @vn.fixpoint
    def loop(x: vn.Collection) -> vn.Collection:
        return x.lookup(prices, on="item").select("order", "item")

    with pytest.raises(vn.ProgramError, match="lookup inside the body of fixpoint 'loop'"):
        loop(app.source("orders", Order).filter(col("item").is_not_null()))


SMALL = st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(0, 6), st.sampled_from([-1, 1, 1, 2]))


@given(st.lists(SMALL, max_size=6), st.lists(SMALL, max_size=6), st.lists(st.integers(0, 7), max_size=3))
def test_it_is_what_it_says(orders: list[Update], prices: list[Update], cuts: list[int]) -> None:
    wanted: dict[Any, int] = {}
    for (order, item), time, diff in orders:
        for (priced, price), since, times in prices:
            if priced == item and since <= time:
                key = ((order, item, price), time)
                wanted[key] = wanted.get(key, 0) + diff * times
    found = {(row, time): diff for row, time, diff in answer(orders, prices, cuts)}
    assert found == {key: diff for key, diff in wanted.items() if diff}
