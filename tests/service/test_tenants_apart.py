"""No event of one tenant reaches another, however many there are of both."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.service.conftest import Make
from tests.tools.records import append_run

#: Names that look like one another's, to an index that cuts or joins them.
ODD = ("a", "a/", "a/b", "a\x1f", "A", "a ", "á", "a\u0301", "default", "null", "0")


def run(make: Make, directory: Path, tenants: int, events: int) -> int:
    """Have every tenant want everything, by one id for all of them; return how many messages there were."""
    names = [*ODD, *(f"tenant-{number}" for number in range(tenants - len(ODD)))]
    wanted = [{"id": "all", "tenant": name, "labels": {"of": name}} for name in names]
    (directory / "subs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in wanted))
    known, rng, strangers = set(names), random.Random(events), ("nobody", "tenant-", "a//", "ALL")
    expected = 0
    with open(directory / "in.jsonl", "w") as file:
        for number in range(events):
            # One event in ten is of a tenant that wants nothing.
            tenant = rng.choice(strangers if rng.random() < 0.1 else names)
            expected += tenant in known
            told = {"id": number, "tenant": tenant, "collection": "c", "type": "insert", "data": {"of": tenant}}
            file.write(json.dumps(told) + "\n")
    make(subscriptions=[str(directory / "subs.jsonl")]).run()
    found = 0
    with open(directory / "out.jsonl") as file:
        for line in file:
            message = json.loads(line)
            whose = {message["tenant"], message["data"]["labels"]["of"], message["data"]["event"]["data"]["of"]}
            assert len(whose) == 1, line
            found += 1
    assert found == expected
    return found


def test_what_every_tenant_wants_comes_to_each_alone(make: Make, tmp_path: Path) -> None:
    run(make, tmp_path, 30, 2_000)


@pytest.mark.integration
def test_of_a_million_events_none_comes_to_another_tenant(make: Make, tmp_path: Path, backend: str) -> None:
    if backend != "native":
        pytest.skip("a million events take the reference an hour")
    began = time.monotonic()
    found = run(make, tmp_path, 1_000, 1_000_000)
    append_run(
        "a million events of a thousand tenants, each of which wants all of its own by one id",
        began,
        backend,
        matches=found,
        of_another_tenant=0,
        lost=0,
    )
