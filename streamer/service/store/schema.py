"""The tables of a store, version by version."""

from __future__ import annotations

from typing import Final

#: SQLite: the statements that each version adds to the one before. Opening a store of an earlier version upgrades it.
UPGRADES: Final[list[str]] = [
    """
    CREATE TABLE subscriptions (
        tenant TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    CREATE TABLE positions (
        number INTEGER PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL, position TEXT NOT NULL,
        UNIQUE (source, partition)
    );
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        UNIQUE (source, partition, position, part)
    );
    """,
    # The API's part of a subscription. A version is used once, so that the ETag of a deleted subscription never returns.
    """
    ALTER TABLE subscriptions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN lease INTEGER;
    ALTER TABLE subscriptions ADD COLUMN expires_at INTEGER;
    CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE versions (last INTEGER NOT NULL);
    INSERT INTO versions VALUES (0);
    """,
    # `spool.number` consists of the number of its lane and, in its lowest 44 bits, the order in it; so a lane is a range of one
    # tree. `spooled` of a dead letter is the message that waits for it, if its key waits.
    """
    CREATE TABLE letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        sink TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '', matches INTEGER NOT NULL DEFAULT 0,
        key INTEGER, spooled INTEGER,
        UNIQUE (source, partition, position, part, sink, message)
    );
    INSERT INTO letters (id, source, partition, position, part, stage, code, reason, attempts, at, size, record)
        SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record FROM dead_letters;
    DROP TABLE dead_letters;
    ALTER TABLE letters RENAME TO dead_letters;
    CREATE TABLE lanes (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, gone INTEGER, target TEXT
    );
    CREATE TABLE spool (
        number INTEGER PRIMARY KEY, key INTEGER, message TEXT NOT NULL, matches INTEGER NOT NULL, attempts INTEGER NOT NULL,
        due INTEGER NOT NULL, at INTEGER NOT NULL, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX spool_keys ON spool (key, number) WHERE key IS NOT NULL;
    """,
    # `last` of a lane is the number of a message that was trimmed, and `mark` distinguishes it from others of its name or number.
    """
    CREATE TABLE gateways (
        tenant TEXT NOT NULL, id TEXT NOT NULL, settings TEXT NOT NULL, secrets TEXT NOT NULL, version INTEGER NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    ALTER TABLE lanes ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE lanes ADD COLUMN mark TEXT NOT NULL DEFAULT '';
    UPDATE lanes SET mark = lower(hex(randomblob(4)));
    """,
    # A process that takes a partition over raises `generation` of its position. From here on, `last` of a lane is its latest
    # number, even if that message was deleted.
    """
    ALTER TABLE positions ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    UPDATE lanes SET last = max(last, number << 44, coalesce(
        (SELECT max(number) FROM spool WHERE number > lanes.number << 44 AND number < (lanes.number + 1) << 44), 0));
    """,
    # The log of changes of subscriptions.
    """
    CREATE TABLE changes (
        version INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, who TEXT NOT NULL,
        what TEXT NOT NULL, replaced BLOB
    );
    CREATE INDEX changes_by_id ON changes (tenant, id);
    ALTER TABLE versions ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
    """,
    # A generation is used once: a partition that ended and begins again gets a new one.
    """
    CREATE TABLE generations (last INTEGER NOT NULL);
    INSERT INTO generations SELECT coalesce(max(generation), 0) FROM positions;
    """,
    # The key of a record, by which it is read again.
    """
    ALTER TABLE dead_letters ADD COLUMN record_key BLOB;
    """,
    # The marks of the engine's snapshots next to the store.
    """
    CREATE TABLE snapshots (mark TEXT PRIMARY KEY, version INTEGER NOT NULL);
    """,
]

#: PostgreSQL, as above. `removed` has deleted rows for processes that have not seen the deletion yet; `leader` has the process
#: that delivers the spool.
POSTGRES: Final[list[str]] = [
    """
    CREATE TABLE subscriptions (
        tenant TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL, body BYTEA NOT NULL, version BIGINT NOT NULL,
        created BIGINT NOT NULL, updated BIGINT NOT NULL, paused BIGINT NOT NULL, unindexed BIGINT NOT NULL, lease BIGINT,
        expires_at BIGINT,
        PRIMARY KEY (tenant, id)
    );
    CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX subscriptions_by_version ON subscriptions (version);
    CREATE TABLE removed (version BIGINT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL);
    CREATE INDEX removed_by_version ON removed (version);
    CREATE TABLE gateways (
        tenant TEXT NOT NULL, id TEXT NOT NULL, settings TEXT NOT NULL, secrets TEXT NOT NULL, version BIGINT NOT NULL,
        created BIGINT NOT NULL, updated BIGINT NOT NULL,
        PRIMARY KEY (tenant, id)
    );
    CREATE TABLE versions (last BIGINT NOT NULL, forgotten BIGINT NOT NULL DEFAULT 0);
    INSERT INTO versions (last) VALUES (0);
    CREATE TABLE positions (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL,
        position TEXT NOT NULL, generation BIGINT NOT NULL DEFAULT 0,
        UNIQUE (source, partition)
    );
    CREATE TABLE dead_letters (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL,
        position TEXT NOT NULL, part BIGINT NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
        attempts BIGINT NOT NULL, at BIGINT NOT NULL, size BIGINT NOT NULL, record BYTEA NOT NULL, sink TEXT NOT NULL,
        message TEXT NOT NULL, matches BIGINT NOT NULL, key BIGINT, spooled BIGINT,
        UNIQUE (source, partition, position, part, sink, message)
    );
    CREATE TABLE lanes (
        number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, gone BIGINT, target TEXT, last BIGINT NOT NULL,
        mark TEXT NOT NULL
    );
    CREATE TABLE spool (
        number BIGINT PRIMARY KEY, key BIGINT, message TEXT NOT NULL, matches BIGINT NOT NULL, attempts BIGINT NOT NULL,
        due BIGINT NOT NULL, at BIGINT NOT NULL, source TEXT NOT NULL, partition TEXT NOT NULL, position TEXT NOT NULL,
        part BIGINT NOT NULL, body BYTEA NOT NULL
    );
    CREATE INDEX spool_keys ON spool (key, number) WHERE key IS NOT NULL;
    CREATE TABLE leader (holder TEXT NOT NULL, generation BIGINT NOT NULL, until TIMESTAMPTZ NOT NULL);
    INSERT INTO leader VALUES ('', 0, '-infinity');
    """,
    # The log of changes of subscriptions has deletions, too.
    """
    CREATE TABLE changes (
        version BIGINT PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, who TEXT NOT NULL,
        what TEXT NOT NULL, replaced BYTEA
    );
    CREATE INDEX changes_by_id ON changes (tenant, id, version);
    INSERT INTO changes SELECT version, tenant, id, at, '', 'delete', NULL FROM removed;
    DROP TABLE removed;
    """,
    # A generation is used once.
    """
    CREATE TABLE generations (last BIGINT NOT NULL);
    INSERT INTO generations SELECT coalesce(max(generation), 0) FROM positions;
    """,
    # The key of a record.
    """
    ALTER TABLE dead_letters ADD COLUMN record_key BYTEA;
    """,
    # The marks of snapshots.
    """
    CREATE TABLE snapshots (mark TEXT PRIMARY KEY, version BIGINT NOT NULL);
    """,
]
