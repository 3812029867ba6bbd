"""The columns of a view as Spark types, and Arrow batches in exactly the form that Spark expects of them.

Types map to Spark's of the same meaning. Spark's timestamps end at microseconds, so a TimestampNs is a `bigint` of
nanoseconds since 1970: nothing is rounded, and `timestamp_micros(at div 1000)` makes a timestamp of it. Data times
(`_time`) are such numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyspark.sql.types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from vernier.operators.language.types.schema import RowType
from vernier.service.codec.spark_types import spark_type
from vernier.service.views.json_rows import DIFF, TIME
from vernier.service.views.query import find_column
from vernier.storage.errors import CallerError

_BATCH_ROWS = 1 << 16


class NegativeRows(CallerError):
    """A view has rows of negative multiplicity, which a DataFrame cannot repeat."""

    message = (
        "view {view} has rows of multiplicity {least}, and a DataFrame has no such rows; "
        "read it with option diff=true, which gives multiplicities as the column _diff"
    )
    view: str
    least: int


def spark_schema(
    rows: RowType, view: str, columns: tuple[str, ...], *, times: bool = False, diffs: bool = False
) -> spark.StructType:
    """The schema of a DataFrame of rows (by default all columns), with `_time` and `_diff` where asked for. Raises
    UnknownViewColumn.
    """
    chosen = [find_column(rows, name, view) for name in columns or rows.names]
    fields = [spark.StructField(one.name, spark_type(one.slot), one.nullable) for one in chosen]
    added = [*([TIME] if times else []), *([DIFF] if diffs else [])]
    return spark.StructType([*fields, *(spark.StructField(name, spark.LongType(), False) for name in added)])


def as_spark(batch: pa.RecordBatch, schema: spark.StructType) -> Iterator[pa.RecordBatch]:
    """A batch in the order and the Arrow types of a Spark schema, in pieces. Columns that the schema lacks are left
    out.
    """
    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [batch.column(field.name).cast(field.type) for field in wanted]
    whole = pa.RecordBatch.from_arrays(columns, schema=wanted)
    for start in range(0, whole.num_rows, _BATCH_ROWS):
        yield whole.slice(start, _BATCH_ROWS)


def repeated(batch: pa.RecordBatch, view: str) -> pa.RecordBatch:
    """The rows as often as their `_diff` says. Raises NegativeRows."""
    counts = batch.column(DIFF).to_numpy()
    if not len(counts) or bool((counts == 1).all()):
        return batch
    if int(counts.min()) < 0:
        raise NegativeRows(view=view, least=int(counts.min()))
    return batch.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
