"""The types that all packages share. All are immutable.

A JSON value is a Python value: None, bool, int, float, str, list, dict, with two rules. An int represents an integer literal in
the range of int64 or uint64; any other literal is a float. A literal beyond float64 is a `BeyondFloat64`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeGuard, final

from streamer.errors import ConfigError

Pointer: TypeAlias = tuple[str, ...]
"""A JSON Pointer, split into its unescaped tokens; the empty tuple is the whole document."""

REST: Final = "\ud800"
"""In place of an unknown's last token: each member that the object there lacks. No member has this name, half of a character."""

# The words that a user writes. The tables of the parsers are made of these words or have a row for each; tests check that.
EventType = Literal["insert", "update", "delete"]
Transition = Literal["enter", "stay", "leave"]
FilterRoot = Literal["data", "envelope"]
FilterOperator = Literal[
    "==",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "in",
    "not in",
    "contains",
    "exists",
    "starts_with",
    "ends_with",
    "matches",
    "changed",
    "changed_to",
    "changed_from",
]
FilterGroupOperator = Literal["any", "all", "not"]
Dialect = Literal["strict", "eventbridge"]
OnUnknown = Literal["deliver", "skip"]
TopicDialect = Literal["amqp", "mqtt", "nats"]
CelEvaluator = Literal["native", "portable"]

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

MAX_CEL_DEPTH = 64

#: The reason in an explanation for a condition that would take too long to evaluate.
TOO_COSTLY: Final = "not evaluated: too costly"


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it cannot if the text has a lone surrogate."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a string that UTF-8 can represent; only such a string can be an id or a name."""
    return isinstance(value, str) and is_unicode(value)


