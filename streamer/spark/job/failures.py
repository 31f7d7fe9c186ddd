"""Errors as one sentence: Spark reports them in a hundred lines of two languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from streamer.errors import StreamerError


class Bad(StreamerError):
    """An error that the user can correct: an option, a file, a missing place."""


Blame = Literal["user", "event", "spark"]

#: Conditions of Spark's errors that the user's request causes, and their messages.
_BY_USERS: Final = (
    "PATH_NOT_FOUND",
    "PATH_ALREADY_EXISTS",
    "FAILED_READ_FILE",
    "UNABLE_TO_INFER_SCHEMA",
    "UNRESOLVED_COLUMN",
    "CANNOT_READ_FILE_FOOTER",
    "CATALOG_NOT_FOUND",
    "COLUMN_NOT_FOUND",
    "DATA_SOURCE_NOT_FOUND",
    "DELTA_",
    "INCOMPATIBLE_DATA_FOR_TABLE",
    "INVALID_",
    "REQUIRES_SINGLE_PART_NAMESPACE",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_",
    "UNSUPPORTED_FILE",
    "STREAMING_",
    "KAFKA_",
)

#: `streamer.errors.EventError: malformed_json at byte 3: ...` as a worker's traceback ends.
_OURS: Final = re.compile(r"^streamer\.(?:errors|spark\.failures)\.(?P<name>\w+): (?P<text>.*)$", re.M)
_PYTHON: Final = re.compile(r"^(?P<name>(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)): (?P<text>.*)$", re.M)
_JAVA: Final = re.compile(r"^(?:Caused by: |: )?(?P<name>(?:\w+\.)+\w*(?:Error|Exception)): (?P<text>.*)$", re.M)
_CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z0-9_.]+)\] ")
_UNREAD: Final = re.compile(r"\S+ is not a Parquet file")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}\s*$", re.M)


#: Messages of Kafka's client about the user's request, and better ones: the client names neither brokers nor topic.
_KAFKA: Final = {
    "UnknownTopicOrPartitionException": "Kafka has no such topic",
    "InvalidTopicException": "Kafka takes no such name of a topic",
    "TopicAuthorizationException": "Kafka does not let this user at the topic",
    "SaslAuthenticationException": "Kafka does not know this user",
    "No resolvable bootstrap urls": "the brokers of Kafka have no known address",
    "Timed out waiting for a node assignment": "the brokers of Kafka do not answer",
    "Timeout of 60000ms expired before": "the brokers of Kafka do not answer",
    "not present in metadata after": "the brokers of Kafka do not answer",
}


def diagnose(error: BaseException, kafka: Sequence[str] = ()) -> tuple[Blame, str]:
    """Return whose fault an error is, and its message.

    Args:
        error: as Spark raised it.
        kafka: the job's places in Kafka.
    """
    texts = list(_texts(error))
    whole = "\n".join(texts)
    if "Failed to find data source: kafka" in whole or ("DATA_SOURCE_NOT_FOUND" in whole and "kafka" in whole):
        from streamer.spark.compat import CONNECTOR

        return (
            "user",
            f"Spark has no connector to Kafka here: run it with `spark-submit --packages {CONNECTOR}`, "
            f"or with --conf spark.jars.packages={CONNECTOR}",
        )
    for name, what in _KAFKA.items():
        if kafka and name in whole:
            return "user", f"{' or '.join(kafka)}: {what}"
    if "JAVA_GATEWAY_EXITED" in whole or "Java gateway process exited" in whole:
        return "user", "Spark's JVM ended before it was ready: see its output above (it needs a Java of 17 or later)"
    ours = _OURS.findall(whole)
    if ours:
        name, text = ours[-1]
        if name == "EventError":
            return "event", text
        return ("spark" if name == "InternalError" else "user"), text
    first = texts[0] if texts else type(error).__name__
    for line in whole.splitlines():
        condition = _CONDITION.search(line)
        if condition and condition["condition"].startswith(_BY_USERS):
            return "user", _plain(line[condition.start() :])
    if unread := _UNREAD.search(whole):
        return "user", unread[0]
    python = _PYTHON.findall(whole)
    if python and "Traceback" in whole:
        name, text = python[-1]
        return "spark", f"a worker failed: {name}: {text}"
    java = _JAVA.findall(whole)
    if java:
        name, text = java[-1]
        return "spark", f"{name.rpartition('.')[2]}: {text}"
    return "spark", _plain(first)


def _texts(error: BaseException | None) -> list[str]:
    texts: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return texts


def _plain(text: str) -> str:
    """Leave out Spark's condition and its SQLSTATE, and the text after the sentence."""
    text = _SQLSTATE.sub("", _CONDITION.sub("", text)).strip()
    first = text.split("\n", 1)[0].strip()
    return re.sub(r"\s*SQLSTATE: \w{5}.*$", "", first).strip()
