"""The mock cluster of the Kafka client, which a test lets fail: librdkafka's own, in this process, without a broker's start.

The client of Python can begin one, and no more. The rest is in the library that it brings, and called by its C names.
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka_mock.h
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

import confluent_kafka

#: Requests of the protocol, by their numbers.
PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 8, 9
_PRODUCER: Final = 0


def _library() -> ctypes.CDLL:
    place = Path(confluent_kafka.__file__).parent
    found = sorted([*place.parent.glob("confluent_kafka.libs/librdkafka*"), *place.glob(".dylibs/librdkafka*")])
    library = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    for name in ("conf_new", "new", "mock_cluster_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """One broker, or more, whose groups begin at once."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(self._library.rd_kafka_new(_PRODUCER, settings, error, len(error)))
        assert self._client, error.value
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._client, brokers))
        self.address = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._do("group_initial_rebalance_delay_ms", ctypes.c_int32(0))
        self._do("set_controller_id", ctypes.c_int32(1))

    def topic(self, name: str, partitions: int = 1) -> None:
        """Make a topic."""
        assert not self._do("topic_create", name.encode(), partitions, 1)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        assert not self._do("topic_delete", name.encode())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Forget the first messages of a partition, as retention does."""
        assert not self._do("partition_delete_records", topic.encode(), ctypes.c_int32(partition), ctypes.c_int64(before))

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Have a broker lead a partition, in a later epoch; -1 for none."""
        assert not self._do("partition_set_leader", topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(broker))

    def answer(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with errors, by their numbers."""
        self._do(
            "push_request_errors_array",
            ctypes.c_int16(request),
            ctypes.c_size_t(len(errors)),
            (ctypes.c_int * len(errors))(*errors),
        )

    def clear(self, request: int) -> None:
        """Answer requests of a kind as they are again."""
        self._do("clear_request_errors", ctypes.c_int16(request))

    def down(self) -> None:
        """Let the broker be away."""
        assert not self._do("broker_set_down", ctypes.c_int32(1))

    def up(self) -> None:
        """Let it be back."""
        assert not self._do("broker_set_up", ctypes.c_int32(1))

    def close(self) -> None:
        """End it."""
        self._do("cluster_destroy")
        self._library.rd_kafka_destroy(self._client)

    def _do(self, name: str, *values: Any) -> Any:
        return getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *values)
