"""Commands that query a running service: query, watch, status."""

from __future__ import annotations

import sys
from typing import Any

import click

from vernier.service.cli.commands.base import Asked, Command, with_sidecar


@click.command(cls=Command)
@click.argument("view")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only matching rows; also != < <= > >=.")
@click.option("--as-of", metavar="TIME", help="Rows at this data time: nanoseconds or RFC 3339.")
@click.option("--columns", metavar="A,B", help="Only these columns.")
@click.option("--order", metavar="A,-B", help="Sort by these columns.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most this many rows.")
@click.option("--wait", "wait_ms", type=click.IntRange(0), default=0, metavar="MS", help="Wait until TIME is final.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "arrow"]), default="table", show_default=True
)
@with_sidecar
def query(
    view: str,
    where: tuple[str, ...],
    as_of: str | None,
    columns: str | None,
    order: str | None,
    limit: int | None,
    wait_ms: int,
    form: str,
    asked: Asked,
) -> None:
    """Show the rows of VIEW, now or at a data time."""
    from vernier.service.cli.display import condition, show_arrow, show_rows

    chosen = columns.split(",") if columns else None
    question: dict[str, Any] = {
        "where": [condition(text) for text in where],
        "columns": chosen,
        "order": order,
        "limit": limit,
        "as_of": as_of,
        "wait_ms": wait_ms,
    }
    with asked.client() as client:
        if form == "arrow":
            show_arrow(client.arrow(view, **question))
            return
        kinds = {column["name"]: column["type"] for column in client.view(view)["columns"]}
        show_rows(view, client.rows(view, **question), kinds, chosen or list(kinds), form)


@click.command(cls=Command)
@click.argument("view")
@click.option("--since", metavar="TIME", help="Changes from this data time on, instead of the current rows.")
@click.option("--until", metavar="TIME", help="Stop when everything before this data time is final.")
@with_sidecar
def watch(view: str, since: str | None, until: str | None, asked: Asked) -> None:
    """Follow VIEW: its rows, then each change as it becomes final, a line of JSON each."""
    from vernier.service.cli.display import event_lines

    with asked.client() as client:
        for event in client.watch(view, since=since, until=until):
            for line in event_lines(view, event):
                click.echo(line)
            sys.stdout.flush()


@click.command(cls=Command)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@with_sidecar
def status(form: str, asked: Asked) -> None:
    """Tell how a service is doing; exit status 1 when it is not ready."""
    from vernier.service.cli.display import json_line, status_text

    with asked.client() as client:
        found = client.status()
    if form == "json" or found["epoch"] is not None:
        click.echo(json_line(found) if form == "json" else status_text(found))
    if not found["ready"]:
        reasons = "; ".join(f"{one['laggard']}: {one['why']}" for one in found["laggards"])
        raise click.ClickException(f"the service at {asked.url} is not ready: {reasons or 'no epoch is committed yet'}")
