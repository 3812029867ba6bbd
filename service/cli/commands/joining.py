"""Commands for the programs of a running service: programs list, add, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vernier.service.cli.commands.base import FILE, Group

if TYPE_CHECKING:
    from vernier.service.config.programs import Registry


@click.group(cls=Group)
def programs() -> None:
    """Programs that join a running service and share its arrangements, and that leave it again."""


_place = click.option("--state", required=True, metavar="DIR", help="The service's state directory, or its URI.")


@programs.command("list")
@_place
def programs_list(state: str) -> None:
    """Show which programs have joined, and which could not and why."""
    registry = _registry(state)
    for program in registry.joined():
        click.echo(program.name.removesuffix(".py"))
    for name, reason in registry.refused().items():
        click.echo(f"{name}: refused: {reason}")


@programs.command("add")
@click.argument("program", type=FILE)
@_place
@click.option("--wait", type=click.FloatRange(0), metavar="S", help="Wait up to S seconds for an epoch with its views.")
def programs_add(program: Path, state: str, wait: float | None) -> None:
    """Let PROGRAM join: it answers from what the service holds, and reads nothing from Kafka again.

    With --wait the exit status is 0 when it has joined, and 1 when it cannot, or has not by then."""
    from vernier.service.cli.commands.states import open_state
    from vernier.service.config.programs import Program, wait_until_joined

    text = Program.of(program)
    registry = _registry(state)
    name = registry.add(text)
    if wait is not None:
        epoch = wait_until_joined(open_state(state), registry, text, wait)
        click.echo(f"{name} has joined with epoch {epoch}")
        return
    click.echo(f"{name} joins with the next epochs; `vernier programs list --state {state}` tells if it cannot")


@programs.command("remove")
@click.argument("name")
@_place
def programs_remove(name: str, state: str) -> None:
    """Let the program of the app NAME leave; what only it needed goes with it."""
    _registry(state).remove(name)
    click.echo(f"{name} leaves with the next epoch")


def _registry(state: str) -> Registry:
    from vernier.service.cli.commands.states import open_state
    from vernier.service.config.programs import Registry
    from vernier.storage.blob.location import BlobLocation

    open_state(state)
    return Registry(BlobLocation(state).open())
