"""The pages, in the order of the navigation. A page is a module here and a template in `html/`, with an entry in `VIEWS`.

```python
async def show(visit: Visit) -> Shown:                    # GET: without side effects
    things = await visit.api.get("/v1/things", limit=100)   # an ordinary request; Refused becomes an error page
    return Shown("things.html", {"items": things["items"]})

async def act(visit: Visit) -> Shown | Sent:              # POST: its anti-forgery value is checked already
    await visit.api.send("POST", f"/v1/things/{part(visit.form['id'])}:do")
    return Sent("/console/things", "Done.")

THINGS: Final = View(path="things", title="Things", scope="read", show=show, act=act)
```

A template extends `base.html` and fills `main`; a form by POST contains `{{ parts.guard() }}`. User data is written as `{{ value
| said }}`, or as `{{ value | plain }}` in places without elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamer.service.console.pages.configuration import CONFIGURATION
from streamer.service.console.pages.deliveries import DELIVERIES
from streamer.service.console.pages.filters import FILTERS
from streamer.service.console.pages.importing import IMPORTING
from streamer.service.console.pages.live import FEED, LIVE
from streamer.service.console.pages.metrics import METRICS
from streamer.service.console.pages.overview import OVERVIEW
from streamer.service.console.pages.subscriptions import SUBSCRIPTION, SUBSCRIPTIONS
from streamer.service.console.pages.trying import TRYING
from streamer.service.console.visit import View

VIEWS: Final[tuple[View, ...]] = (
    OVERVIEW,
    SUBSCRIPTIONS,
    SUBSCRIPTION,
    IMPORTING,
    TRYING,
    LIVE,
    FEED,
    DELIVERIES,
    METRICS,
    FILTERS,
    CONFIGURATION,
)
BY_PATH: Final[Mapping[str, View]] = {view.path: view for view in VIEWS}
