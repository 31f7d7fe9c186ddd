"""Messages of Protobuf become values of events, by the schema that a registry has."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streamer.cdc import protobuf
from streamer.errors import EventError
from streamer.events.literal_json import written

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Other { string name = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  confluent.type.Decimal amount = 3 [(confluent.field_meta) = { params: [{ key: "scale", value: "2" }] }];
  google.type.Date day = 4;
  google.type.TimeOfDay at = 5;
  google.protobuf.Timestamp created = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int64Value limit = 8;
  google.protobuf.BytesValue raw = 9;
  google.protobuf.Struct more = 10;
  bytes hash = 11;
  float weight = 12;
  double rate = 13;
  enum State { NEW = 0; PAID = 1; }
  State state = 14;
  repeated Line lines = 15;
  map<string, bytes> files = 16;
  map<int32, State> states = 17;
  message Line { string sku = 1; uint64 count = 2; Line next = 3; }
  oneof who { string user = 18; int32 team = 19; }
  bool vip = 20;
  repeated State history = 21;
}
"""
#: A length before some bytes.
FIELDS: list[tuple[bytes, str, str]] = [
    (b"\x08\x07", "id", "7"),
    (b"", "id", "0"),
    (b"", "note", "null"),
    (b"\x12\x00", "note", '""'),
    (b"\x1a\x06\x0a\x02\x61\xb2\x18\x02", "amount", "250.10"),
    (b"", "amount", "null"),
    (b"\x22\x07\x08\xea\x0f\x10\x01\x18\x1f", "day", '"2026-01-31"'),
    (b"\x2a\x08\x08\x0c\x10\x22\x20\xc0\x84\x3d", "at", '"12:34:00.001"'),
    (b"\x32\x06\x08\x80\xf2\xd6\xca\x06", "created", '"2026-01-01T00:00:00Z"'),
    (b"\x3a\x02\x08\x03", "took", '"3s"'),
    (b"\x42\x02\x08\x05", "limit", "5"),
    (b"\x42\x00", "limit", "0"),
    (b"", "limit", "null"),
    (b"\x4a\x03\x0a\x01\xff", "raw", '"/w=="'),
    (b"\x52\x0a\x0a\x08\x0a\x01a\x12\x03\x1a\x01b", "more", '{"a":"b"}'),
    (b"\x5a\x02\x00\xff", "hash", '"AP8="'),
    (b"\x65\xcd\xcc\xcc\x3d", "weight", "0.1"),
    (b"\x69\x00\x00\x00\x00\x00\x00\xf8\x7f", "rate", '"NaN"'),
    (b"\x70\x01", "state", '"PAID"'),
    (b"\x70\x09", "state", "9"),
    (b"\x7a\x05\x0a\x01a\x10\x02", "lines", '[{"sku":"a","count":2,"next":null}]'),
    (b"", "lines", "[]"),
    (b"\x82\x01\x06\x0a\x01a\x12\x01\xff", "files", '{"a":"/w=="}'),
    (b"\x8a\x01\x04\x08\x05\x10\x01", "states", '{"5":"PAID"}'),
    (b"\x92\x01\x01u", "user", '"u"'),
    (b"\x92\x01\x01u", "team", "null"),
    (b"", "vip", "false"),
    (b"\xaa\x01\x02\x01\x00", "history", '["PAID","NEW"]'),
]


@pytest.fixture(scope="module")
def read() -> Any:
    return protobuf.reader(ORDER, {})


@pytest.mark.parametrize(("record", "name", "text"), FIELDS)
def test_a_member_is_what_its_type_says(read: Any, record: bytes, name: str, text: str) -> None:
    # The second message of the schema: one index, which is 1.
    assert written(read(b"\x02\x02" + record)[name]) == text


@pytest.mark.parametrize(
    ("indexes", "record", "value"),
    [
        (b"\x00", b"\x0a\x01a", {"name": "a"}),
        (b"\x02\x00", b"\x0a\x01a", {"name": "a"}),
        (b"\x04\x02\x00", b"\x0a\x01a", {"sku": "a", "count": 0, "next": None}),
    ],
)
def test_the_indexes_before_a_message_say_of_which_type_it_is(read: Any, indexes: bytes, record: bytes, value: Any) -> None:
    # The descriptor has the entries of maps as nested types, too; Confluent's clients for Java do not count them.
    assert read(indexes + record) == value


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "expected the indexes of a message's type"),
        (b"\x01", "expected the indexes of a message's type"),
        (b"\x04\x02", "expected the indexes of a message's type"),
        (b"\xff\xff\xff\xff\xff\xff", "expected the indexes of a message's type"),
        (b"\x02\x12", "the schema has no message of the indexes [9]"),
        (b"\x02\x02\x08", "the record does not fit its schema, shop.Order"),
        (b"\x02\x02\x12\x01\xff", "the record does not fit its schema, shop.Order"),
        (b"\x02\x02" + b"\x7a\x7f" * 200, "the record does not fit its schema, shop.Order"),
    ],
)
def test_a_message_that_does_not_fit_is_an_error_of_the_record(read: Any, record: bytes, reason: str) -> None:
    with pytest.raises(EventError) as error:
        read(record)
    assert error.value.reason.startswith(f"protobuf: {reason}")


def test_a_schema_imports_others_as_text_and_as_a_descriptor() -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    customer = 'syntax = "proto3"; package shop; import "country.proto"; message Customer { Country of = 1; }'
    country = 'syntax = "proto3"; package shop; enum Country { DE = 0; FR = 1; }'
    order = 'syntax = "proto3"; package shop; import "customer.proto"; message Order { Customer by = 1; }'
    references = {"country.proto": country, "customer.proto": customer}
    descriptor = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", dependency=["customer.proto"])
    message = descriptor.message_type.add(name="Order")
    message.field.add(name="by", number=1, type=11, label=1, type_name=".shop.Customer")
    for schema in (order, base64.b64encode(descriptor.SerializeToString()).decode()):
        assert protobuf.reader(schema, references)(b"\x00\x0a\x02\x08\x01") == {"by": {"of": "FR"}}


def test_a_required_type_of_proto2_has_its_default() -> None:
    schema = 'syntax = "proto2"; message A { optional int32 x = 1 [default = 5]; required string y = 2; }'
    read = protobuf.reader(schema, {})
    assert read(b"\x00\x12\x01a") == {"x": None, "y": "a"}
    with pytest.raises(EventError, match="does not fit its schema"):
        read(b"\x00")


@pytest.mark.parametrize(
    ("schema", "references", "reason"),
    [
        ("message", {}, "this is not a Protobuf schema: "),
        ('syntax = "proto3"; import "other.proto";', {}, "this is not a Protobuf schema: .*other.proto"),
        ('syntax = "proto3";', {"../x.proto": ""}, "'../x.proto' is not the name of a file that it may import"),
        ('syntax = "proto3";', {"/x.proto": ""}, "'/x.proto' is not the name of a file that it may import"),
    ],
)
def test_what_is_no_schema_says_so(schema: str, references: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        protobuf.reader(schema, references)


@pytest.mark.parametrize("gone", [("google", "google.protobuf"), ("grpc_tools",)])
def test_what_is_not_installed_is_named_with_its_extra(gone: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in gone:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'streamer-engine\[registry\]'"):
        protobuf.library()
