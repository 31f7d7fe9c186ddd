"""Read Avro as JSON values. A reader is made once per schema, and then reads every record that was written with it.

```
 schema ──► plain schema ──► fastavro ──► values as they are in the bytes ──► conversions ──► values of an event
       └──────────────────── conversion of each named type, from `streamer.events.connect` ┘
```

The plain schema describes the same bytes with names that cannot clash, and without logical types, because fastavro's lose digits
and years. Only members that need a conversion are visited again, and converted in place. A union of several types is read as
records of one member each, which have the same bytes, so that the value shows its type.

`connect` converts decimals, dates and times, by the name of Kafka Connect or Avro's own logical type. Bytes become base64 text.
Infinity and NaN become text, as in Kafka Connect's JSON. A 32-bit float has the fewest digits that identify it.
https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, TypeAlias, final

from streamer.cdc.values import double, single, text
from streamer.errors import EventCode, EventError
from streamer.events import connect
from streamer.extras import needed

#: Avro's own logical types, with the equivalent types of Kafka Connect and Debezium. A local time counts as UTC, as in Debezium.
_LOGICAL: Final = {
    "date": "org.apache.kafka.connect.data.Date",
    "decimal": connect.DECIMAL,
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "time-micros": "io.debezium.time.MicroTime",
    "time-millis": "io.debezium.time.Time",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_PRIMITIVE: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
#: The nesting limit of a schema, more than any table needs.
_DEEPEST: Final = 100
#: Kafka Connect's name for an entry of a map whose keys are not strings.
_ENTRY: Final = "MapEntry"
#: Converts a value to a value of an event; None if it stays as it is. It is never called with null.
_Conversion: TypeAlias = connect.Conversion | None


def reader(schema: str, references: Sequence[str] = ()) -> tuple[Callable[[bytes], Any], Mapping[str, Any] | None]:
    """Return a function that reads records of a schema, and the schema of a change record's columns.

    The second result has the form of a schema in Kafka Connect's JSON. It contains the defaults of columns, which Debezium writes
    for columns that an old row lacks. It is None if no column has a default.

    Args:
        references: schemas that define types which the schema names.

    Raises:
        ModuleNotFoundError: fastavro is not installed.
        ValueError: the schema cannot be read.
    """
    fastavro = library()
    try:
        root = json.loads(schema)
        compiling = _Compiling({name: each for other in references for name, each in _defined(json.loads(other), "")})
        plain, convert = compiling.compile(root, "")
        parsed = fastavro.parse_schema(plain)
        columns = compiling.columns(root)
    except (AttributeError, KeyError, RecursionError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"this is not an Avro schema: {type(error).__name__}: {error}") from None

    read_with = fastavro.schemaless_reader
    if compiling.is_recursive:
        # The compiled reader recurses without a limit, so a deep record would overflow the stack and crash the process.
        from fastavro._read_py import schemaless_reader as read_with

    def read(record: bytes) -> Any:
        file = BytesIO(record)
        try:
            value = read_with(file, parsed)
            rest = len(record) - file.tell()
            if not rest:
                return value if convert is None or value is None else convert(value)
        except (EOFError, IndexError, MemoryError, OverflowError, RecursionError, StopIteration, ValueError) as error:
            reason = f"avro: the record does not fit its schema: {_said(error)}"
            raise EventError(EventCode.BAD_VALUE, reason, offset=min(file.tell(), len(record))) from None
        reason = f"avro: the record does not fit its schema: {rest} bytes follow after its last value"
        raise EventError(EventCode.BAD_VALUE, reason, offset=file.tell())

    return read, columns


def library() -> Any:
    """Return fastavro. Raises ModuleNotFoundError, with the command that installs it, if it is missing."""
    with needed("reading Avro needs fastavro", "registry"):
        import fastavro
    return fastavro


def _said(error: Exception) -> str:
    if isinstance(error, EOFError | IndexError | StopIteration):
        return "it ends too early" if isinstance(error, EOFError) else "it names a type or a symbol that the schema does not have"
    return str(error) or type(error).__name__


@final
@dataclass(slots=True)
class _Named:
    """A named type: its name in the plain schema, and its conversion once that is known."""

    name: str
    is_whole: bool = False
    convert: _Conversion = None

    def converted(self, value: Any) -> Any:
        """Return the converted value of a recursive type."""
        return value if self.convert is None else self.convert(value)


@final
@dataclass(slots=True)
class _Compiling:
    """Builds plain schemas and conversions."""

    defined: Mapping[str, tuple[Any, str]]
    named: dict[str, _Named] = field(default_factory=dict)
    names: int = 0
    depth: int = 0
    is_recursive: bool = False

    def compile(self, schema: Any, space: str) -> tuple[Any, _Conversion]:
        """Return the plain form of a schema, and the conversion of its values; *space* is the namespace around it."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError("this is not an Avro schema: nested too deep")
        try:
            if isinstance(schema, list):
                return self._union(schema, space)
            if isinstance(schema, str):
                return self._name(schema, space)
            kind = schema["type"]
            if isinstance(kind, list | Mapping):
                return self.compile(kind, space)
            if kind in _PRIMITIVE:
                return kind, _converting(kind, schema)
            return self._complex(kind, schema, space)
        finally:
            self.depth -= 1

    def _name(self, name: str, space: str) -> tuple[Any, _Conversion]:
        if name in _PRIMITIVE:
            return name, _converting(name, {})
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if (known := self.named.get(full)) is not None:
                self.is_recursive = self.is_recursive or not known.is_whole
                return known.name, known.convert if known.is_whole else known.converted
            if full in self.defined:
                return self.compile(*self.defined[full])
        raise ValueError(f"this is not an Avro schema: the type {name!r} is not defined")

    def _complex(self, kind: str, schema: Mapping[str, Any], space: str) -> tuple[Any, _Conversion]:
        if kind == "array":
            items, convert = self.compile(schema["items"], space)
            if _is_empty(items):
                raise ValueError("this is not a readable Avro schema: an array of values without bytes may have any length")
            return {"type": "array", "items": items}, _each(convert, schema)
        if kind == "map":
            values, convert = self.compile(schema["values"], space)
            return {"type": "map", "values": values}, _of_members(convert)
        if kind not in ("record", "error", "enum", "fixed"):
            return self._name(kind, space)
        full, inner = _full(schema, space)
        self.names += 1
        known = self.named[full] = _Named(f"n{self.names}")
        plain: dict[str, Any] = {"type": kind, "name": known.name}
        if kind == "enum":
            plain["symbols"] = schema["symbols"]
        elif kind == "fixed":
            plain["size"] = schema["size"]
            known.convert = _converting("bytes", schema)
        else:
            fields = [(each["name"], *self.compile(each["type"], inner)) for each in schema["fields"]]
            plain["fields"] = [{"name": name, "type": of} for name, of, _ in fields]
            known.convert = connect.conversion(schema.get("connect.name"), schema.get("connect.parameters"))
            if known.convert is None:
                known.convert = _of_fields([(name, convert) for name, _, convert in fields if convert is not None])
        known.is_whole = True
        return plain, known.convert

    def _union(self, branches: Sequence[Any], space: str) -> tuple[Any, _Conversion]:
        if len([each for each in branches if each != "null"]) < 2:
            compiled = [self.compile(each, space) for each in branches]
            return [plain for plain, _ in compiled], next((convert for _, convert in compiled if convert is not None), None)
        plain: list[Any] = []
        conversions: dict[str, _Conversion] = {}
        for number, each in enumerate(branches):
            if each == "null":
                plain.append(each)
                continue
            self.names += 1
            of, conversions[str(number)] = self.compile(each, space)
            # A record of one member has the bytes of the member.
            plain.append({"type": "record", "name": f"u{self.names}", "fields": [{"name": f"_{number}", "type": of}]})

        def convert(value: Any) -> Any:
            ((name, member),) = value.items()
            of = conversions[name[1:]]
            return member if of is None or member is None else of(member)

        return plain, convert

    def columns(self, schema: Any) -> Mapping[str, Any] | None:
        """Return the defaults of the columns of a change record, as a schema of Kafka Connect, or None without any."""
        before = next((each for each in _fields(schema) if each.get("name") == "before"), None)
        if before is None:
            return None
        defaults = []
        for column in _fields(before.get("type")):
            kind = next((each for each in _branches(column["type"]) if each != "null"), None)
            convert = _Compiling(self.defined).compile(kind, "")[1] if _is_scalar(kind) else None
            if "default" in column:
                value = column["default"]
                if isinstance(value, str) and _type_of(kind) in ("bytes", "fixed"):
                    value = value.encode("latin-1")
            elif convert is not None and _type_of(kind) in ("int", "long"):
                value = 0
            else:
                continue
            defaults.append({"field": column["name"], "default": value if value is None or convert is None else convert(value)})
        return {"type": "struct", "fields": [{"field": "before", "type": "struct", "fields": defaults}]} if defaults else None


