"""The formats that messages may have, one module each, by the names that settings use."""

from collections.abc import Callable, Mapping, Sequence

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.bounds import MOST_BYTES
from vernier.service.ingest.formats.arrow import ArrowStream
from vernier.service.ingest.formats.avro import Avro, Schemas
from vernier.service.ingest.formats.debezium import Debezium, DebeziumUpserts
from vernier.service.ingest.formats.insert_delete import InsertDelete
from vernier.service.ingest.formats.json_lines import JsonLines
from vernier.service.ingest.formats.messages import Format
from vernier.service.ingest.formats.native import Native
from vernier.service.ingest.formats.upsert import Upserts

FORMATS: dict[str, Callable[[Mapping[str, RowType]], Format]] = {
    "vernier": Native,
    "json": JsonLines,
    "insert_delete": InsertDelete,
    "debezium": Debezium,
    "arrow": ArrowStream,
}
"""Format name -> its constructor from the sources of one topic."""

NAMES = (*FORMATS, "avro", "upsert")


def make_format(
    name: str,
    sources: Mapping[str, RowType],
    schemas: Schemas = (),
    key: Sequence[str] = (),
    most_bytes: int = MOST_BYTES,
) -> Format:
    """The reader of a topic's messages. schemas: of `avro`; key: key columns of `upsert`, or of `debezium`; most_bytes:
    what a message of `arrow` may hold."""
    if name == "arrow":
        return ArrowStream(sources, most_bytes)
    if key:
        return Upserts(sources, key) if name == "upsert" else DebeziumUpserts(sources, key)
    return Avro(sources, schemas) if name == "avro" else FORMATS[name](sources)


KEYED = frozenset({"upsert", "debezium"})
"""Formats that may say the newest row of a key."""

ALONE = frozenset({"arrow", "avro", "debezium", "upsert"})
"""Formats whose messages cannot say which source they are for, so that a topic has one."""
