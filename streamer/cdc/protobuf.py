"""Read Protobuf as JSON values. A reader is made once per schema, and reads messages of all types in it.

```
 schema ──► protoc, or as it is ──► descriptors ──► for each message type a list of (name, field, conversion)
 message ──► indexes: which type of the schema ──► google.protobuf ──► values of an event
```

A schema is the text of a .proto file, or its descriptor in base64, as Confluent's Python client writes it. Members have their
names in the schema. A member that was not set is null if the schema tracks that (`optional`, messages, `oneof`), else its
default.

`connect` converts decimals, dates and times of the types that Kafka Connect uses: `confluent.type.Decimal`, `google.type.Date`,
`google.type.TimeOfDay`, `google.protobuf.Timestamp`. Wrappers become their values, `Struct` and related types become JSON, and an
enum becomes its name.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias, final

from streamer.cdc.values import double, single, text
from streamer.errors import EventCode, EventError
from streamer.events import connect
from streamer.extras import needed

#: The file name of a schema without a name.
_MAIN: Final = "schema.proto"
#: The timeout of protoc, in seconds.
_PATIENCE: Final = 60
#: Files that schemas of Kafka Connect import, and that Confluent's registry accepts in imports without storing them.
_BROUGHT: Final = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "google/type/date.proto": """syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }""",
    "google/type/timeofday.proto": """syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }""",
}
_BROUGHT["confluent/types/decimal.proto"] = _BROUGHT["confluent/type/decimal.proto"]
_NO_INDEXES: Final = "protobuf: expected the indexes of a message's type behind the id of its schema"
#: Converts a message to a value of an event.
_Conversion: TypeAlias = connect.Conversion


def library() -> Any:
    """Return protobuf. Raises ModuleNotFoundError, with the command that installs it, if it or its compiler is missing."""
    with needed("reading Protobuf needs protobuf and grpcio-tools", "registry"):
        from google import protobuf

        if find_spec("grpc_tools") is None:
            raise ModuleNotFoundError("no module named 'grpc_tools'", name="grpc_tools")
    return protobuf


def reader(schema: str, references: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return a function that reads messages of a schema. A message begins with the indexes of its type.

    Args:
        references: the schemas that the schema imports, by their names in its imports.

    Raises:
        ModuleNotFoundError: protobuf or its compiler is not installed.
        ValueError: the schema cannot be read.
    """
    library()
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        for each in _files(schema, references):
            pool.Add(each)
            main = each.name
        file = pool.FindFileByName(main)
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is not a Protobuf schema: {error}") from None
    types: dict[tuple[int, ...], tuple[Any, _Conversion]] = {}
    messages = _Messages()

    def look_up(indexes: tuple[int, ...]) -> tuple[Any, _Conversion]:
        nested = list(file.message_types_by_name.values())
        descriptor = None
        for index in indexes:
            if not 0 <= index < len(nested):
                reason = f"protobuf: the schema has no message of the indexes {list(indexes)}"
                raise EventError(EventCode.BAD_VALUE, reason, offset=0)
            descriptor = nested[index]
            nested = [each for each in descriptor.nested_types if not each.GetOptions().map_entry]
        return types.setdefault(indexes, (GetMessageClass(descriptor), messages.conversion(descriptor)))

    def read(record: bytes) -> Any:
        indexes, at = _indexes(record)
        made, convert = types.get(indexes) or look_up(indexes)
        message = made()
        try:
            message.ParseFromString(record[at:])
        except DecodeError as error:
            reason = f"protobuf: the record does not fit its schema, {made.DESCRIPTOR.full_name}: {error}"
            raise EventError(EventCode.BAD_VALUE, reason, offset=at) from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            reason = f"protobuf: the record does not fit its schema, {made.DESCRIPTOR.full_name}: {missing} is missing"
            raise EventError(EventCode.BAD_VALUE, reason, offset=len(record))
        return convert(message)

    return read


