"""Vernier: standing queries over changing data, exact at every nanosecond. Programs import it as `vn`.

    import vernier as vn
    from vernier import col

    class Edge(vn.Schema):
        src: vn.Int64
        dst: vn.Int64

    app = vn.App("degrees")
    edges = app.source("edges", Edge)
    app.view("out_degree", edges.group_by("src").agg(n=vn.count()), key=["src"])

Importing it is light: it starts nothing and imports neither Spark nor anything of HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from operators.errors import ArithmeticOverflow, DecimalOverflow, ProgramError
from operators.language.aggregates import (
    arg_max,
    arg_min,
    avg,
    collect_list,
    collect_set,
    count,
    count_distinct,
    max,
    median,
    min,
    mode,
    quantile,
    sum,
)
from operators.language.app import App, load_program
from operators.language.builders import array, coalesce, concat, concat_ws, greatest, hash, least, struct
from operators.language.collection import Collection, union
from operators.language.decimals import Decimal
from operators.language.expr import Expr, col, lit, when
from operators.language.fixpoint import fixpoint
from operators.language.names import no_function
from operators.language.schema import Schema
from operators.language.structs import Struct
from operators.language.tables import generate_series, repeat_row
from operators.language.texts import Binary, List, String
from operators.language.types import Bool, Date, Float64, Int64, TimestampNs
from operators.language.udf import udf
from operators.language.useraggregates import aggregate
from operators.language.variable import Variable
from storage.errors import VernierError

if TYPE_CHECKING:
    from operators import testing as testing

__all__ = [
    "App",
    "ArithmeticOverflow",
    "Binary",
    "Bool",
    "Collection",
    "Date",
    "Decimal",
    "DecimalOverflow",
    "Expr",
    "Float64",
    "Int64",
    "List",
    "ProgramError",
    "Schema",
    "String",
    "Struct",
    "TimestampNs",
    "Variable",
    "VernierError",
    "aggregate",
    "arg_max",
    "arg_min",
    "array",
    "avg",
    "coalesce",
    "col",
    "collect_list",
    "collect_set",
    "concat",
    "concat_ws",
    "count",
    "count_distinct",
    "fixpoint",
    "generate_series",
    "greatest",
    "hash",
    "least",
    "lit",
    "load_program",
    "max",
    "median",
    "min",
    "mode",
    "quantile",
    "repeat_row",
    "struct",
    "sum",
    "udf",
    "union",
    "when",
]


def __getattr__(name: str) -> Any:
    if name == "testing":  # loads the engine's kernels, which a program does not need in order to be built
        return import_module("operators.testing")
    if name == "connect":  # the client of a running service brings an HTTP library
        return import_module("service.client").connect
    if name.startswith("_"):
        raise AttributeError(f"module 'vernier' has no attribute {name!r}")
    raise no_function(name, [*__all__, "connect", "testing"], Collection._methods())


if __name__ == "__main__":
    import_module("service.cli").main()
