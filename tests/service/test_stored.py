"""The text that an engine gets for a stored subscription means what the user wrote, with the tenant and the id of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamer.service.store.ids import inside, stored, written
from streamer.subscriptions.parse import parse_subscription

MOST = 65_536


@pytest.mark.parametrize(
    ("text", "is_cheap"),
    [
        ('{"id":"a","collection":"orders"}', True),
        (' {"id":"a"}', False),
        ('{ "id" : "a" , "labels" : {"n": 2.50e2, "big": 12345678901234567890123} }', True),
        ('{"id":"a"}', True),
        ('{"id":"Zürich","labels":{"id":"b","ö":"\U0001f600"}}', True),
        ('{"id":"a","cel":"data.x == \\"y\\" && data.z == \'\\\\\\\\d\'"}', True),
        ('{"id":"a\\"b"}', False),
        ('{"labels":{"id":"b"},"id":"a"}', False),
        ('{"id":"a","tenant":"acme"}', False),
        ('{"id":"a","labels":{"tenant":"other"}}', False),
        ('{"id":"a","\\u0074enant":"acme"}', False),
        ('{"\\u0069d":"a","labels":{"id":"b"}}', False),
        ('{"id":"a","filters":[{"field":"tenant","op":"==","value":"tenant"}]}', False),
    ],
)
def test_the_text_for_the_engine_differs_in_tenant_and_id_alone(
    text: str, is_cheap: bool, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = written(text.encode(), "acme")
    held = stored("acme", told.id, text.encode(), MOST)
    assert isinstance(held, bytes)
    asked = parse_subscription(text.encode())
    assert parse_subscription(held) == replace(asked, id=inside("acme", asked.id), tenant="acme")
    made = engine(default_tenant=None)
    made.add_many([held])
    # What the API has written is the same to a service that starts again.
    assert made.apply([told.source]).unchanged == (inside("acme", asked.id),)
    monkeypatch.setattr("streamer.service.store.ids.written", unexpected)
    if is_cheap:
        assert stored("acme", told.id, text.encode(), MOST) == held
    else:
        with pytest.raises(AssertionError, match="it was parsed"):
            stored("acme", told.id, text.encode(), MOST)


def unexpected(*_: object) -> None:
    raise AssertionError("it was parsed")


def test_a_text_that_would_be_too_long_with_its_tenant_is_written_without_white_space() -> None:
    text = b'{"id":"a",' + b" " * 1000 + b'"collection":"orders"}'
    assert len(stored("acme", "a", text, 1000)) < 100  # type: ignore[arg-type]
    assert len(stored("acme", "a", text, 2000)) > 1000  # type: ignore[arg-type]
