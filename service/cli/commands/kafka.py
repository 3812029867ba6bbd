"""Commands that talk to Kafka: send, dlq."""

from __future__ import annotations

from pathlib import Path

import click

from vernier.service.cli.commands.base import (
    BOOTSTRAP,
    Asked,
    Command,
    Group,
    kafka_settings,
    no_updates,
    with_settings,
    with_sidecar,
)


@click.command(cls=Command)
@click.argument("file")
@click.option("--topic", metavar="T", help="The topic; the service creates its sources' topics.")
@click.option("--source", metavar="S", help="Instead of --topic: send over HTTP, through the sidecar at --url.")
@click.option(
    "--wait", type=click.FloatRange(0), metavar="S", help="With --source: how long to wait until the views have them."
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="At most this many updates a second."
)
@BOOTSTRAP
@click.option(
    "--format", "form", type=click.Choice(["vernier", "json"]), help="Default: the topic's format in the settings."
)
@click.option("--promise", is_flag=True, help="Send progress for an event clock; needs updates in time order.")
@with_sidecar
@with_settings
def send(
    file: str,
    topic: str | None,
    source: str | None,
    wait: float | None,
    rate: float | None,
    bootstrap: str | None,
    form: str | None,
    promise: bool,
    config: Path | None,
    pairs: tuple[str, ...],
    asked: Asked,
) -> None:
    """Send FILE's lines of updates (- is standard input) into a topic of Kafka, or to a sidecar's source."""
    if (topic is None) == (source is None):
        raise click.UsageError("give a destination: --topic for Kafka, or --source for a sidecar")
    if topic is None:
        _send_to_sidecar(file, str(source), asked, wait)
        return
    from vernier.service.cli.kafka_sender import Sender, Sending
    from vernier.service.observability.progress import on_terminal

    settings = kafka_settings(config, pairs, bootstrap)
    if form is None:
        known = [source.format for name, source in settings.sources.items() if settings.topic(name) == topic]
        form = known[0] if known else "vernier"
        if form not in ("vernier", "json"):
            raise click.UsageError(f"topic {topic} has format {form}, which send does not write; give --format")
    sender = Sender(settings, Sending(file, topic, form, rate, promise), on_terminal())
    count = sender.run()
    if not sender.sent:
        click.echo(no_updates(file), err=True)
    click.echo(f"sent {count} line{'' if count == 1 else 's'} to {topic}", err=True)


def _send_to_sidecar(file: str, source: str, asked: Asked, wait: float | None) -> None:
    from vernier.service.cli.kafka_sender import read_lines

    lines = [line for line in read_lines(file) if line.strip()]
    if not lines:
        click.echo(no_updates(file), err=True)
        return
    with asked.client() as client:
        token = client.send(source, lines)
        click.echo(f"sent {len(lines)} line{'' if len(lines) == 1 else 's'} to {source}", err=True)
        if token and wait is not None:
            click.echo(f"visible at {client.wait(token, timeout=wait)}", err=True)
    click.echo(token)


@click.group(cls=Group)
def dlq() -> None:
    """Dead letters: what the service refused."""


_sources = click.argument("sources", nargs=-1, metavar="[SOURCE]...")
_reason = click.option("--reason", help="Only dead letters refused for this reason.")
_letters = click.option("--letter", "letters", multiple=True, metavar="L", help="Only this one, as the list names it.")


@dlq.command("list")
@_sources
@_reason
@click.option("--all", "everything", is_flag=True, help="Also those that were sent again, dropped or replaced.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@BOOTSTRAP
@with_settings
def dlq_list(
    sources: tuple[str, ...],
    reason: str | None,
    everything: bool,
    form: str,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Show the open dead letters of all sources, or of some: of each message the newest letter."""
    from vernier.service.cli.display import json_line, table
    from vernier.service.kafka.dead_letter_queue import DeadLetterQueue

    shown = []
    names = ["letter", *(["state"] if everything else []), "reason", "topic", "partition", "offset", "detail"]
    with DeadLetterQueue(kafka_settings(config, pairs, bootstrap), sources) as letters:
        for letter, state in letters.read(everything=everything):
            if reason not in (None, letter.about.get("reason")):
                continue
            if form == "json":
                click.echo(json_line(letter.to_json() | {"state": state}))
            else:
                about = letter.about | {"letter": letter.place, "state": state}
                shown.append([about.get(name, "") for name in names])
    if form == "table":
        click.echo(table(names, shown))


@dlq.command("replay")
@_sources
@_reason
@_letters
@click.option("--again", is_flag=True, help="Also those that an earlier replay has sent.")
@BOOTSTRAP
@with_settings
def dlq_replay(
    sources: tuple[str, ...],
    reason: str | None,
    letters: tuple[str, ...],
    again: bool,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Send open dead letters to the topics they came from, as they were."""
    from vernier.service.kafka.dead_letter_queue import DeadLetterQueue

    with DeadLetterQueue(kafka_settings(config, pairs, bootstrap), sources) as found:
        sent, passed = found.replay(reason=reason, letters=letters, again=again)
    click.echo(f"sent {sent} dead letters again, skipped {passed}")


@dlq.command("drop")
@_sources
@_reason
@_letters
@click.option("--all", "everything", is_flag=True, help="All open dead letters.")
@BOOTSTRAP
@with_settings
def dlq_drop(
    sources: tuple[str, ...],
    reason: str | None,
    letters: tuple[str, ...],
    everything: bool,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Give open dead letters up: they are not listed and not sent again any more. Their topic keeps them."""
    from vernier.service.kafka.dead_letter_queue import DeadLetterQueue

    if not (reason or letters or everything):
        raise click.UsageError("give one of --letter, --reason or --all")
    with DeadLetterQueue(kafka_settings(config, pairs, bootstrap), sources) as found:
        dropped, passed = found.drop(reason=reason, letters=letters)
    click.echo(f"dropped {dropped} dead letters, skipped {passed}")
