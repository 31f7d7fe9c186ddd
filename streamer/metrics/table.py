"""The table of all metrics in docs/metrics.md."""

from __future__ import annotations

from typing import Final

from streamer.metrics.names import METRICS

BEGIN: Final = "<!-- made by `python -m streamer.metrics` -->"
END: Final = "<!-- end -->"


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| metric | kind | labels in addition to `engine` | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        name = metric.name if metric.kind == "histogram" else metric.sample
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)


def into(text: str) -> str:
    """Return a page with the table in its place.

    Raises:
        ValueError: the page has no place for it.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END} in it")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"
