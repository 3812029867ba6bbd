"""Columns in Spark's words and in ours: types of declarations, of plans, and of collections as Spark sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vernier.operators.errors import ProgramError, WrongType
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.operators.location import Location

_PLAIN: dict[str, Type] = {
    "byte": Int64(),
    "short": Int64(),
    "integer": Int64(),
    "long": Int64(),
    "double": Float64(),
    "string": String(),
    "binary": Binary(),
    "boolean": Bool(),
    "date": Date(),
    "timestamp": TimestampNs(),
    "timestamp_ntz": TimestampNs(),
}
"""By the name of the type in Spark's JSON. Integers of all widths are Int64: a sum that leaves a narrower type is an
error in Spark, and here it is the sum."""
_DECLARED = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "TEXT": "string",
    "VARCHAR": "string",
    "CHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}
"""The names of types in Spark's JSON, by those in sqlglot's trees."""


@dataclass(frozen=True)
class Column:
    """A column. spark: its type as Spark's JSON has it (a name, or an object); type: ours."""

    name: str
    spark: Any
    type: Type
    nullable: bool


def column_of(name: str, text: str, nullable: bool, where: Location) -> Column:
    """A column from its declaration. Raises ProgramError for a type that sources do not have."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        declared = exp.DataType.build(text, dialect="spark")
        spark = _json_of(declared)
        kind = type_of(spark)
    except WrongType as error:
        raise ProgramError(problem=f"a column cannot have the type {text}: {error.problem}", where=where) from error
    except (SqlglotError, KeyError, ValueError) as error:
        hints = {"FLOAT": "DOUBLE", "REAL": "DOUBLE", "NUMERIC": "DECIMAL(p, s)", "UUID": "STRING", "JSON": "STRING"}
        hints |= {"ARRAY": "ARRAY<BIGINT>, of one type", "STRUCT": "STRUCT<x: BIGINT, y: STRING>, each name once"}
        word = text.upper().partition("<")[0].strip()
        hint = hints.get(word, "BIGINT, DOUBLE, DECIMAL(p, s), STRING, BOOLEAN, DATE or TIMESTAMP")
        raise ProgramError(problem=f"a column cannot have the type {text}; write {hint}", where=where) from error
    return Column(name, spark, kind, nullable)


def _json_of(declared: Any) -> Any:
    """A type of sqlglot as Spark's JSON has it. Raises KeyError."""
    kind = declared.this.name
    if kind == "DECIMAL":
        sizes = [int(one.name) for one in declared.expressions] or [10, 0]
        if len(sizes) > 2:
            raise KeyError(kind)
        return f"decimal({sizes[0]},{sizes[1] if len(sizes) > 1 else 0})"
    if kind == "ARRAY":
        if len(declared.expressions) != 1:
            raise KeyError(kind)
        return {"type": "array", "elementType": _json_of(declared.expressions[0]), "containsNull": True}
    if kind == "STRUCT":
        names = [part.name.lower() for part in declared.expressions if getattr(part, "kind", None) is not None]
        if not names or len(set(names)) < len(declared.expressions):
            raise KeyError(kind)
        fields = [
            {"name": part.name, "type": _json_of(part.kind), "nullable": True, "metadata": {}}
            for part in declared.expressions
        ]
        return {"type": "struct", "fields": fields}
    return _DECLARED[kind]


def type_of(spark: Any) -> Type:
    """Our type for a type in Spark's JSON. Raises KeyError, with Spark's name, where there is none."""
    if isinstance(spark, dict):
        if spark["type"] == "array":
            element = type_of(spark["elementType"])
            return List(element | None if spark["containsNull"] else element)
        if spark["type"] == "struct":
            parts = {one["name"]: type_of(one["type"]) for one in spark["fields"]}
            return Struct(
                **{
                    one["name"]: parts[one["name"]] | None if one["nullable"] else parts[one["name"]]
                    for one in spark["fields"]
                }
            )
        raise KeyError(str(spark["type"]))
    name = str(spark)
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return Decimal(int(precision), int(scale))
    if name.startswith(("varchar(", "char(")):
        return String()
    return _PLAIN[name]


def spark_of(kind: Type) -> Any:
    """The type that Spark plans with for a column of ours, as its JSON has it."""
    match kind:
        case Decimal():
            return f"decimal({kind.precision},{kind.scale})"
        case List():
            return {
                "type": "array",
                "elementType": spark_of(kind.element.type),
                "containsNull": kind.element.nullable,
            }
        case Struct():
            fields = [
                {"name": name, "type": spark_of(slot.type), "nullable": slot.nullable, "metadata": {}}
                for name, slot in kind.fields.items()
            ]
            return {"type": "struct", "fields": fields}
    names = {
        str(own): name for name, own in _PLAIN.items() if name not in ("byte", "short", "integer", "timestamp_ntz")
    }
    return names[str(kind)]


def columns_of(row: RowType) -> tuple[Column, ...]:
    """The columns of a collection."""
    return tuple(Column(one.name, spark_of(one.type), one.type, one.nullable) for one in row.fields)
