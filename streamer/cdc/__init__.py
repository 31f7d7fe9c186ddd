"""Decode change records that a layout cannot describe: wire format in, events out, no I/O.

| decoder | what it reads |
|---|---|
| `pgoutput.Decoder` | PostgreSQL's own plugin pgoutput, protocol version 1: binary |
| `wal2json.Decoder` | PostgreSQL's plugin wal2json, format version 2: lists of columns |
| `dynamodb.decode` | streams of Amazon DynamoDB, whose values carry their types |
| `mongodb.decode` | MongoDB's change streams, in Extended JSON |
| `debezium.decode`, `debezium.decode_unwrapped` | Debezium in JSON; plain rows, as ExtractNewRecordState leaves them |
| `cloudevents.decode` | CloudEvents in structured JSON, one or a batch |
| `canal.decode` | Canal's flat messages of MySQL: several rows in one, all values as text |

Each returns a list of events of the layout `LAYOUT`, because one message can contain several changes. A message without a
change, such as the begin of a transaction, becomes an event that the engine ignores and counts.

```python
engine = streamer.Engine(layout=cdc.LAYOUT)
for event in cdc.dynamodb.decode(message):
    engine.match(event)
```

You need no decoder if a layout can describe the records of your source: docs/sources.md lists such sources. For Debezium and
CloudEvents you can use either. A decoder's `read` also returns the keys; the one of pgoutput returns JSON, for speed.
"""

from streamer.cdc import canal, cloudevents, debezium, dynamodb, mongodb, pgoutput, wal2json
from streamer.cdc.messages import LAYOUT, ChangeEvent, Keyed

__all__ = ["LAYOUT", "ChangeEvent", "Keyed", "canal", "cloudevents", "debezium", "dynamodb", "mongodb", "pgoutput", "wal2json"]
