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
from operators.language.collection.app import App, load_program
from operators.language.collection.collection import Collection, union
from operators.language.collection.fixpoint import fixpoint
from operators.language.collection.names import no_function
from operators.language.collection.variable import Variable
from operators.language.expr.builders import array, coalesce, concat, concat_ws, greatest, hash, least, struct
from operators.language.expr.expression import Expr, col, lit, when
from operators.language.expr.udf import udf
from operators.language.plan.aggregates import (
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
from operators.language.plan.tables import generate_series, repeat_row
from operators.language.plan.useraggregates import aggregate
from operators.language.types.decimals import Decimal
from operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from operators.language.types.schema import Schema
from operators.language.types.structs import Struct
from operators.language.types.texts import Binary, List, String
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
        return import_module("service.client.client").connect
    if name.startswith("_"):
        raise AttributeError(f"module 'vernier' has no attribute {name!r}")
    raise no_function(name, [*__all__, "connect", "testing"], Collection._methods())


if __name__ == "__main__":
    import_module("service.cli.main").main()
