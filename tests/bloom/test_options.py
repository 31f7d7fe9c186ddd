"""Options of phase 1: what they mean together, and that a wrong one is named."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from streamer import ConfigError, Engine
from streamer.bloom import BloomOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", 1),
        ("fp_rate", 0),
        ("fp_rate", 1),
        ("fp_rate", True),
        ("fp_rate", "1 %"),
        ("fp_rate", float("nan")),
        ("initial_capacity", 0),
        ("initial_capacity", 2**40),
        ("initial_capacity", 1.5),
        ("rebuild_interval", 24),
        ("rebuild_interval", timedelta()),
        ("rebuild_cooldown", timedelta(seconds=-1)),
        ("rebuild_cooldown", None),
        ("rebuild_fp_threshold", 0.001),
        ("rebuild_fp_threshold", 2),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        BloomOptions.from_dict({name: value})
    assert raised.value.place == f"bloom.{name}"


def test_an_option_that_is_not_there_is_told_with_the_nearest(backend: str) -> None:
    with pytest.raises(ConfigError, match="did you mean fp_rate"):
        BloomOptions.from_dict({"fprate": 0.1})
    with pytest.raises(ConfigError, match="expected one of"):
        Engine(bloom={"colour": "red"})
    with pytest.raises(ConfigError, match="a mapping"):
        Engine(bloom=0.01)  # type: ignore[arg-type]


def test_the_threshold_follows_the_rate() -> None:
    assert BloomOptions(fp_rate=0.05).threshold == 0.1
    assert BloomOptions(fp_rate=0.05, rebuild_fp_threshold=0.06).threshold == 0.06
    assert BloomOptions(fp_rate=0.9).threshold == 1


def test_an_engine_takes_its_options_along(engine: Any) -> None:
    e: Engine = engine(bloom={"enabled": False, "fp_rate": 0.1})
    assert pickle.loads(pickle.dumps(e))._options.bloom == BloomOptions(enabled=False, fp_rate=0.1)


def test_without_phase_1_the_same_matches_are_found(engine: Any) -> None:
    e: Engine = engine(bloom={"enabled": False})
    e.add_many({"id": f"s{n}", "filters": [{"field": f"f{n % 7}", "op": "==", "value": n}]} for n in range(200))
    e.remove_many(ids=[f"s{n}" for n in range(0, 200, 2)])
    assert e.bloom.filters() == []
    assert not e.bloom.rebuild("default", "*")
    for n in range(200):
        assert e.match_ids({"data": {f"f{n % 7}": n}}) == ([f"s{n}"] if n % 2 else [])
