"""The values that pass between the application and a handler: a checked call, and an answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

from streamer.service.api.live import Watched, Watcher
from streamer.service.api.problems import Problem
from streamer.service.api.streams import Stream, Wanted
from streamer.service.api.tokens import Token
from streamer.service.tenants.declined import Versioned
from streamer.subscriptions.subscription import EVERY

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
METRICS: Final = "text/plain"
YAML: Final = "application/yaml"
EVENTS: Final = "text/event-stream"
_COUNTED: Final = re.compile(r"[1-9][0-9]{0,17}").fullmatch
_TAG: Final = re.compile(r'\s*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')


@final
@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a query.

    Attributes:
        schema: JSON Schema of its value; `type` defines how it is read: `integer`, `boolean` or `string`.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})

    def read(self, text: str) -> Any:
        """Return its value. Raises Problem."""
        try:
            match self.schema["type"]:
                case "integer":
                    value = _integer(text)
                    if not self.schema["minimum"] <= value <= self.schema["maximum"]:
                        raise ValueError
                    return value
                case "boolean":
                    return {"true": True, "false": False}[text]
                case _:
                    if "enum" in self.schema and text not in self.schema["enum"]:
                        raise ValueError
                    if not text:
                        raise ValueError
                    return text
        except (KeyError, ValueError):
            raise Problem("bad-request", f"{self.name}: expected {self._expected()}") from None

    def _expected(self) -> str:
        if self.schema["type"] == "integer":
            return f"a whole number from {self.schema['minimum']} to {self.schema['maximum']}"
        if self.schema["type"] == "boolean":
            return "true or false"
        return " or ".join(self.schema.get("enum", ())) or "some text"


def _integer(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise ValueError
    return int(text)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A checked request to a route.

    Attributes:
        route: the path as the route has it, with braces.
        path: the values for the braces in the route's path.
        query: values of the given parameters.
        headers: `if-match`, `if-none-match` and `last-event-id`, if given.
        answer_type: the media type of the answer.
        tenant: the tenant that it is about; None for an administrator's that names none.
    """

    route: str
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: bytes
    media_type: str
    answer_type: str
    token: Token
    tenant: str | None

    @property
    def whose(self) -> str:
        """The tenant that it is about. Raises Problem if it names none."""
        if self.tenant is None:
            raise Problem("bad-request", "tenant: an administrator's request names one, as ?tenant=acme")
        return self.tenant

    @property
    def of_events(self) -> str | None:
        """The tenant for events without one. None, for all tenants, if an administrator's request names `*` or no tenant."""
        return None if self.tenant == EVERY and self.token.tenant is None else self.tenant

    def after(self) -> str | None:
        """Return the last item of the previous page, from its `cursor`; None on the first page. Raises Problem."""
        if (cursor := self.query.get("cursor")) is None:
            return None
        try:
            version, tag, after = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
            after.encode()
        except (AttributeError, binascii.Error, RecursionError, TypeError, ValueError):
            version = None
        if version != _CURSORS:
            raise Problem("bad-request", "cursor: expected the next of the page before, as it was given")
        if tag != self._tag():
            raise Problem("bad-request", "cursor: it is of another list or search: expected the next of this one, or no cursor")
        return str(after)

    def number_after(self) -> int | None:
        """Return the last number of the previous page; as `after`."""
        if (after := self.after()) is None:
            return None
        if (last := number(after)) is None:
            raise Problem("bad-request", "cursor: expected the next of the page before, as it was given")
        return last

    def cursor(self, after: str | int) -> str:
        """Return a cursor for the next page. It is bound to the list and its query, and is not a secret."""
        text = json.dumps([_CURSORS, self._tag(), str(after)])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _tag(self) -> str:
        query = {name: value for name, value in self.query.items() if name not in _SIZES}
        about = json.dumps([self.route, dict(self.path), query, self.tenant], sort_keys=True)
        return hashlib.blake2b(about.encode() + b"\0" + self.body, digest_size=6).hexdigest()


#: The version of cursors. Version 1 did not name its list.
_CURSORS: Final = 2
#: Parameters that set the size of a page, and do not identify the list.
_SIZES: Final = ("cursor", "limit", "examine")


def number(text: str) -> int | None:
    """Return a number from 1 on in its form in a path or a cursor; None for any other spelling."""
    return int(text) if _COUNTED(text) else None


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """A response; *body* is in pieces if it is long, and a stream of events if it has no end."""

    body: bytes | Iterator[bytes] | Wanted | Watched | Stream | Watcher = b""
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Body: TypeAlias = Literal[
    "subscription", "subscriptions", "event", "question", "gateway", "configuration", "draft", "replay", "record"
]
"""The parts of a request: its schema is in the document."""


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a response in JSON."""
    return Answer(json.dumps(value).encode(), status, headers=headers or {})


def members_of(body: bytes, decode: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """Read a body that is an object. Raises Problem."""
    try:
        members = decode(body.decode())
    except RecursionError:
        raise Problem("bad-request", "the body is nested too deep") from None
    except ValueError:
        # Also a number of thousands of digits.
        raise Problem("bad-request", "the body is not JSON in UTF-8") from None
    if not isinstance(members, dict):
        raise Problem("bad-request", "expected an object")
    return members


@final
class Member(NamedTuple):
    """A member of a body.

    Attributes:
        value: with floats for all numbers.
        text: as it was sent, because writing it again would change numbers and positions.
    """

    value: Any
    text: bytes


def members_as_sent(body: bytes) -> dict[str, Member]:
    """Read a body that is an object, as `members_of`, with the text of each member. Raises Problem."""
    members: dict[str, Member] = {}
    if not members_of(body, _FLOATS.decode):
        return members
    text = body.decode()
    # It is an object, so a name follows each brace or comma, and a colon follows the name.
    at = text.index("{")
    while text[at] != "}":
        name, at = _FLOATS.raw_decode(text, _past_space(text, at + 1))
        start = _past_space(text, _past_space(text, at) + 1)
        value, end = _FLOATS.raw_decode(text, start)
        members[name] = Member(value, text[start:end].encode())
        at = _past_space(text, end)
    return members


#: An int is limited to some thousands of digits; a float is not.
_FLOATS: Final = json.JSONDecoder(parse_int=float)
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _past_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def tag_of(row: Versioned) -> str:
    """Return the ETag of a row."""
    return f'"{row.version}"'


def tags(header: str) -> list[str] | None:
    """Read `If-Match` or `If-None-Match`; None is `*`. Raises Problem."""
    if header.strip() == "*":
        return None
    etags, at = [], 0
    while at < len(header):
        match = _TAG.match(header, at)
        if match is None:
            raise Problem("bad-request", 'If-Match, If-None-Match: expected *, or tags as "17"')
        etags.append(match[1])
        at = match.end()
    return etags
