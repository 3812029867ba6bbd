"""A view's changes as POST requests to an address.

HTTP has no transactions, so exactly once is a matter of both ends: every request carries an id, and the same id always
has the same body. A receiver that ignores ids it has seen takes each change once.

The way of the data: before the first request of a step, the interval of the step is written to `sinks/NAME.json` in the
state directory, after its last request the position. Failure in the middle: the next start finds the interval and sends
all of its requests again, with the same ids and bodies, even if the epochs have been collected since and the changes
now come from the view's trace in other steps. Cost: a request per thousand changes and two small writes per step.

If the single changes of the interval are no longer kept, its requests cannot be made again. Then, and whenever the rows
take the place of earlier ones, a new history begins: its number is written down before its first request and is part of
all its ids, so no id of an earlier history comes back with another body. A snapshot is never continued: after a failure
it is sent again as a history of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec

from vernier.service.config.streams import Sink
from vernier.service.sinks.history import Step
from vernier.service.sinks.outgoing import MESSAGE_BYTES, MESSAGE_UPDATES, objects
from vernier.service.sinks.position import Position
from vernier.service.sinks.target import Steps, TargetFailed, TargetTaken
from vernier.storage.blob.blob import Blob, HeldLock
from vernier.storage.errors import FileMissing
from vernier.storage.state.state import StateDirectory

FOLDER = "sinks"
_TIMEOUT = 30.0


class Sending(msgspec.Struct, frozen=True):
    """What the file of a webhook holds. until: the end of the step whose requests are under way; None: none is.

    history: how often the rows have begun again. meaning: the view's, of the step that is under way; kind: of that
    step, or `restart`. Releases that knew only one history did not say.
    """

    position: Position | None = None
    until: int | None = None
    history: int = 0
    meaning: str = ""
    kind: str = "updates"


class Webhook:
    """An address that takes a view's changes. file: where the position is, in the state directory."""

    def __init__(self, blob: Blob, name: str, given: Sink) -> None:
        self._blob, self._name, self._given = blob, name, given
        self._address = given.address()
        self._file = f"{FOLDER}/{name}.json"
        self._sending = Sending()
        self._lock: HeldLock | None = None
        self._client: httpx.Client | None = None

    def position(self) -> Position | None:
        """How far the address is, from the state directory. Raises StorageErrors, TargetFailed."""
        self._blob.prepare([FOLDER])
        if self._lock is None:
            self._lock = self._blob.lock(f"{FOLDER}/{self._name}.lock")
        if self._lock is None:
            raise TargetFailed(place=self._name, problem="another publisher of this state directory writes to it")
        try:
            self._sending = msgspec.json.decode(self._blob.get(self._file), type=Sending)
        except FileMissing:
            self._sending = Sending()
        except msgspec.DecodeError as error:
            raise TargetFailed(place=self._file, problem=f"cannot be read: {error}") from error
        return self._sending.position

    def write(self, steps: Steps) -> Position:
        """Send the steps, each with its position after it. Raises StorageErrors, TargetFailed, TargetTaken."""
        left = list(steps)
        if left and self._begins_again(left):
            # Written down before the first request, so no failure lets a later history have this number too.
            left[0] = first = replace(left[0], restarts=True)
            position, history = self._sending.position, self._sending.history + 1
            self._keep(Sending(position, first.upper, history, first.view.meaning, "restart"))
        while left:
            until = left[0].upper if self._sending.until is None else self._sending.until
            now, left = split(left, until)
            if now[-1].upper < until:
                # The rest of the interval is not among the steps yet; what is sent must have its whole content.
                break
            self._send(now, until)
        position = self._sending.position
        if position is None:
            raise TargetFailed(place=self._file, problem="the steps end inside of an interval that was begun")
        return position

    def close(self) -> None:
        """Close the connection and release the file."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _begins_again(self, steps: Sequence[Step]) -> bool:
        """Whether the steps do not continue what the address has: they replace it, or differ from the interval under
        way, of which it may have a part.
        """
        sending, first = self._sending, steps[0]
        if first.restarts or sending.until is None:
            return first.restarts
        meanings = ("", first.view.meaning)
        return first.kind != "updates" or sending.kind != "updates" or sending.meaning not in meanings

    def _send(self, steps: Sequence[Step], until: int) -> None:
        before, history = self._sending.position, self._sending.history
        kind, view = steps[0].kind, steps[0].view
        made = list(requests(steps, until, history))
        if made and self._sending.until is None:
            self._keep(Sending(before, until, history, view.meaning, kind))
        for identity, body in made:
            self._post(identity, body)
        counts = {} if before is None else dict(before.messages)
        counts[kind] = counts.get(kind, 0) + len(made)
        self._keep(Sending(Position(self._address, "webhook", until, view.meaning, counts, view.name), history=history))

    def _keep(self, sending: Sending) -> None:
        if self._lock is None:
            raise TargetTaken(place=self._name)
        self._lock.check()
        self._blob.put(self._file, [msgspec.json.encode(sending)])
        self._blob.sync(FOLDER)
        self._sending = sending

    def _post(self, identity: str, body: bytes) -> None:
        if self._client is None:
            headers = {}
            if self._given.token_file is not None:
                headers["authorization"] = f"Bearer {_text(self._given.token_file)}"
            self._client = httpx.Client(timeout=_TIMEOUT, headers=headers, trust_env=False)
        about = {"content-type": "application/json", "vernier-message-id": identity, "idempotency-key": identity}
        try:
            answer = self._client.post(self._address, content=body, headers=about)
        except httpx.HTTPError as error:
            raise TargetFailed(place=self._address, problem=str(error) or type(error).__name__) from error
        if not answer.is_success:
            raise TargetFailed(place=self._address, problem=f"answered {answer.status_code} to message {identity}")


def split(steps: Sequence[Step], until: int) -> tuple[list[Step], list[Step]]:
    """The steps before a time and those from it on; a step that covers it is cut."""
    before, after = [], []
    for step in steps:
        if step.upper <= until:
            before.append(step)
        elif step.lower >= until:
            after.append(step)
        else:
            time, changes = step.changes.time, step.changes
            before.append(replace(step, upper=until, changes=changes.take(time < until)))
            after.append(replace(step, lower=until, changes=changes.take(time >= until), restarts=False))
    return before, after


def requests(steps: Sequence[Step], until: int, history: int) -> Iterator[tuple[str, bytes]]:
    """The requests of an interval: their ids and bodies. Equal changes in equal intervals of a history give equal
    requests, however the interval is cut into steps. The first history has no number in its bodies, as in releases that
    knew only one.
    """
    first = steps[0]
    updates = []
    for step in steps:
        times, diffs = step.changes.time.tolist(), step.changes.diff.tolist()
        for row, at, diff in zip(objects(step), times, diffs, strict=True):
            updates.append(f'{{"row":{row},"time":"{at}","diff":{diff}}}')
    view, lower = first.view.name, first.lower
    groups = list(_grouped(updates)) or ([[]] if first.restarts else [])
    for seq, group in enumerate(groups):
        about = {
            "view": view,
            "event": first.kind,
            "lower": str(lower),
            "upper": str(until),
            "seq": seq,
            "last": seq == len(groups) - 1,
            "restarts": first.restarts,
        }
        if history:
            about["history"] = history
        head = json.dumps(about, separators=(",", ":"))[:-1]
        yield f"{view}:{lower}:{until}:{history}:{seq}", f'{head},"changes":[{",".join(group)}]}}'.encode()


def _grouped(updates: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for update in updates:
        group.append(update)
        size += len(update)
        if len(group) == MESSAGE_UPDATES or size >= MESSAGE_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise TargetFailed(place=str(file), problem=error.strerror or str(error)) from error


def open_address(name: str, given: Sink, app: str, state: StateDirectory) -> Webhook:
    """The address of a sink."""
    return Webhook(state.blob, name, given)
