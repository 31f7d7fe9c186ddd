"""Can this event match anything at all? Bloom filters over access keys (docs/bloom.md).

`ShippedFilter` asks a filter that an engine exported, where events arise:

```python
from streamer.bloom import Answer, ShippedFilter

guard = ShippedFilter.load(exported)  # from engine.bloom.export(tenant, collection)
if guard.ask(event) is Answer.MAYBE:
    send(event)
```
"""

from streamer.bloom.options import BloomOptions
from streamer.bloom.portable import Answer, PortableBloomFilter
from streamer.bloom.shipping import ShippedFilter
from streamer.bloom.state import FilterState

__all__ = ["Answer", "BloomOptions", "FilterState", "PortableBloomFilter", "ShippedFilter"]
