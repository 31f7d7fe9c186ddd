"""The command `streamer export`: subscriptions in, rules of another language out."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

import click

from streamer.cli.setup import CONFIG, DEFAULT_TENANT, SUBSCRIPTIONS, set_up
from streamer.errors import SubscriptionError
from streamer.subscriptions.subscription import Subscription
from streamer.terminal import EXIT_CODES, SOME_BAD, json_text, note, show

#: https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html
_NAME: Final = re.compile(r"[.\-_A-Za-z0-9]{1,64}")


def _cel(subscription: Subscription) -> str:
    kept = {
        name: value for name in ("id", "gateway_id", "tenant", "labels") if (value := getattr(subscription, name)) is not None
    }
    return json_text({**kept, "cel": subscription.to_cel()})


def _eventbridge(subscription: Subscription, *, scalars: bool) -> str:
    if not _NAME.fullmatch(subscription.id):
        raise SubscriptionError("the name of a rule of EventBridge has 1 to 64 of the characters A-Z a-z 0-9 . - _", place="id")
    return json_text({"Name": subscription.id, "EventPattern": json_text(subscription.to_eventbridge(scalars=scalars))})


def _sql(subscription: Subscription) -> str:
    return f"-- name: {json_text(subscription.id)[1:-1]}\n{subscription.to_sql()}"


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
    help="cel: one expression; eventbridge: a rule with a pattern; sql: a condition of WHERE in PostgreSQL.",
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
    rules, refused = [], 0
    for subscription in set_up(config, subscriptions, default_tenant=default_tenant).engine().subscriptions():
        try:
            match language:
                case "cel":
                    rules.append(_cel(subscription))
                case "eventbridge":
                    rules.append(_eventbridge(subscription, scalars=scalars))
                case _:
                    rules.append(_sql(subscription))
        except SubscriptionError as error:
            refused += 1
            note(str(error) if error.subscription_id is not None else f"subscription {subscription.id!r}: {error}")
    if skip or not refused:
        for rule in rules:
            show(rule)
    note(f"{len(rules)} of {len(rules) + refused} subscriptions translated")
    if refused:
        if not skip and rules:
            note("nothing was printed; --skip prints the others")
        sys.exit(SOME_BAD)
