"""The Spark type of a column. Spark's timestamps end at microseconds, so a TimestampNs is a number of nanoseconds."""

from __future__ import annotations

import pyspark.sql.types as spark

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String


def spark_type(slot: Slot) -> spark.DataType:
    """The Spark type of a column or of a part of one."""
    match slot.type:
        case Float64():
            return spark.DoubleType()
        case Bool():
            return spark.BooleanType()
        case Date():
            return spark.DateType()
        case String():
            return spark.StringType()
        case Binary():
            return spark.BinaryType()
        case Decimal() as kind:
            return spark.DecimalType(kind.precision, kind.scale)
        case List() as kind:
            return spark.ArrayType(spark_type(kind.element), kind.element.nullable)
        case Struct() as kind:
            fields = [spark.StructField(name, spark_type(own), own.nullable) for name, own in kind.fields.items()]
            return spark.StructType(fields)
        case _:  # Int64, and TimestampNs as nanoseconds
            return spark.LongType()
