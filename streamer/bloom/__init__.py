"""Bloom filters over access keys: can this event match any subscription (docs/bloom.md)?

`ShippedFilter` queries a filter that an engine exported, at the producer of events:

```python
from streamer.bloom import Answer, ShippedFilter

guard = ShippedFilter.load(exported)  # from engine.bloom.export(tenant, collection)
if guard.ask(event) is Answer.MAYBE:
    send(event)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.bloom.answer import Answer
from streamer.bloom.options import BloomOptions
from streamer.bloom.state import FilterState
from streamer.late import late

if TYPE_CHECKING:
    from streamer.bloom.portable import PortableBloomFilter
    from streamer.bloom.shipping import ShippedFilter

__all__ = ["Answer", "BloomOptions", "FilterState", "PortableBloomFilter", "ShippedFilter"]

# An engine of the native core has its own filters.
__getattr__ = late(__name__, {"PortableBloomFilter": "portable", "ShippedFilter": "shipping"})
