"""The command line: `vernier`, also `python -m vernier`.

Exit status 0; 1 with one line on standard error (a traceback with --debug); 2 for wrong usage; 130 after Ctrl-C. What a
command needs is imported when it runs, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from service.client import Client
    from service.settings import Loaded
    from storage.state import StateDirectory

URL = "http://127.0.0.1:8642"
INTERRUPTED = 130

Function = TypeVar("Function", bound=Callable[..., Any])


class _Command(click.Command):
    """A command that takes --debug, too."""

    def __init__(self, *arguments: Any, **about: Any) -> None:
        super().__init__(*arguments, **about)
        self.params.append(_debug_option())


class _Group(click.Group):
    command_class = _Command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; a name that nobody knows gets the nearest one as a hint."""
        found = super().get_command(ctx, cmd_name)
        if found is None and not cmd_name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {cmd_name!r}{hint}", ctx)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. click would take a reader that has enough for a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _Enough from error


class _Enough(Exception):
    """Whoever reads our output has gone."""


_Group.group_class = _Group


def _debug_option() -> click.Option:
    # main() looks for it itself: it must also count where the command line cannot be read.
    return click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(importlib.metadata.version("vernier"), message="vernier %(version)s")
def cli() -> None:
    """Standing queries over changing data, exact at every nanosecond."""


cli.params.append(_debug_option())

PROGRAM = click.Path(dir_okay=False, path_type=Path)
_settings_options = (
    click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="Settings, a YAML file."),
    click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="One setting, as in the file."),
)
_url_option = click.option("--url", default=URL, show_default=True, envvar="VERNIER_URL", help="The sidecar.")


def _with_settings(function: Function) -> Function:
    for option in reversed(_settings_options):
        function = option(function)
    return function


def _flags(pairs: Sequence[str]) -> dict[str, object]:
    flags: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, not {pair!r}")
        flags[key] = value
    return flags


def _load(config: Path | None, pairs: Sequence[str], **more: object) -> Loaded:
    from service.settings import load

    return load(config, _flags(pairs) | {key.replace("__", "."): value for key, value in more.items()})


def _client(url: str) -> Client:
    from service.client import connect

    return connect(url)


# --- programs ---------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("program", type=PROGRAM)
@_with_settings
@click.option("--print-config", is_flag=True, help="Print all settings and where each comes from, and stop.")
def up(program: Path, config: Path | None, pairs: tuple[str, ...], print_config: bool) -> None:
    """Run PROGRAM as a service: Spark, the sidecar, and a broker if kafka.embedded is set."""
    flags = _flags(pairs) | {"program": str(program)}
    loaded = _load(config, pairs, program=str(program))
    if print_config:
        click.echo("\n".join(loaded.lines()))
        return
    from service.supervisor import up as run

    logging.basicConfig(level=logging.WARNING, format="%(message)s", force=True)
    run(
        loaded,
        config,
        flags,
        say=lambda line: click.echo(line, err=True),
        on_ready=lambda supervisor: click.echo(f"ready: {supervisor.url}"),
    )


@cli.command()
@click.argument("program", type=PROGRAM)
@click.option("--updates", "files", multiple=True, required=True, type=PROGRAM, help="Update files, in any order.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The change file to write.")
@click.option("--view", "views", multiple=True, metavar="VIEW", help="Only this view's changes; may be repeated.")
@click.option(
    "--epoch-size", type=click.IntRange(1), metavar="N", help="Updates an epoch has; no answer depends on it."
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, metavar="N", help="Dataflow workers; default: 1.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", help="Default: local, without Spark.")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="Keep the state here (spark).")
@click.option("--stats", is_flag=True, help="Print what it took as a line of JSON.")
def replay(
    program: Path,
    files: tuple[Path, ...],
    out: Path,
    views: tuple[str, ...],
    epoch_size: int | None,
    workers: int,
    engine: str,
    state: Path | None,
    stats: bool,
) -> None:
    """Run PROGRAM on files of updates, all of them final, and write every change of its views."""
    if state is not None and engine != "spark":
        raise click.UsageError("--state is for --engine spark: the local engine keeps nothing")
    from service.display import json_line
    from service.progress import on_terminal
    from service.replay import EPOCH_UPDATES, Request
    from service.replay import replay as run

    request = Request(program, files, out, views, epoch_size or EPOCH_UPDATES, workers, engine, state)
    account = run(request, on_terminal())
    if stats:
        click.echo(json_line(account.to_json()))


