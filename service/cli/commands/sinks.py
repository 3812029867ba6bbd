"""Commands for output topics: sinks verify."""

from __future__ import annotations

from pathlib import Path

import click

from vernier.service.cli.commands.base import BOOTSTRAP, Group, kafka_settings, with_settings


@click.group(cls=Group)
def sinks() -> None:
    """Output topics: compare them with the views that they hold."""


@sinks.command("verify")
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Differences shown for each view.")
@BOOTSTRAP
@with_settings
def sinks_verify(
    views: tuple[str, ...],
    form: str,
    limit: int,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Compare what readers of committed messages see in the output topics of views, by default of all that go out, with
    the state directory. Exit status 1 if anything is missing, doubled or wrong."""
    from vernier.service.cli.commands.states import open_state
    from vernier.service.cli.display import json_line, table
    from vernier.service.kafka.reach import reach
    from vernier.service.observability.progress import on_terminal
    from vernier.service.sinks.audit import audit_topics

    settings, show = kafka_settings(config, pairs, bootstrap), on_terminal()
    state = open_state(settings.state.path)
    with reach(settings):
        try:
            found = audit_topics(
                settings.kafka_client(),
                state,
                views,
                lambda topic, n: show.done(f"reading {topic}", n, None, "messages"),
            )
        finally:
            show.clear()
    if form == "json":
        for one in found:
            click.echo(json_line(one.to_json(limit)))
    else:
        names = ["view", "topic", "format", "frontier", "messages", "missing", "doubled", "wrong"]
        rows = [
            [one.view, one.topic, one.format, str(one.frontier), str(one.messages)]
            + [str(one.counts[kind]) if one.problem is None else "-" for kind in ("missing", "doubled", "wrong")]
            for one in found
        ]
        click.echo(table(names, rows))
        for one in found:
            for difference in one.differences[:limit]:
                click.echo(f"{one.view}: {difference.describe()}")
            if (more := sum(one.counts.values()) - limit) > 0:
                click.echo(f"{one.view}: and {more} more")
    bad = [one for one in found if not one.equal]
    if bad:
        why = "; ".join(f"{one.view}: {one.problem or 'differs'}" for one in bad)
        raise click.ClickException(f"{len(bad)} of {len(found)} output topics differ from their views: {why}")
