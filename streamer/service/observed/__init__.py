"""What a running service remembers of itself: a little, in memory, and never at the cost of what it does.

```
observer.py  the thread that takes a number of each kind now and then
rates.py     what a minute was like; how far sources are behind
series.py    all metrics of the last hours
attempts.py  what came of the last attempts to deliver
events.py    some of the last events, and what they matched
matches.py   how often each subscription matched, minute by minute
```
"""

from streamer.service.observed.observer import Observer

__all__ = ["Observer"]
