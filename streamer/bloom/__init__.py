"""Can this event match anything at all? Bloom filters over access keys (docs/bloom.md).

`ShippedFilter` asks a filter that an engine exported, where events arise:

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

# An engine of the native core asks filters of its own.
__getattr__ = late(__name__, {"PortableBloomFilter": "portable", "ShippedFilter": "shipping"})
