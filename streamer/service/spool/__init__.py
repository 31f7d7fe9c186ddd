"""Messages that wait for endpoints, which may be slow or down: attempts, their schedule, and dead letters.

```
the store ─► lines in memory, one a key ─► ready ─► [ a thread for each attempt ] ─► delivered: leaves the store
                      ▲                                        │
                      └──── due, as the store has it ◄─────────┴─► given up: a dead letter
```

Contract: a key has one message in flight to a sink at a time, or several that share one request. The next message leaves once
those before it are delivered or dead letters. So a key keeps its order through failures and restarts, and a failing key delays
only itself. Messages without a key have no order.

The store is the truth. One thread owns the state in memory; threads that attempt get a job, and return its result. Delivered
messages are deleted several at a time, in one commit: after a crash they are delivered again, with the same ids.

```
spool.py     who fills it, the thread that owns it, the threads that attempt
delivery.py  one sink: its lines, its requests in flight, their results
breaker.py   how an endpoint is treated, and whether it gets requests
history.py   the messages of a gateway without an endpoint, for its readers
```
"""

from streamer.service.spool.breaker import Terms
from streamer.service.spool.delivery import Owner
from streamer.service.spool.history import History
from streamer.service.spool.spool import Spool, tally

__all__ = ["History", "Owner", "Spool", "Terms", "tally"]
