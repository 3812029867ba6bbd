"""Commands for state directories: state list, verify, copy, export, gc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vernier.service.cli.commands.base import Group

if TYPE_CHECKING:
    from vernier.storage.state.state import StateDirectory


@click.group(cls=Group)
def state() -> None:
    """State directories: look, check, copy, tidy up."""


_directory = click.argument("directory")


def open_state(directory: str) -> StateDirectory:
    """Open a state directory or URI that has contents; a mistyped path is not created."""
    from vernier.storage.blob.location import BlobLocation
    from vernier.storage.errors import ManifestMissing, NothingCommitted
    from vernier.storage.state.state import StateDirectory

    place = BlobLocation(directory)
    if place.folder is not None and not place.folder.is_dir():
        raise click.ClickException(f"there is no directory {directory}")
    found = StateDirectory(place)
    if not found.epochs():
        if head := found.head():
            raise ManifestMissing(path=directory, epoch=head, newest="no manifest exists")
        raise NothingCommitted(path=directory)
    return found


@state.command("list")
@_directory
def state_list(directory: str) -> None:
    """Show the newest epoch of DIRECTORY: its arrangements, with the data times that each tells apart, and its files.

    DIRECTORY is a path or a URI like s3://bucket/name."""
    from vernier.service.cli.display import state_text
    from vernier.storage.state.survey import survey

    found = open_state(directory)
    click.echo(state_text(survey(found), found.segments()))


@state.command("verify")
@_directory
def state_verify(directory: str) -> None:
    """Check every checksum and rule of DIRECTORY, offline or beside a service; exit status 1 if anything is wrong."""
    from vernier.service.observability.progress import on_terminal
    from vernier.storage.state.audit import audit

    opened, show = open_state(directory), on_terminal()
    try:
        found = audit(opened, lambda done, size: show.done("verifying", done, size, "B"))
    finally:
        show.clear()
    click.echo(
        f"{found.manifests} epochs, {found.segments} segments, {found.batches} batches, {found.bytes:,} bytes read; "
        f"{len(found.unused)} segments unused"
    )
    for problem in found.problems:
        click.echo(problem)
    if found.problems:
        raise click.ClickException(
            f"{directory} is damaged: {len(found.problems)} problems, the first: {found.problems[0]}"
        )


@state.command("copy")
@_directory
@click.argument("target")
def state_copy(directory: str, target: str) -> None:
    """Copy the newest epoch of DIRECTORY to TARGET, also while the service runs. Both are paths or URIs."""
    from vernier.service.config.programs import FOLDER
    from vernier.service.observability.progress import on_terminal
    from vernier.storage.blob.location import BlobLocation
    from vernier.storage.state.backup import copy_newest
    from vernier.storage.state.state import StateDirectory

    opened, show = open_state(directory), on_terminal()
    try:
        copied = copy_newest(
            opened,
            StateDirectory(BlobLocation(target)),
            [FOLDER],
            lambda done, all_: show.done("copying", done, all_, ""),
        )
    finally:
        show.clear()
    click.echo(f"epoch {copied.manifest.epoch}: {copied.segments} segments, {copied.bytes:,} bytes copied to {target}")


@state.command("export")
@_directory
@click.option("--view", required=True, help="The view.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="A new folder, or NAME.parquet for one file."
)
@click.option("--since", help="First data time of the changes; default: the first that is kept.")
@click.option("--until", help="Data time at which the changes end; default: where the view is final.")
@click.option("--as-of", help="The rows as of this data time, instead of changes.")
def state_export(directory: str, view: str, out: Path, since: str | None, until: str | None, as_of: str | None) -> None:
    """Write a view's changes, or its rows as of a data time, as Parquet, also while the service runs.

    The changes have their data time as `_time`, and `_diff`. Times are nanoseconds or RFC 3339."""
    from vernier.service.codec.instants import parse_instant
    from vernier.service.observability.progress import on_terminal
    from vernier.service.views.export import export

    if as_of is not None and (since is not None or until is not None):
        raise click.UsageError("--as-of writes rows, --since and --until write changes; give one of them")
    times = {"as_of": as_of, "since": since, "until": until}
    opened, show = open_state(directory), on_terminal()
    try:
        made = export(
            opened,
            view,
            out,
            **{name: None if text is None else parse_instant(text) for name, text in times.items()},
            show=lambda done, all_: show.done("exporting", done, all_, "parts"),
        )
    finally:
        show.clear()
    what = f"changes with {made.since} <= time < {made.until}" if made.as_of is None else f"rows as of {made.as_of}"
    click.echo(f"view {view}: {made.rows:,} {what}, {made.files} files, {made.bytes:,} bytes in {out}")


@state.command("gc")
@_directory
@click.option(
    "--keep", type=click.IntRange(2), default=64, show_default=True, help="How many of the newest epochs to keep."
)
def state_gc(directory: str, keep: int) -> None:
    """Remove old epochs of DIRECTORY, and files that no epoch needs. The service must be stopped."""
    owned = open_state(directory)
    before = sum(owned.segments().values())
    with owned:
        found = owned.gc(keep)
    freed = before - sum(owned.segments().values())
    click.echo(f"removed {found.manifests} epochs; {freed:,} bytes freed")
