"""Partitions of topics: how they are called, how far each is read, and what a message of one is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, final

from confluent_kafka import TopicPartition

#: A message takes so much besides its value.
_OVERHEAD: Final = 512
#: Headers of a CloudEvent in binary mode begin so.
_PREFIX: Final = "ce_"
#: Of confluent_kafka: parts of one that came from a broker are never None, but for value and key.
Message: TypeAlias = Any


@final
@dataclass(slots=True, eq=False)
class Partition:
    """A partition that is ours. Offsets are of the message that follows.

    Attributes:
        next: of all that came of it.
        given: of what the pipeline was given.
        held: of what the store has.
        told: of what the group has.
        messages: that came, and were not given.
        is_fenced: whether another process has taken it over, as the store knows, and the group has not told us so far.
    """

    name: str
    topic: str
    number: int
    next: int
    given: int
    held: int
    told: int = -1
    epoch: int | None = None
    messages: list[Message] = field(default_factory=list)
    is_paused: bool = False
    is_fenced: bool = False
    generation: int | None = None

    def at(self, offset: int, epoch: int | None = None) -> TopicPartition:
        """Return the partition at an offset, with our mark for the group: its name, which no topic that is made again has."""
        return TopicPartition(self.topic, self.number, offset, self.name, leader_epoch=-1 if epoch is None else epoch)


def parts_of(name: str) -> tuple[str, str]:
    """Return what a partition's name is made of: `topic/number`, and the topic's id."""
    plain, _, identity = name.partition("@")
    return plain, identity


def name_of(known: Mapping[str, str], topic: str, number: int, identity: str) -> str:
    """Return the name of a partition, of those that the store knows if it is among them."""
    plain = f"{topic}/{number}"
    if not identity:
        # Brokers that knew one once are asked again later.
        return next((name for name in reversed(list(known)) if parts_of(name)[0] == plain), plain)
    return plain if plain in known else f"{plain}@{identity}"


def place_of(offset: int, epoch: int | None) -> str:
    """Write what the store has of a partition: the offset of the next message, and the epoch of the leader that had the last."""
    return json.dumps({"offset": offset} if epoch is None or epoch < 0 else {"offset": offset, "epoch": epoch})


def size_of(message: Message) -> int:
    """Return how many bytes a message takes in memory, about."""
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


def with_schema(message: Message, part: Literal["key", "value"]) -> bytes | None:
    """Return the key or the value of a message, with the id of its schema before it, wherever the message has that.

    Confluent's clients have it before the value, or as the same bytes in a header; Apicurio's as a long number in a header of
    their own.
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


def is_held(partition: Partition) -> bool:
    """Return whether all that the pipeline was given of a partition is held, or never will be."""
    return partition.is_fenced or partition.held >= partition.given


def shown(partitions: Sequence[Partition]) -> str:
    """Name some partitions."""
    names = [f"{each.topic}/{each.number}" for each in partitions[:10]]
    return ", ".join(names) + (f" and {len(partitions) - 10} more" if len(partitions) > 10 else "") or "no partition"
