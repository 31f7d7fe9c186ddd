"""Messages that wait for endpoints, which may be slow or down: attempts, their schedule, and dead letters.

```
the store ─► lines in memory, one a key ─► ready ─► [ an event loop, for all attempts ] ─► delivered: leaves the store
                      ▲                                        │
                      └──── due, as the store has it ◄─────────┴─► failed for good: a dead letter
```

Contract: a key has one message in flight to a sink at a time, or several that share one request. The next message leaves once
those before it are delivered or dead letters. So a key keeps its order through failures and restarts, and a failing key delays
only itself. Messages without a key have no order.

The store is the truth. One thread owns the state in memory. Another one makes the attempts, and returns their results. Delivered
messages are deleted several at a time, in one commit: after a crash they are delivered again, with the same ids.

```
spool.py       the threads that fill it, and the thread that owns it
attempting.py  the thread that makes the attempts
delivery.py    one sink: its lines, its requests in flight, their results
breaker.py     how an endpoint is treated, and whether it gets requests
history.py     the messages of a gateway without an endpoint, for its readers
```
"""

from streamer.service.delivery.spool.breaker import Terms
from streamer.service.delivery.spool.delivery import Owner
from streamer.service.delivery.spool.history import History
from streamer.service.delivery.spool.spool import Spool, tally

__all__ = ["History", "Owner", "Spool", "Terms", "tally"]
