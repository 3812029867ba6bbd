"""The Python client of a sidecar: `vernier.connect(url)`.

    with vernier.connect() as client:
        client.rows("reach", where=["node:lt:10"])      # a list of dicts, with .as_of and .frontier
        client.sql("SELECT count(*) AS n FROM reach")   # the same, of any SELECT over the views
        client.pandas("reach")
        for event in client.watch("reach"):              # resumes where it was when the connection breaks
            for change in event.changes: ...
        client.wait(client.send("edges", [(1, 2)]))      # sent, and visible

Times are integers of nanoseconds here. Everything in one answer is as of one data time, even if the answer takes
several pages.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self
from urllib.parse import quote

import httpx
import msgspec
import pyarrow as pa

from vernier.service.client.answers import Answer, Change, Event, Rows, events, with_diff
from vernier.service.client.bodies import ARROW, NDJSON, Time, bodies
from vernier.service.client.errors import NoCertificates, NotVisible, ServerError, Unreachable
from vernier.service.client.queries import given, key_text, page_size, query_of, view_path

__all__ = [
    "Answer",
    "Change",
    "Client",
    "Event",
    "NoCertificates",
    "NotVisible",
    "Rows",
    "ServerError",
    "Unreachable",
    "connect",
]

URL = "http://127.0.0.1:8642"

_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SILENCE_SECONDS = 60.0


def connect(url: str = URL, *, timeout: float = 30.0, token: str | None = None, cafile: str | None = None) -> Client:
    """Return a client of the sidecar at an address. It connects at its first request.

    timeout: seconds without a byte from the server. token: sent as a bearer token. cafile: PEM file with the
    certificates to verify an https address against; by default the system's. Raises NoCertificates if the file cannot
    be read.
    """
    return Client(url, timeout=timeout, token=token, cafile=cafile)


class Client:
    """Queries a sidecar. Methods raise Unreachable and ServerError. Use it from one thread at a time."""

    def __init__(
        self, url: str = URL, *, timeout: float = 30.0, token: str | None = None, cafile: str | None = None
    ) -> None:
        self.url, self._timeout = url.rstrip("/"), timeout
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            # Without TLS nothing has to be verified, and reading the system's certificates takes tens of milliseconds.
            verify = ssl.create_default_context(cafile=cafile) if url.startswith("https:") else False
        except OSError as error:
            raise NoCertificates(file=str(cafile), reason=error.strerror or str(error)) from error
        self._http = httpx.Client(base_url=self.url, timeout=timeout, headers=headers, verify=verify, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def views(self) -> list[dict[str, Any]]:
        """All views: name, columns, key, rows, since, frontier."""
        views: list[dict[str, Any]] = self._json("/v1/views")["views"]
        return views

    def view(self, name: str) -> dict[str, Any]:
        """One view as `views` lists it. Raises ServerError unknown_view."""
        for about in self.views():
            if about["name"] == name:
                return about
        self._json(view_path(name), {"limit": 1})
        raise ServerError(status=404, problem="unknown_view", title="Not Found", detail=f"there is no view {name!r}")

    def rows(
        self,
        view: str,
        *,
        where: Sequence[str] | str = (),
        columns: Sequence[str] | str | None = None,
        order: Sequence[str] | str | None = None,
        limit: int | None = None,
        as_of: Time | None = None,
        wait_ms: int = 0,
    ) -> Rows:
        """All rows of a view as of one time, or the first `limit`. where: conditions, each `column:operator:value`."""
        pages = [Rows.of(body) for body in self._pages(view, where, columns, order, limit, as_of, wait_ms)]
        first = pages[0]
        rows = (row for page in pages for row in page)
        return Rows(rows, first.as_of, first.since, first.frontier, first.stale_ms)

    def arrow(
        self,
        view: str,
        *,
        where: Sequence[str] | str = (),
        columns: Sequence[str] | str | None = None,
        order: Sequence[str] | str | None = None,
        limit: int | None = None,
        as_of: Time | None = None,
        wait_ms: int = 0,
    ) -> pa.Table:
        """The rows of a view as an Arrow table. `_diff` is a column if some multiplicity is not 1."""
        tables, left, cursor = [], limit, None
        while True:
            asked = query_of(where, columns, order, page_size(left), as_of, wait_ms, cursor)
            answer = self._send("GET", view_path(view), params=asked, headers={"accept": ARROW})
            tables.append(pa.ipc.open_stream(io.BytesIO(answer.content)).read_all())
            left = None if left is None else left - tables[-1].num_rows
            cursor = answer.headers.get("vernier-next-cursor")
            if cursor is None or left == 0:
                break
        names = max((table.column_names for table in tables), key=len)
        return pa.concat_tables([with_diff(table, names) for table in tables])

    def pandas(self, view: str, **query: Any) -> Any:
        """The rows of a view as a pandas DataFrame. Takes the arguments of `arrow`."""
        return self.arrow(view, **query).to_pandas()

    def key(self, view: str, *key: object, as_of: Time | None = None, wait_ms: int = 0) -> Rows:
        """The rows of one key, given as its values in order; empty if the key has none."""
        parts = ",".join(quote(key_text(part), safe="") for part in key)
        return Rows.of(self._json(f"{view_path(view)}/rows/{parts}", given(as_of=as_of, wait_ms=wait_ms or None)))

    def keys(self, view: str, keys: Sequence[object], *, as_of: Time | None = None, wait_ms: int = 0) -> Rows:
        """The rows of many keys, in their order. A key is a value, a sequence of values, or a dict by key column."""
        listed = [list(key) if isinstance(key, tuple) else key for key in keys]
        body = {"keys": listed, "wait_ms": wait_ms, **given(as_of=as_of)}
        return Rows.of(self._send("POST", f"{view_path(view)}/rows", json=body).json())

    def read(self, views: Sequence[str], *, as_of: Time | None = None, wait_ms: int = 0) -> dict[str, Rows]:
        """All rows of several views as of one time."""
        first = self._json("/v1/read", given(views=",".join(views), as_of=as_of, wait_ms=wait_ms or None))
        answer = {}
        for name, body in first["views"].items():
            rows = Rows.of(body)
            cursor = body["next_cursor"]
            while cursor is not None:
                page = self._json(view_path(name), {"cursor": cursor, "limit": page_size(None)})
                rows.extend(page["rows"])
                cursor = page["next_cursor"]
            answer[name] = rows
        return answer

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def sql(self, question: str, *, as_of: Time | None = None, wait_ms: int = 0) -> Answer:
        """The rows of a SELECT over the views, all of them as of one time.

        as_of: by default the newest final time; AS OF at the end of the question says the same. Raises ServerError:
        bad_sql, sql_refused, unknown_view, query_failed, query_timeout, query_memory, too_many_rows (docs/ask.md).
        """
        return Answer(msgspec.json.decode(self._ask(question, as_of, wait_ms, "application/json")))

    def sql_arrow(self, question: str, *, as_of: Time | None = None, wait_ms: int = 0) -> pa.Table:
        """The rows of a SELECT as an Arrow table; its metadata `vernier.as_of` is their time."""
        return pa.ipc.open_stream(self._ask(question, as_of, wait_ms, ARROW)).read_all()

    def sql_csv(self, question: str, *, as_of: Time | None = None, wait_ms: int = 0) -> str:
        """The rows of a SELECT as CSV."""
        return self._ask(question, as_of, wait_ms, "text/csv").decode()

    def _ask(self, question: str, as_of: Time | None, wait_ms: int, accept: str) -> bytes:
        body = {"sql": question, "wait_ms": wait_ms, **given(as_of=as_of)}
        return self._send("POST", "/v1/sql", json=body, headers={"accept": accept}).content

    # --- changes ------------------------------------------------------------------------------------------------------

    def watch(
        self,
        view: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        snapshot: bool | None = None,
        reconnect: bool = True,
    ) -> Iterator[Event]:
        """Events of a view: its rows (unless `since` is given), then every change as it becomes final, up to `until`.

        Applying the events in order yields the view's rows as of `frontier - 1` after each. With `reconnect`, a broken
        connection or a restarted sidecar is resumed where it was; without it, raises Unreachable.
        """
        last_id: str | None = None
        tries = 0
        while True:
            params = given(since=since, until=until, snapshot=None if snapshot is None else str(snapshot).lower())
            headers = {"accept": NDJSON} | ({"last-event-id": last_id} if last_id else {})
            try:
                for event, event_id in self._events(view, params, headers):
                    last_id, tries = event_id, 0
                    yield event
                if until is not None:
                    return
                raise Unreachable(url=self.url, reason="the stream ended")
            except Unreachable:
                if not reconnect:
                    raise
            except ServerError as error:
                if not reconnect or error.problem not in ("slow_consumer", "no_epoch", "too_many_subscribers"):
                    raise
            time.sleep(_RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)])
            tries += 1

    def _events(self, view: str, params: dict[str, Any], headers: dict[str, str]) -> Iterator[tuple[Event, str]]:
        """Yield complete events and their ids."""
        silence = httpx.Timeout(self._timeout, read=_SILENCE_SECONDS)
        path = f"{view_path(view)}/changes"
        try:
            with self._http.stream("GET", path, params=params, headers=headers, timeout=silence) as answer:
                if answer.status_code == 204:
                    return
                if answer.is_error:
                    answer.read()
                    raise _server_error(answer)
                yield from events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise Unreachable(url=self.url, reason=str(error) or type(error).__name__) from error

    # --- updates ------------------------------------------------------------------------------------------------------

    def send(
        self,
        source: str,
        updates: Iterable[object] | pa.Table | bytes,
        *,
        resolved: Time | None = None,
        after: str = "",
    ) -> str:
        """Send updates to a source. Returns a token for `wait` and `visible` once Kafka has acknowledged the updates.

        updates: rows (a sequence in column order, or a dict by column), or complete updates (a dict with `data` and,
        optionally, `time` and `diff`); an Arrow table with the source's columns and, optionally, `_time` and `_diff`;
        or lines of JSON as bytes. resolved: a promise that nothing before this data time follows, for sources with an
        event clock. after: the token of an earlier call, also for another source; the new token stands for both, so
        that one `wait` is enough. Long input is split into several requests, sent one after the other; each is
        accepted as a whole or not at all. Raises ServerError: bad_update (422) names the mistake; after
        kafka_unavailable (503) some updates may have been sent.
        """
        token = after
        for body, kind in bodies(updates, resolved):
            params = given(after=token or None)
            path = f"/v1/sources/{quote(source, safe='')}"
            token = self._send("POST", path, params=params, content=body, headers={"content-type": kind}).json()[
                "token"
            ]
        return token

    def visible(self, token: str, *, views: Sequence[str] = (), wait_ms: int = 0) -> dict[str, Any]:
        """Whether updates are visible: `visible`, `as_of` (the first data time that includes all of them), `views`."""
        asked = given(views=",".join(views) or None, wait_ms=wait_ms or None)
        return self._json(f"/v1/tokens/{quote(token, safe='')}", asked)

    def wait(self, token: str, *, timeout: float = 30.0, views: Sequence[str] = ()) -> int:
        """Wait until updates are visible in views (by default in all); returns the first data time that includes all of
        them.

        timeout: seconds. Raises NotVisible if they are not visible by then.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                found = self.visible(token, views=views, wait_ms=int(min(left, self._timeout / 2) * 1000))
            except ServerError as error:
                if error.problem != "no_epoch" or left <= 0:
                    raise
                continue
            if found["visible"]:
                return int(found["as_of"] or 0)
            if time.monotonic() >= deadline:
                late = [name for name, about in found["views"].items() if not about["visible"]]
                raise NotVisible(source=found["source"], seconds=timeout, views=", ".join(late))

    # --- status -------------------------------------------------------------------------------------------------------

    def frontiers(self) -> dict[str, Any]:
        """The frontiers of views, sources and partitions: how far each is final."""
        return self._json("/v1/frontiers")

    def latency(self) -> dict[str, Any]:
        """Latency from received to visible, by view: quantiles, histogram, and a series over time."""
        return self._json("/v1/latency")

    def sources(self) -> dict[str, Any]:
        """Sources with partitions, offsets and counts."""
        sources: dict[str, Any] = self._json("/v1/sources")["sources"]
        return sources

    def traces(self) -> list[dict[str, Any]]:
        """Arrangements with their batches."""
        traces: list[dict[str, Any]] = self._json("/v1/traces")["traces"]
        return traces

    def dead_letters(self, limit: int = 100, *, source: str | None = None, reason: str | None = None) -> dict[str, Any]:
        """The newest dead letters, optionally of one source or for one reason, and their counts by
        source and reason.
        """
        return self._json("/v1/dead-letters", given(limit=limit, source=source, reason=reason))

    def sinks(self) -> dict[str, Any]:
        """Output topics by view: topic, format, frontier, messages, problem."""
        sinks: dict[str, Any] = self._json("/v1/sinks")["sinks"]
        return sinks

    def control(self, what: Literal["pause", "resume", "drain"] | None = None, *, wait_ms: int = 0) -> dict[str, Any]:
        """Change the intake if `what` is given; returns its state. `acknowledged`: whether the driver has done it."""
        if what is None:
            return self._json("/v1/control")
        answer = self._send("POST", f"/v1/control/{what}", params={"wait_ms": wait_ms})
        found: dict[str, Any] = msgspec.json.decode(answer.content)
        return found

    def rescale(self, workers: int | None = None, *, wait_ms: int = 0) -> dict[str, Any]:
        """Change the number of workers if it is given; returns how many there are. `acknowledged`: an epoch of as many
        workers is committed, or the request is refused.
        """
        path = "/v1/control/workers"
        if workers is None:
            return self._json(path)
        answer = self._send("POST", path, params={"workers": workers, "wait_ms": wait_ms})
        found: dict[str, Any] = msgspec.json.decode(answer.content)
        return found

    def status(self) -> dict[str, Any]:
        """The status of the service: readiness with reasons, the newest epoch, views, sources, sinks, arrangements,
        latency.

        Latency by view has the quantiles and the count of the last five minutes, and under `all_time` those since the
        service first started.
        """
        ready = self._send("GET", "/readyz", accept_errors=True).json()
        status: dict[str, Any] = {
            "url": self.url,
            "ready": bool(ready.get("ready")),
            "laggards": ready.get("laggards", []),
        }
        if ready.get("code") == "no_epoch":
            return status | {"epoch": None, "views": [], "sources": {}, "frontiers": None, "latency": {}}
        latency = {
            name: _quantiles(about["recent"]) | {"all_time": _quantiles(about)}
            for name, about in self.latency()["views"].items()
        }
        listed = self._json("/v1/views")
        return status | {
            "app": listed["app"],
            "epoch": listed["epoch"],
            "stale_ms": listed["stale_ms"],
            "change": listed.get("change"),
            "views": listed["views"],
            "frontiers": self.frontiers(),
            "sources": self.sources(),
            "sinks": self.sinks(),
            "latency": latency,
            "traces": [{**one, "shards": len(one["shards"])} for one in self.traces()],
        }

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _pages(
        self,
        view: str,
        where: Sequence[str] | str,
        columns: Sequence[str] | str | None,
        order: Sequence[str] | str | None,
        limit: int | None,
        as_of: Time | None,
        wait_ms: int,
    ) -> Iterator[dict[str, Any]]:
        left, cursor = limit, None
        while True:
            body = self._json(view_path(view), query_of(where, columns, order, page_size(left), as_of, wait_ms, cursor))
            yield body
            left = None if left is None else left - len(body["rows"])
            cursor = body["next_cursor"]
            if cursor is None or left == 0:
                return

    def _json(self, path: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(self._send("GET", path, params=params).content)
        return body

    def _send(self, method: str, path: str, *, accept_errors: bool = False, **about: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **about)
        except httpx.HTTPError as error:
            raise Unreachable(url=self.url, reason=str(error) or type(error).__name__) from error
        if answer.is_error and not accept_errors:
            raise _server_error(answer)
        return answer


def _server_error(answer: httpx.Response) -> ServerError:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    return ServerError(
        status=answer.status_code,
        problem=body.get("code", "http_error"),
        title=body.get("title", answer.reason_phrase),
        detail=body.get("detail", f"{answer.request.method} {answer.request.url} answered {answer.status_code}"),
    )


def _quantiles(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Quantiles in seconds, and the number of updates that they describe."""
    return {**observed["quantiles"], "count": observed["count"]}
