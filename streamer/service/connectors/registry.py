"""Read Kafka messages that were written with schemas, and fetch these schemas from their registry.

```
 0 │ 0 0 0 7 │ …             the schema of id 7, in four bytes          GET /schemas/ids/7
 1 │ sixteen bytes │ …       the schema of a GUID, as newer clients write it, mostly into a header      GET /schemas/guids/GUID
                             a schema that another one refers to        GET /subjects/SUBJECT/versions/VERSION
```

Confluent's registry has this API, and so have Apicurio's (at `/apis/ccompat/v7`), Karapace and Redpanda. The schema of an id
never changes. So each schema is fetched once, and its decoder is kept; records of a new version have a new id.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, final
from urllib.parse import quote, urlsplit

from streamer.cdc import avro, json_schema, protobuf
from streamer.config.schema.encoded import Encoding, Format
from streamer.config.schema.encoded import Registry as Section
from streamer.errors import ConfigError, EventCode, EventError, ServiceError
from streamer.events.literal_json import is_nothing
from streamer.service.connectors.protocols import Away
from streamer.service.connectors.trust import client_context

#: The timeout of a request to the registry, in seconds.
ANSWER: Final = 10.0
#: The time until the registry is queried again for an id that it did not have, in seconds.
UNKNOWN: Final = 1.0
#: The most bytes of a schema.
_LONGEST: Final = 8 * 1024 * 1024
#: The most schemas that a schema refers to, directly or not.
_MOST_REFERENCES: Final = 1000
#: The most decoders that are kept, one for each schema.
_MOST_CACHED: Final = 10_000
_JSON: Final = "application/vnd.schemaregistry.v1+json, application/json"
#: The registry's names of the encodings. It leaves the name out for Avro.
_TYPES: Final[Mapping[Encoding, str]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
#: Statuses of requests that may succeed later: a time-out, too many requests.
_PASSING: Final = (408, 429)

#: Decodes the bytes after the id of a message; for Protobuf they begin with the place of its type. Raises EventError.
Reader: TypeAlias = Callable[[bytes], Any]


@final
class Schema(NamedTuple):
    """A schema as the registry has it.

    Attributes:
        type: `AVRO`, `PROTOBUF` or `JSON`.
        references: the schemas that it refers to, by the names that it uses; a schema comes after those that it refers to.
    """

    type: str
    text: str
    references: Mapping[str, str]


@final
class UnknownSchema(Exception):
    """The registry has no schema of an id."""


@final
class Registry:
    """A client of one registry. Any thread may call it. Methods raise ServiceError: Away if the registry does not answer now."""

    def __init__(self, section: Section) -> None:
        assert section.url is not None
        self._section, self._url = section, section.url
        self._context: ssl.SSLContext | None = None

    def check(self) -> None:
        """Check whether the registry answers and accepts our credentials."""
        try:
            self._get("/schemas/types")
        except UnknownSchema:
            hint = "expected the URL of a registry, without a path; of Apicurio's with /apis/ccompat/v7"
            raise ServiceError(f"there is no schema registry at {self._url}: {hint}") from None

    def schema(self, identity: int | uuid.UUID) -> Schema:
        """Return the schema of an id or a GUID. Raises UnknownSchema."""
        path = f"/schemas/ids/{identity}" if isinstance(identity, int) else f"/schemas/guids/{identity}"
        answer = self._get(path)
        references: dict[str, str] = {}
        self._refer(answer.get("references") or (), references, set())
        return Schema(str(answer.get("schemaType") or "AVRO"), str(answer.get("schema", "")), references)

    def _refer(self, references: Iterable[Mapping[str, Any]], texts: dict[str, str], met: set[str]) -> None:
        for each in references:
            name, subject, version = str(each.get("name")), str(each.get("subject")), each.get("version")
            if name in met:
                continue
            met.add(name)
            if len(met) > _MOST_REFERENCES:
                raise UnknownSchema(f"it leads to more than {_MOST_REFERENCES:,} others")
            version_of = self._get(f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}")
            self._refer(version_of.get("references") or (), texts, met)
            texts[name] = str(version_of.get("schema", ""))

    def _get(self, path: str) -> Any:
        status, body = self._answer(path)
        where = f"schema registry {self._url}"
        if status == 200:
            try:
                return json.loads(body)
            except ValueError:
                raise ServiceError(f"{where}: expected JSON as the answer to {path}") from None
        said = _said(body)
        if status == 404 and (said or path == "/schemas/types"):
            raise UnknownSchema(said)
        reason = f"{where} answers {path} with {status}{f': {said}' if said else ''}"
        if status >= 500 or status in _PASSING or status == 404:
            raise Away(reason)
        if status in (401, 403):
            raise ServiceError(f"{reason}; check registry.user and registry.password, and the user's right to read schemas")
        raise ServiceError(reason)

    def _answer(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(self._url)
        headers = {"Accept": _JSON, "User-Agent": "streamer"}
        if self._section.user is not None and self._section.password is not None:
            try:
                password = self._section.password.reveal()
            except ConfigError as error:
                raise ServiceError(f"registry.password: {error}") from None
            headers["Authorization"] = f"Basic {base64.b64encode(f'{self._section.user}:{password}'.encode()).decode()}"
        connection: http.client.HTTPConnection
        host = parts.hostname or ""
        if parts.scheme == "https":
            self._context = self._context or client_context(self._section.ca)
            connection = http.client.HTTPSConnection(host, parts.port, timeout=ANSWER, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=ANSWER)
        try:
            connection.request("GET", parts.path + path, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_LONGEST + 1)
        except ssl.SSLCertVerificationError as error:
            raise ServiceError(f"schema registry {self._url}: its certificate is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "strerror", None) or error) or type(error).__name__
            raise Away(f"the schema registry does not answer at {self._url}: {reason}") from None
        finally:
            connection.close()
        if len(body) > _LONGEST:
            raise ServiceError(f"schema registry {self._url}: its answer to {path} has more than {_LONGEST:,} bytes")
        return answer.status, body


def _said(body: bytes) -> str:
    """Return the error message of a registry; an empty text if the body is not from a registry."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(parsed, dict) or "error_code" not in parsed:
        return ""
    return " ".join(str(parsed.get("message") or f"error {parsed['error_code']}").split())[:300]


