"""The command that asks a running service in SQL."""

from __future__ import annotations

import sys

import click

from vernier.service.cli.commands.base import Asked, Command, with_sidecar


@click.command(cls=Command)
@click.option("-c", "--command", "questions", multiple=True, metavar="SELECT", help="Ask this and exit.")
@click.option("--as-of", metavar="TIME", help="The data time of all views: nanoseconds or RFC 3339.")
@click.option("--wait", "wait_ms", type=click.IntRange(0), default=0, metavar="MS", help="Wait until TIME is final.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "arrow"]), default="table", show_default=True
)
@with_sidecar
def sql(questions: tuple[str, ...], as_of: str | None, wait_ms: int, form: str, asked: Asked) -> None:
    """Ask a service in SQL: any SELECT over its views as of one data time.

    Without -c it is a shell on a terminal, and otherwise reads questions that end with ; from standard input.
    """
    from vernier.service.cli.sql_shell import Shell, split

    with asked.client() as client:
        shell = Shell(client, form, as_of, wait_ms)
        if not questions and sys.stdin.isatty():
            shell.run()
            return
        given = [one for text in (questions or (sys.stdin.read(),)) for one in split(text)]
        if not given:
            raise click.UsageError("no question was given; write -c 'SELECT …'")
        for question in given:
            shell.ask(question)
