"""The tables of all metrics in docs/metrics.md: the engine's and the service's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamer.metrics import names, service
from streamer.metrics.names import Metric

BEGIN: Final = "<!-- made by `python -m streamer.metrics` -->"
END: Final = "<!-- end -->"
#: In the order in which the page has them.
TABLES: Final = (("labels in addition to `engine`", names.METRICS), ("labels", service.METRICS))


def table(labelled: str, metrics: Sequence[Metric]) -> str:
    """Return a table as Markdown."""
    lines = [f"| metric | kind | {labelled} | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        name = metric.name if metric.kind == "histogram" else metric.sample
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)


def into(text: str) -> str:
    """Return a page with the tables in their places.

    Raises:
        ValueError: the page has no place for one.
    """
    page = ""
    for labelled, metrics in TABLES:
        before, begin, rest = text.partition(BEGIN)
        _, end, text = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"fewer than {len(TABLES)} places from {BEGIN} to {END} in it")
        page += f"{before}{BEGIN}\n{table(labelled, metrics)}\n{END}"
    return page + text
