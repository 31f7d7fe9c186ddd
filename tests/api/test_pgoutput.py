"""An engine reads the messages of one stream of pgoutput, in each form, as it reads the events that a decoder makes of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer import EventError, cdc
from streamer.errors import ConfigError
from tests.cdc.test_pgoutput import golden

MakeEngine = Callable[..., streamer.Engine]
Answer = list[tuple[str, str | None, bool]] | str
ON_SPARK = "on Spark, whose partitions have no order, decode the messages before"
#: Without the rows of all types, which tests/cdc reads.
MESSAGES = [message for message, _ in golden()][:45]
HEX = [f"\\x{message.hex()}" for message in MESSAGES]
#: The end of the first transaction.
FIRST = MESSAGES.index(next(message for message in MESSAGES if message[:1] == b"C")) + 1
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": "all", "transitions": True},
    {"id": "paid", "collection": "public.orders", "filters": [{"field": "status", "op": "==", "value": "paid"}]},
    {"id": "noted", "transitions": True, "filters": [{"field": "note", "op": "starts_with", "value": "x"}]},
    {"id": "first", "transitions": True, "filters": [{"field": "id", "op": "==", "value": 1}]},
    {"id": "large", "cel": "data.amount > 12.0"},
    {"id": "inserted", "types": ["insert"]},
    {"id": "pattern", "pattern": {"type": ["insert"], "data": {"status": ["new"]}}},
    {"id": "whole", "collection": "shop.whole", "filters": [{"field": "v", "op": "changed_to", "value": "b"}]},
]


def filled(engine: MakeEngine, **options: Any) -> streamer.Engine:
    made = engine(**options)
    made.add_many(SUBSCRIPTIONS)
    return made


def of(matches: Any) -> Answer:
    """Return the matches of a message, or why it was ignored."""
    if isinstance(matches, EventError):
        raise matches
    return matches.ignored or sorted((each.subscription_id, each.transition, each.certain) for each in matches)


def expected(engine: MakeEngine) -> list[Answer]:
    """Return the answers to the events that the decoder makes. A change of the key has two, of which a subscription has one."""
    by_events, decoder = filled(engine, layout=cdc.LAYOUT), cdc.pgoutput.Decoder()
    found: list[Answer] = []
    for message in MESSAGES:
        answers = [of(by_events.match(event)) for event in decoder.decode(message)]
        if len(answers) == 1:
            found.append(answers[0])
            continue
        outcomes: dict[str, list[tuple[str | None, bool]]] = {}
        for answer in answers:
            assert isinstance(answer, list)
            for id_, transition, certain in answer:
                outcomes.setdefault(id_, []).append((transition, certain))
        found.append(
            sorted(
                (id_, transitions.pop() if len(transitions := {how for how, _ in each}) == 1 else None, any(c for _, c in each))
                for id_, each in outcomes.items()
            )
        )
    return found


def test_each_form_of_a_stream_has_the_answers_of_its_decoded_events(engine: MakeEngine) -> None:
    wanted = expected(engine)
    assert {"type"} < {answer if isinstance(answer, str) else "" for answer in wanted}
    made = [filled(engine, format="pgoutput") for _ in range(7)]
    assert [of(made[0].match(message)) for message in MESSAGES] == wanted
    assert [of(made[1].match(text)) for text in HEX] == wanted
    assert [of(each) for each in made[2].match_batch([memoryview(message) for message in MESSAGES], threads=3)] == wanted
    assert [of(each) for each in made[3].match_stream(HEX, batch_size=7)] == wanted
    lines = "".join(f"{text}\r\n" for text in HEX).encode()
    assert [of(each.result) for each in made[4].match_jsonl(lines, batch_size=5, threads=2)] == wanted
    ids = [[] if isinstance(answer, str) else sorted(id_ for id_, *_ in answer) for answer in wanted]
    assert [sorted(made[5].match_ids(message)) for message in MESSAGES] == ids
    count = [(made[6].match_count if number % 2 else made[6].matches_any)(message) for number, message in enumerate(MESSAGES)]
    assert count == [len(each) if number % 2 else bool(each) for number, each in enumerate(ids)]


def test_an_array_of_a_stream_is_matched_whole(engine: MakeEngine) -> None:
    pa = pytest.importorskip("pyarrow")
    wanted = [(row, answer) for row, answer in enumerate(expected(engine)) if isinstance(answer, list)]
    for texts in (MESSAGES, HEX):
        made = filled(engine, format="pgoutput")
        found = made.match_arrow(pa.array(texts), threads=4)
        rows: dict[int, list[Any]] = {}
        for each in found.matches.to_pylist():
            rows.setdefault(each["row"], []).append((each["subscription_id"], each["transition"], each["certain"]))
        assert [(row, sorted(each)) for row, each in rows.items()] == wanted
        assert found.rejected.num_rows == 0
        assert made.stats().events == len(MESSAGES)
        with pytest.raises(ConfigError, match=ON_SPARK):
            made.match_arrow(pa.array(texts), max_matches=9)
        with pytest.raises(ConfigError, match=ON_SPARK):
            made.locate_arrow(pa.array(texts))
    found = engine(format="pgoutput").match_arrow(pa.array([b"Z", None, MESSAGES[2]]))
    assert [(each["row"], each["code"], each["position"]) for each in found.rejected.to_pylist()] == [
        (0, "wrong_type", 0),
        (2, "bad_value", 1),
    ]


def test_an_explanation_reads_a_message_of_the_stream(engine: MakeEngine) -> None:
    made = filled(engine, format="pgoutput")
    insert = next(number for number, message in enumerate(MESSAGES) if message[:1] == b"I")
    for message in MESSAGES[:insert]:
        made.match(message)
    assert made.explain(MESSAGES[insert], "pattern").matched
    assert not made.explain(HEX[insert], "paid").matched
    assert [each.subscription_id for each in made.near_misses(MESSAGES[insert])]
    made.match(MESSAGES[insert])


def test_the_envelope_names_the_table_and_the_transaction(engine: MakeEngine) -> None:
    made = engine(format="pgoutput")
    made.add(
        {"id": "s", "cel": "envelope == {'action': 'I', 'schema': 'public', 'table': 'orders', 'xid': 737, 'lsn': '0/15434F0'}"}
    )
    found = [made.match_ids(message) for message in MESSAGES[:FIRST]]
    assert found == [[], [], ["s"], []]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"a": 1}, "wrong_type: pgoutput: a message is bytes, or their hex in a text that begins with \\x, not an object"),
        ("\\x5", "bad_value at byte 3: pgoutput: expected a pair of hex digits"),
        ("\\x5a5g", "bad_value at byte 5: pgoutput: expected a pair of hex digits"),
        ("\\x", "bad_value at byte 2: pgoutput: the message is cut off"),
        ("\\x5a", "wrong_type at byte 2: pgoutput: a message that begins with byte 90 is unknown"),
        (b"{}", "wrong_type at byte 0: pgoutput: a message that begins with byte 123 is unknown"),
        (b"I" * 1001, "too_long at byte 1000: 1001 bytes, at most 1000 are allowed"),
        (
            "\\x49000000074e",
            "bad_value at byte 4: pgoutput: a change of table 7, which no message described: read the stream from its beginning",
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_an_error_with_its_place(engine: MakeEngine, message: Any, said: str) -> None:
    made = engine(format="pgoutput", limits={"max_event_bytes": 1000})
    with pytest.raises(EventError) as caught:
        made.match(message)
    assert str(caught.value) == said
    (error,) = made.match_batch([message])
    assert (str(error), error.index) == (f"event 0: {said}", 0) or str(error).endswith(said)
    assert made.stats().rejected == 2
    assert [made.match(each).ignored for each in (None, "", b" null ")] == ["null", "empty", "null"]


def test_a_copy_of_an_engine_begins_a_stream_of_its_own(engine: MakeEngine, tmp_path: Path) -> None:
    made = filled(engine, format="pgoutput")
    for message in MESSAGES[: FIRST - 1]:
        made.match(message)
    made.save(tmp_path / "snapshot")
    for copy in (pickle.loads(pickle.dumps(made)), streamer.Engine.load(tmp_path / "snapshot")):
        with pytest.raises(EventError, match="which no message described"):
            copy.match(MESSAGES[FIRST - 2])
        assert [of(copy.match(message)) for message in MESSAGES] == expected(engine)
    assert made.match(MESSAGES[FIRST - 2])
    with pytest.raises(ConfigError, match="a message of pgoutput needs those before it"):
        made.bloom.export("default", "public.orders")


def test_threads_read_the_changes_of_described_tables_at_once(engine: MakeEngine) -> None:
    made = filled(engine, format="pgoutput")
    for message in MESSAGES[: FIRST - 1]:
        made.match(message)
    wanted = made.match_ids(MESSAGES[FIRST - 2], sorted=True)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda message: made.match_ids(message, sorted=True), [MESSAGES[1], MESSAGES[FIRST - 2]] * 20))
    assert found == [[], wanted] * 20


def test_a_message_is_detected_by_its_format(backend: str) -> None:
    from streamer.engine.fitting import detect

    for texts in (HEX, MESSAGES):
        (fit,) = detect(texts)
        assert (fit.name, fit.collections[0]) == ("pgoutput", "public.orders")
