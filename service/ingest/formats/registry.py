"""A schema registry's HTTP API, as Confluent documents it: the schemas of messages that begin with a zero byte and an
id.

In: an id. Out: the text and type of its schema. A registry never changes the schema of an id, so each process asks once
for each, whatever is repeated gets the same answer, and only an id that is new costs a request. A registry that cannot
be reached is no message's fault: the epoch fails and is tried again. An id that the registry does not know is: its
messages are dead letters.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from vernier.storage.errors import StorageError

FRAME = 5
"""The bytes before a message: a zero and the id, big-endian."""
SECONDS = 10.0
"""How long one request may take."""
_MOST_BYTES = 8 << 20
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAway(StorageError):
    """The registry gave no answer that says whether it has a schema."""

    message = "the schema registry {url} did not answer: {problem}; messages wait until it does"
    url: str
    problem: str


@dataclass(frozen=True)
class Reference:
    """What a schema refers to: a version of a subject, under a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema of a registry. kind: AVRO, PROTOBUF or JSON; text: as the registry has it, a Protobuf file as its
    serialized descriptor in base64; number: its id."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    number: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As a registry takes it."""
        listed = [{"name": one.name, "subject": one.subject, "version": one.version} for one in self.references]
        return {"schema": self.text, "schemaType": self.kind} | ({"references": listed} if listed else {})


@dataclass(frozen=True)
class Registry:
    """Where a registry is. auth_file: has `user:password` for it."""

    url: str
    auth_file: str | None = None

    def schema(self, number: int, form: str = "") -> Schema | str:
        """The schema of an id, or in words why there is none. form: of its text, as the registry names it. Raises
        RegistryAway."""
        known = _known.get((self, number, form))
        if known is not None:
            return known
        found = self._ask(number, form)
        if isinstance(found, Schema):
            _known[self, number, form] = found
        return found

    def referenced(self, one: Reference, form: str = "") -> Schema | str:
        """The schema that another one refers to; see `schema`."""
        return self._named(one.subject, one.version, form)

    def latest(self, subject: str, form: str = "") -> Schema | str:
        """The newest schema of a subject; see `schema`."""
        return self._named(subject, "latest", form)

    def misfits(self, subject: str, schema: Schema) -> tuple[str, ...] | str:
        """Why the registry would not take a schema as the next one of a subject, by the compatibility that the subject
        has; nothing if it would. In words if the subject has none. Raises RegistryAway."""
        path = f"/compatibility/subjects/{urllib.parse.quote(subject, '')}/versions/latest?verbose=true"
        answer = self._get(path, schema.to_json())
        if isinstance(answer, str):
            return answer
        if answer.get("is_compatible") is True:
            return ()
        if answer.get("is_compatible") is not False:
            raise RegistryAway(url=self.url, problem=f"its answer about the compatibility of {subject} has no result")
        said = [str(one) for one in answer.get("messages") or []]
        return tuple(said) or ("it is not compatible",)

    def _named(self, subject: str, version: int | str, form: str) -> Schema | str:
        """A version's schema. Its id is asked for first, since only schemas by id come in every form."""
        answer = self._get(f"/subjects/{urllib.parse.quote(subject, '')}/versions/{version}")
        if isinstance(answer, str):
            return answer
        if not isinstance(answer.get("id"), int):
            raise RegistryAway(url=self.url, problem=f"its answer for version {version} of {subject} has no id")
        return self.schema(answer["id"], form)

    def _ask(self, number: int, form: str) -> Schema | str:
        query = f"?{urllib.parse.urlencode({'format': form})}" if form else ""
        answer = self._get(f"/schemas/ids/{number}{query}")
        if isinstance(answer, str):
            return answer
        text, kind, references = answer.get("schema"), answer.get("schemaType", "AVRO"), answer.get("references") or []
        if not isinstance(text, str) or not isinstance(kind, str) or not isinstance(references, list):
            raise RegistryAway(url=self.url, problem=f"its answer for schema {number} has no schema")
        try:
            others = tuple(Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in references)
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryAway(url=self.url, problem=f"its answer for schema {number} has a bad reference") from error
        return Schema(kind, text, others, number)

    def _get(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | str:
        """The answer to a request, or what the registry says about something that it does not have. body: of a POST."""
        data, headers = None, {"Accept": _ACCEPT}
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), _ACCEPT.partition(",")[0]
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers)
        try:
            if self.auth_file is not None:
                given = Path(self.auth_file).read_text("utf-8").strip()
                request.add_header("Authorization", f"Basic {base64.b64encode(given.encode()).decode()}")
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            said = _said(error)
            if error.code == 404:
                return said
            raise RegistryAway(url=self.url, problem=said) from error
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "reason", error)).partition("\n")[0]
            raise RegistryAway(url=self.url, problem=problem or type(error).__name__) from error
        if not isinstance(found, dict):
            raise RegistryAway(url=self.url, problem="its answer is no object")
        return found


_known: dict[tuple[Registry, int, str], Schema] = {}
"""The schemas that this process has asked for."""


def ids_of(values: pa.LargeBinaryArray) -> Iterable[int]:
    """The schema ids with which messages begin, each once."""
    heads = {value[1:FRAME] for value in values.to_pylist() if value and len(value) >= FRAME and value[0] == 0}
    return sorted(int.from_bytes(head, "big") for head in heads)


def _said(error: urllib.error.HTTPError) -> str:
    """What a registry's error says: `{"error_code": 40403, "message": …}`."""
    with error:
        try:
            answer = json.loads(error.read(1 << 16))
            return f"{answer['message']} (error {answer['error_code']})"
        except (OSError, ValueError, KeyError, TypeError):
            return f"status {error.code}"
