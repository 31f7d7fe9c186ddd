"""Translate rules of other languages into subscriptions.

```python
from streamer.importing import import_rules

imported = import_rules("sql", "status = 'paid' AND amount > 100")
imported.subscriptions  # [Subscription(id='sql-1', filters=[..])]
```

A rule becomes the form that means exactly the same: filters, a pattern or CEL. A rule that no form expresses exactly is an error
with its place and reason. Each language is one file of this package, or a folder, over the conditions of conditions.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, final

from streamer.cel_eval.cache import ProgramCache
from streamer.errors import BulkSubscriptionError, SubscriptionError
from streamer.importing.rules import Rule
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription

__all__ = ["KINDS", "Imported", "import_rules"]

#: The languages, with the rules that each file contains. The module of this package with that name has the function `rules`.
KINDS: Final = {
    "cesql": "CloudEvents SQL expressions, one a line",
    "eventbridge": "rules of EventBridge: `list-rules`, CloudFormation, SAM, Terraform in JSON, or patterns",
    "hasura": "boolean expressions of Hasura, or its metadata, in JSON or YAML",
    "jsonlogic": "rules of JSONLogic, in JSON",
    "mongo": "query filters of MongoDB, in JSON",
    "sns": "filter policies of SNS: subscriptions' attributes, CloudFormation, SAM, Terraform in JSON, or policies",
    "sql": "conditions of WHERE, one a line, or SELECT statements",
    "supabase": "filters of Supabase and PostgREST, such as `status=eq.paid`, one a line",
}

_PROGRAMS: Final = ProgramCache()


@final
@dataclass(frozen=True, slots=True)
class Imported:
    """The rules of a file as subscriptions.

    Attributes:
        subscriptions: in the order of the file.
        refused: an error for each rule that was left out, with its place; empty unless `on_error` is `skip`.
    """

    subscriptions: list[Subscription]
    refused: list[SubscriptionError]


def import_rules(kind: str, source: str | bytes, *, on_error: Literal["raise", "skip"] = "raise", **members: Any) -> Imported:
    """Return the rules of a file as subscriptions.

    Args:
        kind: the language, a name in `KINDS`.
        source: the text of the file.
        on_error: `raise`, or `skip` to leave out rules that cannot be expressed; `refused` then has an error for each.
        members: members of every subscription, such as `gateway_id` or `collection`; a file that gives its own overrides them.

    Raises:
        BulkSubscriptionError: some rules cannot be expressed; `errors` has an error for each, with its place.
        SubscriptionError: the source as a whole is not a file of this kind.
        ValueError: the kind is unknown.
        ModuleNotFoundError: the kind needs an extra; the error names it.
    """
    subscriptions: list[Subscription] = []
    refused: list[SubscriptionError] = []
    ids: set[str] = set()
    number = 0
    for number, rule in enumerate(_reader(kind)(_text(source)), start=1):
        try:
            subscription = _subscription(rule, {"id": f"{kind}-{number}", **members})
            if subscription.id in ids:
                raise SubscriptionError(f"a rule before this one has the id {subscription.id!r}", place="id")
        except SubscriptionError as error:
            error.place = ": ".join(filter(None, (rule.place, error.place)))
            refused.append(error)
        else:
            ids.add(subscription.id)
            subscriptions.append(subscription)
    if not number:
        raise SubscriptionError(f"no rule found; expected {KINDS[kind]}")
    if refused and on_error == "raise":
        raise BulkSubscriptionError(refused)
    return Imported(subscriptions, refused)


def _reader(kind: str) -> Callable[[str], Iterator[Rule]]:
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, not {kind!r}")
    read: Callable[[str], Iterator[Rule]] = import_module(f"streamer.importing.{kind}").rules
    return read


def _text(source: str | bytes) -> str:
    try:
        text = source if isinstance(source, str) else source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SubscriptionError(f"expected text in UTF-8; byte {error.start} is not") from None
    if match := re.search("[\0\ud800-\udfff]", text):
        what = "NUL" if match[0] == "\0" else "half of a surrogate pair"
        raise SubscriptionError(f"expected text; character {match.start()} is {what}")
    return text


def _subscription(rule: Rule, members: dict[str, Any]) -> Subscription:
    """Return a rule as a subscription that an engine accepts."""
    for name in ("filters", "cel", "pattern"):
        if name in rule.members:
            raise SubscriptionError("a condition stands next to the rule, which is one; write one of them", place=name)
    subscription = parse_subscription({**members, **rule.members, **rule.translate()})
    # Imported here: loading CEL's parser takes a fifth of the start of every command.
    from streamer.subscriptions.compile import compile_subscription

    # An error of an engine would come later, without the place in the file.
    compile_subscription(subscription, programs=_PROGRAMS)
    return subscription
