"""Sizes and times are told in one way."""

from __future__ import annotations

import pytest

from streamer.sizes import format_size, format_time


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1500, "1.46 KiB"),
        (1023.4 * 1024, "1023 KiB"),
        (1023.6 * 1024, "1 MiB"),
        (112_124, "109 KiB"),
        (512 * 2**20, "512 MiB"),
        (5_000_000_000, "4.66 GiB"),
        (10**13, "9,313 GiB"),
    ],
)
def test_a_size_has_three_digits_and_the_unit_that_fits(size: float, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (850e-9, "850 ns"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1 µs"),
        (12.345e-6, "12.3 µs"),
        (999.7e-6, "1 ms"),
        (0.0015, "1.5 ms"),
        (2, "2 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_a_time_has_three_digits_and_the_unit_that_fits(seconds: float, text: str) -> None:
    assert format_time(seconds) == text
