"""Refuse configurations that a service cannot run, and find the store of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamer.cdc.envelopes import WITH_ENVELOPE
from streamer.config.loader import Loaded
from streamer.config.schema.claims import READS, Claim, File, Placed, conflicts
from streamer.config.schema.config import Config
from streamer.config.schema.service import SharedStore
from streamer.errors import BulkConfigError
from streamer.service.connectors.sinks import sinks_of
from streamer.service.connectors.sources import sources_of

#: The addresses that may be served without tokens.
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def place_of(config: Config) -> Path | SharedStore:
    """Return the place of a configuration's store."""
    return config.store if config.store.dsn is not None else config.service.directory


def fitting(loaded: Loaded, *, dev: bool = False) -> None:
    """Refuse a valid configuration that a service cannot run. Raises BulkConfigError.

    Args:
        dev: whether the API is to be served without tokens.
    """
    config, errors = loaded.config, []
    decoded = {name: field for name, source in config.sources.items() if (field := source.decoded_by) is not None}
    if config.matching.validation == "lazy":
        reason = "expected full: a service writes events into its messages, and so checks the whole of each"
        errors.append(loaded.error(("matching", "validation"), reason))
    if (layout := config.matching.event_layout).has_changes:
        said = "layout" if config.matching.format is None else "format"
        reason = f"a service delivers each change of a record by itself: expected format {layout.format} in a source"
        if layout.format == "pgoutput":
            reason = "a message needs those before it, also after a restart: expected a source of type: postgres"
        errors.append(loaded.error(("matching", said), reason))
    for name, source in config.sources.items():
        if source.has_envelope and source.record_format not in WITH_ENVELOPE:
            reason = f"expected one of the formats {', '.join(WITH_ENVELOPE)}, whose decoders can add it"
            errors.append(loaded.error(("sources", name, "envelope"), reason))
    if decoded and len(decoded) < len(config.sources):
        reason = "an engine has one layout, and a decoder has its own: let another process read sources of format json"
        errors += [loaded.error(("sources", name, field), reason) for name, field in decoded.items()]
    elif decoded and config.matching.event_layout != Config().matching.event_layout:
        name, field = next(iter(decoded.items()))
        said = "layout" if config.matching.format is None else "format"
        errors.append(loaded.error(("matching", said), f"sources.{name}.{field} is decoded to a layout of its own"))
    if dev and config.api.address not in _LOOPBACK:
        errors.append(loaded.error(("api", "address"), f"expected {' or '.join(_LOOPBACK)} if there are no tokens (--dev)"))
    if errors := [*errors, *(loaded.error(place, reason) for place, reason in conflicts(_claims(loaded, dev=dev)))]:
        raise BulkConfigError(errors)


def _claims(loaded: Loaded, *, dev: bool) -> Iterator[Placed]:
    """Yield the files and other resources that a configuration reads, writes and owns.

    They include its own file, and the standard streams that it uses by default.
    """
    config = loaded.config
    if loaded.name is not None and (file := Path(loaded.name)).is_file():
        yield Placed(("configuration",), Claim((), READS, File(file), "this is the configuration"))
    if dev:
        yield from (Placed(("api",), claim) for claim in config.api.claims(dev=True))
    yield from config.model_copy(update={"sources": sources_of(config), "sinks": sinks_of(config)}).placed()