def _defined(schema: Any, space: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield the name of each named type in a schema, with its definition and the namespace around it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _defined(each, space)
    elif isinstance(schema, Mapping):
        inner = space
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            full, inner = _full(schema, space)
            yield full, (schema, space)
        for name in ("type", "items", "values"):
            if isinstance(schema.get(name), list | Mapping):
                yield from _defined(schema[name], inner)
        for each in schema.get("fields", ()):
            yield from _defined(each.get("type"), inner)


def _full(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace inside it."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = schema.get("namespace", space) or ""
    return f"{inner}.{name}" if inner else name, inner


def _branches(schema: Any) -> Sequence[Any]:
    return schema if isinstance(schema, list) else (schema,)


def _type_of(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, Mapping) else schema


def _is_scalar(schema: Any) -> bool:
    return _type_of(schema) in (*_PRIMITIVE, "enum", "fixed")


def _fields(schema: Any) -> Sequence[Mapping[str, Any]]:
    """Return the fields of a record, or of the record in a union with null."""
    record = next((each for each in _branches(schema) if isinstance(each, Mapping) and "fields" in each), {})
    return tuple(record.get("fields", ()))


def _is_empty(plain: Any) -> bool:
    """Return whether values of a plain schema have no bytes."""
    if isinstance(plain, Mapping):
        return plain.get("size") == 0 or all(_is_empty(each["type"]) for each in plain.get("fields", ({"type": ""},)))
    return bool(plain == "null")


# Conversions


def _converting(kind: str, schema: Mapping[str, Any]) -> _Conversion:
    """Return the conversion of a type that contains no other type."""
    parameters = schema.get("connect.parameters")
    conversion = connect.conversion(schema.get("connect.name"), parameters)
    if conversion is None and isinstance(logical := schema.get("logicalType"), str) and logical in _LOGICAL:
        scale = {"scale": schema.get("scale", 0)} if logical == "decimal" else None
        conversion = connect.conversion(_LOGICAL[logical], scale)
    if kind == "bytes":
        return text if conversion is None else lambda value: text(conversion(value))
    return conversion if conversion is not None else {"double": double, "float": single}.get(kind)


def _of_fields(conversions: Sequence[tuple[str, connect.Conversion]]) -> _Conversion:
    if not conversions:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, of in conversions:
            if (member := value[name]) is not None:
                value[name] = of(member)
        return value

    return convert


def _of_members(of: _Conversion) -> _Conversion:
    if of is None:
        return None
    return lambda value: {name: None if member is None else of(member) for name, member in value.items()}


def _each(of: _Conversion, schema: Mapping[str, Any]) -> _Conversion:
    items = schema["items"]
    if _is_entry(items):
        is_text = any(_type_of(each) == "string" for each in _branches(_fields(items)[0]["type"]))

        def joined(value: list[dict[str, Any]]) -> Any:
            pairs = [list((each if of is None else of(each)).values()) for each in value]
            return dict(pairs) if is_text and all(isinstance(key, str) for key, _ in pairs) else pairs

        return joined
    return None if of is None else lambda value: [None if each is None else of(each) for each in value]


def _is_entry(items: Any) -> bool:
    """Return whether an array represents a map of Kafka Connect whose keys are not strings."""
    if not isinstance(items, Mapping) or [each.get("name") for each in _fields(items)] != ["key", "value"]:
        return False
    return items.get("connect.internal.type") == _ENTRY or str(items.get("name", "")).rpartition(".")[2] == _ENTRY
