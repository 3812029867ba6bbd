"""The page on types: its example holds, and its table has every type with its words and its Arrow type."""

import re
from pathlib import Path

import pyarrow as pa

import vernier as vn
from vernier.operators.language.types.scalars import Type, parse

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text("utf-8")


def test_the_example_holds() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(example, "types.md", "exec"), {})


def test_the_table_has_every_type() -> None:
    rows = [
        [cell.strip(" `") for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| `[A-Z].*\|$", PAGE, re.MULTILINE)
    ]
    listed = {row[0].split("(")[0]: row for row in rows}
    every: list[Type] = [
        vn.Int64(),
        vn.Float64(),
        vn.Bool(),
        vn.Date(),
        vn.TimestampNs(),
        vn.Decimal(5, 1),
        vn.String(),
    ]
    every += [vn.Binary(), vn.List(vn.Int64), vn.Struct(a=vn.Int64)]
    assert {kind.name for kind in every} == set(listed)
    for kind in every:
        assert parse(str(kind)) == (kind, False)
        assert listed[kind.name][2].startswith((str(kind.words), "those"))
        assert re.findall(r"^\w+", listed[kind.name][4]) == re.findall(r"^\w+", str(kind.arrow))
    assert vn.Decimal(18).words + 1 == vn.Decimal(19).words == 2
    assert vn.List(vn.String | None).arrow == pa.large_list(pa.large_string())
