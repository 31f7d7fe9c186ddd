"""The arguments of a job, read and checked together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from streamer.files import check_target
from streamer.spark.job.failures import Bad
from streamer.spark.job.places import Address, Format, Place, is_name, place, shown


class Strategy(StrEnum):
    """How subscriptions reach the workers."""

    auto = "auto"
    broadcast = "broadcast"
    cogroup = "cogroup"


class Extra(StrEnum):
    """How to treat columns of subscriptions that are not members."""

    warn = "warn"
    ignore = "ignore"
    forbid = "forbid"


class OnError(StrEnum):
    """How to treat an event that cannot be read."""

    reject = "reject"
    fail = "fail"


class Backend(StrEnum):
    """The backend of the workers."""

    native = "native"
    reference = "reference"


@dataclass(slots=True, kw_only=True)
class Arguments:
    """The arguments, read."""

    events: Place
    subscriptions: str
    out: Place
    rejected: Place | None
    event_col: str
    keep: tuple[str, ...]
    keep_event: bool
    by_gateway: bool
    overwrite: bool
    strategy: Strategy
    on_error: OnError
    backend: Backend | None
    batch_size: int | None
    stream: bool
    checkpoint: str | None
    trigger: str | None
    metrics_file: str | None
    report: str | None
    subscription_col: str | None = None
    extra: Extra = Extra.warn
    key: tuple[str, ...] = ()
    collection: str | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    def matching(self) -> dict[str, Any]:
        """The arguments of `match_events`."""
        return {
            "event_col": self.event_col,
            "keep": self.keep,
            "keep_event": self.keep_event,
            "strategy": self.strategy.value,
            "on_error": self.on_error.value,
            "backend": None if self.backend is None else self.backend.value,
            "batch_size": self.batch_size,
            "extra": self.extra.value,
        }


_EVERY: Final = re.compile(r"\d+ *(?:milli)?seconds?|\d+ *(?:minute|hour)s?")


def pairs_of(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for each in texts or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise Bad(f"{option} {each}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def out_place(text: str, kind: Format | None, options: Mapping[str, str]) -> Place:
    made = place(text, kind, options)
    if made.format not in (Format.kafka, Format.table) and kind is None:
        return Place(text, Format.jsonl if text.endswith(".jsonl") else Format.parquet, options)
    return made


def rejected_place(named: str | None, out: Place) -> Place | None:
    """Return the place of rejected events: written with the options of the output."""
    # If the output is files of one format, so are the rejected events.
    like = out.format if out.format not in (Format.kafka, Format.table) else None
    if named is not None:
        kind = Format.kafka if named.startswith("kafka:") else Format.table if is_name(named) else like
        return place(named, kind, out.options)
    if out.format is Format.kafka:
        return None
    if out.format is Format.table:
        quote = "`" if out.text.endswith("`") else ""
        return Place(f"{out.text.removesuffix(quote)}_rejected{quote}", Format.table, out.options)
    return Place(f"{out.text.rstrip('/')}.rejected", out.format, out.options)


def check(args: Arguments) -> None:
    if args.key and args.events.table is None:
        raise Bad("--key is for the change data feed of a table: --events SCHEMA.TABLE, or a path with --events-format delta")
    if args.collection is not None and not args.key:
        raise Bad("--collection is for a change data feed, and so goes with --key; else events have their own")
    if args.out.format is Format.kafka and args.by_gateway:
        raise Bad("--by-gateway is for folders; in Kafka the gateway is a message's key")
    if args.stream and args.checkpoint is None:
        raise Bad("--stream needs --checkpoint DIR, in which it records its progress")
    if not args.stream and (args.checkpoint is not None or args.trigger is not None):
        raise Bad("--checkpoint and --trigger are for --stream")
    if args.stream and args.overwrite:
        raise Bad("--overwrite is not for --stream, which adds to existing data")
    if args.trigger not in (None, "available-now") and not _EVERY.fullmatch(str(args.trigger)):
        raise Bad(f"--trigger {args.trigger}: expected a time as '10 seconds', or available-now")
    if args.report is not None and args.report.endswith((".html", ".htm")):
        raise Bad(f"--report {args.report}: the report is JSON: choose a name such as report.json. Spark's UI has charts")
    for path in (args.metrics_file, args.report):
        if path is None:
            continue
        if not Path(path).absolute().parent.is_dir():
            raise Bad(f"{path}: its folder does not exist")
        try:
            check_target(path)
        except OSError as error:
            raise Bad(f"{path}: {error.strerror or error}") from None


#: Options whose places Spark reads or writes: without a scheme they are in its default file system.
_OF_SPARK: Final = frozenset({"--events", "--out", "--rejected", "--checkpoint"})


def check_apart(args: Arguments, layout: str | None, spelt: Callable[[str], str] = str) -> None:
    """Refuse places if the job would write one into, or over, another.

    Args:
        spelt: returns the full form of a place that Spark reads or writes.
    """
    read = {"--events": args.events.address, "--subscriptions": args.subscriptions, "--layout": layout}
    written = {
        "--out": args.out.address,
        "--rejected": None if args.rejected is None else args.rejected.address,
        "--checkpoint": args.checkpoint,
        "--metrics-file": args.metrics_file,
        "--report": args.report,
    }
    others = [
        (option, text, Address.all_of(spelt(text) if option in _OF_SPARK else text))
        for option, text in read.items()
        if text is not None
    ]
    for option, text in written.items():
        if text is None:
            continue
        address = Address.of(spelt(text) if option in _OF_SPARK else text)
        for other, name, addresses in others:
            overlap = next(filter(None, map(address.overlap, addresses)), None)
            if overlap is not None:
                how = "are the same place" if overlap == "is" else f"overlap: the first {overlap} the second"
                raise Bad(f"{option} {shown(text)} and {other} {shown(name)} {how}")
        others.append((option, text, {address}))
