"""Draw the history of an engine's filters: `History.plot(path)`, `streamer stats --plot FILE`.

Each of the most queried filters has one column:

```
   passed without a match          ──── measured since the last rebuild, with its interval   ─ ─ threshold   ······ fp_rate
   stopped by phase 1              ──── share of the events between two samples
   keys                            ──── in the filter   ─ ─ room   ▒▒▒ of removed subscriptions
                                     ┆ rebuilds, with their reason, run through all three
```

Matplotlib is imported on use, and never its global state (`pyplot`), which belongs to the embedding program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamer.bloom.sizing import wilson_lower
from streamer.bloom.state import FilterState
from streamer.extras import needed
from streamer.files import replacing
from streamer.metrics.history import Sample
from streamer.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The most columns that are readable.
MOST_COLUMNS: Final = 3
#: Fewer samples are not significant for a rate.
LEAST: Final = 200
#: Fewer measured rates are drawn as points, too.
FEW: Final = 10
#: Colours that colour-blind people can distinguish (Okabe and Ito), one per reason. A `write` that found the filter full made a
#: larger one itself.
REASONS: Final = {
    "capacity": "#0072b2",
    "stale": "#e69f00",
    "rate": "#d55e00",
    "interval": "#7f7f7f",
    "asked": "#cc79a7",
    "write": "#56b4e9",
}
MEASURED, STOPPED, KEYS, LIMIT = "#222222", "#009e73", "#222222", "#d55e00"

Name = tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """A rebuild: its latest possible time, and its reason."""

    at: float
    reason: str


def plot(samples: Sequence[Sample], path: str | os.PathLike[str]) -> None:
    """Draw samples into a file; its suffix selects the format: `.png`, `.svg`, `.pdf`.

    Raises:
        ModuleNotFoundError: Matplotlib is not installed; it is the extra `plot`.
        ValueError: there are no samples to draw, or the format is unknown.
        OSError: the file cannot be written.
    """
    with needed("drawing needs Matplotlib", "plot"):
        from matplotlib.figure import Figure
    if len(samples) < 2:
        raise ValueError("cannot draw: fewer than two samples")
    queried = names(samples)
    if not queried:
        raise ValueError("cannot draw: no collection has a filter; small ones need none")
    shown = queried[:MOST_COLUMNS]
    figure = Figure(figsize=(max(7.2, 5.2 * len(shown)), 6.4), layout="constrained", dpi=150)
    _draw(figure, samples, shown)
    if len(shown) < len(queried):
        figure.suptitle(f"{len(shown)} of {len(queried)} filters: those that were queried most", x=0.01, ha="left", fontsize=9)
    ending = os.fspath(path).rpartition(".")[2].lower()
    try:
        with replacing(path) as file:
            figure.savefig(file, format=ending, metadata=_UNDATED.get(ending))
    except ValueError as error:
        raise ValueError(str(error).split(" (")[0]) from None


#: Leave out dates, so that equal samples give equal files.
_UNDATED: Final[dict[str, dict[str, Any]]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def names(samples: Sequence[Sample]) -> list[Name]:
    """Return the filters of the samples, those with the most queries at the end first."""
    queries: dict[Name, int] = {}
    for sample in samples:
        for state in sample.filters:
            queries[state.name] = max(queries.get(state.name, 0), state.asked)
    return sorted(queries, key=lambda name: (-queries[name], name))


def marks(samples: Sequence[Sample], name: Name) -> Iterator[Mark]:
    """Yield the rebuilds of a filter: each growth of a count by reason between two samples, and further new versions."""
    before: dict[str, int] = {}
    version: int | None = None
    #: The time of a new version without a counted reason: a write made it, or the count is in the next sample.
    unexplained: float | None = None
    for sample in samples:
        counts = {each.reason: each.count for each in sample.rebuilds if (each.tenant, each.collection) == name}
        grown = {reason: count - before.get(reason, 0) for reason, count in counts.items() if count > before.get(reason, 0)}
        before = counts
        current = next((state.version for state in sample.filters if state.name == name), None)
        newer = 0 if current is None or version is None else current - version
        version = current if current is not None else version
        is_late = unexplained is not None and sum(grown.values()) > newer
        if unexplained is not None and not is_late:
            yield Mark(unexplained, "write")
        for reason in grown:
            yield Mark(unexplained if unexplained is not None and is_late else sample.at, reason)
        unexplained = sample.at if newer > sum(grown.values()) else None
    if unexplained is not None:
        yield Mark(unexplained, "write")


def states(samples: Sequence[Sample], name: Name) -> list[tuple[float, FilterState]]:
    """Return a filter's states, with their times."""
    return [(sample.at, state) for sample in samples for state in sample.filters if state.name == name]


def stopped(history: Sequence[tuple[float, FilterState]]) -> tuple[list[float], list[float]]:
    """Return the share of events that a filter stopped between each two samples, at the end of each span."""
    times, shares = [], []
    last = history[0][1]
    for at, state in history[1:]:
        # A collection that was emptied and filled again counts from 0.
        queries, no = (state.asked - last.asked, state.no - last.no) if state.asked >= last.asked else (state.asked, state.no)
        last = state
        if queries > 0:
            times.append(at)
            shares.append(no / queries)
    return times, shares


