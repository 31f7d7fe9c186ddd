"""Every error that Streamer raises. Each contains its place and the expected input.

```
StreamerError
├── SubscriptionError            a subscription that is invalid; `place` is the part at fault
│   ├── PatternError             its pattern
│   ├── CelError                 its CEL expression; with line and column
│   ├── DuplicateSubscriptionError
│   ├── UnknownSubscriptionError an unknown id
│   └── BulkSubscriptionError    several at once, from `Engine.add_many`
├── EventError                   an event that cannot be read; code, byte offset, reason
├── InputError                   input of another format, or compressed and damaged or cut off; also an OSError
├── ShippedFilterError           an exported Bloom filter that is damaged or of an unknown format
│   └── LeaseError               an exported Bloom filter whose lease has expired
├── SnapshotError                a snapshot that is damaged, cut off, or of a later version; names the place
├── ConfigError                  an invalid option; `place` names it
│   └── BulkConfigError          all faults of a configuration; from `Config.load`, `Engine.from_config`, `Engine.reload`
├── ServiceError                 the service cannot continue: a store, a source or a sink cannot be used
├── BackendError                 the requested backend is missing
├── ReentryError                 a change within a change of the same thread, where this is impossible
└── InternalError                a defect of Streamer itself; the engine stays usable
```

Every class pickles, because errors travel between processes in batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any


class StreamerError(Exception):
    """Base of all errors raised by this package."""


class SubscriptionError(StreamerError):
    """An invalid subscription.

    Attributes:
        reason: the fault and the expected input, without the place.
        place: the member at fault, such as `filters[0].op` or `pattern.data.tags[0].prefix`; empty for the whole.
        subscription_id: the id of the subscription, if it could be read.
        index: position in the sequence (or line in the file, from 0) given to `add_many` or `add_jsonl`.
    """

    def __init__(
        self,
        reason: str,
        *,
        place: str = "",
        subscription_id: str | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        self.subscription_id = subscription_id
        self.index = index

    def __str__(self) -> str:
        where = f"{shortened(self.place)}: " if self.place else ""
        who = f"subscription {shortened(self.subscription_id)!r}: " if self.subscription_id is not None else ""
        which = f"[{self.index}] " if self.index is not None else ""
        return f"{which}{who}{where}{self.reason}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class PatternError(SubscriptionError):
    """An invalid pattern; `place` is the path in the pattern."""


class CelError(SubscriptionError):
    """A CEL expression that does not parse or does not type-check.

    Attributes:
        line: line in the source, from 1; None if the error has no single position.
        column: column in the source in characters, from 1; None if *line* is None.
    """

    def __init__(
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        place: str = "",
        subscription_id: str | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(reason, place=place, subscription_id=subscription_id, index=index)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.line is None else f"{text} (line {self.line}, column {self.column})"


class DuplicateSubscriptionError(SubscriptionError):
    """An id that exists already, added without `replace=True`."""

    def in_files(self, *, is_stored: bool) -> DuplicateSubscriptionError:
        """Return this error with advice for files, which differs from the advice for a program.

        Args:
            is_stored: whether an earlier file added the id to the engine.
        """
        reason = "an earlier file has this id already" if is_stored else "this id appears twice in the file"
        return DuplicateSubscriptionError(reason, place=self.place, subscription_id=self.subscription_id, index=self.index)


class UnknownSubscriptionError(SubscriptionError, KeyError):
    """An unknown id, in a call that needs an existing one."""

    def __init__(self, subscription_id: str) -> None:
        super().__init__("unknown id", subscription_id=subscription_id)


class BulkSubscriptionError(SubscriptionError):
    """Several invalid subscriptions; the engine added none.

    Attributes:
        errors: one error for each bad subscription, in order, each with its `index`.
    """

    #: The message spells out this many and counts the rest; `errors` has all of them.
    SHOWN = 20

    def __init__(self, errors: Sequence[SubscriptionError]) -> None:
        shown = [f"  {error}" for error in errors[: self.SHOWN]]
        if len(errors) > self.SHOWN:
            shown.append(f"  ... and {len(errors) - self.SHOWN} more")
        bad = f"{len(errors)} bad subscription{'s' if len(errors) > 1 else ''}"
        super().__init__("\n".join([f"{bad}; the engine is unchanged:", *shown]))
        self.errors = tuple(errors)


class EventCode(StrEnum):
    """Why an event was rejected; the label of the metric that counts rejections."""

    NOT_AN_OBJECT = "not_an_object"
    MALFORMED_JSON = "malformed_json"
    BAD_UTF8 = "bad_utf8"
    LONE_SURROGATE = "lone_surrogate"
    TOO_DEEP = "too_deep"
    TOO_LONG = "too_long"
    WRONG_TYPE = "wrong_type"
    DUPLICATE_MEMBER = "duplicate_member"
    RESERVED_NAME = "reserved_name"
    NO_TENANT = "no_tenant"
    BAD_TIMESTAMP = "bad_timestamp"
    BAD_POINTER = "bad_pointer"
    BAD_VALUE = "bad_value"


class Ignored(StrEnum):
    """Why an event was ignored, which is not an error; the label of the metric that counts such events (semantics.md 1.44)."""

    EMPTY = "empty"
    NULL = "null"
    TYPE = "type"
    NO_CHANGE = "no_change"


class EventError(StreamerError):
    """An event that cannot be read.

    Attributes:
        code: the reason as one of a few fixed words (`EventCode`).
        reason: the fault and the expected input.
        offset: byte offset of the fault in the UTF-8 text; None for a `dict` event.
        place: JSON Pointer of the value at fault, if known.
        index: position of the event in its batch, or line (from 0) in its stream, if it came from one.
    """

    def __init__(
        self,
        code: EventCode,
        reason: str,
        *,
        offset: int | None = None,
        place: str | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.code = EventCode(code)
        self.reason = reason
        self.offset = offset
        self.place = place
        self.index = index

    def __str__(self) -> str:
        which = f"[{self.index}] " if self.index is not None else ""
        where = f" at byte {self.offset}" if self.offset is not None else ""
        what = f" at {shortened(self.place)}" if self.place else ""
        return f"{which}{self.code.value}{where}{what}: {self.reason}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ShippedFilterError(StreamerError):
    """An exported Bloom filter that cannot be used: damaged, cut off, or of an unknown format."""


class LeaseError(ShippedFilterError):
    """An exported Bloom filter whose lease has expired: it may lack newer subscriptions."""


class SnapshotError(StreamerError):
    """A snapshot that cannot be used: damaged, cut off, of another format, or of a later version of the format.

    Attributes:
        reason: the fault, without the place.
        path: the file.
        place: the part at fault: `header`, `directory`, or `section acme/orders`.
    """

    def __init__(self, reason: str, *, path: str = "", place: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.place = place

    def __str__(self) -> str:
        return ": ".join(filter(None, (shortened(self.path), shortened(self.place), self.reason)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(StreamerError):
    """An invalid configuration.

    Attributes:
        reason: the fault and the expected input, without the place.
        place: the member at fault, such as `layout.ts`; empty for the whole.
        source: the file, or the environment variable, that sets it; None if a program does.
        line: line in the file, from 1; None without a line.
        column: column in the file in characters, from 1; None without a column.
    """

    def __init__(
        self, reason: str, *, place: str = "", source: str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        self.source = source
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        return ": ".join(filter(None, (where, shortened(self.place), self.reason)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class BulkConfigError(ConfigError):
    """All faults of a configuration; the old one stays in use.

    Attributes:
        errors: one error for each fault, in the order of the file, then those of the environment.
    """

    #: The message spells out this many and counts the rest; `errors` has all of them.
    SHOWN = 20

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        shown = [f"  {error}" for error in errors[: self.SHOWN]]
        if len(errors) > self.SHOWN:
            shown.append(f"  ... and {len(errors) - self.SHOWN} more")
        super().__init__("\n".join([f"{len(errors)} error{'s' if len(errors) > 1 else ''} in the configuration:", *shown]))
        self.errors = tuple(errors)


class InputError(StreamerError, OSError):
    """A stream of lines that cannot be read to its end: it is of another format, or its compressed data is damaged or cut off.

    Attributes:
        line: the line, from 1, that could not be read whole; None if lines were not read.
    """

    line: int | None = None


class ServiceError(StreamerError):
    """The service cannot continue: a store, a source or a sink cannot be used. It confirmed no further events."""


class BackendError(StreamerError):
    """The requested backend is missing."""


class ReentryError(StreamerError, RuntimeError):
    """A change inside another change of the same thread, if this is impossible; it had no effect. Make it afterwards."""


class InternalError(StreamerError):
    """A defect of Streamer itself. The engine stays usable; please report it."""


def shortened(text: Any) -> Any:
    """Return a text without its middle if it is long, because names may be hostile; the attributes keep it whole."""
    return f"{text[:200]} ... {text[-80:]}" if isinstance(text, str) and len(text) > 300 else text


def _rebuild(cls: type[StreamerError], args: tuple[Any, ...], state: dict[str, Any]) -> StreamerError:
    # Exceptions pickle by calling cls(*args), which fails for keyword-only arguments and would format
    # the text of a bulk error twice.
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
