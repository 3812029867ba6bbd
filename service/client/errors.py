"""The errors that a client of a sidecar raises."""

from __future__ import annotations

from vernier.storage.errors import CallerError


class Unreachable(CallerError):
    """No sidecar answers at the address."""

    message = (
        "no sidecar answers at {url} ({reason}); start the service with `vernier up`, or give its address with --url"
    )
    url: str
    reason: str


class NotVisible(CallerError):
    """Updates have been sent but are not visible yet."""

    message = (
        "the updates of {source} are not visible after {seconds:g} s in {views}; they were sent and may "
        "still become visible"
    )
    source: str
    seconds: float
    views: str


class NoCertificates(CallerError):
    """The file of certificates cannot be read."""

    message = "cafile {file}: {reason}"
    file: str
    reason: str


class ServerError(CallerError):
    """The sidecar answered with an error. `problem` is a stable code such as compacted, not_yet_final, unknown_view."""

    message = "{detail}"
    status: int
    problem: str
    title: str
    detail: str
