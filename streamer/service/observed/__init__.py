"""Samples that a running service keeps of itself: a few, in memory, without slowing down its work.

```
observer.py  the thread that samples at intervals
rates.py     rates over a minute; how far sources lag
series.py    all metrics of the last hours
attempts.py  the latest attempts to deliver, with their results
events.py    some of the latest events, and their matches
matches.py   how often each subscription matched, minute by minute
```
"""

from streamer.service.observed.observer import Observer

__all__ = ["Observer"]