@final
class Messages:
    """Reads the messages of one source. One thread reads at a time; schemas are kept."""

    def __init__(self, section: Format) -> None:
        self._section = section
        self._registry = Registry(section.registry)
        self.schema_of = self._registry.schema
        self._readers: dict[bytes, _Read] = {}
        self._refused: dict[bytes, tuple[float, EventError]] = {}

    def check(self) -> None:
        """Check whether the registry answers. Raises ServiceError if it does not, or if a library is missing."""
        for encoding in {self._section.encoding, self._section.of_keys}:
            if encoding in _LIBRARIES:
                try:
                    _LIBRARIES[encoding]()
                except ModuleNotFoundError as error:
                    raise ServiceError(str(error)) from error
        self._registry.check()

    def plain(self, record: bytes) -> Any:
        """Return the content of a message, as `value` does, but never with a schema."""
        encoding = self._section.encoding
        return record if encoding == "json" or is_nothing(record) else self._read(record, encoding, "the value")[0]

    def value(self, record: bytes) -> Any:
        """Return the content of a message: JSON text, or the decoded value.

        If columns of a delete have defaults, the result has their schema next to the value, as in Kafka Connect's JSON.

        Raises:
            EventError: the message cannot be decoded, or the registry has no schema of its id.
            Away: the registry does not answer now.
            ServiceError: the registry refuses our credentials.
        """
        encoding = self._section.encoding
        if encoding == "json" or is_nothing(record):
            return record
        value, columns = self._read(record, encoding, "the value")
        # Only the decoding of deletes needs the defaults.
        if columns is None or not isinstance(value, dict) or value.get("op") != "d":
            return value
        return {"schema": columns, "payload": value}

    def key(self, key: bytes | str | None) -> Any:
        """Return the content of a key; a key without an id is returned unchanged. Raises as `value`."""
        encoding = self._section.of_keys
        if encoding == "json" or not isinstance(key, bytes) or _length(key) is None:
            return key
        return self._read(key, encoding, "the key")[0]

    def _read(self, message: bytes, encoding: Encoding, what: str) -> tuple[Any, Mapping[str, Any] | None]:
        # One lookup for most messages; the id is parsed only if it is new.
        read = self._readers.get(message[:5])
        length = 5
        if read is None:
            if (size := _length(message)) is None:
                reason = f"{what}: expected {encoding} behind byte 0 and the four bytes of a schema's id, not {_begin(message)}"
                raise EventError(EventCode.BAD_VALUE, reason, offset=0)
            length = size
            read = self._readers.get(message[:length]) or self._new_reader(message[:length], encoding, what)
        if read.encoding != encoding:
            raise self._of_another(read.encoding, encoding, what, message[:length])
        return read.read(message[length:]), read.columns

    def _new_reader(self, prefix: bytes, encoding: Encoding, what: str) -> _Read:
        now, identity = time.monotonic(), _identity(prefix)
        until, known = self._refused.get(prefix, (0.0, None))
        if known is not None and now < until:
            raise EventError(known.code, known.reason)
        try:
            reader = _made(self.schema_of(identity))
            if len(self._readers) >= _MOST_CACHED:
                self._readers.clear()
            self._readers[prefix] = reader
            self._refused.pop(prefix, None)
            return reader
        except UnknownSchema as error:
            hint = ""
            if what == "the key":
                hint = "; if keys are not written with schemas, set key_encoding: json"
            said = f": {error}" if str(error) else ""
            reason = f"{what}: the registry has no schema of id {identity}{said}{hint}"
        except ValueError as error:
            reason = f"{what}: the schema of id {identity} cannot be read: {error}"
        refused = EventError(EventCode.BAD_VALUE, reason)
        if len(self._refused) >= _MOST_CACHED:
            self._refused.clear()
        self._refused[prefix] = now + UNKNOWN, refused
        raise refused

    @staticmethod
    def _of_another(actual: Encoding, wanted: Encoding, what: str, prefix: bytes) -> EventError:
        reason = f"{what}: the schema of id {_identity(prefix)} is of the encoding {actual}; the source has encoding: {wanted}"
        return EventError(EventCode.BAD_VALUE, reason)


