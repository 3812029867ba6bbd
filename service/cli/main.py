"""The command line: `vernier`, also `python -m vernier`.

The exit status is 0 on success; 1 on an error, with one line on standard error (a traceback with --debug); 2 for wrong
usage; 130 after Ctrl-C. Each command imports what it needs when it runs, so that help and mistakes are answered at
once.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

from vernier.service.cli.commands import asking, configuring, control, joining, kafka, programs, reading, sinks, states
from vernier.service.cli.commands.base import Enough, Group, debug_option

INTERRUPTED = 130
_COMMANDS = (
    *(programs.up, programs.plan, programs.replay, programs.explain, programs.new),
    configuring.config,
    *(kafka.send, kafka.dlq),
    *(reading.query, reading.watch, reading.status),
    asking.sql,
    *(control.pause, control.resume, control.drain, control.rescale),
    *(states.state, sinks.sinks),
    joining.programs,
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(importlib.metadata.version("vernier"), message="vernier %(version)s")
def cli() -> None:
    """Standing queries over changing data, exact at every nanosecond."""


cli.params.append(debug_option())
for command in _COMMANDS:
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit the process with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run a command in this process; returns its exit status."""
    debug = "--debug" in words
    if debug:
        logging.basicConfig(level=logging.INFO)
    elif not logging.getLogger().handlers:
        # Without a handler, warnings would go to standard error, where a failing command prints exactly one line.
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
    except (BrokenPipeError, Enough):
        # The reader of our output has closed the pipe. Python would report this again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from vernier.storage.errors import VernierError

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
