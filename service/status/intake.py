"""Control: what an operator wants of a service's intake, and what its driver has made of that.

Two small files in the state directory, wherever that is. `wish.json` is written by whoever asks (the sidecar, for the
command line and HTTP), `standing.json` by the driver alone, which looks for wishes about once a second. Both outlive
processes, so a service that was paused starts paused. They decide nothing about epochs: manifests alone do that.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal

import msgspec

from vernier.service.status.json_file import Word
from vernier.storage.blob.blob import Blob

WISH, STANDING = "wish.json", "standing.json"

Wanted = Literal["running", "paused", "drained"]
Intake = Literal["running", "paused", "draining", "drained"]


class Wish(msgspec.Struct, frozen=True):
    """What somebody has asked for. at_ns: wall clock."""

    id: str
    wanted: Wanted
    at_ns: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver does. wish: the newest one it knows, "" for none. driver: another for each process. since_ns:
    wall clock, when this began. until: the offsets up to which a drain reads. left: messages before them that no epoch
    has. held: updates that wait for their data time to come."""

    intake: Intake = "running"
    wish: str = ""
    driver: str = ""
    since_ns: int = 0
    until: dict[str, dict[int, int]] = {}
    left: int = 0
    held: int = 0

    @property
    def open(self) -> bool:
        """Whether epochs are made."""
        return self.intake in ("running", "draining")

    def describe(self) -> str:
        """One line for a person."""
        match self.intake:
            case "paused":
                return "intake is paused by an operator; answers stay as they are until `vernier resume`"
            case "drained":
                return "all that was in the topics is processed and intake is closed; `vernier resume` opens it"
            case "draining":
                return f"it drains: {self.left} messages are left, then intake closes"
            case _:
                return "it runs"


_WISH, _STANDING = Word(WISH, Wish), Word(STANDING, Standing)


def ask(state: Blob, wanted: Wanted) -> Wish:
    """Leave a wish; the driver acts within a second or two of its running epoch's end. Raises StorageErrors."""
    wish = Wish(secrets.token_hex(6), wanted, time.time_ns())
    _WISH.leave(state, wish)
    return wish


def tell(state: Blob, standing: Standing) -> None:
    """Say what the driver does. Raises StorageErrors."""
    _STANDING.leave(state, standing)


def wish(state: Blob) -> Wish | None:
    """The newest wish; None when there is none, or nobody can read it."""
    return _WISH.read(state)


def standing(state: Blob) -> Standing:
    """What the driver has said last; that it runs when it has said nothing."""
    return _STANDING.read(state) or Standing()
