"""Both cores find the same suspicious, in the same words; each by its own normal form."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core.lint import Finding, FindingCode
from streamer.core.options import Options
from streamer.core.protocol import Core
from streamer.errors import StreamerError
from streamer.events.layout import EventLayout
from streamer.native.core import NativeCore
from streamer.reference.core import ReferenceCore
from tests.conformance.table import load_all
from tests.generators import agreeing_subscription, random_filter, random_subscription
from tests.parts import in_parts
from tests.unit.test_impossible import MAY, NEVER, condition

PROGRAMS = ProgramCache(10_000)


#: Found by the engine, whichever core runs.
NOT_OF_A_CORE = {FindingCode.PROBABLE_MISTAKE, FindingCode.NOT_IN_EVENTS}

OPTIONS = Options(layout=EventLayout())


def cores() -> tuple[Core, Core]:
    return NativeCore(OPTIONS, PROGRAMS, ErrorLog()), ReferenceCore(OPTIONS, PROGRAMS, ErrorLog())


def findings(core: Core, texts: Iterable[bytes]) -> list[Finding]:
    core.write(texts, "apply")
    return core.lint()


def compare(texts: list[bytes]) -> Counter[FindingCode]:
    """Hold that both find the same, and return what they found.

    The native core simplifies more, so it finds more alike. Of a few expressions its index decides more. Of the costs of all else
    both say the same: here of each subscription alone, in tests/api/test_understanding.py also of many.
    """
    both = cores()
    native, reference = (findings(core, texts) for core in both)

    def rest(found: list[Finding]) -> set[Finding]:
        return {each for each in found if each.code not in (FindingCode.SLOW, FindingCode.DUPLICATE)}

    never = {each.subscription_id for each in reference if each.code is FindingCode.NEVER_MATCHES}
    given = [each for each in map(json.loads, texts) if "cel" not in each and each["id"] not in never]
    for subscription_id in (each["id"] for each in given if all("op" in entry for entry in each.get("filters", ()))):
        one, other = (core.plan(subscription_id) for core in both)
        assert one is not None
        assert other is not None
        assert one.effort is other.effort, texts

    def named(found: list[Finding], code: FindingCode) -> set[str]:
        return {each.subscription_id for each in found if each.code is code}

    assert rest(native) == rest(reference), texts
    assert named(native, FindingCode.DUPLICATE) >= named(reference, FindingCode.DUPLICATE), texts
    return Counter(each.code for each in reference)


def crowded(rng: random.Random, name: str) -> dict[str, Any]:
    """Return a subscription whose filters often contradict one another."""
    filters = [{**random_filter(rng), "field": rng.choice(["a", "a", "a.b", "b"])} for _ in range(rng.randint(2, 4))]
    return {"id": name, "filters": filters}


@in_parts(20, slow=0)
def test_random_subscriptions_are_found_suspicious_by_both(part: int) -> None:
    rng = random.Random(part)
    found: Counter[FindingCode] = Counter()
    for _ in range(30):
        made = [rng.choice([crowded, random_subscription, agreeing_subscription])(rng, f"s{number}") for number in range(20)]
        copies = [{**made[number], "id": f"copy {number}"} for number in range(2)]
        found += compare([json.dumps(each).encode() for each in [*made, *copies]])
    for code in FindingCode.NEVER_MATCHES, FindingCode.SLOW, FindingCode.DUPLICATE:
        assert found[code] > 4


@in_parts(10, slow=0)
def test_random_expressions_are_found_suspicious_by_both(part: int) -> None:
    rng = random.Random(part)
    found: Counter[FindingCode] = Counter()
    for number in range(200):
        text = {"id": f"s{number}", "cel": " && ".join(condition(rng) for _ in range(rng.randint(1, 3)))}
        try:
            found += compare([json.dumps(text).encode()])
        except StreamerError:
            # A comparison of literals that the checker refuses.
            continue
    assert found[FindingCode.NEVER_MATCHES] > 7


@pytest.mark.integration
def test_the_subscriptions_of_the_table_are_found_suspicious_by_both() -> None:
    found: Counter[FindingCode] = Counter()
    # Many cases ask the same of other events.
    for subscriptions in dict.fromkeys(tuple(case.subscriptions) for case in load_all()):
        try:
            found += compare([text.encode("utf-8", "surrogatepass") for text in subscriptions])
        except StreamerError:
            # The case is about a subscription that is refused.
            continue
    assert all(found[code] for code in FindingCode if code not in NOT_OF_A_CORE), found


CEL = [
    "true",
    "1 == 2",
    "1 / 0 == 1",
    "data.a == 1 || true",
    "data.a && false",
    "collection == 'x' || true",
    "data.a + 1 > 3 && 2 - data.b < 4 && (1) * data.c == data.d",
    "data.a + 1 + 2 == 3",
    "data.a + 1u == 3u && data.b + 1.0 > 2.0",
    "1 == 'a' || data.a == 1",
    "data.a == 3 ||\n  1 in ['a', 'b'] ||\n  2.0 < 3 || [1] == ['x']",
    "data.a.exists(x, x + 1 == 2 || 'é' == 3)",
    *NEVER,
    *MAY,
]


@pytest.mark.parametrize("evaluator", ["native", "portable"])
@pytest.mark.parametrize("source", CEL)
def test_an_expression_is_found_suspicious_by_both(source: str, evaluator: str) -> None:
    text = json.dumps({"id": "s", "cel": source, "cel_evaluator": evaluator, "types": ["insert"]}).encode()
    compare([text])
