"""One replication connection to PostgreSQL: its streaming replication protocol, on libpq.

A server that streams sends XLogData, one message of an output plugin each, and keepalives, which report how far it has read its
log. The client reports up to which place everything is durable; the server keeps its log from there on. It considers a client
gone that sends no report for `wal_sender_timeout`. So a thread sends reports while the reader waits for a sink; a lock protects
libpq.
https://www.postgresql.org/docs/15/protocol-replication.html

psycopg 3 exposes libpq as it is. psycopg2 has a cursor for replication, which was rejected: on a keepalive it confirms by itself,
before the store has that position. Then a slot that another program moved could not be distinguished from ours.
"""

from __future__ import annotations

import re
import select
import time
from struct import Struct
from typing import Any, Final, NamedTuple, final

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from streamer.config.secret import SecretValue
from streamer.errors import ConfigError, ServiceError
from streamer.locks import Lock

#: Settings of a session, so that values have the format that the decoders read.
_SETTINGS: Final = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "timezone": "UTC",
}
_CONNECT_TIMEOUT: Final = 10
#: A server that is cut off without a closed connection counts as lost after 30 seconds: idle, and with data that it never got.
_SILENT: Final = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
#: The timeout of a ping to a server that answered a moment ago, in seconds: the least that libpq allows.
_PING_TIMEOUT: Final = 2
#: 2000-01-01, which PostgreSQL counts microseconds from, in seconds since the epoch.
_EPOCH: Final = 946_684_800
_DATA, _KEEPALIVE = 0x77, 0x6B  # w, k
_ALIVE: Final = Struct(">QqB")
_STATUS: Final = Struct(">cQQQqB")
#: The number of reads that libpq may do without a whole message: TLS may buffer more than one read takes, and then the socket is
#: not readable.
_IN_VAIN: Final = 2
#: libpq's buffer keeps the size of the largest message for the lifetime of the connection. A message above this many bytes is
#: large.
_LARGE: Final = 16 * 1024 * 1024
#: A connection stays swollen for this many seconds after its last large message, because more of them may follow.
_SETTLED: Final = 1.0
#: The server shuts down, has crashed, or starts.
_NOT_NOW: Final = frozenset({"57P01", "57P02", "57P03"})
_OF_TLS: Final = re.compile("SSL|certificate")
#: If a password contains `@`, `/`, `?` or `#`, libpq would read, and show, a part of it as the host.
_URI: Final = re.compile(r"postgres(?:ql)?://(?:[^@/?#]*@)?[^@]*", re.IGNORECASE)


class Data(NamedTuple):
    """A message of the output plugin."""

    payload: bytes


class Keepalive(NamedTuple):
    """The server has read its log up to *end*, and sent all changes that it found."""

    end: int
    wants_reply: bool


