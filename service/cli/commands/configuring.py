"""`vernier config`: lists settings and explains one of them, with its value and the origin of the value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vernier.service.cli.commands.base import Command, flags, with_settings


@click.command(cls=Command)
@click.argument("key", required=False)
@with_settings
def config(key: str | None, config: Path | None, pairs: Sequence[str]) -> None:
    """Explain the setting KEY, or all of a section; without KEY list all settings."""
    from vernier.service.cli.display import table
    from vernier.service.config.reference import found, settings_reference
    from vernier.service.config.settings import BadSettings, load

    if key is None:
        rows = [(one.key, one.default, one.description) for one in settings_reference()]
        click.echo(table(("setting", "default", "meaning"), rows))
        return
    mine, hint = found(key)
    if not mine:
        raise BadSettings(problem=f"unknown setting {key}{hint}; `vernier config` lists all of them")
    loaded = load(config, flags(pairs))
    now = {line.split(" = ", 1)[0]: line.split(" = ", 1)[1] for line in loaded.lines()}
    for number, one in enumerate(mine):
        if number:
            click.echo()
        value = now.get(key if len(mine) == 1 else one.key)
        click.echo(one.key)
        click.echo(f"  {one.description or 'no description'}")
        click.echo(f"  type     {one.kind}")
        click.echo(f"  default  {one.default or 'none: it must be given'}")
        if value is not None:
            click.echo(f"  now      {' '.join(value.split())}")
        click.echo(f"  set it   --set {one.key}=…, or {one.variable}=…, or in a file given with --config")
