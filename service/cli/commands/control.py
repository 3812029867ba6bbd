"""Commands that open and close a running service's intake: pause, resume, drain."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from vernier.service.cli.commands.base import Asked, Command, Function, with_sidecar

if TYPE_CHECKING:
    from vernier.service.client.client import Client

_STEP_SECONDS = 0.2


def _wait(seconds: float) -> Callable[[Function], Function]:
    return click.option(
        "--wait",
        type=click.FloatRange(0),
        default=seconds,
        show_default=True,
        metavar="S",
        help="How long to wait for it.",
    )


@click.command(cls=Command)
@_wait(60)
@with_sidecar
def pause(wait: float, asked: Asked) -> None:
    """Stop making epochs: state and answers stay, also over restarts, until `vernier resume`."""
    _ask("pause", wait, asked)


@click.command(cls=Command)
@_wait(60)
@with_sidecar
def resume(wait: float, asked: Asked) -> None:
    """Make epochs again after `vernier pause` or `vernier drain`."""
    _ask("resume", wait, asked)


@click.command(cls=Command)
@_wait(600)
@with_sidecar
def drain(wait: float, asked: Asked) -> None:
    """Process all that is in the topics now, then stop making epochs until `vernier resume`."""
    _ask("drain", wait, asked)


def _ask(what: Literal["pause", "resume", "drain"], wait: float, asked: Asked) -> None:
    """Request a change and report its progress until it is done. Raises ClickException if that takes longer than
    `wait`.
    """
    deadline = time.monotonic() + wait
    with asked.client() as client:
        found, shown = client.control(what), ""
        while not found["acknowledged"]:
            if found["says"] != shown and found["intake"] == "draining":
                shown = found["says"]
                click.echo(shown, err=True)
            if time.monotonic() >= deadline:
                break
            found = _later(client, deadline)
    if not found["acknowledged"]:
        raise click.ClickException(f"not done within {wait:g} s: {found['says']}; the request stays")
    click.echo(found["says"])


def _later(client: Client, deadline: float) -> dict[str, Any]:
    """The state of the intake after a short pause."""
    time.sleep(min(_STEP_SECONDS, max(0.0, deadline - time.monotonic())))
    return client.control()
