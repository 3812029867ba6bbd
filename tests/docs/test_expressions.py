"""The page on expressions: its examples give what it says, and it leaves no method out."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import vernier as vn
from tests.dsl.values import row_type, values
from vernier.operators.language.expr.expression import Expr, lit
from vernier.operators.language.expr.methods import Methods

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "expressions.md").read_text("utf-8")
ROWS = re.findall(r"^\|.*\| `(.+)` \| `(.+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("example", "value"), ROWS, ids=[example for example, _ in ROWS])
def test_examples_give_what_the_page_says(example: str, value: str) -> None:
    names: dict[str, Any] = {"vn": vn, "lit": lit, "date": date}
    assert [repr(found) for found in values(eval(example, names), row_type(x=vn.Int64), [(1,)])] == [value]


def test_no_method_is_left_out() -> None:
    methods = {name for name in (*dir(Methods), *vars(Expr)) if not name.startswith("_")}
    internal = {"children", "column", "columns", "key", "output_name", "text", "walk"}
    missing = [name for name in sorted(methods - internal) if f"`{name}(" not in PAGE]
    assert missing == []
    functions = ("concat", "concat_ws", "coalesce", "greatest", "least", "struct", "array", "hash")
    assert [name for name in functions if f"`vn.{name}(" not in PAGE] == []


def test_the_program_runs() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    app = vn.load_program(program)
    with vn.testing.run(app) as t:
        t.update("pairs", [((12, 18), 1, 1), ((5, None), 1, 1)])
        t.advance(2)
        assert t.rows("divisors") == [(5, None, None), (12, 18, 6)]
