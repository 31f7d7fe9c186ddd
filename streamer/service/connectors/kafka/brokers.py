"""The common part of Kafka's source and sink: connections to brokers, and descriptions of topics.

librdkafka reconnects by itself, for ever, and reports errors separately from its answers. So a caller that waits for an answer
gets the latest of these errors as the reason, rather than only a timeout.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar, final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from streamer.config.schema.connectors.kafka import OF_CLIENTS, OF_CONSUMERS, OF_PRODUCERS, Kafka
from streamer.errors import ConfigError, ServiceError
from streamer.service.connectors.kafka.errors import Meaning, meaning
from streamer.service.connectors.protocols import Away

#: The longest wait for an answer of brokers, in seconds.
ANSWER: Final = 10.0
#: The longest wait for the first answer, in seconds. A client that is refused gets only an error, and never an answer.
_FIRST_ANSWER: Final = 2.0
#: The wait before a call that failed with a passing error is repeated, in seconds.
SOON: Final = 0.2
#: Settings that an admin client does not have, and would warn about.
_OF_OTHERS: Final = (OF_CONSUMERS | OF_PRODUCERS) - OF_CLIENTS
#: The id of a topic at brokers before 2.8.
_NO_ID: Final = "A" * 22
_SILENT: Final = logging.Logger("librdkafka", logging.CRITICAL + 1)
_T = TypeVar("_T")


def settings(section: Kafka, heard: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Return settings for a client of librdkafka.

    Args:
        heard: is called with errors that are separate from answers.

    Raises:
        ServiceError: the password cannot be read.
    """
    made: dict[str, Any] = {
        "client.id": "streamer",
        **section.options,
        "bootstrap.servers": ",".join(section.brokers),
        "security.protocol": f"{'SASL_' if section.sasl.mechanism else ''}{'SSL' if section.tls else 'PLAINTEXT'}",
        "error_cb": heard,
        # `heard` also gets all errors that it would log; librdkafka calls errors fatal that a new producer solves.
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


def made(client: Callable[[dict[str, Any]], _T], options: dict[str, Any]) -> _T:
    """Create a client. Raises ServiceError if librdkafka refuses a setting."""
    try:
        return client(options)
    except KafkaException as error:
        raise ServiceError(said(error)) from None


def said(error: KafkaError | KafkaException) -> str:
    """Return the text of an error, in one line."""
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return " ".join((reason.str() or reason.name()).split())


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the committed offsets of a group. Raises ServiceError; Away if its coordinator does not answer in time."""
    deadline = time.monotonic() + ANSWER
    while True:
        try:
            offsets: list[TopicPartition] = consumer.committed(list(partitions), timeout=ANSWER)
            # A missing answer about a partition does not mean that the group has no offset there.
            if (error := next((each.error for each in offsets if each.error is not None), None)) is None:
                return offsets
        except KafkaException as failed:
            error = failed.args[0]
        if not meaning(error).passes:
            raise ServiceError(said(error))
        if time.monotonic() > deadline:
            raise Away(said(error))
        time.sleep(SOON)


@final
class Topic(NamedTuple):
    """An existing topic.

    Attributes:
        id: distinguishes it from another topic of the same name, earlier or later; empty if brokers have no ids.
        may: the operations that we are allowed, if brokers report them; otherwise None.
    """

    id: str
    partitions: int
    may: frozenset[AclOperation] | None


@final
class Cluster:
    """Queries of brokers. Any thread may use it. Raises ServiceError if no broker answers, or if the query is not allowed."""

    def __init__(self, section: Kafka) -> None:
        self._section = section
        self._heard = _Heard()
        options = settings(section, self._heard)
        self._admin = made(AdminClient, {name: options[name] for name in options.keys() - _OF_OTHERS})

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the topics of these names that exist."""
        wanted = TopicCollection(list(names))
        by_name = {}
        for name, answer in self._ask(
            lambda wait: self._admin.describe_topics(wanted, request_timeout=wait, include_authorized_operations=True)
        ).items():
            try:
                topics = answer.result()
            except KafkaException as error:
                if meaning(error) is not Meaning.UNKNOWN:
                    raise self._failed(error, f"topic {name}") from None
            else:
                identity = "" if topics.topic_id is None or str(topics.topic_id) == _NO_ID else str(topics.topic_id)
                may = None if topics.authorized_operations is None else frozenset(topics.authorized_operations)
                by_name[name] = Topic(identity, len(topics.partitions), may)
        return by_name

    def names(self) -> list[str]:
        """Return the names of all topics that we may see."""
        try:
            return list(self._admin.list_topics(timeout=ANSWER).topics)
        except KafkaException as error:
            raise self._failed(error) from None

    def offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the first offset of each partition, and the one after its last.

        The client sends the latest leader epochs that it has. If one is too old, `topics` fetches the new ones.
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
        """Return the settings of a topic; empty if brokers do not report them, or not to us."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            (answer,) = self._admin.describe_configs([resource], request_timeout=ANSWER).values()
            return {name: str(entry.value) for name, entry in answer.result().items()}
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNSUPPORTED_FEATURE):
                return {}
            raise self._failed(error, f"topic {topic}") from None

    def _ask(self, question: Callable[[float], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        """Return answers after all of them have arrived: a client must not be dropped while its own thread may still answer."""
        self._heard.last, self._heard.are_down = None, False
        try:
            answers = question(_FIRST_ANSWER)
            failed = [meaning(error) for each in answers.values() if isinstance(error := each.exception(), KafkaException)]
            # An unknown host name, or a port without a listener, will be the same a few seconds later.
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
        """Return the error with which a broker refused access; None if the latest error is of another kind."""
        self._admin.poll(0)  # collect errors that were reported meanwhile
        last = self._heard.last
        # A handshake may also fail while brokers restart, so errors of TLS count as passing except during a query.
        return last if last is not None and (meaning(last) is Meaning.REFUSING or last.code() == KafkaError._SSL) else None

    def _failed(self, error: KafkaException, what: str = "") -> ServiceError:
        where, text = ", ".join(self._section.brokers), f"{what}: {said(error)}" if what else said(error)
        cause = meaning(error)
        # A broker that has just begun to lead a partition may not have it yet.
        if cause is not Meaning.PASSING and not (cause is Meaning.UNKNOWN and what.startswith("partition ")):
            return ServiceError(text)
        if (refusal := self._refusal()) is not None:
            return ServiceError(f"brokers refuse the login at {where}: {said(refusal)}")
        last = self._heard.last or error.args[0]
        if last.code() > 0:
            return Away(text)
        hint = "" if _tells(last) else "; brokers that expect other tls or sasl close the connection, too"
        return Away(f"the brokers do not answer at {where}: {said(last)}{hint}")


@final
class _Heard:
    """The latest error that is separate from answers. It has no reference to the client, whose own thread might drop it
    otherwise.

    Attributes:
        are_down: whether connections to all brokers failed.
    """

    last: KafkaError | None = None
    are_down = False

    def __call__(self, error: KafkaError) -> None:
        self.are_down = self.are_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        if self.last is None or _tells(error) >= _tells(self.last):
            self.last = error


def _tells(error: KafkaError) -> int:
    """Rank an error by its information: that all brokers are down, or that a connection was closed, is only a consequence."""
    return (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, error.code()).index(error.code())
