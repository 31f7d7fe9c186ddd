"""The command `streamer export`: subscriptions in, rules of another language out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click

from streamer.cli.setup import CONFIG, DEFAULT_TENANT, SUBSCRIPTIONS, set_up
from streamer.errors import SubscriptionError
from streamer.subscriptions.parse import named
from streamer.subscriptions.subscription import Subscription
from streamer.terminal import EXIT_CODES, SOME_BAD, json_text, note, printable, show

#: https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html
_NAME: Final = re.compile(r"[.\-_A-Za-z0-9]{1,64}")


def _cel(subscription: Subscription) -> str:
    rest = {
        name: value for name in ("id", "gateway_id", "tenant", "labels") if (value := getattr(subscription, name)) is not None
    }
    return json_text({**rest, "cel": subscription.to_cel()})


def _eventbridge(subscription: Subscription, *, scalars: bool) -> str:
    if not _NAME.fullmatch(subscription.id):
        raise SubscriptionError("the name of a rule of EventBridge has 1 to 64 of the characters A-Z a-z 0-9 . - _", place="id")
    return json_text({"Name": subscription.id, "EventPattern": json_text(subscription.to_eventbridge(scalars=scalars))})


def _sql(translated: Sequence[tuple[Subscription, str]]) -> Iterator[str]:
    """Yield SELECT statements if every subscription has a table, else conditions, one a line, for `streamer import sql`."""
    tables = [_table(subscription.collection) for subscription, _ in translated]
    if all(tables) and all(printable(sql, keep="\n") == sql for _, sql in translated):
        for (subscription, sql), table in zip(translated, tables, strict=True):
            yield f"-- name: {_name(subscription.id)}\nSELECT * FROM {table} WHERE {sql};"
        return
    for subscription, sql in translated:
        if subscription.collection is None and sql.isprintable():
            yield f"-- name: {_name(subscription.id)}\n{sql}"
        else:
            members = {"id": subscription.id, "collection": subscription.collection, "rule": sql}
            yield json_text({name: value for name, value in members.items() if value is not None})


def _table(collection: str | None) -> str | None:
    """Return a collection as a table: `"shop"."orders"`; None if no table has that name."""
    names = collection.split(".") if collection is not None else []
    if not 1 <= len(names) <= 3 or not all(name.isprintable() and 0 < len(name.encode()) <= 63 for name in names):
        return None
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _name(id: str) -> str:
    """Return an id as a comment that `streamer import sql` reads: in quotes unless it is words."""
    is_plain = id.isprintable() and id == id.strip() and not id.startswith('"') and " :" not in id
    return id if is_plain else json_text(id)


@click.command(
    name="export",
    short_help="Translate subscriptions into another language.",
    epilog=EXIT_CODES.format(one="some subscriptions have no exact translation"),
)
@click.option(
    "--to",
    "language",
    required=True,
    type=click.Choice(["cel", "eventbridge", "sql"]),
    help="cel: one expression; eventbridge: a rule with a pattern; sql: a SELECT or a condition of WHERE in PostgreSQL.",
)
@SUBSCRIPTIONS
@CONFIG
@DEFAULT_TENANT
@click.option("--scalars", is_flag=True, help="For eventbridge: no field of a filter is an array or an object in any event.")
@click.option("--skip", is_flag=True, help="Leave out subscriptions that have no exact translation.")
def command(
    language: str, subscriptions: Sequence[str], config: str | None, default_tenant: str | None, scalars: bool, skip: bool
) -> None:
    """Translate subscriptions into another language, one rule each.

    Each rule means exactly what its subscription means. If some subscriptions have no exact translation, nothing is printed; with
    --skip the others are.
    """
    translated: list[tuple[Subscription, str]] = []
    refused = 0
    for subscription in set_up(config, subscriptions, default_tenant=default_tenant).engine().subscriptions():
        try:
            match language:
                case "cel":
                    text = _cel(subscription)
                case "eventbridge":
                    text = _eventbridge(subscription, scalars=scalars)
                case _:
                    text = subscription.to_sql()
            translated.append((subscription, text))
        except SubscriptionError as error:
            refused += 1
            note(str(named(error, subscription.id)))
    if skip or not refused:
        for rule in _sql(translated) if language == "sql" else [text for _, text in translated]:
            show(rule)
    note(f"{len(translated)} of {len(translated) + refused} subscriptions translated")
    if refused:
        if not skip and translated:
            note("printed none because of these errors; --skip prints the others")
        sys.exit(SOME_BAD)
