"""A store that is deleted under a running service: not ready, one error, nothing confirmed, and no end with code 0."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.errors import ServiceError
from streamer.service import faults
from tests.service.api import BIG, order, running, until
from tests.service.conftest import Make, event, lines


def delete(data: Path) -> None:
    for path in data.iterdir():
        path.unlink()


def move(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


@pytest.mark.parametrize("act", [delete, move], ids=lambda act: act.__name__)
def test_a_service_whose_store_is_gone_is_not_ready_and_confirms_nothing(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture, act: Callable[[Path], None]
) -> None:
    def serve() -> None:
        with running(tmp_path) as api:
            assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
            api.read(order(1))
            act(tmp_path / "data")
            for _ in range(3):
                assert api.ask("GET", "/readyz", token="").json == {"status": "not ready", "reason": "store_gone"}
            assert [each.levelno for each in caplog.records if "store was deleted" in each.getMessage()] == [logging.ERROR]
            assert api.ask("PUT", "/v1/subscriptions/other", BIG).status == 503
            assert api.ask("GET", "/v1/subscriptions/other").status == 404
            with open(tmp_path / "in.jsonl", "ab") as file:
                file.write(order(2) + b"\n")
            until(lambda: api.service._running is not None and api.service._running.pipeline.failed)

    with pytest.raises(ServiceError, match="the file of the store was deleted while this process uses it"):
        serve()
    assert not list((tmp_path / "data").glob("*"))


def test_what_was_not_confirmed_comes_again_from_a_backup(make: Make, tmp_path: Path, backend: str) -> None:
    """The store is replaced while events are delivered; no position of after that is in either of the two."""
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number) + b"\n" for number in range(100)))
    faults.arm("sink.flushed", lambda: move(tmp_path / "data"))
    with pytest.raises(ServiceError, match="was deleted while"):
        make().run()
    faults.disarm()
    first = lines(tmp_path / "out.jsonl")
    assert first
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    make().run()
    found = lines(tmp_path / "out.jsonl")
    assert found[: len(first)] == first
    assert {each["partitionkey"] for each in found[len(first) :]} >= {each["partitionkey"] for each in first}
    assert len({each["id"] for each in found}) == 100
