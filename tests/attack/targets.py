"""Targets of the fuzzer: which mutants each gets, and what is done with them.

`attack` runs in a process that may die; what it finds are exceptions that are no dead letters, refusals that no rule
foresees, and messages that enter although the judge does not read them.
"""

from __future__ import annotations

import base64
import importlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.attack.hostile import FORMATS, KEY, SCHEMAS, Hostile, Message, hostile_messages
from tests.attack.mutations import mutate_arrow, mutate_avro, mutate_json, mutate_protobuf, mutate_value, tokens
from tests.ingest.log import SCHEMA
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats.judge import load
from vernier.service.ingest.formats.one_by_one import UNFORESEEN
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.partition_report import Facts
from vernier.service.ingest.rejects import REASONS, Refusal
from vernier.service.sidecar.writes.parse import BadBody, Target, read_body
from vernier.service.views.json_rows import encode_value
from vernier.storage.errors import CallerError
from vernier.storage.strings.string_heap import Heap

SEEDS = Path(__file__).with_name("seeds")
TARGETS = (*FORMATS, "debezium_by_key", "body_lines", "body_array", "body_arrow", "where")
"""What is attacked: formats of messages, bodies over HTTP, and values in questions."""

BATCH = 1_000
"""Mutants that are decoded at once."""

Found = tuple[int, int, list[tuple[str, Message]]]
"""How many of a batch entered, how many were refused, and the findings, each with its input."""

_BINARY = {"arrow": mutate_arrow, "avro": mutate_avro, "protobuf": mutate_protobuf}
_LONGEST = 20_000
_ADMITTED = 8
"""One batch in this many goes through all steps of ingestion."""
_BODIES = {
    "body_lines": ("json", "application/x-ndjson"),
    "body_array": ("json", "application/json"),
    "body_arrow": ("arrow", "application/vnd.apache.arrow.stream"),
}


# --- seeds and mutants ------------------------------------------------------------------------------------------------


def kept(form: str) -> list[Message]:
    """The seeds in the tree of a format."""
    found: list[Message] = []
    for line in (SEEDS / f"{form}.jsonl").read_text(encoding="utf-8").splitlines():
        key, value = (None if part is None else base64.b64decode(part) for part in json.loads(line))
        found.append((key, value))
    return found


def spelled(message: Message) -> str:
    """A message as a line of a file of seeds."""
    return json.dumps([None if part is None else base64.b64encode(part).decode() for part in message])


