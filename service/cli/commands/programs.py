"""Commands that take a program: up, plan, replay, explain, new."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vernier.service.cli.commands.base import FILE, Command, flags, load_with_tables, no_updates, with_settings

if TYPE_CHECKING:
    from vernier.service.config.settings import Settings


@click.command(cls=Command)
@click.argument("program", type=FILE)
@with_settings
@click.option("--rebuild", is_flag=True, help="If the changed program needs it, read the topics from their beginning.")
@click.option("--discard-after", metavar="TIME", help="Discard what is in the topics now at or after this data time.")
@click.option("--standby", is_flag=True, help="Wait while another service owns the state; take over when it ends.")
@click.option("--check", is_flag=True, help="Show what PROGRAM would keep, fill and lose of the state, and stop.")
@click.option("--print-config", is_flag=True, help="Print all settings and where each comes from, and stop.")
def up(
    program: Path,
    config: Path | None,
    pairs: tuple[str, ...],
    rebuild: bool,
    discard_after: str | None,
    standby: bool,
    check: bool,
    print_config: bool,
) -> int:
    """Run PROGRAM as a service: Spark, the sidecar, and a broker if kafka.embedded is set."""
    given = flags(pairs) | {"program": str(program), "state.rebuild": True if rebuild else None}
    given |= {"state.discard_after": discard_after, "state.standby": True if standby else None}
    loaded, given = load_with_tables(config, given)
    if print_config:
        click.echo("\n".join(loaded.lines()))
        return 0
    if check:
        return _preview(loaded.settings)
    import logging

    from vernier.service.supervision.supervisor import up as run

    logging.basicConfig(level=logging.WARNING, format="%(message)s", force=True)
    run(
        loaded,
        config,
        given,
        say=lambda line: click.echo(line, err=True),
        on_ready=lambda supervisor: click.echo(f"ready: {supervisor.url}"),
    )
    return 0


@click.command(cls=Command)
@click.argument("program", type=FILE)
@click.option("--updates", "files", multiple=True, required=True, type=FILE, help="Update files, in any order.")
@click.option("--out", type=click.Path(path_type=Path), help="The change file to write.")
@click.option("--rows-at", metavar="TIME", help="Show the views' rows at this data time: nanoseconds or RFC 3339.")
@click.option("--view", "views", multiple=True, metavar="VIEW", help="Only this view; may be repeated.")
@click.option("--epoch-size", type=click.IntRange(1), metavar="N", help="Updates per epoch; no answer depends on it.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, metavar="N", help="Dataflow workers; default: 1.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", help="Default: local, without Spark.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="Keep the state here (spark).")
@click.option("--stats", is_flag=True, help="Print statistics as a line of JSON.")
def replay(
    program: Path,
    files: tuple[Path, ...],
    out: Path | None,
    rows_at: str | None,
    views: tuple[str, ...],
    epoch_size: int | None,
    workers: int,
    engine: str,
    state: Path | None,
    stats: bool,
) -> None:
    """Run PROGRAM on files of updates, all of them final, and write its views' changes or show their rows."""
    if out is None and rows_at is None:
        raise click.UsageError("give --out FILE for every change, or --rows-at TIME for the rows at a data time")
    if state is not None and engine != "spark":
        raise click.UsageError("--state is for --engine spark: the local engine keeps nothing")
    from vernier.service.cli.display import json_line, show_views
    from vernier.service.codec.instants import parse_instant
    from vernier.service.observability.progress import on_terminal
    from vernier.service.replay.replay import EPOCH_UPDATES, Request
    from vernier.service.replay.replay import replay as run

    at = None if rows_at is None else parse_instant(rows_at)
    request = Request(program, files, out, views, epoch_size or EPOCH_UPDATES, workers, engine, state, at)
    account = run(request, on_terminal())
    if not account.updates:
        click.echo(no_updates(", ".join(map(str, files))), err=True)
    if account.found is not None:
        show_views(account.found)
    if stats:
        click.echo(json_line(account.to_json()))


@click.command(cls=Command)
@click.argument("program", type=FILE)
@click.option("--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text", show_default=True)
def explain(program: Path, form: str) -> None:
    """Show PROGRAM's plan: fused chains, arrangements and who shares them, exchanges, where times are total."""
    from vernier.operators.language.collection.app import load_program
    from vernier.operators.planning.planner import compile_app
    from vernier.service.cli.display import json_line
    from vernier.service.cli.explain import as_mermaid, as_text

    plan = compile_app(load_program(program)).explain()
    click.echo({"text": as_text, "mermaid": as_mermaid, "json": json_line}[form](plan))


@click.command(cls=Command)
@click.argument("name")
def new(name: str) -> None:
    """Make a project: a folder NAME with a program, updates for it, a test, settings and a compose file."""
    from vernier.service.cli.scaffold import new_project

    program, updates, *others = new_project(name)
    folder = program.parent
    click.echo(f"made {folder} with {', '.join(file.name for file in (program, updates, *others))}; now try\n")
    click.echo(f"  cd {folder}")
    click.echo(f"  vernier replay {program.name} --updates {updates.name} --out changes.jsonl && cat changes.jsonl")
    click.echo("  pytest")
    click.echo(f"  vernier up {program.name} --config settings.yaml")


@click.command(cls=Command)
@click.argument("program", type=FILE)
@click.option("--state", required=True, metavar="DIR", help="The service's state directory, or its URI.")
@with_settings
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def plan(program: Path, state: str, config: Path | None, pairs: tuple[str, ...], form: str) -> int:
    """Show what a service with PROGRAM would keep, fill and lose of the state in DIR. Changes nothing.

    The exit status is 0 if the state can go on with PROGRAM, and 1 if it cannot; the reasons are printed."""
    from vernier.service.cli.commands.states import open_state

    open_state(state)
    loaded, _ = load_with_tables(config, flags(pairs) | {"program": str(program), "state.path": state})
    return _preview(loaded.settings, form)


def _preview(settings: Settings, form: str = "text") -> int:
    from vernier.service.cli.display import json_line, preview_text
    from vernier.service.coordinator.preview import preview

    found = preview(settings)
    click.echo(json_line(found.to_json()) if form == "json" else preview_text(found))
    return 1 if found.refused else 0
