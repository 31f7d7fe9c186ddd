"""What the source and the sink of Kafka share: how brokers are reached, and what they say of topics.

librdkafka connects again by itself, for ever, and says what went wrong besides its answers. So whoever waits for an answer hears
the last of that as the reason, and not only that time has passed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar, final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from streamer.config.schema.kafka import OF_CLIENTS, OF_CONSUMERS, OF_PRODUCERS, Kafka
from streamer.errors import ConfigError, ServiceError
from streamer.service.kafka_errors import Meaning, meaning
from streamer.service.protocols import Away

#: How long brokers may take to answer, in seconds.
ANSWER: Final = 10.0
#: How long they may take at first: who does not let us in says nothing but that.
_FIRST_ANSWER: Final = 2.0
#: What passes by itself is asked again after so long, in seconds.
SOON: Final = 0.2
#: What an admin client does not know, and would warn of.
_OF_OTHERS: Final = (OF_CONSUMERS | OF_PRODUCERS) - OF_CLIENTS
#: Of a topic at brokers before 2.8.
_NO_ID: Final = "A" * 22
_SILENT: Final = logging.Logger("librdkafka", logging.CRITICAL + 1)
_T = TypeVar("_T")


def settings(section: Kafka, heard: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Return settings for a client of librdkafka.

    Args:
        heard: is told what goes wrong besides answers.

    Raises:
        ServiceError: the password cannot be read.
    """
    made: dict[str, Any] = {
        "client.id": "streamer",
        **section.options,
        "bootstrap.servers": ",".join(section.brokers),
        "security.protocol": f"{'SASL_' if section.sasl.mechanism else ''}{'SSL' if section.tls else 'PLAINTEXT'}",
        "error_cb": heard,
        # What it would log, `heard` is told, too; it calls an error fatal that a new producer mends.
        "log_level": 0,
        "logger": _SILENT,
    }
    files = {"ssl.ca.location": section.ca, "ssl.certificate.location": section.certificate, "ssl.key.location": section.key}
    made |= {name: str(path) for name, path in files.items() if path is not None}
    if section.sasl.password is not None:
        try:
            password = section.sasl.password.reveal()
        except ConfigError as error:
            raise ServiceError(f"sasl.password: {error}") from None
        made |= {"sasl.mechanism": section.sasl.mechanism, "sasl.username": section.sasl.user, "sasl.password": password}
    return made


def made(client: Callable[[dict[str, Any]], _T], given: dict[str, Any]) -> _T:
    """Make a client. Raises ServiceError where librdkafka refuses a setting."""
    try:
        return client(given)
    except KafkaException as error:
        raise ServiceError(said(error)) from None


