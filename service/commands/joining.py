"""Commands for the programs of a running service: programs list, add, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from service.commands.base import FILE, Group

if TYPE_CHECKING:
    from service.programs import Registry


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
def programs_add(program: Path, state: str) -> None:
    """Let PROGRAM join: it answers from what the service holds, and reads nothing from Kafka again."""
    from service.programs import Program

    name = _registry(state).add(Program.of(program))
    click.echo(f"{name} joins with the next epochs; `vernier programs list --state {state}` tells if it cannot")


@programs.command("remove")
@click.argument("name")
@_place
def programs_remove(name: str, state: str) -> None:
    """Let the program of the app NAME leave; what only it needed goes with it."""
    _registry(state).remove(name)
    click.echo(f"{name} leaves with the next epoch")


def _registry(state: str) -> Registry:
    from service.programs import Registry
    from storage.errors import NothingCommitted
    from storage.place import Place
    from storage.state import StateDirectory

    place = Place(state)
    if not StateDirectory(place).epochs():
        raise NothingCommitted(path=state)
    return Registry(place.open())