@cli.command()
@click.argument("program", type=PROGRAM)
@click.option("--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text", show_default=True)
def explain(program: Path, form: str) -> None:
    """Show PROGRAM's plan: fused chains, arrangements and who shares them, exchanges, where times are total."""
    from operators.app import load_program
    from operators.planner import compile_app
    from service.display import json_line
    from service.explain import as_mermaid, as_text

    plan = compile_app(load_program(program)).explain()
    click.echo({"text": as_text, "mermaid": as_mermaid, "json": json_line}[form](plan))


@cli.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a first program, NAME.py, and updates for it."""
    from service.scaffold import new_program

    program, updates = new_program(name)
    changes = updates.with_suffix(".changes.jsonl")
    click.echo(f"wrote {program} and {updates}; now try\n")
    click.echo(f"  vernier replay {program} --updates {updates} --out {changes} && cat {changes}")


# --- Kafka ------------------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("file")
@click.option("--topic", required=True, metavar="T", help="Where to; the service makes its sources' topics.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Updates a second, at most.")
@click.option("--bootstrap", help="The brokers, host:port; default: the settings' kafka.bootstrap.")
@click.option(
    "--format", "form", type=click.Choice(["vernier", "json"]), help="Default: what the settings say of the topic."
)
@click.option("--promise", is_flag=True, help="Tell an event clock how far the updates, sorted by time, have come.")
@_with_settings
def send(
    file: str,
    topic: str,
    rate: float | None,
    bootstrap: str | None,
    form: str | None,
    promise: bool,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Send FILE's lines of updates (- is standard input) into a topic of Kafka."""
    from service.progress import on_terminal
    from service.send import Sender, Sending

    settings = _load(config, pairs, kafka__bootstrap=bootstrap).settings
    if form is None:
        known = [source.format for name, source in settings.sources.items() if settings.topic(name) == topic]
        form = known[0] if known else "vernier"
    count = Sender(settings, Sending(file, topic, form, rate, promise), on_terminal()).run()
    click.echo(f"sent {count} lines to {topic}", err=True)


@cli.group()
def dlq() -> None:
    """Dead letters: what the service refused."""


_sources = click.argument("sources", nargs=-1, metavar="[SOURCE]...")
_bootstrap = click.option("--bootstrap", help="The brokers, host:port; default: the settings' kafka.bootstrap.")
_reason = click.option("--reason", help="Only letters refused for this reason.")


