"""An engine's counters, for Prometheus: `engine.metrics`, `engine.serve_metrics()`.

- `names`: every metric: name, kind, labels, help; `service`: those of `streamer serve`.
- `samples`: an engine read into samples of them.
- `collector`: a custom collector that reads its engines during a scrape.
- `mirror`: the same for several processes of one service (prometheus_client's multiprocess mode).
- `server`, `address`: an HTTP server for metrics, and its address.
- `history`, `plot`: record samples of the filters, and draw them.

Every module is imported on use: an engine counts even if its metrics are never read.
"""

from streamer.metrics.collector import Registration, register
from streamer.metrics.history import History, Rebuilds, Sample
from streamer.metrics.mirror import Mirror, mirror
from streamer.metrics.names import METRICS, Metric
from streamer.metrics.server import Server, serve

__all__ = [
    "METRICS",
    "History",
    "Metric",
    "Mirror",
    "Rebuilds",
    "Registration",
    "Sample",
    "Server",
    "mirror",
    "register",
    "serve",
]
