"""All sections together, and the rules between them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from streamer.config.schema.api import Api
from streamer.config.schema.claims import READS, Claim, conflicts
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.connectors import AnySink, AnySource
from streamer.config.schema.matching import MICROSECOND, Matching
from streamer.config.schema.service import Delivery, Route, Service, Shard, SharedStore
from streamer.config.schema.values import Files, Name, Section, as_list, as_names, wrong_inside
from streamer.config.schema.watching import Logging, Metrics
from streamer.config.yaml import shown
from streamer.model import Limits


class Config(Section):
    """The whole configuration of an engine; immutable. `Config.load` reads a file, `Config.from_dict` a mapping."""

    model_config = ConfigDict(title="Streamer")

    matching: Matching = Field(default_factory=Matching)
    subscriptions: Files = ()
    """One path or a list: JSON lines of the first subscriptions, plain, gzip or zstd; relative to the configuration file."""
    sources: Annotated[dict[Name, AnySource], BeforeValidator(as_names)] = Field(
        default_factory=dict, json_schema_extra={"additionalProperties": False}
    )
    """The sources of `streamer serve`, by names that you choose; without any it reads standard input."""
    sinks: Annotated[dict[Name, AnySink], BeforeValidator(as_names)] = Field(
        default_factory=dict, json_schema_extra={"additionalProperties": False}
    )
    """The sinks of `streamer serve`, by names that you choose; without any it writes standard output."""
    routes: Annotated[tuple[Route, ...], BeforeValidator(as_list)] = ()
    """A list of `{gateway: NAME, sink: NAME}`; the first that fits a match decides. With a single sink you need none."""
    delivery: Delivery = Field(default_factory=Delivery)
    service: Service = Field(default_factory=Service)
    store: SharedStore = Field(default_factory=SharedStore)
    shard: Shard = Field(default_factory=Shard)
    api: Api = Field(default_factory=Api)
    metrics: Metrics = Field(default_factory=Metrics)
    logging: Logging = Field(default_factory=Logging)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        names = ", ".join(self.sinks) or "none"
        for index, route in enumerate(self.routes):
            if route.sink not in self.sinks:
                wrong.append((("routes", index, "sink"), f"unknown sink {shown(route.sink)!r}; there are: {names}"))
        if self.delivery.dead_letter is not None and self.delivery.dead_letter not in self.sinks:
            wrong.append((("delivery", "dead_letter"), f"unknown sink {shown(self.delivery.dead_letter)!r}; there are: {names}"))
        if len(self.sinks) > 1 and not self.routes:
            wrong.append((("routes",), f"expected which sink gets what, as there are {len(self.sinks)}: {names}"))
        formats = {source.shown_format for source in self.sources.values()}
        wrong += [(("matching", "format_options", *at), reason) for at, reason in self.matching.faults_of_options(formats)]
        wrong += conflicts(self.placed())
        if wrong:
            raise wrong_inside(wrong)
        return self

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        for index, path in enumerate(self.subscriptions):
            yield Claim(("subscriptions", index), READS, OneFile(path), "subscriptions are read from this file")

    @classmethod
    def load(cls, path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Config:
        """Read a YAML file, and the environment over it.

        Args:
            path: the file.
            environment: variables such as `STREAMER_MATCHING__BLOOM__FP_RATE`; by default those of the process, `{}` for none.

        Raises:
            BulkConfigError: `errors` has all faults, each with file, line and column or with its variable.
            OSError: the file cannot be read.
        """
        from streamer.config.loader import load

        return load(path, environment).config

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Config:
        """Make a configuration from a mapping, as a YAML file has it. The environment is ignored.

        Raises:
            BulkConfigError: `errors` has all faults, each with its place.
        """
        from streamer.config.loader import from_dict

        return from_dict(members)

    def engine_options(self) -> dict[str, Any]:
        """Return the arguments of `Engine`."""
        matching = self.matching
        limits = matching.limits.model_dump()
        return {
            "layout": matching.event_layout,
            "default_tenant": matching.default_tenant,
            "topic_dialect": matching.topic_dialect,
            "validation": matching.validation,
            "limits": Limits(**limits, evaluation_timeout_us=matching.cel.evaluation_timeout // MICROSECOND),
            "soft_delete": matching.soft_delete,
            "cel_evaluator": matching.cel.evaluator,
            "cache_size": matching.cel.cache_size,
            "bloom": matching.bloom.options(),
            "batch_size": matching.batch_size,
            "threads": matching.threads,
        }
