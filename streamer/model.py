"""The types that pass between the rooms. All are immutable.

A JSON value is a Python value: None, bool, int, float, str, list, dict, with two rules. An int stands for an integer literal in
int64 or, from 2^63 on, in uint64; any other literal is a float. A literal beyond float64 is a `BeyondFloat64`.
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

# The words that a user writes. The tables of the parsers are these words or have a row for each; tests hold it.
EventType = Literal["insert", "update", "delete"]
Transition = Literal["enter", "stay", "leave"]
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
Dialect = Literal["strict", "eventbridge"]
OnUnknown = Literal["deliver", "skip"]
TopicDialect = Literal["amqp", "mqtt", "nats"]
CelEvaluator = Literal["native", "portable"]

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

MAX_CEL_DEPTH = 64

#: What an answer to a person says of what it leaves out, since it would take too long.
TOO_COSTLY: Final = "not evaluated: too costly"


def is_unicode(text: str) -> bool:
    """Return whether a text can be written in UTF-8: half of a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a string that UTF-8 can represent; only such a string can be an id or a name."""
    return isinstance(value, str) and is_unicode(value)


def type_of(value: object) -> str:
    """Name the type of a Python value, with its module: `numpy.bool` is not `bool`."""
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
        """Combine by `&&`: false absorbs, then unknown beats error."""
        for decisive in (Verdict.FALSE, Verdict.UNKNOWN, Verdict.ERROR):
            if decisive in verdicts:
                return decisive
        return Verdict.TRUE

    @staticmethod
    def any(verdicts: Sequence[Verdict]) -> Verdict:
        """Combine by `||`: true absorbs, then unknown beats error."""
        for decisive in (Verdict.TRUE, Verdict.UNKNOWN, Verdict.ERROR):
            if decisive in verdicts:
                return decisive
        return Verdict.FALSE

    def negate(self) -> Verdict:
        """Negate; an error and an unknown stay unchanged."""
        return {Verdict.TRUE: Verdict.FALSE, Verdict.FALSE: Verdict.TRUE}.get(self, self)


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the cost of a user or an event. Every one is checked before the cost is paid.

    Attributes:
        allow_unindexed: False refuses subscriptions of which no condition can be looked up, so that they may be about any event
            of their partition: their `plan` shows the cost `unkeyed`.
        max_subscription_bytes: how long the JSON text of a subscription may be; labels of one that is given as an object are
            left out.
        max_conditions: how many filters and fields of its pattern a subscription may have.
        max_alternatives: how many values in lists of its filters `in` and `not in`, in arrays of its pattern and in lists of
            `anything-but`.
        max_regexp_size: how many states a regexp of a filter or a pattern may have. It is searched in texts of up to 16 MB
            divided by its size (docs/cel-cost.md).

    Raises:
        ConfigError: one is not a positive integer, or `max_cel_depth` is above 64, because expressions are walked by recursion.
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

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name == "allow_unindexed":
                if not isinstance(value, bool):
                    raise ConfigError(f"expected True or False, not {type(value).__name__}", place=f"limits.{limit.name}")
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"expected an integer, not {type(value).__name__}", place=f"limits.{limit.name}")
            # Ten units a microsecond have to fit as well.
            most = {"max_cel_depth": MAX_CEL_DEPTH, "evaluation_timeout_us": INT64_MAX // 10}.get(limit.name, INT64_MAX)
            if not 1 <= value <= most:
                raise ConfigError(f"expected an integer from 1 to {most}", place=f"limits.{limit.name}")

    @property
    def cel_budget(self) -> int:
        """Cost units that one evaluation of a CEL program may use: ten a microsecond."""
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
    data_at: Pointer | None = None  # where `data` and `before` were found in `raw`, or would stand
    before_at: Pointer | None = None
    untold: bool = False  # an update that carries no `before`, where the layout has it partial

    @property
    def tells_of_before(self) -> bool:
        """Whether the event carries `before`, or lists it or a part of it as unknown."""
        at = self.before_at
        if self.untold:
            return False
        return self.before is not None or (
            at is not None and any(unknown[: len(at)] == at[: len(unknown)] for unknown in self.unknown)
        )


@final
@dataclass(frozen=True, slots=True)
class Match:
    """A subscription that wants an event (semantics.md section 7).

    Attributes:
        event: the event as you passed it to the engine.
        transition: `enter`, `stay` or `leave`; None if the event has none.
        certain: False if the event lacks a value that the decision needed.
    """

    subscription_id: str
    gateway_id: str | None
    event: Any = field(repr=False, compare=False)
    transition: Transition | None = None
    certain: bool = True
    labels: Mapping[str, Any] | None = None
