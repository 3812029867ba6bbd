"""What commands share: --debug, hints for unknown names, and options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from vernier.service.client.client import Client
    from vernier.service.config.settings import Loaded, Settings

FILE = click.Path(dir_okay=False, path_type=Path)

Function = TypeVar("Function", bound=Callable[..., Any])


class Enough(Exception):
    """The program that reads our output has closed the pipe."""


class Command(click.Command):
    """A command that also accepts --debug."""

    def __init__(self, *arguments: Any, **about: Any) -> None:
        super().__init__(*arguments, **about)
        self.params.append(debug_option())


class Group(click.Group):
    """A group of commands. An unknown name gets the nearest one as a hint."""

    command_class = Command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command. Raises UsageError."""
        found = super().get_command(ctx, cmd_name)
        if found is None and not cmd_name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {cmd_name!r}{hint}", ctx)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A closed output pipe raises Enough, because click would report it as a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Enough from error


def debug_option() -> click.Option:
    """The option --debug. `run` looks for it before parsing, so that it also works if parsing fails."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error.")


_SETTINGS = (
    click.option("--config", type=FILE, help="Settings, a YAML file."),
    click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="One setting, as in the file."),
)


def with_settings(function: Function) -> Function:
    """Add --config and --set (`pairs`)."""
    for option in reversed(_SETTINGS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Asked:
    """The sidecar that a command connects to, and the credentials."""

    url: str
    token: str | None
    token_file: Path | None
    cafile: Path | None

    def client(self) -> Client:
        """Create a client of it. Raises UsageError, NoCertificates."""
        from vernier.service.client.client import connect

        token = self.token
        if token is None and self.token_file is not None:
            try:
                token = self.token_file.read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise click.UsageError(f"--token-file {self.token_file}: {error}") from error
        return connect(self.url, token=token, cafile=None if self.cafile is None else str(self.cafile))


_SIDECAR = (
    click.option("--url", default="http://127.0.0.1:8642", show_default=True, help="The sidecar."),
    click.option("--token", envvar="VERNIER_TOKEN", help="The access token; prefer VERNIER_TOKEN or a file."),
    click.option("--token-file", type=FILE, envvar="VERNIER_TOKEN_FILE", help="A file with the token."),
    click.option("--cafile", type=FILE, envvar="VERNIER_CAFILE", help="Certificates to verify https with, PEM."),
)


def with_sidecar(function: Function) -> Function:
    """Add --url, --token, --token-file and --cafile, passed to the command as one argument, `asked`."""

    @functools.wraps(function)
    def gathered(
        *arguments: Any, url: str, token: str | None, token_file: Path | None, cafile: Path | None, **others: Any
    ) -> Any:
        return function(*arguments, asked=Asked(url, token, token_file, cafile), **others)

    made: Any = gathered
    for option in reversed(_SIDECAR):
        made = option(made)
    return cast(Function, made)


def flags(pairs: Sequence[str]) -> dict[str, object]:
    """The settings given with --set, by dotted key. Raises UsageError."""
    given: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, not {pair!r}")
        given[key] = value
    return given


BOOTSTRAP = click.option("--bootstrap", help="The brokers, host:port; default: the settings' kafka.bootstrap.")


def kafka_settings(config: Path | None, pairs: Sequence[str], bootstrap: str | None) -> Settings:
    """The settings, with --bootstrap applied if it is given. Raises BadSettings."""
    given = flags(pairs)
    if bootstrap is not None:
        given["kafka.bootstrap"] = bootstrap
    return load_with_tables(config, given)[0].settings


def load_with_tables(config: Path | None, given: Mapping[str, Any]) -> tuple[Loaded, dict[str, Any]]:
    """The settings with what programs in SQL say of how their tables are fed, and what was given with it. Raises
    BadSettings, ProgramError."""
    from vernier.service.config.settings import load
    from vernier.service.sql.tables import table_settings

    loaded, more = load(config, given), dict(given)
    origins: dict[str, str] = {}
    for program in (loaded.settings.program, *loaded.settings.programs):
        if program is not None:
            found = table_settings(program, {**loaded.origins, **more})
            origins |= {key: f"WITH (…) in {program}" for key in found if key not in more}
            more |= found
    if more != given:
        loaded = load(config, more)
        loaded = replace(loaded, origins={**loaded.origins, **origins})
    return loaded, more


def no_updates(file: str | Path) -> str:
    """The message for a file without updates. It is not an error: a file with no new data is empty."""
    name = "standard input" if str(file) == "-" else file
    return f"vernier: {name} has no updates in it"
