"""What was matched and waits for endpoints that may be slow, or down: attempts, their schedule, and what is given up.

```
the store ─► lines in memory, one a key ─► ready ─► [ a thread for each attempt ] ─► delivered: leaves the store
                      ▲                                        │
                      └──── due, as the store has it ◄─────────┴─► given up: a dead letter
```

Contract: of one key, one message is on its way to a sink at a time, or some that stand together in one request; the next one
leaves once those before it are delivered or given up. So a key keeps its order through failures and restarts, and one that fails
waits alone. Messages without a key have no order.

The store is the truth. One thread owns what is in memory; threads that attempt get a job, and hand back what came of it. What
they have delivered is deleted some at a time, in one commit: after a crash it is delivered again, with its ids.

```
spool.py     who fills it, the thread that owns it, the threads that attempt
delivery.py  one sink: its lines, what is on its way, what came of it
breaker.py   how an endpoint is treated, and whether it is asked
history.py   what a gateway without an endpoint was given, for those who read it
```
"""

from streamer.service.spool.breaker import Terms
from streamer.service.spool.delivery import Owner
from streamer.service.spool.history import History
from streamer.service.spool.spool import Spool, tally

__all__ = ["History", "Owner", "Spool", "Terms", "tally"]
