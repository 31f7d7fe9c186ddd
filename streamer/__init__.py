"""Which of many subscriptions want an event? Exact matching of filters, CEL, patterns and topics on JSON events.

```python
import streamer

engine = streamer.Engine()
engine.add(streamer.Subscription(id="big", collection="orders", cel="data.amount > 100"))
engine.match_ids(b'{"collection": "orders", "data": {"amount": 120}}')  # ["big"]
```

`docs/semantics.md` says what matches; `streamer.BACKEND` says which backend runs.
"""

from streamer._backend import BACKEND, ReferenceBackendWarning
from streamer.engine.core import Changes
from streamer.engine.engine import Engine
from streamer.engine.matches import Matches
from streamer.errors import (
    BackendError,
    BulkSubscriptionError,
    CelError,
    ConfigError,
    DuplicateSubscriptionError,
    EventCode,
    EventError,
    InputError,
    InternalError,
    PatternError,
    StreamerError,
    SubscriptionError,
    UnknownSubscriptionError,
)
from streamer.layout import EventLayout
from streamer.model import Filter, Limits, Match, Subscription

__version__ = "0.1.0"

__all__ = [
    "BACKEND",
    "BackendError",
    "BulkSubscriptionError",
    "CelError",
    "Changes",
    "ConfigError",
    "DuplicateSubscriptionError",
    "Engine",
    "EventCode",
    "EventError",
    "EventLayout",
    "Filter",
    "InputError",
    "InternalError",
    "Limits",
    "Match",
    "Matches",
    "PatternError",
    "ReferenceBackendWarning",
    "StreamerError",
    "Subscription",
    "SubscriptionError",
    "UnknownSubscriptionError",
    "__version__",
]