def lsn(text: str) -> int:
    """Return the number of a place in the log, such as `16/B374D848`. Raises ValueError."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """Write a place in the log as PostgreSQL does."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def said(error: psycopg.Error, dsn: SecretValue) -> str:
    """Return the text of an error with the server's hint, in one line and without the password."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    if error.diag.message_detail:
        text = f"{text}: {error.diag.message_detail}"
    if error.diag.message_hint:
        text = f"{text.rstrip('.')}. {error.diag.message_hint}"
    try:
        password = parameters(dsn).get("password")
    except ServiceError:
        password = None
    text = " ".join(text.split())
    return text.replace(str(password), "…") if password else text


def is_away(error: psycopg.Error, dsn: SecretValue, *, replication: bool) -> bool:
    """Return whether an error means that the server did not answer, or accepted no connections at the moment.

    Args:
        replication: the kind of the connection that failed, as for `connect`.
    """
    if error.sqlstate is not None:
        return error.sqlstate in _NOT_NOW
    # If a login fails, libpq has only a text. Errors of TLS do not pass by waiting.
    if not isinstance(error, psycopg.OperationalError) or _OF_TLS.search(str(error)):
        return False
    if isinstance(error, errors.ConnectionTimeout) or error.pgconn is None:
        # The server did not answer, or its name is unknown. `ping` would block other threads until it finds the same.
        return True
    if _is_unreachable(dsn):
        return True
    # The server may have become available since the error. If so, it accepts the same login now.
    try:
        connect(dsn, replication=replication).close()
    except psycopg.OperationalError:
        return _is_unreachable(dsn)
    return True


def _is_unreachable(dsn: SecretValue) -> bool:
    answer = pq.PGconn.ping(make_conninfo("", **{**parameters(dsn), "connect_timeout": _PING_TIMEOUT}).encode())
    return answer in (pq.Ping.REJECT, pq.Ping.NO_RESPONSE)


def connect(dsn: SecretValue, *, replication: bool) -> psycopg.Connection[Any]:
    """Connect. Raises ServiceError if the secret is not a connection string, and psycopg.OperationalError."""
    parts = parameters(dsn)
    options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    params = {
        "connect_timeout": _CONNECT_TIMEOUT,
        **_SILENT,
        "fallback_application_name": "streamer",
        **parts,
        "client_encoding": "UTF8",
        "options": f"{parts.get('options') or ''} {options}".strip(),
    }
    if replication:
        params["replication"] = "database"
    return psycopg.connect(make_conninfo("", **params), autocommit=True)


def parameters(dsn: SecretValue) -> dict[str, Any]:
    """Return the parts of a connection string. Raises ServiceError."""
    expected = "expected a connection string of PostgreSQL, as postgresql://user:password@host/database or host=… dbname=…"
    try:
        text = dsn.reveal()
        if "://" in text and _URI.fullmatch(text) is None:
            raise ServiceError(f"dsn: {expected}; in a password write @ as %40, / as %2F, ? as %3F and # as %23")
        return dict(conninfo_to_dict(text))
    except ConfigError as error:
        raise ServiceError(f"dsn: {error}") from None
    except psycopg.Error:
        # libpq's error quotes the string.
        raise ServiceError(f"dsn: {expected}") from None


@final
class Replication:
    """A connection on which commands are run, until it streams. Any thread may use it.

    Every method but `close` raises psycopg.Error.

    Args:
        streams: whether it may stream; if not, it takes none of the server's `max_wal_senders`.
    """

    def __init__(self, dsn: SecretValue, *, streams: bool = True) -> None:
        self._connection = connect(dsn, replication=streams)
        self._libpq = self._connection.pgconn
        self._turn = Lock()
        self._large_at: float | None = None
        self._ready = select.poll()
        self._ready.register(self._connection.fileno(), select.POLLIN)

    def rows(self, statement: str) -> list[tuple[str | None, ...]]:
        """Run a statement, and return its rows as texts."""
        with self._turn:
            result = self._libpq.exec_(statement.encode())
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH):
            raise errors.error_from_result(result)
        columns = range(result.nfields)
        return [
            tuple(None if (value := result.get_value(row, at)) is None else value.decode() for at in columns)
            for row in range(result.ntuples)
        ]

    def literal(self, text: str) -> str:
        """Write a text as SQL does."""
        return pq.Escaping(self._libpq).escape_literal(text.encode()).decode()

    def create(self, slot: str, plugin: str, *, export: bool) -> tuple[int, str]:
        """Create a slot; return the position of its first change, and the name of the snapshot of earlier rows, if exported."""
        ((_, begin, snapshot, _),) = self.rows(
            f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL "{plugin}" {"" if export else "NO"}EXPORT_SNAPSHOT'
        )
        return lsn(begin or ""), snapshot or ""

    def start(self, slot: str, begin: int, options: dict[str, str]) -> None:
        """Begin to stream the transactions that were committed after a place in the log."""
        arguments = ", ".join(f'"{name}" {self.literal(value)}' for name, value in options.items())
        self.rows(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(begin)} ({arguments})')

    def receive(self, most: int) -> list[Data | Keepalive]:
        """Return the messages that have arrived, up to about *most* bytes."""
        messages: list[Data | Keepalive] = []
        size = in_vain = 0
        with self._turn:
            while size < most and in_vain <= _IN_VAIN:
                count, frame = self._libpq.get_copy_data(1)
                if count > 0:
                    size, in_vain = size + count, 0
                    if count > _LARGE:
                        self._large_at = time.monotonic()
                    if frame[0] == _DATA:
                        messages.append(Data(bytes(frame[25:])))
                    elif frame[0] == _KEEPALIVE:
                        end, _, wants_reply = _ALIVE.unpack_from(frame, 1)
                        messages.append(Keepalive(end, bool(wants_reply)))
                elif count < 0:
                    result = self._libpq.get_result()
                    if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                        raise errors.error_from_result(result)
                    raise psycopg.OperationalError("the server ended the stream")
                else:
                    self._libpq.consume_input()
                    in_vain += 1
        return messages

    @property
    def is_swollen(self) -> bool:
        """Whether it keeps the memory of a large message, and no other one came lately. Only `close` frees that memory."""
        return self._large_at is not None and time.monotonic() - self._large_at >= _SETTLED

    def wait(self, seconds: float) -> bool:
        """Return whether there is data to receive, after at most *seconds*."""
        return bool(self._ready.poll(seconds * 1000))

    def tell(self, received: int, durable: int) -> None:
        """Report up to which place all was received, and up to which it is durable; 0 for an unknown place."""
        now = time.time_ns() // 1000 - _EPOCH * 10**6
        with self._turn:
            self._libpq.put_copy_data(_STATUS.pack(b"r", received, durable, durable, now, 0))
            self._libpq.flush()

    def close(self) -> None:
        """Close it, which releases its slot."""
        with self._turn:
            self._connection.close()
