"""A subscription as its user writes it (semantics.md section 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Required, TypeAlias, TypedDict, final, get_args

from streamer.errors import SubscriptionError
from streamer.model import (
    CelEvaluator,
    Dialect,
    EventType,
    FilterGroupOperator,
    FilterOperator,
    FilterRoot,
    OnUnknown,
    TopicDialect,
)

if TYPE_CHECKING:
    from streamer.events.layout import EventLayout

#: The tenant or collection that stands for all.
EVERY: Final = "*"


@final
@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a field of `data` or of the envelope (semantics.md section 3).

    Args:
        field: a dotted path (`user.country`) or, for names that contain a dot, a JSON Pointer (`/a.b/c`).
        op: how to compare (semantics.md section 3).
        value: the value to compare with; omitted for `changed`.
        root: where the path of the field begins: `data`, or `envelope`, the record without its documents.
        ignore_case: whether texts that differ only in case are equal (semantics.md 3.35).
    """

    field: str
    op: FilterOperator
    value: Any = None
    root: FilterRoot = "data"
    ignore_case: bool = False

    def __repr__(self) -> str:
        rest = "" if self.root == "data" else f", root={self.root!r}"
        rest += f", ignore_case={self.ignore_case!r}" if self.ignore_case else ""
        return f"Filter(field={self.field!r}, op={self.op!r}, value={self.value!r}{rest})"

    def to_cel(self) -> str:
        """Return the CEL expression with exactly the meaning of this filter."""
        from streamer.subscriptions.filters import parse_filter

        return parse_filter(self).to_cel()

    def to_dict(self) -> dict[str, Any]:
        """Return the members, ready for `json.dumps`, without a default `root` or `ignore_case`; `changed` gets no value."""
        members: dict[str, Any] = {"field": self.field, "op": self.op, "value": self.value}
        if self.op == "changed" and self.value is None:
            del members["value"]
        if self.root != "data":
            members["root"] = self.root
        if self.ignore_case:
            members["ignore_case"] = self.ignore_case
        return members


GROUPS: Final[tuple[FilterGroupOperator, ...]] = get_args(FilterGroupOperator)
#: The most levels of groups. With the depth of a filter's own CEL, that of a group is within the default `limits.max_cel_depth`.
MAX_GROUP_DEPTH: Final = 16


@final
@dataclass(frozen=True, slots=True)
class FilterGroup:
    """Filters of which any, all or none must be true (semantics.md section 3).

    Args:
        op: `any`, `all` or `not`.
        filters: the filters and groups; for `not` exactly one.
    """

    op: FilterGroupOperator
    filters: Sequence[Filter | FilterGroup | Mapping[str, Any]]

    def __post_init__(self) -> None:
        if self.op not in GROUPS:
            raise SubscriptionError(f"expected 'any', 'all' or 'not', not {self.op!r}", place="op")
        entries: object = self.filters
        if not isinstance(entries, Sequence) or isinstance(entries, str | bytes | bytearray):
            raise SubscriptionError(f"expected a list, not {type(entries).__name__}", place="filters")
        if self.op == "not" and len(self.filters) != 1:
            raise SubscriptionError(f"'not' takes one filter, not {len(self.filters)}", place="filters")

    def __repr__(self) -> str:
        return f"FilterGroup(op={self.op!r}, filters={self.filters!r})"

    def to_cel(self) -> str:
        """Return the CEL expression with exactly the meaning of this group."""
        from streamer.subscriptions.groups import parse_entry

        return parse_entry(self).to_cel()

    def _members(self) -> Mapping[str, Any]:
        """Return the mapping with the same meaning, of which the entries stay as they are."""
        return {self.op: self.filters[0] if self.op == "not" else self.filters}

    def to_dict(self) -> dict[str, Any]:
        """Return the one member, ready for `json.dumps`. Raises SubscriptionError if groups are nested too deep."""
        return as_dict(self)


