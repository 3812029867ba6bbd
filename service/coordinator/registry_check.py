"""What a schema registry says about the columns of sources, before a program starts: for people and for CI.

For each source with a registry: does the newest schema of its subject fit the columns? And, if the columns are others
than that schema's, would the registry let producers register them (its compatibility endpoint, by the level that the
subject has)? Cost: up to three requests a source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vernier.operators.language.types.schema import RowType
from vernier.service.config.settings import Settings
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.by_schema import BySchema
from vernier.service.ingest.formats.descriptors import by_name
from vernier.service.ingest.formats.next_schema import next_avro, next_protobuf
from vernier.service.ingest.formats.registry import Registry, Schema
from vernier.service.ingest.rejects import Refusal


@dataclass(frozen=True)
class Verdict:
    """What a registry says about a source. fits: whether the service and the producers can go on; asked: whether the
    columns are others than those of the newest schema, and it would take them."""

    subject: str
    fits: bool
    asked: bool
    about: str


def verdicts(settings: Settings, sources: Mapping[str, RowType]) -> Iterator[Verdict]:
    """What registries say about the sources that have one. Raises RegistryAway."""
    for name, row_type in sources.items():
        mine = settings.source(name)
        registry = settings.registry(name)
        if registry is None or mine.format not in ("avro", "protobuf"):
            continue
        subject = mine.subject or f"{settings.topic(name)}-value"
        reader = make_format(mine.format, {name: row_type}, registry=registry, message=mine.message)
        assert isinstance(reader, BySchema)
        found = registry.latest(subject, reader.form)
        if isinstance(found, str):
            yield Verdict(subject, True, False, f"the registry has no schema yet: {found}")
            continue
        try:
            text = reader.fitting(found)
        except Refusal as refusal:
            yield Verdict(subject, False, False, refusal.detail)
            continue
        yield _next(registry, subject, found, text, row_type, mine.message)


def _next(
    registry: Registry, subject: str, found: Schema, read: str, row_type: RowType, message: str | None
) -> Verdict:
    """Whether producers may register the columns. read: the newest schema, as its reader has it."""
    fits = f"schema {found.number} fits"
    try:
        if found.kind == "AVRO":
            text = next_avro(found.text, row_type)
        else:
            named = by_name(read, message)
            text = next_protobuf(found.text, named.full_name, row_type)
    except ValueError as error:
        return Verdict(subject, True, False, f"{fits}; the next one is not compared: {error}")
    if text is None:
        return Verdict(subject, True, False, fits)
    wrong = registry.misfits(subject, replace(found, text=text))
    if isinstance(wrong, str):
        return Verdict(subject, True, False, f"{fits}; the next one is not compared: {wrong}")
    if wrong:
        return Verdict(subject, False, True, f"producers could not register the columns: {'; '.join(wrong)}")
    return Verdict(subject, True, True, f"{fits}; the registry takes one with the columns")
