"""Read messages from Kafka topics. The processes of one consumer group share the partitions.

```
            one thread, which always polls                     the pipeline's threads
 brokers ──► consume ──► [ by partition, bounded ] ──► read ──► … sinks ──► store ──► acknowledge
                │  pause if it is full, then resume                                        │
                └──◄ commit to the group, each second ◄────────────────────────────────────┘
```

Contract: a partition is read from its offset in the *store*; the offset is committed to the group later. So a process that dies
between the two reads no message twice. The group's offset counts if it is ahead of the store's and has our mark: then another
process of the group, with a store of its own, has delivered all earlier messages. An offset without the mark was set by another
program. It counts only if the store has no offset for the partition.

The group considers a process dead if it does not poll for `max.poll.interval.ms`, and a rebalance waits for each process to poll.
So a separate thread polls even while a sink is slow: it pauses its partitions and keeps polling, without getting messages.

A partition that the group revokes is released once all of its messages that were read are durable, or after `DRAIN` seconds.
The next owner begins after the durable messages and reads the others again. A *lost* partition is released at once.

A partition's name contains the id of its topic if the brokers have ids, because a topic that is created again under an old name
has different partitions. Transaction markers use offsets, too: so the next offset is one after the last message, not a count.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from math import inf
from typing import Any, Final, final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamer.cdc import cloudevents, debezium
from streamer.config.schema.connectors.kafka import KafkaSource
from streamer.errors import EventCode, EventError, ServiceError
from streamer.locks import Lock
from streamer.service import faults
from streamer.service.connectors import protocols
from streamer.service.connectors.kafka import brokers
from streamer.service.connectors.kafka.errors import Meaning, meaning
from streamer.service.connectors.kafka.partitions import (
    Message,
    Partition,
    added_of,
    attributes_of,
    is_durable,
    name_of,
    parts_of,
    place_of,
    shown,
    size_of,
    with_schema,
)
from streamer.service.connectors.lines import MOST_REFUSED
from streamer.service.connectors.protocols import NOTHING, Batch, Lost, Progress, Record, Refused

#: The longest time, in seconds, that a revoked partition waits until its messages that were read are durable.
DRAIN: Final = 10.0
#: For how many seconds to retry if brokers do not return the offsets of partitions; the group waits meanwhile.
ASSIGN: Final = 60.0
#: The interval of commits to the group, in seconds.
COMMIT: Final = 1.0
#: The interval of checks whether topics were deleted and created again, in seconds.
LOOK: Final = 30.0
#: Bytes of messages in memory above which partitions are paused. They are resumed at half of that.
MOST_BYTES: Final = 16 * 1024 * 1024
#: The most messages in one call of the client, and in one batch.
_AT_ONCE: Final = 1000
#: The interval of the client's statistics, which have the ends of partitions, in milliseconds.
STATISTICS: Final = 5000
#: The timeout of a poll, in seconds.
_WAIT: Final = 0.1
#: The interval of the warnings while brokers do not return the offsets of partitions, in seconds.
_TELL: Final = 5.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class KafkaMessages:
    """Reads the values and keys of the messages of topics."""

    is_shared: Final = True

    def __init__(self, section: KafkaSource, *, max_bytes: int) -> None:
        self._section, self._max_bytes = section, max_bytes
        self._are_cloudevents = section.record_format == "cloudevents"
        self._are_encoded = section.format.is_encoded
        # The text of an encoded message is not known here.
        self._are_unwrapped = section.record_format == "debezium_unwrapped" and not self._are_encoded
        self._changed = threading.Condition(Lock())
        self._ours: dict[tuple[str, int], Partition] = {}
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._ready: deque[Partition] = deque()
        self._gone: deque[str] = deque()
        self._size = 0
        self._stored: dict[str, str] = {}
        self._is_closing = False
        self._failed: Exception | None = None
        self._polling: threading.Thread | None = None
        self._down_since: float | None = None
        self.down_since: float | None = None  # no broker answers since then
        self._untold: str | None = None  # why the group refused the last offsets
        # Waiting for longer would exceed the poll interval, and the group would consider this process dead.
        self._patience = min(DRAIN, float(section.options.get("max.poll.interval.ms", 300_000)) / 2000)

    # Opening

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """See `Source`."""
        self._cluster = brokers.Cluster(self._section)
        named = [topic for topic in self._section.topics if not topic.startswith("^")]
        topics = self._cluster.topics(named) if named else dict.fromkeys(self._cluster.names())
        if missing := [topic for topic in named if topic not in topics]:
            raise ServiceError(
                f"topic {', '.join(missing)} does not exist at {', '.join(self._section.brokers)}, or this user may not read it"
            )
        consumer = self._consumer()
        try:
            # This fails if the group's coordinator refuses access.
            brokers.committed(consumer, [TopicPartition(topic, 0) for topic in named[:1] or list(topics)[:1]])
        except ServiceError as error:
            raise type(error)(f"group {self._section.group}: {error}") from None
        else:
            self._check_places(confirmed, consumer)
        finally:
            consumer.close()

    def _check_places(self, confirmed: Mapping[str, str], consumer: Consumer) -> None:
        """Raise Lost if unread messages after a confirmed offset are gone, unless the configuration skips them."""
        of_topics = {name: parts_of(name)[0].rpartition("/")[::2] for name in confirmed}
        topics = self._cluster.topics({topic for topic, _ in of_topics.values()}) if confirmed else {}
        places = {}
        for topic, number in {(topic, int(number)) for topic, number in of_topics.values() if topic in topics}:
            if number < topics[topic].partitions:
                name = name_of(confirmed, topic, number, topics[topic].id)
                if name not in confirmed:
                    self._refuse(f"topic {topic} was recreated; unread messages of the previous topic are lost")
                else:
                    places[topic, number] = name
        if not places:
            return
        of_group = {
            (each.topic, each.partition): each for each in brokers.committed(consumer, list(starmap(TopicPartition, places)))
        }
        for (topic, number), (first, end) in self._cluster.offsets(places).items():
            name, theirs = places[topic, number], of_group[topic, number]
            offset = json.loads(confirmed[name])["offset"]
            if theirs.metadata == name:
                offset = max(offset, theirs.offset)
            if not first <= offset <= end:
                self._after_loss(f"{topic}/{number}", offset, first, end)

    def open(self, confirmed: Mapping[str, str], begin: protocols.Begin, others: protocols.Others = protocols.NO_OTHERS) -> None:
        """See `Source`. A source that was renamed continues at the group's offsets."""
        self.check()
        self._confirmed, self._begin = confirmed, begin
        self._client = self._consumer()
        self._polling = threading.Thread(target=self._poll, name="streamer-kafka", daemon=True)
        self._polling.start()

    def _consumer(self) -> Consumer:
        return brokers.made(
            Consumer,
            {
                "queued.max.messages.kbytes": 16 * 1024,
                "isolation.level": "read_committed",
                "statistics.interval.ms": STATISTICS,
                **brokers.settings(self._section, self._heard),
                "stats_cb": self._take_statistics,
                "on_commit": self._learn,
                "group.id": self._section.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
            },
        )

    # Called by the pipeline

    def read(self, wait: float) -> Batch | None:
        """See `Source`."""
        with self._changed:
            if not self._ready and not self._gone and self._failed is None:
                self._changed.wait(wait)
            if self._failed is not None:
                raise self._failed
            if self._gone:
                return Batch(self._gone.popleft(), [], _nowhere, None, is_last=True)
            if not self._ready:
                return None
            partition = self._ready.popleft()
            messages, partition.messages = partition.messages[:_AT_ONCE], partition.messages[_AT_ONCE:]
            if partition.messages:
                self._ready.append(partition)
            self._size -= sum(map(size_of, messages))
            last = messages[-1]
            partition.position = last.offset() + 1
        return self._batch(partition, messages, place_of(partition.position, last.leader_epoch()))

    def _batch(self, partition: Partition, messages: Sequence[Message], confirm: str) -> Batch:
        offsets = [message.offset() for message in messages]
        records: list[Record] = []
        for message in messages:
            value = with_schema(message, "value") if self._are_encoded else message.value()
            if self._are_cloudevents and (attributes := attributes_of(message)) is not None and len(message) <= self._max_bytes:
                records.append(cloudevents.structured(attributes, value))
            elif value is None:
                records.append(b"null")  # a tombstone
            elif len(value) <= self._max_bytes:
                added = added_of(message) if self._are_unwrapped else None
                records.append(debezium.with_headers(value, added) if added else value)
            else:
                reason = f"the message is longer than the {self._max_bytes} bytes that are allowed"
                error = EventError(EventCode.TOO_LONG, reason, offset=self._max_bytes)
                records.append(Refused(error, value[:MOST_REFUSED], len(value)))
        keys = [with_schema(message, "key") if self._are_encoded else message.key() for message in messages]
        return Batch(partition.name, records, offsets.__getitem__, confirm, keys=keys, generation=partition.generation)

    def acknowledge(self, partition: str, confirm: str) -> None:
        """See `Source`."""
        with self._changed:
            for each in self._ours.values():
                if each.name == partition:
                    place = json.loads(confirm)
                    each.durable, each.epoch = max(each.durable, place["offset"]), place.get("epoch")
                    self._changed.notify_all()

    def progress(self) -> Progress | None:
        """See `Source`. Uses the client's last statistics: a query would wait for the polling thread, and block all of Python."""
        read = end = 0
        if self.down_since is not None:
            return None
        with self._changed:
            for each in self._ours.values():
                passed, its_end = self._ends.get((each.topic, each.number), (-1, -1))
                if its_end < 0:
                    return None
                passed_on = each.position if each.messages else max(each.position, passed)
                read, end = read + passed_on, end + max(passed_on, its_end)
            return Progress(read, end, "messages") if self._ours else None

    def _take_statistics(self, statistics: str) -> None:
        """Store whether a broker answers; of partitions, the place up to which all messages were passed on, and the end.

        The polling thread calls it. Offsets of markers of transactions are passed without a message. Messages of a transaction
        that is open cannot be read yet, so the end is before them.
        """
        report = json.loads(statistics)
        # Brokers that a client does not need have no connection; it always needs the one of its group.
        self._hear(any(broker.get("state") == "UP" for broker in report.get("brokers", {}).values()))
        self._ends = {
            (name, int(number)): (
                partition.get("next_offset", -1) if not partition.get("fetchq_cnt") else -1,
                # With isolation.level: read_uncommitted brokers do not report it.
                stable if (stable := partition.get("ls_offset", -1)) >= 0 else partition.get("hi_offset", -1),
            )
            for name, topic in report.get("topics", {}).items()
            for number, partition in topic.get("partitions", {}).items()
        }

    def _hear(self, is_up: bool) -> None:
        if is_up:
            self.down_since = None
        elif self.down_since is None:
            self.down_since = time.monotonic()

    def lost(self, partition: str) -> None:
        """See `Source`. If the group does not revoke the partition, `_look` begins it again, because a process must read it."""
        _LOGGER.warning("%s: another process reads it now", partition)
        with self._changed:
            for each in self._ours.values():
                if each.name == partition:
                    each.is_fenced = True
                    self._empty([each])
            self._changed.notify_all()

    def close(self) -> None:
        """See `Source`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._polling is not None:
            self._polling.join(DRAIN)

    # The thread that polls

    def _poll(self) -> None:
        try:
            self._client.subscribe(
                list(self._section.topics),
                on_assign=self._reporting(self._assigned),
                on_revoke=self._reporting(self._revoked),
                on_lost=self._reporting(self._lost),
            )
            logged = looked = time.monotonic()
            while not self._is_closing and self._failed is None:
                # `consume` with a timeout would wait until all messages are there or the time is over.
                first = self._client.poll(_WAIT)
                if first is not None:
                    self._take([first, *self._client.consume(_AT_ONCE - 1, 0)])
                self._breathe()
                now = time.monotonic()
                if now - logged >= COMMIT:
                    logged = now
                    self._tell(self._ours.values(), wait=False)
                if now - looked >= LOOK:
                    looked = now
                    self._look()
            self._tell(self._ours.values(), wait=True)
        except Exception as error:
            self._fail(error)
        finally:
            # Leave the group at once, so that the next owner need not wait for the session timeout.
            self._is_closing = True
            self._client.close()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            # The first error is the cause.
            self._failed = self._failed or (ServiceError(brokers.said(error)) if isinstance(error, KafkaException) else error)
            self._changed.notify_all()

    def _reporting(self, callback: Callable[[Consumer, Sequence[TopicPartition]], None]) -> Callable[[Consumer, Any], None]:
        """Wrap a callback to store its exception, because the client would replace it with another error."""

        def called(client: Consumer, partitions: Sequence[TopicPartition]) -> None:
            try:
                callback(client, partitions)
            except Exception as error:
                self._fail(error)

        return called

    def _take(self, messages: Sequence[Message]) -> None:
        failed = [message for message in messages if message.error() is not None]
        with self._changed:
            for message in messages if not failed else [each for each in messages if each.error() is None]:
                partition = self._ours.get((message.topic(), message.partition()))
                # Drop messages that were in flight when the partition was released, or begun at another offset.
                if partition is None or partition.is_fenced or message.offset() < partition.next:
                    continue
                partition.next = message.offset() + 1
                if not partition.messages:
                    self._ready.append(partition)
                partition.messages.append(message)
                self._size += size_of(message)
            self._changed.notify_all()
        if len(failed) < len(messages) and self._down_since is not None:
            _LOGGER.info("brokers answer again, after %d s", time.monotonic() - self._down_since)
            self._down_since = None
        for message in failed:
            self._meet(message.error(), message)

    def _breathe(self) -> None:
        """Pause the partitions if too many bytes are in memory; resume them at half of that."""
        if self._size >= MOST_BYTES:
            wanted = [each for each in self._ours.values() if not each.is_paused]
        elif self._size <= MOST_BYTES // 2:
            wanted = [each for each in self._ours.values() if each.is_paused]
        else:
            return
        if wanted:
            act = self._client.resume if wanted[0].is_paused else self._client.pause
            act([each.at(each.next) for each in wanted])
            for each in wanted:
                each.is_paused = not each.is_paused

    def _tell(self, partitions: Any, *, wait: bool) -> None:
        """Commit the durable offsets to the group. This may fail, because the store has them, too."""
        with self._changed:
            wanted = [each for each in partitions if each.durable > each.committed]
            offsets = [each.at(each.durable, each.epoch) for each in wanted]
        if not offsets:
            return
        for each, place in zip(wanted, offsets, strict=True):
            each.committed = place.offset
        try:
            if wait:
                self._learn(None, self._client.commit(offsets=offsets, asynchronous=False))
            else:
                self._client.commit(offsets=offsets)
        except KafkaException as error:
            self._learn(error.args[0], offsets)

    def _learn(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """Note the result of a commit; offsets that the group refused are committed again."""
        reasons = [reason for each in offsets if (reason := each.error or error) is not None]
        failure = brokers.said(reasons[0]) if reasons else None
        if failure is not None and failure != self._untold:
            _LOGGER.warning("group %s: cannot commit offsets: %s", self._section.group, failure)
        self._untold = failure
        for each in offsets:
            if (each.error or error) is not None and (ours := self._ours.get((each.topic, each.partition))) is not None:
                ours.committed = -1

    def _meet(self, error: KafkaError, message: Message) -> None:
        """Handle an error that the client returned in place of a message. Raises ServiceError if it cannot be retried."""
        where = f"{message.topic()}/{message.partition()}"
        match meaning(error):
            case Meaning.LOST:
                if (partition := self._ours.get((message.topic(), message.partition()))) is not None:
                    self._reopen([partition], lost=True)
            case Meaning.PASSING | Meaning.UNKNOWN:
                _LOGGER.warning("%s: %s; retrying", where if message.topic() else "brokers", brokers.said(error))
            case Meaning.NOTICE:
                pass
            case _:
                raise ServiceError(f"{where if message.topic() else f'group {self._section.group}'}: {brokers.said(error)}")

    def _heard(self, error: KafkaError) -> None:
        # The client returns other errors in place of a message, too, or reconnects.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._hear(False)
        if meaning(error) is Meaning.REFUSING:
            self._fail(ServiceError(brokers.said(error)))
        elif self._down_since is None and error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            self._down_since = time.monotonic()
            _LOGGER.warning("%s; retrying until brokers answer", brokers.said(error))

    # Assignment of partitions

    def _assigned(self, client: Consumer, partitions: Sequence[TopicPartition]) -> None:
        begun = self._begun_in_time([(each.topic, each.partition) for each in partitions])
        with self._changed:
            self._ours |= {(each.topic, each.number): each for each in begun}
        self._read(begun)
        _LOGGER.info("%s", f"assigned: {shown(begun)}")

    def _read(self, begun: Sequence[Partition]) -> None:
        self._client.incremental_assign([each.at(each.next, each.epoch) for each in begun])
        # A partition that was paused before may still be paused.
        self._client.resume([each.at(each.next) for each in begun])

    def _revoked(self, client: Consumer, partitions: Sequence[TopicPartition]) -> None:
        ours = self._drop(partitions)
        if not self._is_closing and not self._is_drained(ours):
            _LOGGER.warning("%s: revoked before all read messages were confirmed; the next reader reads these again", shown(ours))
        faults.point("source.revoked")
        self._tell(ours, wait=True)
        self._forget(ours)

    def _lost(self, client: Consumer, partitions: Sequence[TopicPartition]) -> None:
        ours = self._drop(partitions)
        _LOGGER.warning("%s: lost, because the group considers this process dead; messages in flight are read again", shown(ours))
        self._forget(ours)

    def _drop(self, partitions: Sequence[TopicPartition]) -> list[Partition]:
        """Drop the messages of some partitions that the pipeline has not read; return these partitions."""
        with self._changed:
            ours = [each for key in partitions if (each := self._ours.get((key.topic, key.partition))) is not None]
            self._empty(ours)
            return ours

    def _empty(self, partitions: Sequence[Partition]) -> None:
        for each in partitions:
            self._size -= sum(map(size_of, each.messages))
            each.messages = []
            if each in self._ready:
                self._ready.remove(each)

    def _is_drained(self, partitions: Sequence[Partition]) -> bool:
        """Wait until all messages that the pipeline has read are durable; return whether they are."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_closing or self._failed is not None or all(map(is_durable, partitions)), self._patience
            ) and all(map(is_durable, partitions))

    def _forget(self, partitions: Sequence[Partition]) -> None:
        with self._changed:
            for each in partitions:
                self._ours.pop((each.topic, each.number), None)
        _LOGGER.info("%s", f"revoked: {shown(partitions)}")

    # The offset at which a partition begins

    def _begun_in_time(self, wanted: Sequence[tuple[str, int]], *, lost: bool = False) -> list[Partition]:
        """Return partitions as `_begun` does; retry while brokers do not return offsets, for example while leaders change."""
        deadline, logged = time.monotonic() + ASSIGN, -inf
        while True:
            try:
                return self._begun(wanted, lost=lost)
            except protocols.Away as away:
                if self._is_closing or time.monotonic() > deadline:
                    raise
                if time.monotonic() - logged >= _TELL:
                    logged = time.monotonic()
                    _LOGGER.warning("%s; retrying to begin %d partitions", away, len(wanted))
            time.sleep(brokers.SOON)

    def _begun(self, wanted: Sequence[tuple[str, int]], *, lost: bool = False) -> list[Partition]:
        """Return partitions, each at its offset in the store or the group, else at `start`.

        Args:
            lost: whether the brokers report that an offset is gone.

        Raises:
            ServiceError: unread messages are gone, or brokers do not answer.
        """
        topics = self._cluster.topics(dict.fromkeys(topic for topic, _ in wanted))
        committed = brokers.committed(self._client, [TopicPartition(*each) for each in wanted])
        of_group = {(each.topic, each.partition): each for each in committed}
        # Query the ends after the group's offsets, because another process may commit larger ones meanwhile.
        ends = self._cluster.offsets(wanted)
        known = dict(self._confirmed.items())
        names: list[str] = []
        new = set()
        for topic, number in wanted:
            (first, end), theirs = ends[topic, number], of_group[topic, number]
            identity = topics[topic].id if topic in topics else ""
            name = name_of(known, topic, number, identity)
            if name not in known:
                # An offset with the mark of another topic does not count for this one.
                of_this = theirs.offset if parts_of(theirs.metadata or "")[1] in ("", identity) else -1
                new.add((name, place_of(self._anew(topic, number, identity, known, of_this, first, end), None)))
            names.append(name)
        generations, stored = self._take_over(names, known | dict(new))
        begun = []
        for (topic, number), name in zip(wanted, names, strict=True):
            (first, end), theirs = ends[topic, number], of_group[topic, number]
            place = json.loads(stored[name])
            offset, epoch = place["offset"], place.get("epoch")
            if (name, stored[name]) not in new:
                if theirs.metadata == name and theirs.offset > offset:
                    offset, epoch = theirs.offset, None
                if lost or not first <= offset <= end:
                    offset, epoch = self._after_loss(f"{topic}/{number}", offset, first, end), None
            begun.append(Partition(name, topic, number, offset, offset, offset, epoch=epoch, generation=generations[name]))
        return begun

    def _take_over(self, names: Sequence[str], places: Mapping[str, str]) -> tuple[dict[str, int | None], dict[str, str]]:
        """Take over partitions; return their generations and confirmed offsets, which no other process can change now."""
        generations = {name: self._begin(name, places[name]) for name in names}
        return generations, dict(self._confirmed.items())

    def _anew(self, topic: str, number: int, identity: str, known: Mapping[str, str], of_group: int, first: int, end: int) -> int:
        """Return the first offset of a partition that the store does not have; *known* are the names that it has."""
        of_topic = [name for name in known if parts_of(name)[0].rpartition("/")[0] == topic]
        earlier = [name for name in of_topic if parts_of(name)[0] == f"{topic}/{number}"]
        if earlier:
            self._refuse(f"topic {topic} was recreated; unread messages of the previous topic are lost")
            self._take_over(earlier, known)
            self._gone.extend(earlier)
            return first
        if first <= of_group <= end:
            return of_group
        # Read a partition that was added to a topic from its beginning, because all of its messages are new.
        is_added = any(parts_of(name)[1] == identity for name in of_topic)
        return first if self._section.start == "earliest" or is_added else end

    def _after_loss(self, where: str, offset: int, first: int, end: int) -> int:
        """Return the offset at which a partition continues, after its own offset is gone."""
        if offset < first:
            self._refuse(f"{where}: {first - offset} offsets, from {offset} on, are gone: retention was faster")
            return first
        self._refuse(f"{where}: it was cut off before offset {offset}, or its leader had not all of it")
        return min(offset, end)

    def _refuse(self, reason: str) -> None:
        """Log which messages are lost. Raises Lost if the configuration does not allow it."""
        if self._section.on_lost == "fail":
            raise Lost(f"{reason}. With on_lost: skip the service continues with the remaining messages")
        _LOGGER.warning("%s; the remaining messages are read", reason)

    def _reopen(self, partitions: Sequence[Partition], *, lost: bool) -> None:
        """Begin partitions of ours again, at the offsets that apply now."""
        with self._changed:
            self._empty(partitions)
        begun = self._begun_in_time([(each.topic, each.number) for each in partitions], lost=lost)
        with self._changed:
            self._ours |= {(each.topic, each.number): each for each in begun}
        # Assign them again, because the client cannot seek in a partition whose offset is gone.
        self._client.incremental_unassign([each.at(each.next) for each in begun])
        self._read(begun)

    def _look(self) -> None:
        """Begin partitions again if their topic was created again, or if the group returns a fenced one to us."""
        with_id = {each.topic for each in self._ours.values() if "@" in each.name}
        try:
            topics = self._cluster.topics(with_id) if with_id else {}
        except ServiceError as error:
            _LOGGER.debug("topics: %s", error)
            return
        ids = {name: topic.id for name, topic in topics.items() if topic.id}
        if fenced := [each for each in self._ours.values() if each.is_fenced]:
            _LOGGER.warning("%s: still assigned to this process; begun again", shown(fenced))
            self._reopen(fenced, lost=False)
        if recreated := [
            each for each in self._ours.values() if parts_of(each.name)[1] != ids.get(each.topic, parts_of(each.name)[1])
        ]:
            self._reopen(recreated, lost=False)


def _nowhere(_: int) -> int:
    raise IndexError
