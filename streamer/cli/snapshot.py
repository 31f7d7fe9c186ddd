"""The commands `streamer snapshot`: arguments in, text out."""

from __future__ import annotations

import sys
from typing import Final

import click

from streamer.cli.output import PlainFormat, show_json
from streamer.cli.setup import PLAIN_OUTPUT
from streamer.core.snapshot import Directory, read_directory, verify
from streamer.errors import SnapshotError
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, json_text, show

FILE: Final = click.argument("file", metavar="FILE", help="A snapshot.")


@click.group(name="snapshot", short_help="Look into snapshots, and save them.", no_args_is_help=True)
def app() -> None:
    """Look into files of subscriptions that an engine opens at once."""


@app.command(epilog=EXIT_CODES.format(one="the file is damaged, or no snapshot that this version reads"))
@FILE
@PLAIN_OUTPUT
@click.option("--verify", "check", is_flag=True, help="Read all of it, and compare every checksum.")
def info(file: str, report: PlainFormat, check: bool) -> None:
    """Describe a snapshot: its digest, its options, and each section."""
    try:
        directory = verify(file) if check else read_directory(file)
    except SnapshotError as error:
        show(str(error))
        sys.exit(SOME_BAD)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    if report is PlainFormat.json:
        show_json(_members(directory))
    else:
        show(_table(directory))


def _members(directory: Directory) -> dict[str, object]:
    sections = [
        {"tenant": each.tenant, "collection": each.collection, "subscriptions": each.subscriptions, "bytes": each.bytes}
        for each in directory.sections
    ]
    return {
        "format": directory.format,
        "digest": directory.digest,
        "subscriptions": directory.subscriptions,
        "options": directory.options,
        "sections": sections,
    }


def _table(directory: Directory) -> str:
    lines = [
        f"format         {directory.format}",
        f"digest         {directory.digest}",
        f"subscriptions  {directory.subscriptions:,}",
        *(f"{name:<14} {json_text(value)}" for name, value in directory.options.items()),
        "",
        f"{'tenant':<24} {'collection':<24} {'subscriptions':>13} {'bytes':>14}",
        *(f"{each.tenant:<24} {each.collection:<24} {each.subscriptions:>13,} {each.bytes:>14,}" for each in directory.sections),
    ]
    return "\n".join(lines)
