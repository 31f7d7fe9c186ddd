"""The layouts of the formats that an engine reads by name: where each has its parts, and the rules of its values."""

from __future__ import annotations

from functools import cache

from streamer.events.layout import EVENT_TYPES, IGNORE, UNTYPED, EventLayout, FormatName

#: Debezium's default placeholder: as text; for a column of bytes as base64, with or without padding, or in hex; and as the UUID
#: that it makes from the text.
_DEBEZIUM_UNAVAILABLE = (
    "__debezium_unavailable_value",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",
    "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
    "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
)

#: Operations of AWS DMS that change a table, not a row of it.
_DMS_CONTROLS = (
    *("create-table", "drop-table", "rename-table", "truncate-table", "add-column", "drop-column", "rename-column"),
    *("change-columns", "column-type-change"),
)


#: Maxwell's types for changes of tables and databases (`output_ddl`), around a bootstrap, and about itself.
_MAXWELL_NO_CHANGES = (
    *("bootstrap-start", "bootstrap-complete", "heartbeat"),
    *(f"{what}-{change}" for what in ("table", "database") for change in ("create", "alter", "drop")),
)


@cache
def preset(name: FormatName) -> EventLayout:
    """Return the layout of a format; see `EventLayout.preset`, which refuses other names."""
    if name == "change":
        return EventLayout()
    if name in ("canal", "debezium_unwrapped", "dynamodb", "mongodb", "pgoutput", "wal2json"):
        return EventLayout(tenant=None, topic=None, envelope="/envelope", before_holds="partial", format=name)
    if name == "debezium":
        return EventLayout(
            id=None,
            tenant=None,
            # ScyllaDB's connector has `table_name`.
            collection=tuple(
                f"{root}/source/{name}" for root in ("/payload", "") for name in ("table", "collection", "table_name")
            ),
            type=("/payload/op", "/op"),
            ts=("/payload/source/ts_ms", "/source/ts_ms", "/payload/ts_ms", "/ts_ms"),
            topic=None,
            data=("/payload/after", "/after"),
            before=("/payload/before", "/before"),
            unknown=None,
            # Cassandra's connector writes `i` for an insert.
            type_map={"c": "insert", "r": "insert", "i": "insert", "u": "update", "d": "delete", "t": IGNORE, "m": IGNORE},
            no_change="ignore",
            before_holds="partial",
            envelope=("/payload", ""),
            unknown_value=_DEBEZIUM_UNAVAILABLE,
            encoded="json",
            format="debezium",
        )
    if name == "maxwell":
        return EventLayout(
            id=None,
            tenant=None,
            collection="/table",
            topic=None,
            before="/old",
            unknown=None,
            type_map={"insert": "insert", "bootstrap-insert": "insert", "update": "update", "delete": "delete"}
            | dict.fromkeys(_MAXWELL_NO_CHANGES, IGNORE),
            ts_format="s",
            before_holds="changed",
            format="maxwell",
        )
    if name == "supabase":
        return EventLayout(
            id=None,
            tenant=None,
            collection="{/schema}.{/table}",
            ts=None,
            topic=None,
            data="/record",
            before="/old_record",
            unknown=None,
            type_map={"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "TRUNCATE": IGNORE},
            before_holds="partial",
            format="supabase",
        )
    if name == "hasura":
        return EventLayout(
            tenant=None,
            collection="{/table/schema}.{/table/name}",
            type="/event/op",
            # Since Hasura 2.26 `created_at` has no time zone, and such a text is no RFC 3339.
            ts=None,
            topic=None,
            data="/event/data/new",
            before="/event/data/old",
            unknown=None,
            # MANUAL is a row as it is now, sent by hand from the console.
            type_map={"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "MANUAL": "insert"},
            # The old row is missing if SQL Server changed the key.
            before_holds="partial",
        )
    if name == "sequin":
        return EventLayout(
            id="/metadata/idempotency_key",
            tenant=None,
            collection="{/metadata/table_schema}.{/metadata/table_name}",
            type="/action",
            ts="/metadata/commit_timestamp",
            topic=None,
            data="/record",
            before="/changes",
            unknown=None,
            type_map={"read": "insert"} | {word: word for word in EVENT_TYPES},
            ts_format="rfc3339",
            # `changes` is empty without REPLICA IDENTITY FULL, so it does not show what was not changed.
            before_holds="partial",
            unknown_value="unchanged_toast",
            # A deleted row has null for columns outside of its replica identity. The rule of DMS is the same.
            format="dms",
        )
    if name == "dms":
        return EventLayout(
            id=None,
            tenant=None,
            collection="{/metadata/schema-name}.{/metadata/table-name}",
            type="/metadata/operation",
            ts="/metadata/timestamp",
            topic=None,
            before="/before-image",
            unknown=None,
            type_map={"load": "insert"} | {word: word for word in EVENT_TYPES} | dict.fromkeys(_DMS_CONTROLS, IGNORE),
            ts_format="rfc3339",
            before_holds="partial",
            format="dms",
        )
    if name == "cloudevents":
        return EventLayout(
            tenant=None,
            collection="/source",
            type=None,
            ts="/time",
            topic="/type",
            before=None,
            unknown=None,
            ts_format="rfc3339",
            format="cloudevents",
        )
    if name == "eventbridge":
        return EventLayout(
            tenant=None,
            collection="/source",
            type=None,
            ts="/time",
            topic="/detail-type",
            data="/detail",
            before=None,
            unknown=None,
            ts_format="rfc3339",
        )
    if name == "sns":
        return EventLayout(
            id="/MessageId",
            tenant=None,
            collection="/TopicArn",
            type="/Type",
            ts="/Timestamp",
            topic="/Subject",
            data="/Message",
            before=None,
            unknown=None,
            type_map={"Notification": UNTYPED, "SubscriptionConfirmation": IGNORE, "UnsubscribeConfirmation": IGNORE},
            ts_format="rfc3339",
            encoded="json",
            # The rule of CloudEvents: data that is no object is no document.
            format="cloudevents",
        )
    return EventLayout(id=None, tenant=None, collection=None, type=None, ts=None, topic=None, data="", before=None, unknown=None)
