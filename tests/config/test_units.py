"""Durations and sizes are read with their units, and written so that they are read back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from streamer.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86_400),
        ("100ms", 0.1),
        ("1h30m", 5_400),
        ("1.5h", 5_400),
        ("2w", 1_209_600),
        ("1d12h", 129_600),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("1m0.5s", 60.5),
        ("PT15M", 900),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
    ],
)
def test_a_duration_is_numbers_with_units_or_iso_8601(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("30", "it has no unit"),
        (30, "30 has no unit"),
        (1.5, "1.5 has no unit"),
        (True, "not true or false"),
        (None, "not nothing (null)"),
        ([], "not a list"),
        ("", "expected a duration"),
        ("1 h", "expected a duration"),
        ("-1h", "expected a duration"),
        ("1H", "expected a duration"),
        ("1h h", "expected a duration"),
        ("30s1m", "the unit m comes too late or twice"),
        ("1h1h", "the unit h comes too late or twice"),
        ("0s", "above zero"),
        ("0.5us", "finer than a microsecond"),
        ("999999999999w", "longer than 999,999,999 days"),
        ("P1M", "expected a duration"),
        ("PT5", "not a duration of ISO 8601"),
        ("-P1D", "expected a duration"),
        ("9" * 10_000 + "h", "expected a duration"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_duration_is_refused_with_an_example(text: Any, says: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_duration(text)
    assert says in str(error.value)
    assert len(str(error.value)) < 300


@hypothesis.given(strategies.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=100_000)))
def test_a_duration_written_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("512", 512),
        ("512B", 512),
        ("64k", 64_000),
        ("64kB", 64_000),
        ("64Ki", 65_536),
        ("16MiB", 1 << 24),
        ("1.5 MiB", 1_572_864),
    ],
)
def test_a_size_has_decimal_or_binary_units(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "1 2", "8kbit", "5i", " 5", "-1", "1.5", -1, 0, "0", 1.5, True, None, [], "1e3", "9" * 50]
)
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="expected a") as error:
        parse_size(text)
    assert "1,024" in str(error.value) or "one byte" in str(error.value)


@hypothesis.given(strategies.integers(1, 2**40))
def test_a_size_written_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
