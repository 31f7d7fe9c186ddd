"""`streamer tokens`: who may use the API of a service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from streamer.cli.output import PlainFormat, show_json
from streamer.cli.setup import CONFIG, PATH, PLAIN_FORMAT, load, refuse
from streamer.errors import BulkConfigError, ServiceError
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, note, printable, show

FILE: Final = click.option("--file", metavar="FILE", type=PATH, help="The file of tokens; wins over api.tokens.file.")


@click.group(name="tokens", short_help="Look after the tokens of the API.", no_args_is_help=True)
def app() -> None:
    """Create, list and revoke the tokens of a service's API. A running service notices."""


@app.command(short_help="Create a token, and print it once.", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@click.option("--tenant", metavar="NAME", help="Whose it is. An administrator's has none.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(("read", "write", "consume", "admin")),
    multiple=True,
    required=True,
    help="What it may do; several times for several.",
)
@click.option("--name", metavar="TEXT", default="", help="What you call it.")
@FILE
@CONFIG
def create(tenant: str | None, scopes: Sequence[str], name: str, file: Path | None, config: str | None) -> None:
    """Create a token, and print it: once, since the file has a hash of it alone."""
    from streamer.service.api import tokens

    try:
        token, text = tokens.create(_file(file, config), tenant, tuple(dict.fromkeys(scopes)), name)  # type: ignore[arg-type]
    except (ServiceError, ValueError) as error:
        fail(str(error))
    print(text)
    note(f"token {token.id}: keep it, it is not shown again")


@app.command(name="list", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@FILE
@CONFIG
@PLAIN_FORMAT
def list_command(file: Path | None, config: str | None, report: PlainFormat) -> None:
    """List the tokens, without what makes them secret."""
    from streamer.service.api import tokens

    try:
        found = tokens.read(_file(file, config))
    except ServiceError as error:
        fail(str(error))
    if report is PlainFormat.text:
        show(f"{'ID':<8}  {'CREATED':<20}  {'TENANT':<16}  {'SCOPES':<20}  NAME")
    for token in found:
        if report is PlainFormat.json:
            show_json({name: value for name, value in asdict(token).items() if name != "sha256"})
        else:
            tenant, name = printable(token.tenant or "-"), printable(token.name)
            show(f"{token.id:<8}  {token.created:<20}  {tenant:<16}  {','.join(token.scopes):<20}  {name}")


@app.command(epilog=EXIT_CODES.format(one="there is no such token"))
@click.argument("id", metavar="ID", help="As the list has it.")
@FILE
@CONFIG
def revoke(id: str, file: Path | None, config: str | None) -> None:  # noqa: A002 - the name of the argument
    """Revoke a token: from now on it is none."""
    from streamer.service.api import tokens

    try:
        found = tokens.revoke(_file(file, config), id)
    except ServiceError as error:
        fail(str(error))
    if not found:
        note(f"no token {id}")
        sys.exit(SOME_BAD)
    note(f"token {id} revoked")


def _file(file: Path | None, config: str | None) -> Path:
    """Return which file is meant, or end."""
    if file is None and config is not None:
        try:
            file = load(config).config.api.tokens.file
        except BulkConfigError as bulk:
            refuse(bulk)
    if file is None:
        fail("which file? name it with --file, or as api.tokens.file in the configuration")
    return file
