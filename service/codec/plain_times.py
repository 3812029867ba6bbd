"""Arrow batches whose times are integers of nanoseconds, for tables of formats that end at microseconds.

Delta, Iceberg and Spark have no timestamps of nanoseconds, and Spark refuses Parquet files that have them. An int64 is
read by all of them and loses nothing.
"""

from __future__ import annotations

import pyarrow as pa


def plain_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with each timestamp as int64 nanoseconds since 1970, also inside lists and structs. O(values)."""
    fields = [pa.field(one.name, _plain(one.type), one.nullable) for one in batch.schema]
    columns = [column.cast(field.type) for column, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_large_list(kind):
        inner = kind.value_field
        return pa.large_list(pa.field(inner.name, _plain(inner.type), inner.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain(one.type), one.nullable) for one in kind])
    return kind