def _draw(figure: Figure, samples: Sequence[Sample], shown: Sequence[Name]) -> None:
    grid = figure.subplots(3, len(shown), sharex=True, squeeze=False, height_ratios=[1.5, 1, 1])
    drawn: set[str] = set()
    for column, name in enumerate(shown):
        rate, share, keys = grid[:, column]
        history = states(samples, name)
        tenant, collection = name
        title = f"collection {_short(collection)}" + ("" if tenant == "default" else f", tenant {_short(tenant)}")
        rate.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=18)
        _draw_rate(rate, history, samples)
        _draw_stopped(share, history)
        _draw_keys(keys, history)
        for mark in marks(samples, name):
            drawn.add(mark.reason)
            colour = REASONS.get(mark.reason, "#000000")
            for axes in (rate, share, keys):
                axes.axvline(mark.at, color=colour, linewidth=1, alpha=0.8, zorder=1)
            rate.plot([mark.at], [1.05], "v", color=colour, markersize=7, clip_on=False, transform=rate.get_xaxis_transform())
        keys.set_xlabel("seconds since the first sample")
        keys.set_xlim(samples[0].at, samples[-1].at)
        for axes in (rate, share, keys):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#000000", alpha=0.08)
            axes.tick_params(labelsize=9)
            axes.set_axisbelow(True)
    for axes, label in zip(grid[:, 0], ("passed, of\nunwanted events", "stopped\nby phase 1", "keys"), strict=True):
        axes.set_ylabel(label)
    figure.align_ylabels(grid[:, 0])
    _draw_legend(figure, grid[0, 0], grid[2, 0], drawn)


def _draw_rate(axes: Axes, history: Sequence[tuple[float, FilterState]], samples: Sequence[Sample]) -> None:
    times: list[float] = []
    middle: list[float] = []
    low: list[float] = []
    high: list[float] = []
    version = None
    for at, state in history:
        if version is not None and state.version != version:
            # The measurements of a new filter start from zero.
            for each in (middle, low, high):
                each.append(float("nan"))
            times.append(at)
        version = state.version
        if state.sampled >= LEAST:
            times.append(at)
            middle.append(state.false_positives / state.sampled)
            low.append(wilson_lower(state.false_positives, state.sampled))
            high.append(1 - wilson_lower(state.sampled - state.false_positives, state.sampled))
    # With few points, one may be isolated and have no line.
    marker = "o" if len(times) < FEW else ""
    axes.plot(times, middle, color=MEASURED, linewidth=1.8, marker=marker, markersize=4, label="measured since the rebuild")
    axes.fill_between(times, low, high, color=MEASURED, alpha=0.1, linewidth=0, label="within 3 standard deviations")
    if len(times) == 1:
        axes.vlines(times, low, high, color=MEASURED, alpha=0.1, linewidth=6)
    moments = [sample.at for sample in samples]
    thresholds = [sample.threshold for sample in samples]
    axes.step(moments, thresholds, where="post", color=LIMIT, linestyle="--", linewidth=1.2, label="rebuild_fp_threshold")
    axes.step(
        moments,
        [sample.fp_rate for sample in samples],
        where="post",
        color=STOPPED,
        linestyle=":",
        linewidth=1.6,
        label="fp_rate",
    )
    highest = max([each for each in middle if each == each], default=0.0)
    axes.set_ylim(0, max(1.5 * max(thresholds), 1.2 * highest))
    axes.yaxis.set_major_formatter(_percent)
    if all(each != each for each in middle):
        text = f"fewer than {LEAST} events\nwere sampled between rebuilds"
        axes.text(0.5, 0.7, text, transform=axes.transAxes, ha="center", va="center", fontsize=9, backgroundcolor="#ffffff")


def _draw_stopped(axes: Axes, history: Sequence[tuple[float, FilterState]]) -> None:
    times, shares = stopped(history)
    if times:
        # A short run has one span, and so one share: a line needs the beginning of the span.
        begins = max(at for at, _ in history if at < times[0])
        times, shares = [begins, *times], [shares[0], *shares]
    axes.fill_between(times, shares, color=STOPPED, alpha=0.2, linewidth=0)
    axes.plot(times, shares, color=STOPPED, linewidth=1.4)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(_percent)


def _draw_keys(axes: Axes, history: Sequence[tuple[float, FilterState]]) -> None:
    times = [at for at, _ in history]
    axes.fill_between(
        times,
        [state.stale for _, state in history],
        step="post",
        color="#e69f00",
        alpha=0.35,
        linewidth=0,
        label="of them stale",
    )
    axes.step(times, [state.keys for _, state in history], where="post", color=KEYS, linewidth=1.4, label="keys in the filter")
    axes.step(
        times,
        [state.capacity for _, state in history],
        where="post",
        color="#0072b2",
        linestyle="--",
        linewidth=1.2,
        label="keys it has room for",
    )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda keys, _: f"{keys:,.0f}")


def _draw_legend(figure: Figure, rate: Axes, keys: Axes, drawn: set[str]) -> None:
    from matplotlib.lines import Line2D

    ordered = [*(each for each in REASONS if each in drawn), *sorted(drawn - REASONS.keys())]
    lines: list[Any] = [
        Line2D([], [], color=REASONS.get(reason, "#000000"), marker="v", markersize=7, linewidth=1, label=_label(reason))
        for reason in ordered
    ]
    # The columns of the legend: rates, keys, reasons of rebuilds.
    columns = [rate.get_legend_handles_labels()[0], keys.get_legend_handles_labels()[0], lines[:4], lines[4:]]
    rows = max(map(len, columns))
    handles = [handle for column in columns if column for handle in [*column, *[Line2D([], [], alpha=0)] * (rows - len(column))]]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=sum(map(bool, columns)), frameon=False, fontsize=9, columnspacing=3
    )


def _label(reason: str) -> str:
    return "a write made room" if reason == "write" else f"rebuilt: {reason}"


def _percent(share: float, _: float) -> str:
    return f"{100 * share:.3g} %"


def _short(name: str) -> str:
    text = printable(name)
    # A `$` begins a formula.
    return (text if len(text) <= 30 else f"{text[:29]}…").replace("$", r"\$")
