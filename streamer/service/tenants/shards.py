"""Decide which tenants' subscriptions a process loads, if one engine does not load those of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from mmh3 import mmh3_x64_128_utupledigest

from streamer.config.schema.config import Config
from streamer.service.store.ids import Written

_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """One of *count* shards, numbered from 1. Each tenant belongs to one, including the tenant for all tenants."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, config: Config) -> Shard:
        """Return the shard of a configuration."""
        text = config.shard.tenants
        return cls() if text is None else cls(*map(int, text.split("/")))

    def of_tenant(self, tenant: str) -> int:
        """Return the number of a tenant's shard: the first 64 bits of MurmurHash3 (x64, 128 bits, seed 0), modulo the count."""
        return mmh3_x64_128_utupledigest(tenant.encode(), 0)[0] % self.count + 1

    def holds(self, tenant: str) -> bool:
        """Return whether a tenant belongs to this shard."""
        return self.count == 1 or self.of_tenant(tenant) == self.number

    def mine(self, subscriptions: Sequence[Written], places: Iterable[_T]) -> tuple[list[Written], list[_T]]:
        """Return the subscriptions of this shard, and the place of each."""
        pairs = [(each, place) for each, place in zip(subscriptions, places, strict=True) if self.holds(each.tenant)]
        return [each for each, _ in pairs], [place for _, place in pairs]
