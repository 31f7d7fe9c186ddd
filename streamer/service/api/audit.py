"""The audit log: each change of anything through the API, of the configuration and of the tokens, as lines of JSON.

```
{"time": "2026-11-30T16:40:01.123Z", …, "event": "change", "tenant": "acme", "who": "jane (1f3a9c04)", "method": "PUT",
 "path": "/v1/subscriptions/big", "status": 201, "peer": "10.0.0.7", "request_id": "6f1c…"}
```

A line is appended after the change was answered. A file that is moved or deleted is opened again, as `logrotate` expects.
"""

from __future__ import annotations

import logging
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from streamer.errors import ServiceError
from streamer.logs import Json

_LOGGER: Final = logging.getLogger("streamer.audit")
# Its lines go to its file alone.
_LOGGER.propagate = False
_LOGGER.setLevel(logging.INFO)
_LOGGER.disabled = True


def record(what: str, **fields: str | int | None) -> None:
    """Append a line, if there is an audit log. Fields that are None are left out."""
    _LOGGER.info(what, extra={name: value for name, value in fields.items() if value is not None})


def opened(path: Path | None) -> logging.Handler | None:
    """Return a handler that appends to a file; None without one. Raises ServiceError."""
    if path is None:
        return None
    try:
        handler = WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    handler.setFormatter(Json())
    return handler


def take(handler: logging.Handler | None) -> None:
    """Use a handler in place of the current one, which is closed."""
    _LOGGER.disabled = handler is None
    for each in [each for each in _LOGGER.handlers if isinstance(each, WatchedFileHandler)]:
        _LOGGER.removeHandler(each)
        each.close()
    if handler is not None:
        _LOGGER.addHandler(handler)
