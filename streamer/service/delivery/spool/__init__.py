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
sinks.py       its sinks and their numbers
  delivery.py    a sink with an endpoint: its requests in flight, and their results
    lines.py       its next messages in memory, a line for each key
    breaker.py     how its endpoint is treated, and whether it gets requests
    log.py         the log of its failures
  history.py     the messages of a gateway without an endpoint, for its readers
room.py        room for new messages
requests.py    which sink gets the next request
attempting.py  the thread that makes the attempts
results.py     the results of attempts, until one commit stores several of them
lead.py        whether this process delivers, if several share a store
sharing.py     messages that other processes have put into a shared store
```
"""

from streamer.service.delivery.spool.breaker import Terms
from streamer.service.delivery.spool.delivery import Owner
from streamer.service.delivery.spool.history import History
from streamer.service.delivery.spool.sinks import tally
from streamer.service.delivery.spool.spool import Spool

__all__ = ["History", "Owner", "Spool", "Terms", "tally"]
