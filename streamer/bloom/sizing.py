"""Rates of keys and rates of events, and the conclusions from a sample.

An event looks up several keys, and passes if any of them seems to exist. With 1 % a key and 25 keys an event, 22 % of the events
pass; a loop that compares the one rate with a threshold for the other rebuilds for ever.

>>> round(event_fp_rate(0.01, 25), 2)
0.22
>>> round(event_fp_rate(key_fp_rate(0.01, 25), 25), 4)
0.01
"""

from __future__ import annotations

import math

#: Standard deviations between a measured rate and a threshold that it exceeds: a filter is checked many times, and must not be
#: rebuilt only by chance.
CONFIDENCE = 3.0
#: The lowest rate that a filter is sized for: 43 bits a key.
LEAST_KEY_RATE = 1e-9


def key_fp_rate(event_rate: float, probes: float) -> float:
    """Return the rate for a key at which an event that looks up *probes* keys passes at *event_rate*."""
    return max(-math.expm1(math.log1p(-event_rate) / max(1.0, probes)), LEAST_KEY_RATE)


def event_fp_rate(key_rate: float, probes: float) -> float:
    """Return the rate at which an event passes that looks up *probes* keys, each with *key_rate*."""
    return -math.expm1(math.log1p(-key_rate) * probes)


def wilson_lower(hits: int, samples: int) -> float:
    """Return the least rate that *hits* among *samples* are still likely to come from (Wilson's score interval)."""
    if samples == 0:
        return 0.0
    share, squared = hits / samples, CONFIDENCE**2
    middle = share + squared / (2 * samples)
    margin = CONFIDENCE * math.sqrt(share * (1 - share) / samples + squared / (4 * samples**2))
    return max(0.0, (middle - margin) / (1 + squared / samples))


def portable_capacity(keys: int, key_rate: float) -> int:
    """Return the capacity at which a portable filter of *keys* keys keeps *key_rate*.

    Its bits follow from two offsets in a slice of *m* bits, so it confuses one key in `m * m` with another. With a few keys and a
    small rate that dominates. It may make a tenth of the rate: `keys / m**2 <= key_rate / 10`, and *m* is capacity / ln 2.
    """
    return max(keys, math.ceil(math.log(2) * math.sqrt(10 * max(keys, 1) / key_rate)))
