"""Partitions of topics: their names, their offsets, and their messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, final

from confluent_kafka import TopicPartition

from streamer.events.layout import ADDED

#: Bytes of memory that a message uses in addition to its key and value.
_OVERHEAD: Final = 512
#: The prefix of the headers of a CloudEvent in binary mode.
_PREFIX: Final = "ce_"
#: A message of confluent_kafka. If it came from a broker, only its key and value may be None.
Message: TypeAlias = Any


@final
@dataclass(slots=True, eq=False)
class Partition:
    """A partition that is ours. Each offset is the one after the last message.

    Attributes:
        next: the offset after all messages from the client.
        position: the offset after the messages that the pipeline has read.
        durable: the offset after the messages that are durable.
        committed: the offset that was committed to the group.
        messages: those from the client that the pipeline has not read.
        is_fenced: whether another process has taken it over in the store, before the group revoked it here.
    """

    name: str
    topic: str
    number: int
    next: int
    position: int
    durable: int
    committed: int = -1
    epoch: int | None = None
    messages: list[Message] = field(default_factory=list)
    is_paused: bool = False
    is_fenced: bool = False
    generation: int | None = None

    def at(self, offset: int, epoch: int | None = None) -> TopicPartition:
        """Return the partition at an offset, marked with its name; a topic that is created again has different names."""
        return TopicPartition(self.topic, self.number, offset, self.name, leader_epoch=-1 if epoch is None else epoch)


def parts_of(name: str) -> tuple[str, str]:
    """Return the two parts of a partition's name: `topic/number`, and the topic's id."""
    plain, _, identity = name.partition("@")
    return plain, identity


def name_of(known: Mapping[str, str], topic: str, number: int, identity: str) -> str:
    """Return the name of a partition: the one in the store, if the store has it."""
    plain = f"{topic}/{number}"
    if not identity:
        # Brokers that returned an id before may return it again later, so keep the name with the id.
        return next((name for name in reversed(list(known)) if parts_of(name)[0] == plain), plain)
    return plain if plain in known else f"{plain}@{identity}"


def place_of(offset: int, epoch: int | None) -> str:
    """Return a position for the store: the offset of the next message, and the epoch of the leader that had the last one."""
    return json.dumps({"offset": offset} if epoch is None or epoch < 0 else {"offset": offset, "epoch": epoch})


def size_of(message: Message) -> int:
    """Estimate the bytes of memory that a message uses."""
    return len(message) + len(message.key() or b"") + _OVERHEAD


def attributes_of(message: Message) -> dict[str, str] | None:
    """Return the attributes of a CloudEvent in binary mode; None for any other message.

    https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md#32-binary-content-mode
    """
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in message.headers() or ()}
    if f"{_PREFIX}specversion" not in headers:
        return None
    attributes = {name.removeprefix(_PREFIX): value for name, value in headers.items() if name.startswith(_PREFIX)}
    return attributes | {"datacontenttype": headers.get("content-type", "")}


def added_of(message: Message) -> dict[str, str]:
    """Return the headers that Debezium's transform ExtractNewRecordState adds to a message (`add.headers`).

    Connect's own headers, such as `__connect.errors.topic`, have a dot in their names, and ids of schemas are not text.
    """
    headers = {}
    for name, value in message.headers() or ():
        if name.startswith(ADDED) and "." not in name and value is not None:
            with suppress(UnicodeDecodeError):
                headers[name] = value.decode()
    return headers


def with_schema(message: Message, part: Literal["key", "value"]) -> bytes | None:
    """Return the key or the value of a message with the id of its schema in front, wherever in the message that id is.

    Confluent's clients write the id in front of the value, or as the same bytes in a header. Apicurio's write a long integer in a
    header of their own.
    """
    of: bytes | None = message.key() if part == "key" else message.value()
    headers = message.headers()
    if of is None or not headers:
        return of
    for name, value in reversed(headers):
        if isinstance(value, bytes):
            if name == f"__{part}_schema_id":
                return value + of
            if name == f"apicurio.{part}.contentId" and len(value) == 8 and value[:4] == bytes(4):
                return b"\0" + value[4:] + of
    return of


def is_durable(partition: Partition) -> bool:
    """Return whether all messages that the pipeline has read from a partition are durable, or never will be."""
    return partition.is_fenced or partition.durable >= partition.position


def shown(partitions: Sequence[Partition]) -> str:
    """Return the names of at most ten partitions, and the number of the others."""
    names = [f"{each.topic}/{each.number}" for each in partitions[:10]]
    return ", ".join(names) + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "") or "no partition"
