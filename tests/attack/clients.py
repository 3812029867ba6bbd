"""A hostile HTTP client: requests that no honest client sends, on raw sockets, from one seed.

`Hostile.send` makes one of them and gives the status of the answer, or None where the server closed the connection
without one. It sends bodies that come slowly or never end, nested ones, wrong encodings, huge headers, half-closed
connections, ranges, odd Accept headers, conditions that no view has, and bytes that are not HTTP at all.
"""

from __future__ import annotations

import gzip
import json
import random
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

SECONDS = 10.0
"""Until the server must have answered a whole request."""
SILENT = -1
"""The status of a whole request that got no answer in time."""
SHOWN = 20
"""Failed requests that are kept."""
Sent = tuple[bytes, bytes]
"""What is sent at once, and what follows byte by byte."""

VIEWS = ["reach", "pairs", "", "p%e4irs", "reach/", "..", "%00", "reach%00", "a" * 3_000, "%ff%fe", "reach;x=1"]
COLUMNS = ["node", "weight", "src", "dst", "ok", "at", "day", "", "node\x00", "нода", "__class__", "node'--", "*"]
OPERATORS = ["eq", "ne", "lt", "le", "gt", "ge", "in", "null", "notnull", "like", "", "eq:eq", "EQ", "=", "\n"]
VALUES = [
    "1", "-1", "", "1e-999999999", "1e999999999", "0e-999999999", "9" * 5_000, "-" + "9" * 400, "NaN", "-inf", "0x1f",
    "1_0", " 5", "+5", "٣", "\ufffd", "\x00", "%", "%%%", "null", "true", "2026-02-30", "0000-00-00T00:00:00Z",
    "2026-01-01T00:00:00.1234567890Z", "+262142-12-31T23:59:59Z", "{}", "[" * 500, ",".join(map(str, range(2_000))),
]  # fmt: skip
PARAMETERS = ["where", "order", "columns", "limit", "cursor", "as_of", "wait_ms", "lmit", "", "views", "since", "until"]
ACCEPTS = [
    "*/*", "text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream", ";q=x,,", "a/b;q=", ",", "q=nan",
    "application/json;q=nan", "application/json;q=1e999", "*" * 4_000, "text/html, */*;q=-1", "\xff\xfe", "a" * 200,
    "application/json" + ";q=0.5" * 500, ",".join(["text/csv"] * 800),
]  # fmt: skip
RANGES = [
    "bytes=0-",
    "bytes=-1",
    "bytes=5-2",
    "bytes=0-0,1-1,2-2",
    "bytes=99999999999999999999-",
    "rows=1",
    "bytes=a-b",
]
ENCODINGS = ["gzip", "br", "deflate", "zstd", "identity", "gzip, gzip, gzip", "utf-7"]
CHARSETS = ["utf-8", "utf-16", "utf-7", "latin-1", "idna", "rot13", "undefined", "x" * 300, "\xff"]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "G" * 300]
PATHS = [
    "/", "/healthz", "/readyz", "/v1/views", "/v1/frontiers", "/v1/latency", "/v1/epochs", "/v1/sources", "/v1/sinks",
    "/v1/traces", "/v1/dead-letters", "/v1/dataflow", "/v1/config", "/v1/control", "/metrics", "/openapi.json",
    "/static/console.js", "/static/../app.py", "/static/%2e%2e/%2e%2e/app.py", "/static//etc/passwd", "//", "/v1",
    "/v1/tokens/x", "/v1/tokens/" + "A" * 2_000, "/v1/read", "/v1/read?views=" + "reach," * 400, "*", "http://x/v1/views",
    "/v1/latency?window_seconds=86400&points=1000", "/v1/epochs?after=99999999999999999999", "/static/%00",
]  # fmt: skip
UNTIL = ["until=20", "until=-1", "until=x", "until=20&since=19", "until=20&since=99&snapshot=maybe"]
KINDS = [
    "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/plain",
    "multipart/form-data", "multipart/form-data; boundary=x", "", "/", "a" * 500,
]  # fmt: skip
LENGTHS = [
    "Content-Length: 0", "Content-Length: 3", "Content-Length: -1", "Content-Length: 1e3",
    "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: nonsense",
]  # fmt: skip
CHUNKS = [b'{"keys":[1]}', b"5\r\n[1,2]\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffff\r\nx", b"0\r\n\r\n", b""]
HEADERS = [
    [f"X-{number}: {number}" for number in range(300)],
    ["X-Long: " + "a" * 70_000],
    ["Authorization: Bearer " + "x" * 5_000],
    ["Authorization: Basic " + "\xff" * 50],
    ["Host: elsewhere.example"],
    ["Host: 127.0.0.1", "Host: localhost"],
    ["Origin: http://elsewhere.example"],
    ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="],
    ["Expect: 100-continue"],
    ["Cookie: " + "a=b; " * 1_000],
    ["If-None-Match: *", "If-Modified-Since: yesterday"],
    ["X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: gopher"],
    ["Transfer-Encoding: chunked", "Content-Length: 5"],
    [" folded: header"],
    ["No colon at all"],
    ["Null: \x00"],
]
BROKEN = [
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /v1/views HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET /v1/views\tHTTP/1.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20,
]  # fmt: skip


