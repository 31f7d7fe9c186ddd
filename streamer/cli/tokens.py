"""`streamer tokens`: the tokens for the API of a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from streamer.cli.output import PlainFormat, show_json
from streamer.cli.setup import CONFIG, PATH, PLAIN_OUTPUT, load, refuse
from streamer.errors import BulkConfigError, ServiceError
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, note, printable, show

FILE: Final = click.option("--file", metavar="FILE", type=PATH, help="The file of tokens; wins over api.tokens.file.")


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    from streamer.config.units import parse_duration  # imports pydantic, which only few commands need

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
@click.option(
    "--output", metavar="FILE", type=PATH, help="A new file for the token, which only you can read; else it is printed."
)
@click.option(
    "--expires-in",
    "lasts",
    callback=_duration,
    metavar="TIME",
    help="When it expires, for example 90d; without it, never.",
)
@FILE
@CONFIG
def create(
    tenant: str | None,
    scopes: Sequence[str],
    name: str,
    output: Path | None,
    lasts: timedelta | None,
    file: Path | None,
    config: str | None,
) -> None:
    """Create a token, and print it: once, because the file has only its hash."""
    from streamer.service.api import tokens

    made = None
    try:
        if output is not None:
            # Before the token exists: if the file cannot be written, no unknown token is left behind, and the user tries again.
            made = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        token, text = tokens.create(_file(file, config), tenant, tuple(dict.fromkeys(scopes)), name, lasts)  # type: ignore[arg-type]
    except FileExistsError:
        fail(f"--output {output}: the file exists already; choose a new name")
    except OSError as error:
        fail(f"--output {output}: {error.strerror or error}")
    except (ServiceError, ValueError) as error:
        _undo(output, made)
        fail(str(error))
    except BaseException:
        _undo(output, made)
        raise
    if made is None:
        print(text)
    else:
        with os.fdopen(made, "w") as written:
            print(text, file=written)
    note(f"token {token.id}: keep it, it is not shown again")


@app.command(name="list", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@FILE
@CONFIG
@PLAIN_OUTPUT
def list_command(file: Path | None, config: str | None, report: PlainFormat) -> None:
    """List the tokens, without what makes them secret."""
    from streamer.service.api import tokens

    try:
        entries = tokens.read(_file(file, config))
    except ServiceError as error:
        fail(str(error))
    if report is PlainFormat.text:
        show(f"{'ID':<8}  {'CREATED':<20}  {'EXPIRES':<20}  {'TENANT':<16}  {'SCOPES':<20}  NAME")
    for token in entries:
        if report is PlainFormat.json:
            show_json({name: value for name, value in asdict(token).items() if name != "sha256"})
        else:
            tenant, name = printable(token.tenant or "-"), printable(token.name)
            expires = "expired" if token.is_over() else token.expires or "-"
            show(f"{token.id:<8}  {token.created:<20}  {expires:<20}  {tenant:<16}  {','.join(token.scopes):<20}  {name}")


@app.command(epilog=EXIT_CODES.format(one="there is no such token"))
@click.argument("id", metavar="ID", help="As the list has it.")
@FILE
@CONFIG
def revoke(id: str, file: Path | None, config: str | None) -> None:
    """Revoke a token: from now on it is none."""
    from streamer.service.api import tokens

    try:
        existed = tokens.revoke(_file(file, config), id)
    except ServiceError as error:
        fail(str(error))
    if not existed:
        note(f"token {id} does not exist")
        sys.exit(SOME_BAD)
    note(f"token {id} revoked")


def _undo(output: Path | None, made: int | None) -> None:
    """Remove the file of a token that was not created."""
    if output is not None and made is not None:
        os.close(made)
        output.unlink(missing_ok=True)


def _file(file: Path | None, config: str | None) -> Path:
    """Return the file of the tokens, or end the program."""
    if file is None and config is not None:
        try:
            file = load(config).config.api.tokens.file
        except BulkConfigError as bulk:
            refuse(bulk)
    if file is None:
        fail("name the file with --file, or as api.tokens.file in the configuration")
    return file
