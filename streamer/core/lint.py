"""Find suspicious subscriptions: those that never match, always match, are duplicates, or are slow.

A core examines each subscription by its own normal form. This module finds duplicates and slow subscriptions (estimate.py),
because they depend on the other subscriptions. The engine finds the last two codes on either core (streamer/engine/lint.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

from streamer.core.estimate import Access, Effort, Estimate, alone

if TYPE_CHECKING:
    from streamer.cel_eval import Remark


class FindingCode(StrEnum):
    """The kind of a finding."""

    NEVER_MATCHES = "never_matches"
    ALWAYS_MATCHES = "always_matches"
    DUPLICATE = "duplicate"
    SLOW = "slow"
    LITERAL_COMPARISON = "literal_comparison"
    SPELLED_ARITHMETIC = "spelled_arithmetic"
    PROBABLE_MISTAKE = "probable_mistake"
    NOT_IN_EVENTS = "not_in_events"


#: Findings that are certainly unintended; the others may be intended.
MISTAKES: Final = frozenset({FindingCode.NEVER_MATCHES, FindingCode.PROBABLE_MISTAKE})


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """Something suspicious about one subscription.

    Attributes:
        code: its kind.
        subscription_id: the subscription.
        reason: the finding, for people.
        related: other subscriptions that the finding concerns.
    """

    code: FindingCode
    subscription_id: str
    reason: str
    related: tuple[str, ...] = ()

    def __str__(self) -> str:
        others = f" ({', '.join(map(repr, self.related))})" if self.related else ""
        return f"{self.subscription_id}: {self.code.value}: {self.reason}{others}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        return {
            "subscription_id": self.subscription_id,
            "code": self.code.value,
            "reason": self.reason,
            "related": list(self.related),
        }


@final
@dataclass(frozen=True, slots=True)
class Examined:
    """The findings of a core about one subscription.

    Attributes:
        subscription_id: the subscription.
        findings: codes and reasons.
        identity: equal for two equivalent subscriptions.
        partition: its tenant and collection.
        found_by: how an index finds each of its alternatives.
    """

    subscription_id: str
    findings: tuple[tuple[str, str], ...]
    identity: Hashable
    partition: tuple[str, str]
    found_by: Sequence[Access]


#: The cost of these subscriptions does not matter.
_DECIDED: Final = frozenset({FindingCode.NEVER_MATCHES, FindingCode.ALWAYS_MATCHES})


def findings_of(examined: Iterable[Examined]) -> list[Finding]:
    """Return the findings about each subscription, in order, with those of slow subscriptions and of duplicates."""
    pairs: list[tuple[Examined, list[Finding]]] = []
    estimates: defaultdict[tuple[str, str], Estimate] = defaultdict(Estimate)
    first_with: dict[Hashable, str] = {}
    for each in examined:
        findings = [Finding(FindingCode(code), each.subscription_id, reason) for code, reason in each.findings]
        estimates[each.partition].add(each.found_by)
        first = first_with.setdefault(each.identity, each.subscription_id)
        if first != each.subscription_id:
            reason = "wants the same events as another subscription of its gateway"
            findings.append(Finding(FindingCode.DUPLICATE, each.subscription_id, reason, (first,)))
        # Only keep these: the index answers most subscriptions, and there may be millions.
        if findings or any(rest == "evaluation" for rest, _ in each.found_by):
            pairs.append((each, findings))
    return [finding for each, findings in pairs for finding in (*_slow(each, estimates[each.partition]), *findings)]


def _slow(examined: Examined, estimate: Estimate) -> Iterable[Finding]:
    if any(code in _DECIDED for code, _ in examined.findings) or estimate.effort(examined.found_by) is not Effort.EVALUATED:
        return
    if alone(examined.found_by) is Effort.EVALUATED:
        reason = "the index cannot narrow it down: it is evaluated for every event of its collection"
    else:
        reason = "what an index looks up of it is shared by most others: it is evaluated for most events of its collection"
    yield Finding(FindingCode.SLOW, examined.subscription_id, reason)


def remarked(remarks: Iterable[Remark]) -> tuple[tuple[str, str], ...]:
    """Return the remarks of the checker about an expression, as codes and reasons."""
    return tuple((each.kind, f"cel: {each.message} (line {each.line}, column {each.column})") for each in remarks)
