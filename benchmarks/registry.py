"""Debezium's orders in Avro, decoded to events: records a second of one core, compared with the same records in JSON.

```console
python -m benchmarks.registry
```

It shows the work of the service on a record before it is matched: find the schema, read Avro, make the event and write it.
The goal is 20,000 records a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import BytesIO
from statistics import median
from typing import Any, Final

from streamer.config.schema.encoded import Format
from streamer.events import connect
from streamer.service.connectors.formats import decoder
from streamer.service.connectors.registry import Messages, Schema

RECORDS: Final = 2000
ROUNDS: Final = 15


def _named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


_DECIMAL: Final = _named("bytes", connect.DECIMAL, **{"connect.parameters": {"scale": "2"}})
_ROW: Final = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer_id", "type": ["null", "long"]},
        {"name": "status", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", _DECIMAL]},
        {"name": "currency", "type": ["null", "string"]},
        {"name": "created", "type": _named("long", "io.debezium.time.MicroTimestamp")},
        {"name": "note", "type": ["null", "string"]},
        {"name": "quantity", "type": "int"},
        {"name": "is_gift", "type": "boolean"},
        {"name": "day", "type": ["null", _named("int", "io.debezium.time.Date")]},
    ],
}
_SOURCE: Final = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        *({"name": name, "type": "string"} for name in ("version", "connector", "name", "db", "schema", "table")),
        *({"name": name, "type": "long"} for name in ("ts_ms", "ts_us", "ts_ns")),
        *({"name": name, "type": ["null", "string"]} for name in ("snapshot", "sequence")),
        *({"name": name, "type": ["null", "long"]} for name in ("txId", "lsn", "xmin")),
    ],
}
_ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", _ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        *({"name": name, "type": ["null", "long"]} for name in ("ts_ms", "ts_us", "ts_ns")),
    ],
}
_KEY: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def _change(number: int) -> dict[str, Any]:
    row = {
        "id": number,
        "customer_id": number % 977,
        "status": "new",
        "amount": number * 10 + 5,
        "currency": "EUR",
        "created": 1_767_225_600_000_000 + number * 1_000_003,
        "note": "as agreed by telephone",
        "quantity": number % 7,
        "is_gift": number % 2 == 0,
        "day": 20_454 + number % 365,
    }
    source = {
        "version": "3.6.1.Final",
        "connector": "postgresql",
        "name": "shop",
        "db": "shop",
        "schema": "public",
        "table": "orders",
        **dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), 1_767_225_600_000),
        "snapshot": "false",
        "sequence": '["1","2"]',
        "txId": number,
        "lsn": number * 100,
        "xmin": None,
    }
    return {"before": row, "after": {**row, "status": "paid"}, "source": source, "op": "u", "ts_ms": 1, "ts_us": 1, "ts_ns": 1}


def _in_avro(change: dict[str, Any]) -> dict[str, Any]:
    def encoded(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "amount": row["amount"].to_bytes(8, "big", signed=True)}

    return {**change, "before": encoded(change["before"]), "after": encoded(change["after"])}


def _written(number: int, schema: Any, values: list[Any]) -> list[bytes]:
    import fastavro

    parsed, found = fastavro.parse_schema(schema), []
    for value in values:
        file = BytesIO()
        fastavro.schemaless_writer(file, parsed, value)
        found.append(b"\0" + number.to_bytes(4, "big") + file.getvalue())
    return found


def _rate(decode: Callable[..., Any], records: list[bytes], keys: list[bytes]) -> float:
    """Return the records a second of processor time, the median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        count = sum(len(decode(record, key)) for record, key in zip(records, keys, strict=True))
        found.append(len(records) / (time.process_time() - began))
        assert count == len(records)
    return median(found)


def main() -> None:
    """Print both rates."""
    changes = [_change(number) for number in range(RECORDS)]
    messages = Messages(Format.model_validate({"name": "debezium", "encoding": "avro", "registry": {"url": "http://localhost"}}))
    schemas = {1: Schema("AVRO", json.dumps(_KEY), {}), 2: Schema("AVRO", json.dumps(_ENVELOPE), {})}
    messages.schema_of = schemas.__getitem__  # type: ignore[assignment]
    in_avro, in_json = decoder("debezium", messages=messages), decoder("debezium")
    assert in_avro is not None
    assert in_json is not None
    keys = [{"id": each["after"]["id"]} for each in changes]
    rate = _rate(in_avro, _written(2, _ENVELOPE, [_in_avro(each) for each in changes]), _written(1, _KEY, keys))
    print(f"Avro  {rate:10,.0f} records/s")
    rate = _rate(in_json, [json.dumps(each).encode() for each in changes], [json.dumps(each).encode() for each in keys])
    print(f"JSON  {rate:10,.0f} records/s")


if __name__ == "__main__":
    main()
