"""Commands that steer a running service: pause, resume and drain its intake, and change its number of workers."""

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


@click.command(cls=Command)
@click.argument("workers", type=click.IntRange(1, 256))
@_wait(60)
@with_sidecar
def rescale(workers: int, wait: float, asked: Asked) -> None:
    """Go on with WORKERS workers, also after restarts, until the setting `workers` is changed."""
    deadline = time.monotonic() + wait
    with asked.client() as client:
        found, shown = client.rescale(workers), ""
        while not found["acknowledged"] and time.monotonic() < deadline:
            if found["says"] != shown:
                shown = found["says"]
                click.echo(shown, err=True)
            time.sleep(min(_STEP_SECONDS, max(0.0, deadline - time.monotonic())))
            found = client.rescale()
    if found["refused"]:
        raise click.ClickException(found["says"])
    if not found["acknowledged"]:
        raise click.ClickException(f"not done within {wait:g} s: {found['says']}; the request stays")
    click.echo(found["says"])


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
