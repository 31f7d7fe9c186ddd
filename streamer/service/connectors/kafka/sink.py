"""A topic of Kafka. Messages are durable once all replicas in sync have them.

Contract: the messages of a key are in the topic in the order in which they were written. The producer is idempotent: brokers
accept a message of a partition only after the messages that were sent before it, and only once. By default librdkafka would
continue after a message that brokers refuse; with `enable.gapless.guarantee` it stops there instead. Then a new producer sends
the rest. It sends the messages of a refused batch one by one, so that the one at fault is found.

A message that is too long for the topic is found before it is sent, unless the topic's limit was lowered meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from streamer.config.schema.connectors.kafka import KafkaSink
from streamer.errors import ServiceError
from streamer.service.connectors.cloudevents import id_of, key_of
from streamer.service.connectors.kafka import brokers
from streamer.service.connectors.kafka.errors import Meaning, meaning
from streamer.service.connectors.protocols import Outcome

#: The content type of a message: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
_TYPE: Final = b"application/cloudevents+json; charset=UTF-8"
#: The codes of dead letters for messages that are themselves at fault.
_CODES: Final = {KafkaError.INVALID_RECORD: "invalid_record"}
#: The most KiB that wait in the client.
_WAITING_KIB: Final = 64 * 1024
#: The longest single wait for the client, in seconds.
_WAIT: Final = 0.25
_LIMIT: Final = "message.max.bytes"
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class KafkaTopic:
    """Produces to one topic."""

    def __init__(self, section: KafkaSink) -> None:
        self._section = section
        self._timeout = section.timeout.total_seconds()
        self._producer: Producer | None = None
        self._last: str | None = None
        self._progress = 0.0
        self._begin()

    def _begin(self) -> None:
        """Reset all counts of messages."""
        self._written: list[bytes] = []
        self._pending = 0  # sent, and not confirmed by brokers
        self._refused: dict[int, Outcome] = {}
        self._failed: dict[int, KafkaError] = {}

    def check(self) -> None:
        """See `Sink`."""
        topic = self._section.topic
        cluster = brokers.Cluster(self._section)
        described = cluster.topics([topic]).get(topic)
        if described is None:
            raise ServiceError(
                f"topic {topic} does not exist at {', '.join(self._section.brokers)}, or is hidden from this user: create it"
            )
        if described.may is not None and AclOperation.WRITE not in described.may:
            raise ServiceError(f"topic {topic}: this user may not write it")
        config = cluster.config(topic)
        if "compact" in config.get("cleanup.policy", ""):
            raise ServiceError(f"topic {topic} keeps only the last message of a key: expected cleanup.policy=delete")
        self._settings = self._settled(config)

    def _settled(self, config: Any) -> dict[str, Any]:
        """Return the producer's settings; a message may be as long as the topic allows, unless `options` set another limit."""
        limit = int(config.get("max.message.bytes") or 0)
        options = {
            "compression.type": "lz4",
            "linger.ms": 5,
            **({_LIMIT: max(min(limit, 1_000_000_000), 1000)} if limit else {}),
            **brokers.settings(self._section, self._heard),
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "acks": "all",
            "partitioner": "murmur2_random",  # puts a key into the partition in which Java's clients look for it
            # The sink has its own limit of waiting, so the client never drops a message.
            "message.timeout.ms": 0,
            "queue.buffering.max.kbytes": _WAITING_KIB,
            "queue.buffering.max.messages": 1_000_000,
        }
        # Brokers would refuse a whole batch that is longer than a message may be.
        options["batch.size"] = min(int(options.get("batch.size", 1_000_000)), int(options.get(_LIMIT, 1_000_000)))
        return options

    def open(self) -> None:
        """See `Sink`."""
        self.check()
        self._renew()

    def write(self, messages: Sequence[bytes]) -> None:
        """See `Sink`."""
        self._progress = time.monotonic()
        with self._whole():
            for message in messages:
                self._written.append(message)
                self._send(len(self._written) - 1)
            self._hear(0)

    def flush(self) -> Sequence[tuple[int, Outcome]]:
        """See `Sink`."""
        self._progress = time.monotonic()
        with self._whole():
            self._await_all()
            while self._failed:
                self._recover()
        refused = sorted(self._refused.items())
        self._begin()
        return refused

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Forget the written messages if this fails: the next user, for example after a test, counts from 0 again."""
        try:
            yield
        except BaseException:
            self._begin()
            if self._producer is not None:
                self._producer.purge()
                self._renew()
            raise

    def close(self) -> None:
        """See `Sink`."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _send(self, number: int) -> None:
        assert self._producer is not None
        message = self._written[number]
        headers: list[tuple[str, str | bytes | None]] = [("id", id_of(message)), ("content-type", _TYPE)]
        while True:
            try:
                self._producer.produce(
                    self._section.topic,
                    value=message.removesuffix(b"\n"),
                    key=key_of(message),
                    headers=headers,
                    on_delivery=partial(self._reported, self._written, number),
                )
                self._pending += 1
                return
            except BufferError:
                self._poll()
            except KafkaException as error:
                if meaning(error) is Meaning.MESSAGE:
                    self._refuse(number, error.args[0])
                else:
                    # A message after a refused one fails here at once.
                    self._failed[number] = error.args[0]
                return

    def _reported(self, written: list[bytes], number: int, error: KafkaError | None, _: Message) -> None:
        if written is not self._written:
            return  # the message was purged
        self._pending -= 1
        if error is None:
            self._progress = time.monotonic()
        else:
            self._failed[number] = error

    def _hear(self, wait: float) -> None:
        assert self._producer is not None
        try:
            # `flush` of the client would call back with this error pending.
            self._producer.poll(wait)
        except KafkaException as error:
            self._last = brokers.said(error)  # the producer has stopped, and reports the messages that it has not sent

    def _await_all(self) -> None:
        while self._pending:
            self._poll()

    def _poll(self) -> None:
        """Process delivery reports. Raises ServiceError if brokers have confirmed no message for too long."""
        self._hear(_WAIT)
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() - self._progress > self._timeout:
            raise ServiceError(
                f"topic {self._section.topic}: brokers confirmed none for {self._timeout:g} s: {self._last or 'no answer'}; "
                "the next start reads these events again"
            )

    def _recover(self) -> None:
        """Send failed messages again, in their order. Raises ServiceError if that would not help."""
        failed, self._failed = dict(sorted(self._failed.items())), {}
        meanings = {number: meaning(error) for number, error in failed.items()}
        for number, error in failed.items():
            if not (meanings[number].passes or meanings[number] in (Meaning.MESSAGE, Meaning.FOLLOWING)):
                raise ServiceError(f"topic {self._section.topic}: {brokers.said(error)}")
        suspects = {number for number, cause in meanings.items() if cause is Meaning.MESSAGE}
        if not suspects:
            # The client stopped retrying, as it does for codes that it does not consider passing.
            reasons = [error for number, error in failed.items() if meanings[number] is not Meaning.FOLLOWING]
            self._last = brokers.said(reasons[0] if reasons else next(iter(failed.values())))
            self._check_time()
            _LOGGER.warning("topic %s: %s; sent again", self._section.topic, self._last)
            time.sleep(brokers.SOON)
        self._renew()
        for number in failed:
            if number not in suspects:
                self._send(number)
                continue
            self._await_all()
            self._send(number)
            self._await_all()
            # This producer has stopped: after a failed message it sends no more.
            if self._failed.keys() == {number} and meaning(error := self._failed[number]) is Meaning.MESSAGE:
                del self._failed[number]
                self._refuse(number, error)
                self._renew()
        self._await_all()

    def _renew(self) -> None:
        self._producer = brokers.made(Producer, self._settings)

    def _refuse(self, number: int, error: KafkaError) -> None:
        self._progress = time.monotonic()
        self._refused[number] = Outcome("never", _CODES.get(int(error.code()), "too_large"), brokers.said(error))

    def _heard(self, error: KafkaError) -> None:
        self._last = brokers.said(error)