def type_of(value: object) -> str:
    """Return the name of a Python value's type, with its module: `numpy.bool` is not `bool`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@final
@dataclass(frozen=True, slots=True)
class BeyondFloat64:
    """A JSON number beyond float64, such as `1e400`. It exists, but every comparison with it is false or an error."""

    text: str


class Verdict(Enum):
    """The result of a condition for one event (semantics.md sections 4 and 8)."""

    TRUE = "true"
    FALSE = "false"
    ERROR = "error"
    UNKNOWN = "unknown"

    @staticmethod
    def of(value: bool) -> Verdict:
        return Verdict.TRUE if value else Verdict.FALSE

    @staticmethod
    def all(verdicts: Sequence[Verdict]) -> Verdict:
        """Return the result of `&&`: false if any is false, else unknown, else error, else true."""
        for decisive in (Verdict.FALSE, Verdict.UNKNOWN, Verdict.ERROR):
            if decisive in verdicts:
                return decisive
        return Verdict.TRUE

    @staticmethod
    def any(verdicts: Sequence[Verdict]) -> Verdict:
        """Return the result of `||`: true if any is true, else unknown, else error, else false."""
        for decisive in (Verdict.TRUE, Verdict.UNKNOWN, Verdict.ERROR):
            if decisive in verdicts:
                return decisive
        return Verdict.FALSE

    def negate(self) -> Verdict:
        """Return the negated verdict; an error and an unknown stay unchanged."""
        return {Verdict.TRUE: Verdict.FALSE, Verdict.FALSE: Verdict.TRUE}.get(self, self)


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the cost of a subscription or an event. Each is checked before the cost arises.

    Attributes:
        allow_unindexed: False refuses subscriptions without a condition that the index can look up: they must be checked for
            every event of their partition, and their `plan` shows the cost `unkeyed`.
        max_subscription_bytes: the most bytes of a subscription's JSON text; labels of a subscription object are not counted.
        max_conditions: the most filters and fields of its pattern that a subscription may have, together.
        max_alternatives: the most values in lists of its filters `in` and `not in`, in arrays of its pattern and in lists of
            `anything-but`, together.
        max_regexp_size: the most states of a regexp in a filter or a pattern. It is searched in texts of up to 16 MB divided by
            its size (docs/cel-cost.md).

    Raises:
        ConfigError: a limit is not a positive integer, or `max_cel_depth` is above 64, because expressions are evaluated by
            recursion.
    """

    max_depth: int = 512
    max_event_bytes: int = 16 * 1024 * 1024
    max_subscription_bytes: int = 4 * 1024 * 1024
    max_conditions: int = 20_000
    max_alternatives: int = 100_000
    max_pattern_states: int = 1_000_000
    max_regexp_size: int = 10_000
    max_conjunctions: int = 64
    max_cel_bytes: int = 16 * 1024
    max_cel_depth: int = 64
    evaluation_timeout_us: int = 100_000
    allow_unindexed: bool = True

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Limits:
        """Return limits from a mapping of their names. Raises ConfigError for an unknown name or a wrong value."""
        if not isinstance(members, Mapping):
            raise ConfigError(f"expected a mapping or streamer.Limits, not {type_of(members)}", place="limits")
        names = [limit.name for limit in fields(cls)]
        for name in members:
            if name not in names:
                raise ConfigError(f"expected one of {', '.join(names)}", place=f"limits.{name}")
        return cls(**members)

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name == "allow_unindexed":
                if not isinstance(value, bool):
                    raise ConfigError(f"expected True or False, not {type(value).__name__}", place=f"limits.{limit.name}")
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"expected an integer, not {type(value).__name__}", place=f"limits.{limit.name}")
            # The budget, ten units per microsecond, must fit in 64 bits, too.
            most = {"max_cel_depth": MAX_CEL_DEPTH, "evaluation_timeout_us": INT64_MAX // 10}.get(limit.name, INT64_MAX)
            if not 1 <= value <= most:
                raise ConfigError(f"expected an integer from 1 to {most}", place=f"limits.{limit.name}")

    @property
    def cel_budget(self) -> int:
        """The cost units that one evaluation of a CEL program may use: ten per microsecond."""
        return self.evaluation_timeout_us * 10


@final
@dataclass(frozen=True, slots=True)
class Event:
    """A change event, read through a layout (semantics.md section 1).

    A string part that the event does not have is None here, and `""` in CEL.
    """

    raw: Mapping[str, Any]
    tenant: str
    id: str | int | None = None
    collection: str | None = None
    type: str | None = None
    ts_ns: int | None = None  # nanoseconds since the epoch
    topic: str | None = None
    data: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    unknown: tuple[Pointer, ...] = ()  # from the event's root; the last step may be `REST`
    unknown_parts: frozenset[str] = frozenset()  # those of `type`, `ts` and `topic` that a pointer in `unknown` covers
    data_at: Pointer | None = None  # the pointers to `data` and `before` in `raw`, even if they are missing there
    before_at: Pointer | None = None
    envelope: Mapping[str, Any] | None = None  # the record without its documents; the same on both sides
    envelope_at: Pointer | None = None
    envelope_unknown: tuple[Pointer, ...] = ()  # those of `unknown` that are in the envelope or contain it
    untold: bool = False  # an update without `before`, if `before` is partial in the layout

    def document(self, root: str) -> tuple[Mapping[str, Any] | None, Pointer | None, tuple[Pointer, ...]]:
        """Return `data`, `before` or `envelope`, its place, and pointers to the unknown values, which may be in it."""
        if root == "envelope":
            return self.envelope, self.envelope_at, self.envelope_unknown
        return (self.data, self.data_at, self.unknown) if root == "data" else (self.before, self.before_at, self.unknown)

    @property
    def tells_of_before(self) -> bool:
        """Whether the event has `before`, or lists it or a part of it as unknown."""
        at = self.before_at
        if self.untold:
            return False
        return self.before is not None or (
            at is not None and any(unknown[: len(at)] == at[: len(unknown)] for unknown in self.unknown)
        )


@final
@dataclass(frozen=True, slots=True)
class Match:
    """A subscription that matches an event (semantics.md section 7).

    Attributes:
        event: the event as you passed it to the engine.
        transition: `enter`, `stay` or `leave`; None if the event has none.
        certain: False if the event lacks a value that the decision depends on.
    """

    subscription_id: str
    gateway_id: str | None
    event: Any = field(repr=False, compare=False)
    transition: Transition | None = None
    certain: bool = True
    labels: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the members, ready for `json.dumps`, without the event, which may be text or bytes."""
        return {
            "subscription_id": self.subscription_id,
            "gateway_id": self.gateway_id,
            "transition": self.transition,
            "certain": self.certain,
            "labels": self.labels,
        }
