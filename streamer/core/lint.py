"""What is suspicious about a set of subscriptions: what can never match, always matches, is there twice, or is slow.

A core looks at one subscription after the other, by its own normal form; what asks for the same is found here. The last two codes
are found by the engine (streamer/engine/lint.py), whichever core runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

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


#: What nobody means; the rest may be meant as it is.
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
        """Return it as plain JSON."""
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
        found: codes and reasons.
        identity: equal for two equivalent subscriptions.
    """

    subscription_id: str
    found: tuple[tuple[str, str], ...]
    identity: Hashable


def with_duplicates(examined: Iterable[Examined]) -> list[Finding]:
    """Return the findings about each subscription, in order, and its earlier duplicates."""
    findings: list[Finding] = []
    first_with: dict[Hashable, str] = {}
    for each in examined:
        findings += [Finding(FindingCode(code), each.subscription_id, reason) for code, reason in each.found]
        first = first_with.setdefault(each.identity, each.subscription_id)
        if first != each.subscription_id:
            reason = "asks for the same as another subscription of its gateway"
            findings.append(Finding(FindingCode.DUPLICATE, each.subscription_id, reason, (first,)))
    return findings


def remarked(remarks: Iterable[Remark]) -> tuple[tuple[str, str], ...]:
    """Return the remarks of the checker about an expression, as codes and reasons."""
    return tuple((each.kind, f"cel: {each.message} (line {each.line}, column {each.column})") for each in remarks)
