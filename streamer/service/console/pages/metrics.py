"""Charts of the metrics of the last hours, from `GET /v1/metrics/history`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, final

from streamer.service.console import text
from streamer.service.console.visit import Shown, View, Visit

SPANS: Final = {15: "15 minutes", 60: "1 hour", 180: "3 hours"}
_POINTS: Final = 90
#: The most lines of one chart; the table has more.
_LINES: Final = 6
_SHOWN: Final = 50
#: The most useful metrics first: the path of an event, and its failures.
_FIRST: Final = (
    "streamer_service_events",
    "streamer_service_source",
    "streamer_service_slot",
    "streamer_service_match",
    "streamer_service_dead",
    "streamer_service_spool",
    "streamer_service_deliver",
    "streamer_match",
    "streamer_event",
    "streamer_cel_err",
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One metric: the lines of its chart, and all values in a table.

    Attributes:
        rows: the name of a line, its latest value, its least and its greatest.
    """

    metric: str
    what: str
    lines: Mapping[str, Sequence[float | None]]
    rows: Sequence[tuple[str, float | None, float | None, float | None]]
    more: int
    says: Callable[[float | None], str]


async def show(visit: Visit) -> Shown:
    """Show metrics of the chosen number of minutes."""
    wanted = visit.query.get("minutes", "60")
    minutes = int(wanted) if wanted in map(str, SPANS) else 60
    name = visit.query.get("name", "").strip()
    is_all = visit.query.get("show") == "all"
    names = name or (None if is_all else ",".join(_FIRST))
    history = await visit.api.get("/v1/metrics/history", minutes=minutes, points=_POINTS, name=names)
    shown = sorted(charts(history["series"]), key=_rank)
    values = {"at": history["at"], "every": history["every_s"], "left_out": history["series_left_out"], "charts": shown}
    return Shown("metrics.html", {**values, "minutes": minutes, "spans": SPANS, "name": name, "is_all": is_all})


def charts(series: Iterable[Mapping[str, Any]]) -> Iterable[Chart]:
    """Make one chart of each metric's series, with the most active lines first."""
    for (metric, kind), each in groupby(sorted(series, key=_of), _of):
        lines = sorted(((_name(one), one["values"]) for one in each), key=lambda line: -_largest(line[1]))
        shown = lines[:_SHOWN]
        yield Chart(
            metric=metric,
            what={"rate": "a second", "quantile": "quantiles"}.get(kind, ""),
            lines=dict(shown[:_LINES]),
            rows=[(name, values[-1] if values else None, _least(values), _largest(values)) for name, values in shown],
            more=len(lines) - len(shown),
            says=_unit(metric, kind),
        )


def _of(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["metric"], one["kind"]


def _rank(chart: Chart) -> tuple[bool, int]:
    """Return the order of a chart: those with values first, then by `_FIRST`."""
    first = next((at for at, name in enumerate(_FIRST) if chart.metric.startswith(name)), len(_FIRST))
    return not any(most for _, _, _, most in chart.rows), first


def _unit(metric: str, kind: str) -> Callable[[float | None], str]:
    if kind == "rate":
        return text.rate
    if metric.endswith("_seconds") and "timestamp" not in metric:
        return text.span
    return text.size if metric.endswith("_bytes") else text.share if metric.endswith("_ratio") else text.number


def _name(one: Mapping[str, Any]) -> str:
    parts = [f"{name}={text.plain(value, 40)}" for name, value in one["labels"].items()]
    if "quantile" in one:
        parts.append(f"{one['quantile']:g} of all")
    return ", ".join(parts) or "all"


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _least(values: Sequence[float | None]) -> float:
    return min((value for value in values if value is not None), default=0.0)


METRICS: Final = View(path="metrics", title="Metrics", scope="admin", show=show)
