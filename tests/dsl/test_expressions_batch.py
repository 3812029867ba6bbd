"""A value follows from its row alone: not from the rows beside it, nor from where in memory they are.

Otherwise a retraction would not find what its insertion gave.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.test_expressions_spark import CASES, ROW, ROWS
from tests.dsl.values import row_type, values
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col
from vernier.storage.strings.string_heap import Heap

EXPRS = [expr for expr, _ in CASES]


@pytest.mark.parametrize("expr", EXPRS, ids=[str(expr) for expr in EXPRS])
def test_words_are_those_of_the_row_alone(expr: Expr) -> None:
    heap = Heap()
    words, bound = ROW.encode_rows(ROWS, heap), bind(expr, ROW)
    together = bound.words(words, heap)
    alone = np.concatenate([bound.words(words[i : i + 1], heap) for i in range(len(words))])
    assert np.array_equal(together, alone)
    # As the engine has them: the first columns of wider, unordered updates.
    order = np.array([3, 1, 1, 6, 0, 5, 4, 2, 3] * 9)
    wide = np.hstack((words[order], np.ones((len(order), 3), np.int64)))[::2]
    assert np.array_equal(bound.words(wide[:, : ROW.width], heap), together[order[::2]])
    assert bound.words(words[:0], heap).shape == (0, together.shape[1])


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=40), st.integers(0, 39))
def test_powers_and_logarithms_do_not_look_around(numbers: list[float], place: int) -> None:
    row, rows = row_type(f=vn.Float64), [(number,) for number in numbers]
    place %= len(rows)
    x = col("f")
    for expr in (x**1.7, x.exp(), x.ln(), x.log10(), x.sqrt(), x.round(3), x / 3.1, x % 0.7):
        assert repr(values(expr, row, rows)[place]) == repr(values(expr, row, [rows[place]])[0])