@dlq.command("list")
@_sources
@_reason
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@_bootstrap
@_with_settings
def dlq_list(
    sources: tuple[str, ...],
    reason: str | None,
    form: str,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Show the dead letters of all sources, or of some."""
    from service.display import json_line, table
    from service.dlq import DeadLetters

    shown = []
    with DeadLetters(_load(config, pairs, kafka__bootstrap=bootstrap).settings, sources) as letters:
        for letter in letters.read():
            if reason not in (None, letter.about.get("reason")):
                continue
            if form == "json":
                click.echo(json_line(letter.to_json()))
            else:
                about = [letter.about.get(what, "") for what in ("reason", "topic", "partition", "offset", "detail")]
                shown.append([f"{letter.topic}/{letter.partition}/{letter.offset}", *about])
    if form == "table":
        click.echo(table(["letter", "reason", "topic", "partition", "offset", "detail"], shown))


@dlq.command("replay")
@_sources
@_reason
@click.option("--again", is_flag=True, help="Also what an earlier replay has dealt with.")
@_bootstrap
@_with_settings
def dlq_replay(
    sources: tuple[str, ...],
    reason: str | None,
    again: bool,
    bootstrap: str | None,
    config: Path | None,
    pairs: tuple[str, ...],
) -> None:
    """Send dead letters to the topics they came from, as they were."""
    from service.dlq import DeadLetters

    with DeadLetters(_load(config, pairs, kafka__bootstrap=bootstrap).settings, sources) as letters:
        sent, passed = letters.replay(reason=reason, everything=again)
    click.echo(f"sent {sent} letters again, passed over {passed}")


# --- a running service ------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("view")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="Only such rows; also != < <= > >=.")
@click.option("--as-of", metavar="TIME", help="Rows at this data time: nanoseconds or RFC 3339.")
@click.option("--columns", metavar="A,B", help="Only these columns.")
@click.option("--order", metavar="A,-B", help="Sort by these columns.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Not more rows than this.")
@click.option("--wait", "wait_ms", type=click.IntRange(0), default=0, metavar="MS", help="Wait until TIME is final.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "arrow"]), default="table", show_default=True
)
@_url_option
def query(
    view: str,
    where: tuple[str, ...],
    as_of: str | None,
    columns: str | None,
    order: str | None,
    limit: int | None,
    wait_ms: int,
    form: str,
    url: str,
) -> None:
    """Show the rows of VIEW, now or at a data time."""
    from service.display import condition, show_arrow, show_rows

    chosen = columns.split(",") if columns else None
    asked: dict[str, Any] = {
        "where": [condition(text) for text in where],
        "columns": chosen,
        "order": order,
        "limit": limit,
        "as_of": as_of,
        "wait_ms": wait_ms,
    }
    with _client(url) as client:
        if form == "arrow":
            show_arrow(client.arrow(view, **asked))
            return
        names = chosen or [column["name"] for column in client.view(view)["columns"]]
        show_rows(view, client.rows(view, **asked), names, form)


@cli.command()
@click.argument("view")
@click.option("--since", metavar="TIME", help="Changes from this data time on, instead of the rows of now.")
@click.option("--until", metavar="TIME", help="Stop when everything before this data time is final.")
@_url_option
def watch(view: str, since: str | None, until: str | None, url: str) -> None:
    """Follow VIEW: its rows, then each change as it becomes final, a line of JSON each."""
    from service.display import event_lines

    with _client(url) as client:
        for event in client.watch(view, since=since, until=until):
            for line in event_lines(view, event):
                click.echo(line)
            sys.stdout.flush()


@cli.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_url_option
def status(form: str, url: str) -> None:
    """Tell how a service is doing; exit status 1 when it is not ready."""
    from service.display import json_line, status_text

    with _client(url) as client:
        found = client.status()
    if form == "json" or found["epoch"] is not None:
        click.echo(json_line(found) if form == "json" else status_text(found))
    if not found["ready"]:
        reasons = "; ".join(f"{one['laggard']}: {one['why']}" for one in found["laggards"])
        raise click.ClickException(f"the service at {url} is not ready: {reasons or 'no epoch is committed yet'}")


# --- state directories ------------------------------------------------------------------------------------------------


@cli.group()
def state() -> None:
    """State directories: look, check, tidy up."""


_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))


def _opened(directory: Path) -> StateDirectory:
    """A state directory with something in it; a mistyped path is not made into one."""
    from storage.errors import NothingCommitted
    from storage.state import StateDirectory

    found = StateDirectory(directory)
    if not directory.is_dir():
        raise click.ClickException(f"there is no directory {directory}")
    if not found.epochs():
        raise NothingCommitted(path=str(directory))
    return found


@state.command("list")
@_directory
def state_list(directory: Path) -> None:
    """Show the newest epoch of DIRECTORY, its arrangements and its files."""
    from service.display import state_text

    found = _opened(directory)
    with found.lease() as lease:
        click.echo(state_text(str(directory), lease.manifest, found.epochs(), found.segments()))


@state.command("verify")
@_directory
def state_verify(directory: Path) -> None:
    """Check every checksum and rule of DIRECTORY, offline or beside a service; exit status 1 if anything is wrong."""
    from service.progress import on_terminal
    from storage.audit import audit

    opened, show = _opened(directory), on_terminal()
    try:
        found = audit(opened, lambda done, size: show.done("verifying", done, size, "B"))
    finally:
        show.clear()
    click.echo(
        f"{found.manifests} epochs, {found.segments} segments, {found.layers} layers, {found.bytes:,} bytes read; "
        f"{len(found.unused)} segments unused"
    )
    for problem in found.problems:
        click.echo(problem)
    if found.problems:
        raise click.ClickException(
            f"{directory} is damaged: {len(found.problems)} problems, the first: {found.problems[0]}"
        )


@state.command("gc")
@_directory
@click.option("--keep", type=click.IntRange(2), default=64, show_default=True, help="Epochs that stay.")
def state_gc(directory: Path, keep: int) -> None:
    """Remove old epochs of DIRECTORY, and files that no epoch needs. The service must be stopped."""
    owned = _opened(directory)
    before = sum(owned.segments().values())
    with owned:
        found = owned.gc(keep)
    freed = before - sum(owned.segments().values())
    click.echo(f"removed {found.manifests} epochs; {freed:,} bytes are free again")


# --- how it ends ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave the process with its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run a command in this process; returns its exit status."""
    debug = "--debug" in words
    if debug:
        logging.basicConfig(level=logging.INFO)
    elif not logging.getLogger().handlers:
        # Else warnings would go to standard error, where a command that fails has one line.
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        result = cli.main(list(words), prog_name="vernier", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _fail(error.format_message(), debug)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, _Enough):
        # Whoever read our output has enough of it. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from storage.errors import VernierError

        if isinstance(error, VernierError):
            return _fail(str(error), debug)
        hint = "" if debug else " (this should not happen; --debug shows where)"
        return _fail(f"{type(error).__name__}: {error}{hint}", debug)


def _fail(said: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    click.echo("vernier: " + " ".join(said.split("\n")), err=True)
    return 1


if __name__ == "__main__":
    main()
