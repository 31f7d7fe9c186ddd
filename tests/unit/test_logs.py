"""A log line has a time, a level, a logger and an event, and is one line whatever is in it."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator

import pytest

from streamer import logs

LOGGER = logging.getLogger("streamer.service")
NASTY = 'a\nb\r\x1b[31m"\\\x00\u2028\u202e\udc80\x85 Zürich \U0001f600'
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.split("\n")[:-1]


def test_no_value_can_break_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up_logging("info", "json")
    with logs.about(request_id="r"):
        LOGGER.warning(
            "it is %s", NASTY, extra={"subscription": NASTY.replace("\0", ""), "offset": 7, "reason": b"\xff", "nosuch": 1}
        )
    (line,) = lines(capsys)
    told = json.loads(line)
    assert line.isprintable()
    # The byte that is not UTF-8 is shown, because no parser accepts it.
    expected = NASTY.replace("\udc80", "\\udc80")
    assert re.fullmatch(TIME, told.pop("time"))
    assert told == {
        "level": "warning",
        "logger": "streamer.service",
        "event": f"it is {expected}",
        "subscription": expected.replace("\0", ""),
        "request_id": "r",
        "offset": 7,
        "reason": "b'\\xff'",
    }


def test_no_value_can_break_a_line_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up_logging("info")
    with logs.about(request_id="r"):
        LOGGER.warning("it is %s", NASTY)
    LOGGER.debug("not shown")
    (line,) = lines(capsys)
    assert line.isprintable()
    assert re.fullmatch(TIME + r" WARNING streamer\.service: it is a\\nb\\r.* Zürich \S+ request_id=r", line)


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_line_of_a_traceback_is_a_line_of_the_log(form: logs.Format, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up_logging("info", form)
    try:
        raise ValueError("why\nnot")
    except ValueError:
        LOGGER.exception("it failed")
    found = lines(capsys)
    if form == "json":
        (told,) = map(json.loads, found)
        assert told["event"] == "it failed"
        assert told["traceback"].startswith("Traceback (most recent call last):\n")
        assert "ValueError: why\nnot" in told["traceback"]
    else:
        assert len(found) > 3
        assert all(re.match(TIME + r" ERROR streamer\.service: ", line) for line in found)
        assert found[0].endswith(": it failed")


def test_a_line_names_the_part_that_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up_logging("info", "json")
    LOGGER.info("sources.shop-1: it is there now")
    LOGGER.info("sinks.out: %d messages", 3)
    LOGGER.info("sinks.out.path: not a part")
    LOGGER.info("CEL error", extra={"subscription": "acme\0big"})
    with logs.about(source="shop"):
        LOGGER.info("slot s: %s", "tried again")
    named = [{name: told[name] for name in logs.FIELDS if name in told} for told in map(json.loads, lines(capsys))]
    assert named == [{"source": "shop-1"}, {"sink": "out"}, {}, {"tenant": "acme", "subscription": "big"}, {"source": "shop"}]
    logs.set_up_logging("info")
    with logs.about(source="shop"):
        LOGGER.info("sources.shop: away")
        LOGGER.info("slot s: away")
    assert [line.partition(": ")[2] for line in lines(capsys)] == ["sources.shop: away", "slot s: away source=shop"]


def test_what_surrounds_a_message_is_that_of_its_thread_and_ends_with_it() -> None:
    seen = []
    with logs.about(request_id="r"):
        thread = threading.Thread(target=lambda: seen.append(logs.field("request_id")))
        thread.start()
        thread.join()
        with logs.about(source="s"):
            seen.append(logs.field("request_id"))
        seen.append(logs.field("source"))
    seen.append(logs.field("request_id"))
    assert seen == [None, "r", None, None]


def test_an_error_that_ends_a_thread_is_logged(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in ("threading.excepthook", "sys.unraisablehook"):
        monkeypatch.setattr(hook, None)
    logs.set_up_logging("warning", "json")
    logs.log_what_fails()
    try:
        thread = threading.Thread(target=lambda: [][0], name="reader")
        thread.start()
        thread.join()
    finally:
        logging.captureWarnings(False)
    (told,) = map(json.loads, lines(capsys))
    assert told["event"] == "the thread reader ended in IndexError"
    assert "IndexError: list index out of range" in told["traceback"]
