"""How many workers a service should have, as an operator wants it, and how many it has, as its driver reports it.

Two small files in the state directory. `rescale.json` (the desired state) is written on a client's request (by the
sidecar, for the command line and HTTP). `workers.json` (the observed state) is written by the driver alone, which
checks the desired state about once a second. Both outlive processes: a service that was rescaled starts with that
number of workers, until the setting `workers` is another one than it was then. They decide nothing about epochs: each
manifest says by how many workers its epoch was made.
"""

from __future__ import annotations

import secrets
import time

import msgspec

from vernier.service.status.status_file import StatusFile
from vernier.storage.blob.blob import Blob

MOST = 256
"""More workers than this are not accepted."""


class Desired(msgspec.Struct, frozen=True):
    """A number of workers that was requested. at_ns: wall clock."""

    id: str
    workers: int
    at_ns: int


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver does. workers: the number with which it makes epochs from now on. configured: the setting
    `workers` at that time. desired: the id of the newest request that it has followed or refused, "" for none. refused:
    why it has refused that one. waits: what a newer one waits for."""

    workers: int
    configured: int
    desired: str = ""
    refused: str = ""
    waits: str = ""


DESIRED, OBSERVED = StatusFile("rescale.json", Desired), StatusFile("workers.json", Observed)


def request(state: Blob, workers: int) -> Desired:
    """Set the desired number. The driver follows it within a second or two. Raises StorageErrors."""
    made = Desired(secrets.token_hex(6), workers, time.time_ns())
    DESIRED.write(state, made)
    return made
