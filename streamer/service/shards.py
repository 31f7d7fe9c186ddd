"""Which tenants' subscriptions a process holds, where one engine is not to hold those of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from mmh3 import mmh3_x64_128_utupledigest

from streamer.config.schema.config import Config
from streamer.service.tenants import Written

_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """One of *count* shards, numbered from 1. Each tenant is of one; who subscribes for all tenants is a tenant, too."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, config: Config) -> Shard:
        """Return that of a configuration."""
        text = config.shard.tenants
        return cls() if text is None else cls(*map(int, text.split("/")))

    def of_tenant(self, tenant: str) -> int:
        """Return the number of a tenant's shard: the first 64 bits of MurmurHash3 (x64, 128 bits, seed 0), modulo the count."""
        return mmh3_x64_128_utupledigest(tenant.encode(), 0)[0] % self.count + 1

    def holds(self, tenant: str) -> bool:
        """Tell whether a tenant's subscriptions are held here."""
        return self.count == 1 or self.of_tenant(tenant) == self.number

    def mine(self, found: Sequence[Written], places: Iterable[_T]) -> tuple[list[Written], list[_T]]:
        """Return the subscriptions that are held here, and where each stands."""
        pairs = [(each, place) for each, place in zip(found, places, strict=True) if self.holds(each.tenant)]
        return [each for each, _ in pairs], [place for _, place in pairs]