def _indexes(record: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a message's type in its schema, and the offset of the message."""
    if record[:1] == b"\0":
        return (0,), 1
    count, at = _varint(record, 0)
    if not 0 < count <= 32:
        raise EventError(EventCode.BAD_VALUE, _NO_INDEXES, offset=0)
    indexes = []
    for _ in range(count):
        index, at = _varint(record, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and the offset of its end."""
    value = shift = 0
    while at < len(record) and shift < 35:
        value |= (record[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if record[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise EventError(EventCode.BAD_VALUE, _NO_INDEXES, offset=at)


# Schemas


def _files(schema: str, references: Mapping[str, str]) -> Sequence[Any]:
    """Return the descriptors of a schema and of its imports, each after its own imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    described = {name: _described(each) for name, each in {_MAIN: schema, **references}.items()}
    if described[_MAIN] is None:
        sources = {**_BROUGHT, **references, _MAIN: schema}
        return list(FileDescriptorSet.FromString(_compiled(sources, described)).file)
    # The schema itself is a descriptor, so only its imports may need compiling.
    main = described[_MAIN]
    assert main is not None
    imported = {name: text_ for name, text_ in {**_BROUGHT, **references}.items() if name != main.name}
    listing = 'syntax = "proto3";\n' + "".join(f'import public "{name}";\n' for name in main.dependency)
    compiled = FileDescriptorSet.FromString(_compiled({**imported, _MAIN: listing}, {**described, _MAIN: None}))
    return [*(each for each in compiled.file if each.name != _MAIN), FileDescriptorProto.FromString(main.SerializeToString())]


def _described(schema: str) -> Any:
    """Return the descriptor that a schema in base64 contains, or None if the schema is text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None
    return descriptor if descriptor.ListFields() else None


def _compiled(sources: Mapping[str, str], described: Mapping[str, Any]) -> bytes:
    """Return the descriptors of *sources*, compiled by protoc."""
    if clear := [name for name, each in described.items() if each is not None and name != _MAIN]:
        raise ValueError(f"this is not a Protobuf schema: {clear[0]} is a descriptor; expected the text of a .proto file")
    with tempfile.TemporaryDirectory(prefix="streamer-") as folder:
        for name, source in sources.items():
            where = PurePosixPath(name)
            if where.is_absolute() or ".." in where.parts or not where.parts:
                raise ValueError(f"this is not a Protobuf schema: {name!r} is not the name of a file that it may import")
            path = Path(folder, *where.parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        out = Path(folder, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
        command += [f"--descriptor_set_out={out}", _MAIN]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc has not read the schema of Protobuf within {_PATIENCE} s") from None
        if ran.returncode or not out.exists():
            said = [line for line in ran.stderr.decode(errors="replace").splitlines() if "warning" not in line]
            raise ValueError(f"this is not a Protobuf schema: {'; '.join(said[:3]).replace(folder, '')}")
        return out.read_bytes()


# Values


@final
class _Messages:
    """Builds the conversion of each message type once, because a type may have members of its own type."""

    def __init__(self) -> None:
        self._made: dict[str, list[tuple[str, bool, Callable[[Any], Any]]]] = {}

    def conversion(self, descriptor: Any) -> _Conversion:
        """Return the conversion of messages of a type."""
        if (known := _KNOWN.get(descriptor.full_name)) is not None:
            return known
        name = descriptor.full_name
        if name not in self._made:
            fields = self._made[name] = []
            fields += [(each.name, each.has_presence, self._member(each)) for each in descriptor.fields]
        fields = self._made[name]

        def convert(message: Any) -> dict[str, Any]:
            return {
                member: None if may_miss and not message.HasField(member) else of(getattr(message, member))
                for member, may_miss, of in fields
            }

        return convert

    def _member(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = self._one(field.message_type.fields_by_name["value"])
            return lambda value: {_key(name): of(member) for name, member in value.items()}
        one = self._one(field)
        return (lambda value: [one(each) for each in value]) if field.is_repeated else one

    def _one(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None:
            return self.conversion(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda value: names.get(value, value)
        return {field.TYPE_BYTES: text, field.TYPE_DOUBLE: double, field.TYPE_FLOAT: single}.get(field.type, _as_it_is)


def _as_it_is(value: Any) -> Any:
    return value


def _key(name: Any) -> str:
    return ("true" if name else "false") if isinstance(name, bool) else str(name)


def _decimal(message: Any) -> Any:
    number = connect.decimal(message.value, message.scale)
    return text(message.value) if number is None else number


def _json(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


_NANOS: Final = 10**9
_moment: Final = connect.LOGICAL["io.debezium.time.NanoTimestamp"]
_time: Final = connect.LOGICAL["io.debezium.time.NanoTime"]
#: The conversions of well-known message types, by name.
_KNOWN: Final[Mapping[str, _Conversion]] = {
    "confluent.type.Decimal": _decimal,
    "google.protobuf.Duration": lambda message: message.ToJsonString(),
    "google.protobuf.Timestamp": lambda message: _moment(message.seconds * _NANOS + message.nanos),
    "google.type.Date": lambda message: f"{message.year:04}-{message.month:02}-{message.day:02}",
    "google.type.TimeOfDay": lambda message: _time(
        (message.hours * 3600 + message.minutes * 60 + message.seconds) * _NANOS + message.nanos
    ),
    **{f"google.protobuf.{name}": _json for name in ("ListValue", "Struct", "Value")},
    **{
        f"google.protobuf.{name}Value": (lambda message, of=of: of(message.value))  # type: ignore[misc]
        for name, of in {
            **dict.fromkeys(("Bool", "Int32", "Int64", "String", "UInt32", "UInt64"), _as_it_is),
            "Bytes": text,
            "Double": double,
            "Float": single,
        }.items()
    },
}
