"""The formats that messages may have, one module each, by the names that the settings use.

In: the keys and values of a batch of messages of one topic. Out: updates in log order, progress and refusals (`Parsed`
in messages.py). Read first: messages.py, then json_lines.py with scan.py (fast) and judge.py (exact).
"""

from collections.abc import Callable, Mapping, Sequence

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.bounds import MOST_BYTES
from vernier.service.ingest.formats.arrow import ArrowStream
from vernier.service.ingest.formats.avro import Avro
from vernier.service.ingest.formats.by_schema import Schemas
from vernier.service.ingest.formats.debezium import Debezium, DebeziumUpserts
from vernier.service.ingest.formats.insert_delete import InsertDelete
from vernier.service.ingest.formats.json_lines import JsonLines
from vernier.service.ingest.formats.messages import Format
from vernier.service.ingest.formats.native import Native
from vernier.service.ingest.formats.registry import Registry
from vernier.service.ingest.formats.upsert import Upserts

FORMATS: dict[str, Callable[[Mapping[str, RowType]], Format]] = {
    "vernier": Native,
    "json": JsonLines,
    "insert_delete": InsertDelete,
    "debezium": Debezium,
    "arrow": ArrowStream,
}
"""Format name -> its constructor, which takes the sources of one topic."""

NAMES = (*FORMATS, "avro", "protobuf", "upsert")


def make_format(
    name: str,
    sources: Mapping[str, RowType],
    schemas: Schemas = (),
    key: Sequence[str] = (),
    most_bytes: int = MOST_BYTES,
    registry: Registry | None = None,
    message: str | None = None,
) -> Format:
    """The reader of a topic's messages. schemas, registry: for `avro` and `protobuf`; message: for
    `protobuf`; key: the key columns of `upsert` or `debezium`;
    most_bytes: the maximum size of an expanded message of `arrow`."""
    if name == "arrow":
        return ArrowStream(sources, most_bytes)
    if key:
        return Upserts(sources, key) if name == "upsert" else DebeziumUpserts(sources, key)
    if name == "protobuf":
        # Not above: it would cost each start the time of importing Protobuf.
        from vernier.service.ingest.formats.protobuf import Protobuf

        return Protobuf(sources, schemas, registry, message)
    return Avro(sources, schemas, registry) if name == "avro" else FORMATS[name](sources)


KEYED = frozenset({"upsert", "debezium"})
"""Formats whose messages may be upserts: they say what a key's row is now."""

ALONE = frozenset({"arrow", "avro", "debezium", "protobuf", "upsert"})
"""Formats whose messages cannot name their source, so a topic can have only one source."""
