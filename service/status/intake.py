"""The desired state of a service's intake, as an operator wants it, and the observed state, as its driver reports it.

Two small files in the state directory, wherever that is. `wish.json` (the desired state) is written on a client's
request (by the sidecar, for the command line and HTTP). `standing.json` (the observed state) is written by the driver
alone, which checks the desired state about once a second. Both outlive processes, so a service that was paused starts
paused. They decide nothing about epochs: manifests alone do that.
"""

from __future__ import annotations

import secrets
import time
from typing import Literal

import msgspec

from vernier.service.status.status_file import StatusFile
from vernier.storage.blob.blob import Blob

Wanted = Literal["running", "paused", "drained"]
Intake = Literal["running", "paused", "draining", "drained"]


class Desired(msgspec.Struct, frozen=True):
    """A desired state. at_ns: wall clock."""

    id: str
    wanted: Wanted
    at_ns: int


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state: what the driver does. desired: the id of the newest desired state that it knows, "" for
    none. driver: an id, different for each process. since_ns: wall clock when this state began. until: the offsets up
    to which a drain reads. left: messages before those offsets that no epoch has read. held: updates that wait for
    their data time."""

    intake: Intake = "running"
    desired: str = msgspec.field(default="", name="wish")
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
        """A one-line description for people."""
        match self.intake:
            case "paused":
                return "intake is paused by an operator; answers stay as they are until `vernier resume`"
            case "drained":
                return "all messages in the topics are processed and intake is closed; `vernier resume` opens it"
            case "draining":
                return f"draining: {self.left} messages are left, then intake closes"
            case _:
                return "running"


DESIRED, OBSERVED = StatusFile("wish.json", Desired), StatusFile("standing.json", Observed)


def request(state: Blob, wanted: Wanted) -> Desired:
    """Set the desired state. The driver follows it within a second or two of the end of its running epoch. Raises
    StorageErrors."""
    made = Desired(secrets.token_hex(6), wanted, time.time_ns())
    DESIRED.write(state, made)
    return made


def observed(state: Blob) -> Observed:
    """The newest observed state; "running" if there is none."""
    return OBSERVED.read(state) or Observed()