def as_dict(entry: Filter | FilterGroup | Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return an entry of `filters` as a dict, with those in it. Raises SubscriptionError if groups are nested too deep."""
    if isinstance(entry, Filter):
        return entry.to_dict()
    if depth > MAX_GROUP_DEPTH:
        raise SubscriptionError(f"groups nested deeper than {MAX_GROUP_DEPTH} levels", place="filters")
    if isinstance(entry, FilterGroup):
        entry = entry._members()
    return {name: _as_dicts(value, depth + 1) if name in GROUPS else value for name, value in entry.items()}


def _as_dicts(value: Any, depth: int) -> Any:
    """Return the member of a group, which is not checked yet, with its entries as dicts."""
    if isinstance(value, Filter | FilterGroup | Mapping):
        return as_dict(value, depth)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        return value
    return [as_dict(each, depth) if isinstance(each, Filter | FilterGroup | Mapping) else each for each in value]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription: an event matches if all given parts are true; an omitted part is true (semantics.md section 2).

    The check happens when you add it to an engine, or in `streamer.subscriptions.compile.compile_subscription`.

    Args:
        id: unique within an engine.
        gateway_id: the gateway that gets the match.
        tenant: the tenant of the events; if omitted, the engine's `default_tenant`; `"*"` means every tenant.
        collection: the collection of the events; if omitted, or `"*"`, every collection.
        types: some of `insert`, `update`, `delete`; if omitted, all.
        filters: conditions on fields of the document or of the envelope, as `Filter`, as `FilterGroup` or as mappings.
        cel: a CEL expression.
        cel_evaluator: the evaluator of the expression: `native`, the engine itself, or `portable`, cel-python, which calls
            functions that are registered in Python (docs/cel.md); if omitted, the engine's `cel_evaluator`.
        pattern: a Quamina/EventBridge pattern, as a mapping or as JSON text.
        topic: a topic pattern.
        topic_dialect: the dialect of the topic pattern: `amqp`, `mqtt` or `nats`; if omitted, the engine's `topic_dialect`.
        dialect: the dialect of the pattern.
        on_unknown: the result if the event does not carry enough to decide.
        transitions: also report that a document stops matching.
        labels: JSON that is returned with each match and not interpreted.
    """

    id: str
    gateway_id: str | None = None
    tenant: str | None = None
    collection: str | None = None
    types: Sequence[EventType] | None = None
    filters: Sequence[Filter | FilterGroup | Mapping[str, Any]] = ()
    cel: str | None = None
    pattern: Mapping[str, Any] | str | bytes | None = None
    topic: str | None = None
    topic_dialect: TopicDialect | None = None
    dialect: Dialect = "eventbridge"
    on_unknown: OnUnknown = "deliver"
    transitions: bool = False
    labels: Mapping[str, Any] | None = None
    cel_evaluator: CelEvaluator | None = None

    def __post_init__(self) -> None:
        # An engine checks all of it; a value of the wrong type is easier to find where it is written.
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "id"):
                raise SubscriptionError(f"expected a string, not {type(value).__name__}", place=name)

    def __repr__(self) -> str:
        members = zip(_NAMES, _DEFAULTS, _VALUES(self), strict=True)
        shown = (f"{name}={value!r}" for name, default, value in members if name == "id" or value != default)
        return f"Subscription({', '.join(shown)})"

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Subscription:
        """Return the subscription with these members. Raises SubscriptionError for an unknown member or a wrong type."""
        from streamer.subscriptions.parse import parse_subscription

        return parse_subscription(members)

    def to_cel(
        self, *, layout: EventLayout | None = None, array_depth: int | None = None, topic_dialect: TopicDialect = "amqp"
    ) -> str:
        """Return the whole subscription except its tenant as one CEL expression, which is true for the same events
        (docs/cel.md).

        Args:
            layout: the layout of the events, for paths of the pattern; by default `change`.
            array_depth: the most arrays that are nested directly in one another in the events. A pattern needs it, because CEL
                does not recurse; for an event with deeper arrays, the expression may have another result.
            topic_dialect: the dialect of a topic pattern that does not name one.

        Raises:
            SubscriptionError: CEL cannot express a part, or the part is invalid; `place` names it.
        """
        from streamer.subscriptions.to_cel import subscription_to_cel

        return subscription_to_cel(self, layout=layout, array_depth=array_depth, topic_dialect=topic_dialect)

    def to_eventbridge(self, *, scalars: bool = False, topic_dialect: TopicDialect = "amqp") -> dict[str, Any]:
        """Return the whole subscription except its tenant as a pattern of EventBridge, which matches the same events of the
        format `eventbridge` (docs/coming-from/eventbridge.md).

        Args:
            scalars: whether no field of a filter is an array or an object in any event, and none lies in an array. Filters need
                it, because a pattern looks into arrays, and sees no objects.
            topic_dialect: the dialect of a topic pattern that does not name one.

        Raises:
            SubscriptionError: EventBridge cannot express a part, or the part is invalid; `place` names it.
        """
        from streamer.subscriptions.to_eventbridge import subscription_to_eventbridge

        return subscription_to_eventbridge(self, scalars=scalars, topic_dialect=topic_dialect)

    def to_sql(self) -> str:
        """Return the filters and the CEL expression as a condition for WHERE in PostgreSQL (docs/coming-from/sql.md).

        It selects the rows whose documents match. A document is a row with a member for each column. Tenant and collection are
        not part of the condition: they name the database and the table.

        Raises:
            SubscriptionError: SQL cannot express a part exactly, or the part is invalid; `place` names it.
        """
        from streamer.subscriptions.to_sql import subscription_to_sql

        return subscription_to_sql(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the members that differ from their defaults, ready for `json.dumps`."""
        shown: dict[str, Any] = {}
        for name, default, value in zip(_NAMES, _DEFAULTS, _VALUES(self), strict=True):
            if value is None or (name != "id" and value == default):
                continue
            if name == "filters":
                value = [as_dict(item) for item in value]
                if not value:
                    continue
            shown[name] = value
        return shown


#: Members that are text.
_TEXTS: Final = ("id", "gateway_id", "tenant", "collection", "cel", "topic")
#: The members, and a function that reads all of them: computed once, because many subscriptions are written.
_NAMES: Final = tuple(member.name for member in fields(Subscription))
_DEFAULTS: Final = tuple(member.default for member in fields(Subscription))
_VALUES: Final = attrgetter(*_NAMES)


class FilterDict(TypedDict, total=False):
    """The type of a filter in the form of a mapping, for type checkers."""

    field: Required[str]
    op: Required[FilterOperator]
    value: Any
    root: FilterRoot
    ignore_case: bool


#: The type of a group of filters in the form of a mapping, which has one of these members, for type checkers.
FilterGroupDict = TypedDict(
    "FilterGroupDict",
    {"any": "Sequence[FilterEntry]", "all": "Sequence[FilterEntry]", "not": "FilterEntry"},
    total=False,
)

FilterEntry: TypeAlias = Filter | FilterGroup | FilterDict | FilterGroupDict
"""An entry of `filters`, for type checkers."""


class SubscriptionDict(TypedDict, total=False):
    """The type of a subscription in the form of a mapping, for type checkers; `Subscription` documents each member."""

    id: Required[str]
    gateway_id: str
    tenant: str
    collection: str
    types: Sequence[EventType]
    filters: Sequence[FilterEntry]
    cel: str
    pattern: Mapping[str, Any] | str
    topic: str
    topic_dialect: TopicDialect
    dialect: Dialect
    on_unknown: OnUnknown
    transitions: bool
    labels: Mapping[str, Any]
    cel_evaluator: CelEvaluator
