"""The tables of all metrics in docs/metrics.md: the engine's and the service's."""

from __future__ import annotations

from collections.abc import Sequence

from streamer.metrics import names, service
from streamer.metrics.names import Metric


def engine() -> str:
    """Return the table of the engine's metrics as Markdown."""
    return _table("labels in addition to `engine`", names.METRICS)


def of_service() -> str:
    """Return the table of the service's metrics as Markdown."""
    return _table("labels", service.METRICS)


def _table(labelled: str, metrics: Sequence[Metric]) -> str:
    lines = [f"| metric | kind | {labelled} | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        name = metric.name if metric.kind == "histogram" else metric.sample
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
