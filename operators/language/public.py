"""The public names of the language. `vernier` re-exports them to programs; no module of ours imports from here."""

from vernier.operators.errors import ArithmeticOverflow, DecimalOverflow, ProgramError
from vernier.operators.language.collection.app import App, load_program
from vernier.operators.language.collection.collection import Collection, union
from vernier.operators.language.collection.fixpoint import fixpoint
from vernier.operators.language.collection.variable import Variable
from vernier.operators.language.expr.builders import array, coalesce, concat, concat_ws, greatest, hash, least, struct
from vernier.operators.language.expr.expression import Expr, col, lit, when
from vernier.operators.language.expr.udf import udf
from vernier.operators.language.plan.aggregates import (
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
from vernier.operators.language.plan.joinfunction import Produced
from vernier.operators.language.plan.tables import generate_series, repeat_row
from vernier.operators.language.plan.useraggregates import aggregate
from vernier.operators.language.plan.vectors import Vector
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.options import column
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import Schema
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.storage.errors import VernierError

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
    "Produced",
    "ProgramError",
    "Schema",
    "String",
    "Struct",
    "TimestampNs",
    "Variable",
    "Vector",
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
    "column",
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
