"""The server's description of itself and of a slot, and the place up to which the slot was read."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, final

from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.errors import ServiceError
from streamer.service.connectors.postgres.replication import Replication, lsn, lsn_text


@final
class Place(NamedTuple):
    """The place in a slot: all transactions that end there or before, and the first events of the next one."""

    end: int
    transaction: int = 0
    events: int = 0

    def text(self) -> str:
        """Return the text that the store has for it."""
        members: dict[str, Any] = {"lsn": lsn_text(self.end)}
        if self.transaction:
            members |= {"transaction": lsn_text(self.transaction), "events": self.events}
        return json.dumps(members)

    @classmethod
    def of(cls, text: str) -> Place:
        """Return the place of a text of the store."""
        members = json.loads(text)
        return cls(lsn(members["lsn"]), lsn(members.get("transaction", "0/0")), members.get("events", 0))


@final
class Slot(NamedTuple):
    """The server's description of our slot."""

    plugin: str
    kind: str
    database: str | None
    process: int | None
    confirmed: int
    is_lost: bool


@final
class Server(NamedTuple):
    """The server's description of itself."""

    system: str
    timeline: str
    database: str
    slot: Slot | None
    sender_timeout: float
    end: int  # the end of its log


def look(stream: Replication, section: PostgresSource) -> Server:
    """Read the state of the server. Raises ServiceError if its setup does not fit."""
    ((system, timeline, end, database),) = stream.rows("IDENTIFY_SYSTEM")
    ((level, timeout, publications),) = stream.rows(
        "SELECT current_setting('wal_level'), (SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'),"
        f" (SELECT count(*) FROM pg_publication WHERE pubname = {stream.literal(section.publication)})"
    )
    if level != "logical":
        raise ServiceError(f"wal_level of the server is {level}; set wal_level = logical, and restart it")
    if section.plugin == "pgoutput" and publications == "0":
        name = section.publication
        raise ServiceError(
            f"publication {name!r} does not exist in database {database}; create it for the tables that you want: "
            f'CREATE PUBLICATION "{name}" FOR TABLE …'
        )
    slots = stream.rows(
        "SELECT plugin, slot_type, database, active_pid, confirmed_flush_lsn, to_jsonb(s) ->> 'wal_status'"
        f" FROM pg_replication_slots s WHERE slot_name = '{section.slot}'"
    )
    slot = None
    for plugin, kind, of_database, process, flushed, status in slots:
        slot = Slot(
            plugin or "", kind or "", of_database, int(process) if process else None, lsn(flushed or "0/0"), status == "lost"
        )
        if slot.kind != "logical" or slot.plugin != section.plugin or slot.database != database:
            what = f"a {slot.kind} slot" if slot.kind != "logical" else f"of plugin {slot.plugin} in database {slot.database}"
            raise ServiceError(f"slot {section.slot} is {what}, and {section.plugin} in database {database} is wanted")
    return Server(system or "", timeline or "", database or "", slot, int(timeout or 0) / 1000, lsn(end or "0/0"))


def check_room(stream: Replication) -> None:
    """Raise ServiceError if the server has no slot left."""
    ((room,),) = stream.rows("SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)")
    if int(room or 0) <= 0:
        raise ServiceError("the server has no slot left; raise max_replication_slots, or drop an unused slot")


def primary_keys(stream: Replication) -> dict[str, list[str]]:
    """Return the columns of each primary key, by `schema.table`."""
    keys: dict[str, list[str]] = {}
    for table, column in stream.rows(
        "SELECT format('%s.%s', n.nspname, c.relname), a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)"
        " WHERE i.indisprimary AND n.nspname NOT IN ('pg_catalog', 'pg_toast') ORDER BY c.oid, a.attnum"
    ):
        keys.setdefault(table or "", []).append(column or "")
    return keys
