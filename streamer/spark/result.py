"""The result of `match_events`: DataFrames of matches, rejected events and counts, and the way of matching.

```
                 ┌─ matches    a pass of its own ─┐                  persist()                  ┌─ matches
 match_events ──►├─ rejected   reads the events   │   ───────────────────────────────►  one pass┼─ rejected
                 └─ tallies    a pass of its own ─┘   kept on the workers' disks                └─ tallies
```

The result is not itself a DataFrame. `where` or `select` on a DataFrame make another one, which loses attributes; this object
keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, final

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from streamer.errors import StreamerError
from streamer.events.layout import EventLayout
from streamer.spark import schema

if TYPE_CHECKING:
    from types import TracebackType

    from streamer.spark.worker import Want


@final
class SparkMatches:
    """The results for the events: `.matches`, `.rejected` and `.tallies`, each an ordinary DataFrame.

    Each is planned separately, so that two of them match every event twice; `persist` computes all three in one pass. `close`, or
    the end of a `with`, releases the persisted rows.

        with match_events(events, engine).persist() as result:
            result.matches.where("gateway_id = 'billing'").write.parquet("billing")
            print(result.rejected.count())

    Attributes:
        outcomes: matches, rejected events and counts of one pass; the column `kind` distinguishes them.
        strategy: `broadcast` or `cogroup`.
        reason: why this strategy was chosen.
        version: digest of the snapshot that travels; None under cogroup.
        layout: the layout of the events.
    """

    def __init__(
        self,
        plan: Callable[[Want], DataFrame],
        observe: Callable[[DataFrame], DataFrame] | None,
        close: Callable[[], None],
        *,
        keep_event: bool,
        strategy: str,
        reason: str,
        version: str | None,
        layout: EventLayout,
    ) -> None:
        """Keep a plan for each of the passes.

        Args:
            observe: adds the requested observation to the outcomes.
            close: releases the files that travel.
        """
        self._plan = plan
        self._close: Callable[[], None] | None = close
        self._keep_event: Final = keep_event
        self._persisted = False
        self.strategy: Final = strategy
        self.reason: Final = reason
        self.version: Final = version
        self.layout: Final = layout
        self.outcomes: Final = plan("all")
        self._observed: Final = None if observe is None else self._matches_of(observe(self.outcomes))
        self._matches: DataFrame | None = None
        self._rejected: DataFrame | None = None

    def _matches_of(self, outcomes: DataFrame) -> DataFrame:
        return schema.matches_of(outcomes, keep_event=self._keep_event)

    @property
    def matches(self) -> DataFrame:
        """A row for each match.

        event_id, tenant, collection, type, subscription_id, gateway_id, transition, certain [, event] and the columns that were
        kept, in an undefined order.
        """
        if self._observed is not None:
            return self._observed
        if self._matches is None:
            self._matches = self._matches_of(self.outcomes) if self._persisted else self._plan("matches")
        return self._matches

    @property
    def rejected(self) -> DataFrame:
        """A row for each event that cannot be read: event, code, detail, position (in bytes), and the columns that were kept.

        A pass for this DataFrame reads and validates the events, and does not match them.
        """
        if self._rejected is None:
            self._rejected = schema.rejected_of(self.outcomes) if self._persisted else self._plan("rejected")
        return self._rejected

    @property
    def tallies(self) -> DataFrame:
        """Counts by tenant and collection, as `tallies_of` returns them."""
        return schema.tallies_of(self.outcomes)

    def persist(self, level: StorageLevel = StorageLevel.DISK_ONLY) -> Self:
        """Compute all three in one pass, which the workers keep from the first computation on; return this object."""
        if not self._persisted:
            self.outcomes.persist(level)
            self._persisted, self._matches, self._rejected = True, None, None
        return self

    def unpersist(self) -> Self:
        """Free the pass that `persist` kept; return this object."""
        if self._persisted:
            self.outcomes.unpersist()
            self._persisted = False
        self._matches = self._rejected = None
        return self

    def close(self) -> None:
        """Release persisted rows, and the files that travelled only for this result, as far as Spark allows it (docs/spark.md).

        Compute everything that you derive from these DataFrames first. A second call has no effect.
        """
        self.unpersist()
        # Dropping the plan also drops its reference to the files.
        close, self._close, self._plan = self._close, None, _is_closed
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SparkMatches: {self.strategy}, since {self.reason}>"

    def __getattr__(self, name: str) -> Any:
        if hasattr(DataFrame, name):
            raise AttributeError(f"{name!r} is of DataFrames: `.matches` is one, and so are `.rejected` and `.tallies`")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _is_closed(want: Want) -> DataFrame:
    raise StreamerError(f"this result was closed: its {want} cannot be computed any more")
