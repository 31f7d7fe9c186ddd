"""Messages of pgoutput as a real server sends them: `python -m tests.tools.golden_pgoutput` writes tests/cdc/pgoutput.jsonl.

Each line is a message, in hex, and what the decoder made of it. Look at what changed before you commit it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from streamer import cdc
from streamer.config.secret import SecretValue
from streamer.service.connectors.postgres.replication import Data, Replication
from tests.tools.postgres import Cluster

FILE: Final = Path(__file__).parents[1] / "cdc" / "pgoutput.jsonl"
SETUP: Final = (
    "CREATE SCHEMA shop",
    "CREATE TYPE mood AS ENUM ('glad', 'sad')",
    "CREATE DOMAIN weight AS numeric(10, 3)",
    "CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric(12, 2), note text)",
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    'CREATE TABLE "odd ""names""" (a int, "b/c~d" text, e text, PRIMARY KEY (e, a))',
    "CREATE TABLE shop.whole (id bigint PRIMARY KEY, v text)",
    "ALTER TABLE shop.whole REPLICA IDENTITY FULL",
    "CREATE TABLE nothing (n int)",
    "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE types (b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, t text, c char(3), h bytea, j json,"
    " jb jsonb, at timestamptz, local timestamp, day date, of_day time, span interval, u uuid, net inet, m mood, w weight, o oid,"
    " bs bool[], ints int[], texts text[], nums numeric[], docs jsonb[], moods mood[], times timestamptz[])",
    "CREATE PUBLICATION all_of_it FOR ALL TABLES",
)
WORK: Final = (
    "INSERT INTO orders VALUES (1, 'new', 12.50, NULL)",
    "UPDATE orders SET note = repeat('x', 2500)",
    "UPDATE orders SET status = 'paid'",
    "UPDATE orders SET id = 2",
    "DELETE FROM orders",
    'INSERT INTO "odd ""names""" VALUES (1, \'b\', \'é\u2028"\\\'), (2, NULL, \'\')',
    'UPDATE "odd ""names""" SET a = 3 WHERE a = 1',
    "INSERT INTO shop.whole VALUES (9007199254740993, 'a')",
    "UPDATE shop.whole SET v = 'b'",
    "UPDATE shop.whole SET id = 1",
    "DELETE FROM shop.whole",
    "INSERT INTO nothing VALUES (1)",
    "TRUNCATE orders, nothing",
    "SELECT pg_logical_emit_message(true, 'mine', 'hello')",
    """INSERT INTO types VALUES (true, -1, 2, 9223372036854775807, 1.5, 1e-7, 123456789012345678901234567890.123456789, 'a', 'b',
    '\\x00ff', E'{"a": 1,\n "a": [1.0, 1e2]}',
    '{"b": {"c": null}}', '2026-11-22 10:15:30.123456+00', '2026-11-22 10:15:30',
    '2026-11-22', '10:15', '1 year 2 days 03:04:05', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
    '10.0.0.0/8', 'sad', 1.5, 7,
    '{t,f,NULL}', '{{1,2},{3,4}}', '{"a,b","c\\"d",NULL,"NULL",""}', '[0:1]={1.50,NaN}', ARRAY['{"x": [1, "}"]}'::jsonb],
    '{glad,sad}',
    '{2026-11-22 10:15:30+02}')""",
    "INSERT INTO types (f4, f8, n, at, local) VALUES ('NaN', '-Infinity', 'Infinity', 'infinity', '0044-03-15 BC')",
    "INSERT INTO types (n, at, texts) VALUES (1e400, '12026-01-01 00:00+00', '{}')",
)


def main() -> None:
    """Write the file."""
    cluster = Cluster()
    os.environ["GOLDEN"] = cluster.dsn()
    messages: list[bytes] = []
    try:
        cluster.sql(*SETUP)
        with closing(Replication(SecretValue("env", "GOLDEN"))) as stream:
            begin, _ = stream.create("golden", "pgoutput", export=False)
            cluster.sql(*WORK)
            stream.start("golden", begin, {"proto_version": "1", "publication_names": "all_of_it", "messages": "true"})
            last = time.monotonic()
            while time.monotonic() - last < 2:
                stream.wait(0.1)
                for each in stream.receive(2**20):
                    if isinstance(each, Data):
                        messages.append(each.payload)
                        last = time.monotonic()
    finally:
        cluster.close()
    decoder = cdc.pgoutput.Decoder({"shop.whole": ["id"]}.get)
    with open(FILE, "w", encoding="utf-8") as file:
        for message in messages:
            found = decoder.read(message)
            what = (
                {type(found).__name__.lower(): found._asdict()}
                if isinstance(found, cdc.pgoutput.Begin | cdc.pgoutput.Commit)
                else {"events": [[text.decode(), key] for text, key in found]}
            )
            file.write(json.dumps({"message": message.hex(), **what}) + "\n")


if __name__ == "__main__":
    main()