@cache
def _seeds(form: str) -> list[tuple[bytes, bytes]]:
    """Good seeds many times, since most mutants of bad ones are refused for what was bad before."""
    bad = [one for one in hostile_messages(form) if len(one[1] or b"") <= _LONGEST]
    good = kept(form)
    return [(key or b"", value or b"") for key, value in (*good * (1 + 3 * len(bad) // len(good)), *bad)]


@cache
def _tokens(form: str, part: int) -> list[list[bytes]]:
    return [tokens(seed[part]) for seed in _seeds(form)]


def mutants(target: str, number: int, seed: int) -> list[Message]:
    """The messages of a batch."""
    rng = random.Random(f"{target} {seed} {number}")
    target = target.partition("=")[0]
    form = {"debezium_by_key": "debezium", **{name: one for name, (one, _) in _BODIES.items()}}.get(target, target)
    if target == "where":
        values = _tokens("json", 1)
        return [(None, mutate_value(values, rng)) for _ in range(BATCH)]
    if form in _BINARY:
        seeds, mutate = _seeds(form), _BINARY[form]
        return [(None, mutate(seeds[int(rng.random() * len(seeds))][1], rng)) for _ in range(BATCH)]
    values = _tokens(form, 1)
    if form != "upsert" and target != "debezium_by_key":
        return [(None, mutate_json(values, rng)) for _ in range(BATCH)]
    keys = _tokens("upsert", 0)
    return [_upsert(keys, values, rng) for _ in range(BATCH)]


def _upsert(keys: Sequence[list[bytes]], values: Sequence[list[bytes]], rng: random.Random) -> Message:
    turn = rng.random()
    if turn < 0.05:
        return (None, mutate_json(values, rng)) if turn < 0.02 else (mutate_json(keys, rng), None)
    key = b'{"id":1}' if turn < 0.5 else mutate_json(keys, rng)
    return key, b"".join(values[int(rng.random() * len(values))]) if turn > 0.8 else mutate_json(values, rng)


# --- what is done with them -------------------------------------------------------------------------------------------


class _Ingestion:
    """Messages through all three steps of ingestion."""

    def __init__(self, target: str) -> None:
        self._json = target not in _BINARY
        form = "debezium" if target == "debezium_by_key" else target
        key = KEY if target in ("upsert", "debezium_by_key") else ()
        self._ingestions = []
        for clock in ("arrival", "event"):
            source = SourceConfig(
                "t", form, clock, 0 if clock == "event" else None, schemas=SCHEMAS.get(form, ()), key=key
            )  # type: ignore[arg-type]
            self._ingestions.append(Ingestion({"s": Hostile.row_type}, IngestionConfig({"s": source}, {"t": 1})))

    def __call__(self, messages: Sequence[Message], number: int) -> Found:
        """(entered, refused, findings) of a batch."""
        n, ingestion = len(messages), self._ingestions[number % 2]
        keys, values = (pa.array([message[part] for message in messages], pa.binary()) for part in (0, 1))
        places = (pa.array(["t"] * n), pa.array(np.zeros(n, np.int32)), pa.array(np.arange(n)))
        columns = [keys, values, *places, pa.array(np.full(n, 1_000)), pa.nulls(n, SCHEMA.field("headers").type)]
        decoded = ingestion.decode([pa.RecordBatch.from_arrays(columns, schema=SCHEMA)], {}, {}, {}, Heap())
        (batch,) = decoded.batches
        assert batch.parsed is not None
        taken = np.unique(batch.parsed.message).tolist()
        bad = {one.message for one in batch.refused}
        findings = [
            (one.detail, messages[one.message])
            for one in batch.refused
            if one.detail.startswith(UNFORESEEN) or one.reason not in REASONS
        ]
        if number // 2 % _ADMITTED == 0 or n == 1:
            step = ingestion.advance({}, [Facts.decode(decoded.facts.encode())])
            for letter in ingestion.admit(decoded, {}, step).dead:
                assert all(len(value or b"") < 5_000 for _, value in letter.kafka_headers())
        findings += [("both entered and refused", messages[one]) for one in taken if one in bad]
        if self._json:
            findings += self._misread(messages, taken)
        return len(taken), len(bad), findings

    @staticmethod
    def _misread(messages: Sequence[Message], taken: Sequence[int]) -> Iterator[tuple[str, Message]]:
        for one in taken:
            try:
                if messages[one][1] is not None:
                    load(messages[one][1])
            except Refusal as refusal:
                yield f"entered, although {refusal.detail}", messages[one]


class _Bodies:
    """Each message a body."""

    def __init__(self, target: str) -> None:
        _, self._kind = _BODIES[target]
        self._array = target == "body_array"
        self._targets = [Target("s", Hostile.row_type, "t", "json", clock) for clock in ("arrival", "event")]

    def __call__(self, messages: Sequence[Message], number: int) -> Found:
        entered, findings = 0, []
        for message in messages:
            body = message[1] or b""
            try:
                found = read_body(
                    self._kind, b"[%b]" % body if self._array and number % 4 < 2 else body, self._targets[number % 2]
                )
                for _ in found.messages(2, 99):
                    pass
                entered += 1
            except BadBody as error:
                if isinstance(error.__cause__, Exception) and error.what == self._kind:
                    findings.append((str(error), message))
            except CallerError:
                pass
        return entered, len(messages) - entered, findings


class _Values:
    """Each message is a value that a client sends."""

    def __init__(self, target: str) -> None:
        self._fields = Hostile.row_type.fields

    def __call__(self, messages: Sequence[Message], number: int) -> Found:
        entered, field_ = 0, self._fields[number % len(self._fields)]
        for message in messages:
            try:
                encode_value(field_, (message[1] or b"").decode("utf-8", "replace"), Heap())
                entered += 1
            except CallerError:
                pass
        return entered, len(messages) - entered, []


def attack(target: str) -> Callable[[Sequence[Message], int], Found]:
    """What is done with batches and their numbers. `format=module.function`: that function, with mutants of the
    format."""
    _, _, place = target.partition("=")
    if place:
        module, _, name = place.rpartition(".")
        planted: Callable[[Sequence[Message], int], Found] = getattr(importlib.import_module(module), name)
        return planted
    if target == "where":
        return _Values(target)
    return _Bodies(target) if target in _BODIES else _Ingestion(target)
