"""Who wants each of Debezium's records on Kafka? Every match is delivered at least once.

pip install confluent-kafka
python examples/kafka_consumer.py localhost:9092 shop.public.orders subscriptions.jsonl
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException

from streamer import Engine, EventError, Match

#: The consumer itself says what has been dealt with, so Kafka must not assume it.
SETTINGS: dict[str, Any] = {"group.id": "streamer", "auto.offset.reset": "earliest", "enable.auto.commit": False}


def consume(consumer: Consumer, engine: Engine, deliver: Callable[[Match, bytes], object]) -> Iterator[int]:
    """Match and deliver what has come, again and again; tell how many messages it was, once Kafka knows that they are done."""
    while True:
        messages = consumer.consume(100, timeout=1.0)
        for message in messages:
            if error := message.error():
                raise KafkaException(error)
        # A tombstone's value is None: it is ignored.
        for message, result in zip(messages, engine.match_batch([m.value() for m in messages]), strict=True):
            if isinstance(result, EventError):
                print(f"{message.topic()} {message.partition()}:{message.offset()}: {result.reason}", file=sys.stderr)
                continue
            for match in result:
                deliver(match, message.value() or b"")
        if messages:
            # After the deliveries: who dies before this line reads the messages again.
            consumer.commit(asynchronous=False)
        yield len(messages)


def main(brokers: str, topic: str, subscriptions: str) -> None:
    engine = Engine(format="debezium")
    engine.add_jsonl(subscriptions)
    consumer = Consumer({"bootstrap.servers": brokers, **SETTINGS})
    consumer.subscribe([topic])
    try:
        for _ in consume(consumer, engine, lambda match, record: print(match.subscription_id, record.decode())):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