def _length(message: bytes) -> int | None:
    """Return the length of the id in front of a message, including the first byte; None if there is no id."""
    length = {0: 5, 1: 17}.get(message[0]) if message else None
    return length if length is not None and len(message) >= length else None


def _begin(message: bytes) -> str:
    return f"0x{message[:5].hex()}" if len(message) >= 5 else f"{len(message)} bytes"


def _identity(prefix: bytes) -> int | uuid.UUID:
    return uuid.UUID(bytes=prefix[1:]) if prefix[0] else int.from_bytes(prefix[1:], "big")


@final
class _Read(NamedTuple):
    """The decoder for the messages of one schema."""

    encoding: Encoding
    read: Reader
    columns: Mapping[str, Any] | None


def _made(schema: Schema) -> _Read:
    """Return the decoder for the messages of a schema. Raises ValueError if the schema cannot be read."""
    try:
        match schema.type:
            case "AVRO":
                return _Read("avro", *avro.reader(schema.text, list(schema.references.values())))
            case "PROTOBUF":
                return _Read("protobuf", protobuf.reader(schema.text, schema.references), None)
            case "JSON":
                return _Read("json_schema", json_schema.reader(schema.text, schema.references), None)
    except ModuleNotFoundError as error:
        raise ServiceError(str(error)) from error
    raise ValueError(f"it is of the type {schema.type[:40]!r}; expected AVRO, PROTOBUF or JSON")


_LIBRARIES: Final[Mapping[Encoding, Callable[[], object]]] = {"avro": avro.library, "protobuf": protobuf.library}
