"""Which of many subscriptions want an event? Exact matching of filters, CEL, patterns and topics on JSON events.

```python
import streamer

engine = streamer.Engine()
engine.add(streamer.Subscription(id="big", collection="orders", cel="data.amount > 100"))
engine.match_ids(b'{"collection": "orders", "data": {"amount": 120}}')  # ["big"]
```

`docs/semantics.md` defines what matches; `streamer.BACKEND` names the running backend.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from streamer._backend import BACKEND, ReferenceBackendWarning
from streamer.bloom.options import BloomOptions
from streamer.cel_eval.errors import CelErrors, FailingSubscription
from streamer.core.arrow import ArrowMatches
from streamer.core.matches import LineResult, Matches, json_default
from streamer.core.protocol import Changes
from streamer.engine.engine import Engine
from streamer.engine.matches import BatchMatches
from streamer.errors import (
    BackendError,
    BulkConfigError,
    BulkSubscriptionError,
    CelError,
    ConfigError,
    DuplicateSubscriptionError,
    EventCode,
    EventError,
    Ignored,
    InputError,
    InternalError,
    LeaseError,
    PatternError,
    ReentryError,
    ServiceError,
    ShippedFilterError,
    SnapshotError,
    StreamerError,
    SubscriptionError,
    UnknownSubscriptionError,
)
from streamer.events.layout import EventLayout, FormatName
from streamer.late import late as _late
from streamer.model import (
    CelEvaluator,
    Dialect,
    EventType,
    FilterGroupOperator,
    FilterOperator,
    FilterRoot,
    Limits,
    Match,
    OnUnknown,
    TopicDialect,
    Transition,
)
from streamer.subscriptions.subscription import Filter, FilterDict, FilterGroup, FilterGroupDict, Subscription, SubscriptionDict
from streamer.version import VERSION

if _TYPE_CHECKING:
    from streamer.config import Config
    from streamer.core.lint import Finding, FindingCode
    from streamer.core.plan import Plan
    from streamer.engine.explain import Explanation
    from streamer.engine.misses import NearMiss, NearMisses
    from streamer.engine.reload import Reload
    from streamer.engine.stats import CollectionStats, Stats

__version__ = VERSION

__all__ = [
    "BACKEND",
    "ArrowMatches",
    "BackendError",
    "BatchMatches",
    "BloomOptions",
    "BulkConfigError",
    "BulkSubscriptionError",
    "CelError",
    "CelErrors",
    "CelEvaluator",
    "Changes",
    "CollectionStats",
    "Config",
    "ConfigError",
    "Dialect",
    "DuplicateSubscriptionError",
    "Engine",
    "EventCode",
    "EventError",
    "EventLayout",
    "EventType",
    "Explanation",
    "FailingSubscription",
    "Filter",
    "FilterDict",
    "FilterGroup",
    "FilterGroupDict",
    "FilterGroupOperator",
    "FilterOperator",
    "FilterRoot",
    "Finding",
    "FindingCode",
    "FormatName",
    "Ignored",
    "InputError",
    "InternalError",
    "LeaseError",
    "Limits",
    "LineResult",
    "Match",
    "Matches",
    "NearMiss",
    "NearMisses",
    "OnUnknown",
    "PatternError",
    "Plan",
    "ReentryError",
    "ReferenceBackendWarning",
    "Reload",
    "ServiceError",
    "ShippedFilterError",
    "SnapshotError",
    "Stats",
    "StreamerError",
    "Subscription",
    "SubscriptionDict",
    "SubscriptionError",
    "TopicDialect",
    "Transition",
    "UnknownSubscriptionError",
    "__version__",
    "json_default",
]

# pydantic takes longer to import than all of the rest, and the others stand on the reference.
__getattr__ = _late(
    __name__,
    {
        "CollectionStats": "engine.stats",
        "Config": "config",
        "Explanation": "engine.explain",
        "Finding": "core.lint",
        "FindingCode": "core.lint",
        "NearMiss": "engine.misses",
        "NearMisses": "engine.misses",
        "Plan": "core.plan",
        "Reload": "engine.reload",
        "Stats": "engine.stats",
    },
)


def __dir__() -> list[str]:
    return __all__
