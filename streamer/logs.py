"""The log lines of a process on standard error: as text for people, or as JSON, one object a line.

```
2026-11-29T18:50:17.123Z WARNING streamer.service: sources.orders: its server … request_id=6f1c…
{"time": "2026-11-29T18:50:17.123Z", "level": "warning", "logger": "streamer.service", "event": "…", "source": "orders"}
```

A field comes from the message (`extra={"offset": 7}`), or from its surroundings: `about(request_id=…)` is in force for all
messages of a request, whichever module logs them. Text shows only the latter, because a message has its own values in its text.

No value can begin another line, or send codes to a terminal: unprintable characters are escaped.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, final

from streamer.errors import BulkConfigError, StreamerError
from streamer.terminal import note, printable, printable_json

Format: TypeAlias = Literal["text", "json"]

#: The fields that a line may have, in their order.
FIELDS: Final = (
    *("source", "sink", "tenant", "subscription", "request_id"),
    *("partition", "offset", "code", "reason", "count", "dead_letter"),
    *("method", "route", "status", "ms", "token"),
    *("who", "path", "peer"),
    *("loaded", "total", "seconds"),
    "traceback",
)
#: A message about a part of the configuration begins with its name.
_PART: Final = re.compile(r"(source|sink)s\.([\w-]+)(?: |: |$)")
_LOGGER: Final = logging.getLogger("streamer")
_AROUND: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("streamer_log_fields", default=None)


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add fields to all messages of this thread, or of this task, while the context lasts."""
    token = _AROUND.set({**_around(), **fields})
    try:
        yield
    finally:
        _AROUND.reset(token)


def field(name: str) -> str | None:
    """Return a field that `about` has set, if any."""
    return _around().get(name)


def _around() -> Mapping[str, str]:
    return _AROUND.get() or {}


def set_up_logging(level: str, form: Format = "text") -> None:
    """Print messages of at least a level on standard error."""
    handler = _Handler()
    handler.setFormatter(Json() if form == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def log_what_fails() -> None:
    """Log errors that end a thread, and those that Python cannot raise, instead of printing them."""

    def ended(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            name = "-" if args.thread is None else args.thread.name
            _LOGGER.error("the thread %s ended in %s", name, args.exc_type.__name__, exc_info=args.exc_value)

    def ignored(args: sys.UnraisableHookArgs) -> None:
        _LOGGER.error("%s in %r", args.err_msg or "an error was ignored", args.object, exc_info=args.exc_value)

    threading.excepthook, sys.unraisablehook = ended, ignored
    logging.captureWarnings(True)


def log_end(error: Exception) -> None:
    """Log the error that ends the program; that of a defect with its traceback."""
    if isinstance(error, BulkConfigError):
        for each in error.errors:
            _LOGGER.error("%s", each)
    elif isinstance(error, StreamerError | OSError):
        _LOGGER.error("%s", error)
    else:
        _LOGGER.critical("%s: %s", type(error).__name__, error, exc_info=error)


class _Handler(logging.Handler):
    """Prints to the current standard error: above the progress display, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).split("\n"):
            note(line)


@final
class _Text(logging.Formatter):
    """Each line has the time and the level, also each line of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        head, event = f"{_time(record)} {record.levelname} {record.name}: ", record.getMessage()
        around = "".join(f" {name}={value}" for name, value in _around().items() if name not in _part(event))
        lines = [event + around, *(_traceback(record) or "").splitlines()]
        return "\n".join(head + printable(line) for line in lines)


@final
class Json(logging.Formatter):
    """One object a line, in ASCII except for printable characters."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage()
        members: dict[str, object]
        members = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name, "event": event}
        fields = {**_around(), **_part(event), **vars(record), "traceback": _traceback(record)}
        if "\0" in (fields.get("subscription") or ""):
            # In the engine of a service, the tenant is a part of the id.
            fields["tenant"], _, fields["subscription"] = fields["subscription"].partition("\0")
        members |= {name: fields[name] for name in FIELDS if fields.get(name) is not None}
        plain = {name: value if isinstance(value, int | float) else _plain(str(value)) for name, value in members.items()}
        return printable_json(json.dumps(plain, ensure_ascii=False))


def _part(event: str) -> dict[str, str]:
    """Return the source or the sink that a message begins with."""
    part = _PART.match(event)
    return {} if part is None else {part[1]: part[2]}


def _plain(text: str) -> str:
    """Return a text with its lone surrogates escaped: parsers refuse them. They stand for bytes of a name that is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str | None:
    """Return the traceback that a message has; None without one."""
    if (text := getattr(record, "traceback", None)) is not None:
        return str(text)
    if not record.exc_info or record.exc_info[1] is None:
        return None
    return "".join(traceback.format_exception(record.exc_info[1]))
