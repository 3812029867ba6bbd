"""A schema registry that answers over HTTP as the reference of Confluent's API documents it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Fake:
    """A registry. schemas: its answers by id; subjects: the ids of their versions, the first is version 1. asked: the
    paths of requests. posted: the schemas that were compared with a subject's newest one. incompatible: by subject,
    what is wrong with any other schema, beside what `_missing_defaults` finds. status: of every answer, if not 200."""

    url: str
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    incompatible: dict[str, list[str]] = field(default_factory=dict)
    posted: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    status: int = 200
    wanted: str | None = None

    def answer(self, path: str, auth: str | None, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """The status and body of a request, as the registry's reference documents them."""
        self.asked.append(path)
        if self.wanted is not None and auth != self.wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.status != 200:
            return self.status, {"error_code": 50001, "message": "Error in the backend data store"}
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if number not in self.schemas:
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self.schemas[number]
        subject, version = parts[-3], parts[-1]
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        ids = self.subjects[subject]
        place = len(ids) if version == "latest" else int(version)
        if not 0 < place <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        found = self.schemas[ids[place - 1]]
        if parts[0] == "subjects":
            return 200, {"subject": subject, "version": place, "id": ids[place - 1], **found}
        assert parts[0] == "compatibility"
        assert body is not None
        self.posted.append(body)
        wrong = self.incompatible.get(subject, []) + _missing_defaults(found, body)
        return 200, {"is_compatible": not wrong, "messages": wrong}


def _missing_defaults(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What level BACKWARD says about new fields of Avro records without a default."""
    if new.get("schemaType", "AVRO") != "AVRO":
        return []
    before, after = (json.loads(one["schema"])["fields"] for one in (old, new))
    known = {one["name"] for one in before}
    return [
        f"{{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field '{one['name']}' at path "
        f"'/fields/{place}' in the new schema has no default value and is missing in the old schema', "
        f"additionalInfo:'{one['name']}'}}"
        for place, one in enumerate(after)
        if "default" not in one and not known & {one["name"], *one.get("aliases", ())}
    ]


@contextmanager
def registry() -> Iterator[Fake]:
    """A registry on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, given: dict[str, Any] | None) -> None:
            status, body = fake.answer(self.path, self.headers.get("Authorization"), given)
            said = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = Fake(f"http://127.0.0.1:{server.server_address[1]}")
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    loop.start()
    try:
        yield fake
    finally:
        server.shutdown()
        loop.join()
        server.server_close()
