"""The options for the size and the maintenance of an engine's Bloom filters."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self, final

from streamer.errors import ConfigError

#: The most keys of a filter; a larger filter of pybloom_live would not fit in memory.
MOST_KEYS = 2**31


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BloomOptions:
    """Options of phase 1. Rates are for an *event*, which looks up several keys, never for a key.

    Attributes:
        enabled: False skips phase 1 and uses only the exact index.
        fp_rate: the share of the events without any live key that may pass.
        initial_capacity: the least number of keys that a new filter has room for.
        rebuild_interval: the age at which a filter is rebuilt in any state; None for never.
        rebuild_fp_threshold: the measured rate at which a filter is rebuilt; None for twice `fp_rate`.
        rebuild_cooldown: the shortest time between two rebuilds of one filter for its rate.

    Raises:
        ConfigError: a value is invalid; `place` is `bloom.` and its name.
    """

    enabled: bool = True
    fp_rate: float = 0.01
    initial_capacity: int = 1000
    rebuild_interval: timedelta | None = timedelta(hours=24)
    rebuild_fp_threshold: float | None = None
    rebuild_cooldown: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise _error("enabled", f"expected True or False, not {type(self.enabled).__name__}")
        _check_rate("fp_rate", self.fp_rate)
        if self.rebuild_fp_threshold is not None:
            _check_rate("rebuild_fp_threshold", self.rebuild_fp_threshold)
            if self.rebuild_fp_threshold < self.fp_rate:
                raise _error("rebuild_fp_threshold", f"expected at least fp_rate, {self.fp_rate}, else every filter is past it")
        capacity = self.initial_capacity
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise _error("initial_capacity", f"expected a number of keys, not {type(capacity).__name__}")
        if not 1 <= capacity <= MOST_KEYS:
            raise _error("initial_capacity", f"expected from 1 to {MOST_KEYS} keys, not {capacity}")
        if self.rebuild_interval is not None:
            _check_time("rebuild_interval", self.rebuild_interval)
        _check_time("rebuild_cooldown", self.rebuild_cooldown)

    @property
    def threshold(self) -> float:
        """The measured rate at which a filter is rebuilt."""
        return min(2 * self.fp_rate, 1.0) if self.rebuild_fp_threshold is None else self.rebuild_fp_threshold

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Self:
        """Return options from a mapping of their names to values.

        Raises:
            ConfigError: a name is unknown, or a value is invalid.
        """
        if not isinstance(members, Mapping):
            raise ConfigError(f"expected streamer.bloom.BloomOptions or a mapping, not {type(members).__name__}", place="bloom")
        names = [field.name for field in fields(cls)]
        for name in members:
            if name not in names:
                near = difflib.get_close_matches(str(name), names, 1)
                hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
                raise _error(str(name), f"unknown option; {hint}")
        return cls(**members)


def _error(name: str, reason: str) -> ConfigError:
    return ConfigError(reason, place=f"bloom.{name}")


def _check_rate(name: str, rate: object) -> None:
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise _error(name, f"expected a share from 0 to 1, not {type(rate).__name__}")
    # For a lower rate, a filter would need more hashes than pybloom_live has.
    if not 1e-9 <= rate < 1:
        raise _error(name, f"expected a share from 1e-9 to less than 1, not {rate}")


def _check_time(name: str, time: object) -> None:
    if not isinstance(time, timedelta):
        raise _error(name, f"expected datetime.timedelta, not {type(time).__name__}")
    if time <= timedelta():
        raise _error(name, f"expected more than no time, not {time}")
