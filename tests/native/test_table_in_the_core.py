"""The table of cases where the core alone decides: by its merged index, and by the naive oracle that its fuzzers judge by."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from streamer import Engine
from streamer.cdc.changes import read_events
from streamer.events.literal_json import written
from tests.conformance import runner
from tests.conformance.table import Case, by_file, load_known_failures
from tests.tools.hooks import hooks

FILES = by_file()
KNOWN = {(failure.file, failure.name) for failure in load_known_failures()}


@pytest.mark.parametrize("file", FILES)
def test_a_merged_index_finds_what_the_table_says(file: str) -> None:
    for case in FILES[file]:
        for engine in islice(_filled(case), 1):
            before = engine.match(case.event, case.tenant, case.collection)
            hooks(engine).merge()
            after = engine.match(case.event, case.tenant, case.collection)
            assert sorted(after.ids()) == sorted(before.ids()) == sorted(case.expect_ids or ()), case.id
            assert {m.subscription_id: m for m in after} == {m.subscription_id: m for m in before}, case.id


@pytest.mark.integration
def test_the_naive_oracle_finds_what_the_table_says() -> None:
    asked = 0
    for case in (case for cases in FILES.values() for case in cases):
        # It reads one event, with the places of its parts; what is soft-deleted is evaluated by others.
        if case.layout.has_changes or case.soft_delete:
            continue
        # It knows no validation.
        for engine in islice(_filled(case), 1):
            event, *others = read_events(
                case.event,
                layout=case.layout,
                default_tenant=case.default_tenant,
                limits=case.limits,
                tenant=case.tenant,
                collection=case.collection,
            )
            if others:
                continue
            held = list(engine.subscriptions())
            # These are evaluated by others.
            if any(s.cel or s.transitions for s in held) or event.unknown:
                continue
            texts = [text.encode() for text in case.subscriptions]
            # The oracle knows no types of Debezium: it gets the event as the reference reads it.
            read = written(event.raw).encode() if case.layout.format == "debezium" else case.event or b""
            found = hooks(engine).naive_ids(texts, read, event.tenant, event.collection)
            assert found == sorted(case.expect_ids or ()), case.id
            asked += 1
    assert asked > 1_000


def _filled(case: Case) -> Iterator[Engine]:
    """Yield an engine for each validation; none for a case of an error or of an ignored event."""
    if case.expect_ids is not None and case.event is not None and (case.file, case.name) not in KNOWN:
        yield from (runner.filled(case, validation) for validation in case.validation)