def said(error: KafkaError | KafkaException) -> str:
    """Return what an error says, in one line."""
    told: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return " ".join((told.str() or told.name()).split())


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return what a group has of partitions. Raises ServiceError; Away where its coordinator does not answer in time."""
    deadline = time.monotonic() + ANSWER
    while True:
        try:
            found: list[TopicPartition] = consumer.committed(list(partitions), timeout=ANSWER)
            # A partition without an answer is not one that the group knows nothing of.
            if (error := next((each.error for each in found if each.error is not None), None)) is None:
                return found
        except KafkaException as failed:
            error = failed.args[0]
        if not meaning(error).passes:
            raise ServiceError(said(error))
        if time.monotonic() > deadline:
            raise Away(said(error))
        time.sleep(SOON)


@final
class Topic(NamedTuple):
    """A topic that there is.

    Attributes:
        id: tells it from another one of the same name, earlier or later; empty where brokers have none.
        may: what we may do with it, as far as brokers say so; else None.
    """

    id: str
    partitions: int
    may: frozenset[AclOperation] | None


@final
class Cluster:
    """What can be asked of brokers. Any thread may ask. Raises ServiceError where none answers, or what it may not be asked."""

    def __init__(self, section: Kafka) -> None:
        self._section = section
        self._heard = _Heard()
        given = settings(section, self._heard)
        self._admin = made(AdminClient, {name: given[name] for name in given.keys() - _OF_OTHERS})

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of some topics that there are."""
        wanted = TopicCollection(list(names))
        found = {}
        for name, answer in self._ask(
            lambda wait: self._admin.describe_topics(wanted, request_timeout=wait, include_authorized_operations=True)
        ).items():
            try:
                told = answer.result()
            except KafkaException as error:
                if meaning(error) is not Meaning.UNKNOWN:
                    raise self._failed(error, f"topic {name}") from None
            else:
                identity = "" if told.topic_id is None or str(told.topic_id) == _NO_ID else str(told.topic_id)
                may = None if told.authorized_operations is None else frozenset(told.authorized_operations)
                found[name] = Topic(identity, len(told.partitions), may)
        return found

    def names(self) -> list[str]:
        """Return the names of all topics that we may see."""
        try:
            return list(self._admin.list_topics(timeout=ANSWER).topics)
        except KafkaException as error:
            raise self._failed(error) from None

    def offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the first offset of each partition, and the one after its last.

        The client asks by the epochs of leaders that it last heard of. After one was too old, `topics` brings the new ones.
        """
        wanted = list(partitions)
        first, end = (
            {
                (each.topic, each.partition): self._answer(answer, f"partition {each.topic}/{each.partition}").offset
                for each, answer in self._ask(
                    lambda wait, spec=spec: self._admin.list_offsets(  # type: ignore[misc]
                        {TopicPartition(*each): spec for each in wanted}, request_timeout=wait
                    )
                ).items()
            }
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        )
        return {each: (first[each], end[each]) for each in wanted}

    def config(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic; none where brokers do not tell them, or not us."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            (answer,) = self._admin.describe_configs([resource], request_timeout=ANSWER).values()
            return {name: str(entry.value) for name, entry in answer.result().items()}
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNSUPPORTED_FEATURE):
                return {}
            raise self._failed(error, f"topic {topic}") from None

    def _ask(self, question: Callable[[float], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        """Return answers, all of which are there: a client must not be dropped while a thread of its own may still answer."""
        self._heard.last, self._heard.are_down = None, False
        try:
            answers = question(_FIRST_ANSWER)
            failed = [meaning(error) for each in answers.values() if isinstance(error := each.exception(), KafkaException)]
            # Names that nobody knows, and ports at which nobody listens, are as they are a few seconds later, too.
            if Meaning.PASSING not in failed or self._refusal() is not None or self._heard.are_down:
                return answers
            answers = question(ANSWER)
            for each in answers.values():
                each.exception()
            return answers
        except KafkaException as error:
            raise self._failed(error) from None

    def _answer(self, answer: Future[Any], what: str) -> Any:
        try:
            return answer.result()
        except KafkaException as error:
            raise self._failed(error, what) from None

    def _refusal(self) -> KafkaError | None:
        """Return why a broker did not let us in; None where that is not what went wrong last."""
        self._admin.poll(0)  # what was heard meanwhile
        last = self._heard.last
        # Amid the restart of brokers a handshake may fail, too; so that of TLS passes, and refuses only while they are asked.
        return last if last is not None and (meaning(last) is Meaning.REFUSING or last.code() == KafkaError._SSL) else None

    def _failed(self, error: KafkaException, what: str = "") -> ServiceError:
        where, told = ", ".join(self._section.brokers), f"{what}: {said(error)}" if what else said(error)
        found = meaning(error)
        # A broker that has just begun to lead a partition may not know it so far.
        if found is not Meaning.PASSING and not (found is Meaning.UNKNOWN and what.startswith("partition ")):
            return ServiceError(told)
        if (refusal := self._refusal()) is not None:
            return ServiceError(f"no broker lets us in at {where}: {said(refusal)}")
        last = self._heard.last or error.args[0]
        if last.code() > 0:
            return Away(told)
        hint = "" if _tells(last) else "; brokers that expect other tls or sasl close the connection, too"
        return Away(f"no broker answers at {where}: {said(last)}{hint}")


@final
class _Heard:
    """What went wrong last besides answers. It does not hold the client, which else a thread of its own might drop.

    Attributes:
        are_down: whether no broker could be connected to.
    """

    last: KafkaError | None = None
    are_down = False

    def __call__(self, error: KafkaError) -> None:
        self.are_down = self.are_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        if self.last is None or _tells(error) >= _tells(self.last):
            self.last = error


def _tells(error: KafkaError) -> int:
    """Say how much an error tells: that all brokers are down, or that a connection was closed, follows from something else."""
    return (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, error.code()).index(error.code())