@dataclass
class Hostile:
    """Attacks the server at a port of loopback. answers: how often each status came; failed: status and request of what
    no server may answer: a 5xx other than 503, or silence."""

    port: int
    seed: int
    answers: Counter[int | None] = field(default_factory=Counter)
    failed: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.kinds: list[Callable[[], Sent]] = [
            self._rows, self._rows, self._rows, self._keys, self._updates, self._plain, self._plain, self._changes,
            self._headers, self._broken, self._lengths,
        ]  # fmt: skip

    def run(self, count: int) -> None:
        """Send `count` requests, each on a connection of its own."""
        for _ in range(count):
            begun, rest = self.random.choice(self.kinds)()
            status = self.send(begun, rest)
            self.answers[status] += 1
            bad = status is not None and (status == SILENT or (status >= 500 and status != 503))
            if bad and len(self.failed) < SHOWN:
                self.failed.append((status or 0, (begun + rest)[:500]))

    def send(self, begun: bytes, rest: bytes = b"") -> int | None:
        """Send a request, `rest` of it byte by byte, and perhaps close our half; the answer's status."""
        leaves, closes = self.random.random() < 0.05, self.random.random() < 0.15
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connection:
            try:
                connection.sendall(begun)
                for byte in rest:
                    connection.sendall(bytes([byte]))
                if leaves:
                    return None
                # What is not a whole request would else wait for the rest of it.
                if closes or not self._is_whole(begun):
                    connection.shutdown(socket.SHUT_WR)
                head = b""
                while len(head) < 12 and (part := connection.recv(1 << 14)):
                    head += part
            except TimeoutError:
                return SILENT
            except OSError:
                return None  # the server closed the connection
        return int(head[9:12]) if head.startswith(b"HTTP/1.") and head[9:12].isdigit() else None

    # --- what is sent -------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_whole(begun: bytes) -> bool:
        return begun.startswith(b"GET ") and begun.endswith(b"\r\n\r\n") and b"Content-Length" not in begun

    def _pick(self, choices: list[str]) -> str:
        return self.random.choice(choices)

    def _spelled(self, text: str) -> str:
        """A text in a URL: mostly quoted, sometimes as it is."""
        raw = self.random.random() < 0.1 and text.isascii() and text.isprintable() and " " not in text
        return text if raw else quote(text, safe="")

    def _query(self) -> str:
        pairs = []
        for _ in range(self.random.randrange(4)):
            name = self._pick(PARAMETERS)
            value = self._pick(VALUES)
            if name == "where":
                value = ":".join((self._pick(COLUMNS), self._pick(OPERATORS), value))
            elif name in ("order", "columns"):
                value = self._pick(["", "-", "+"]) + self._pick(COLUMNS)
            pairs.append(f"{self._spelled(name)}={self._spelled(value)}")
        return "?" + "&".join(pairs) if pairs else ""

    def _head(self, method: str, path: str, *lines: str) -> bytes:
        listed = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines]
        if self.random.random() < 0.5:
            listed.append(f"Accept: {self._pick(ACCEPTS)}")
        if self.random.random() < 0.2:
            listed.append(f"Range: {self._pick(RANGES)}")
        if not any(line.startswith("Connection") for line in listed):
            listed.append("Connection: close")
        return "\r\n".join(listed).encode("latin-1", "replace") + b"\r\n\r\n"

    def _rows(self) -> Sent:
        view = self._pick(VIEWS) if self.random.random() < 0.3 else self._pick(["reach", "pairs"])
        return self._head("GET", f"/v1/views/{view}{self._query()}"), b""

    def _plain(self) -> Sent:
        path = self._pick(PATHS)
        method = self._pick(METHODS) if self.random.random() < 0.3 else "GET"
        return self._head(method, path if "?" in path else path + self._query()), b""

    def _changes(self) -> Sent:
        path = f"/v1/views/{self._pick(['reach', 'pairs'])}/changes?{self._pick(UNTIL)}"
        return self._head("GET", path, "Last-Event-ID: " + self._pick(["7", "20", "", "x"])), b""

    def _body(self) -> bytes:
        """A body of JSON, or of what claims to be."""
        depth = self.random.choice([1, 50, 3_000])
        bodies = [
            b"[" * depth + b"]" * depth,
            b'{"keys":' + b"[" * depth + b"]" * depth + b"}",
            b'{"keys":[' + b",".join([b'{"src":1,"dst":2}'] * 50) + b"]}",
            json.dumps({"keys": [self._pick(VALUES), None, 1.5, True, {"node": self._pick(VALUES)}]}).encode(),
            b'{"keys":[1],"as_of":' + b"9" * 5_000 + b"}",
            b'{"keys":[1e999,-1e-999999999]}',
            b'{"data":[1,2],"time":1,"diff":9223372036854775807}\n' * 3,
            b'[{"data":{"src":"1e-999999999","dst":null},"time":"\\ud800"}]',
            b"\xff\xfe\x00\x00",
            '{"keys":["ключ"]}'.encode("utf-16"),
            gzip.compress(b"[" + b" " * 100_000 + b"]"),
            b"--x\r\nContent-Disposition: form-data\r\n\r\n",
            b"",
            self.random.randbytes(self.random.randrange(2_000)),
        ]
        return self.random.choice(bodies)

    def _posted(self, path: str) -> Sent:
        body = self._body()
        slowly = min(len(body), self.random.choice([0, 0, 0, 20]))
        kind = self._pick([*KINDS, "application/json; charset=" + self._pick(CHARSETS)])
        lines = [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        if self.random.random() < 0.3:
            lines.append(f"Content-Encoding: {self._pick(ENCODINGS)}")
        head = self._head("POST", path, *lines)
        return head + body[: len(body) - slowly], body[len(body) - slowly :]

    def _keys(self) -> Sent:
        return self._posted(f"/v1/views/{self._pick(['reach', 'pairs', 'x'])}/rows{self._query()}")

    def _updates(self) -> Sent:
        return self._posted(f"/v1/sources/{self._pick(['edges', 'x', '%00'])}{self._query()}")

    def _headers(self) -> Sent:
        """Headers that are too many, too long, or of the wrong kind."""
        lines = self.random.choice(HEADERS)
        return self._head("GET", self._pick(["/v1/views/reach", "/healthz", "/v1/views"]), *lines), b""

    def _broken(self) -> Sent:
        """What is no request, or not one yet."""
        return self.random.choice([*BROKEN, self.random.randbytes(300)]), self.random.choice([b"", b"", b"\r\n"])

    def _lengths(self) -> Sent:
        """Bodies that are not as long as they say."""
        path = self._pick(["/v1/views/reach/rows", "/v1/sources/edges"])
        head = self._head("POST", path, "Content-Type: application/json", self._pick(LENGTHS))
        return head + self.random.choice(CHUNKS), b""
