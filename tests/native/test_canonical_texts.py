"""What a snapshot says of a subscription is the same text, whoever writes it."""

from __future__ import annotations

import json
import random

from streamer import Engine, StreamerError, _native
from streamer.subscriptions.text import canonical_text
from tests.conformance.table import load_all
from tests.generators import agreeing_subscription
from tests.parts import in_parts

PARTS = 5


@in_parts(PARTS, slow=0)
def test_the_core_writes_what_python_writes_or_leaves_it_to_python(part: int) -> None:
    """For each subscription of the table of cases, and for random ones."""
    rng = random.Random(3)
    texts = [json.dumps(agreeing_subscription(rng, f"s{n}")).encode() for n in range(500)]
    texts += [text if isinstance(text, bytes) else text.encode() for case in load_all() for text in case.subscriptions]
    # Two texts of sixteen digits are as near to it: Python writes the even one.
    texts += [b'{"id": "tie", "filters": [{"field": "n", "op": "==", "value": -1695705067772579.25}]}']
    accepted = written = 0
    for text in list(dict.fromkeys(texts))[part::PARTS]:
        engine = Engine()
        try:
            engine.add(text)
        except StreamerError:
            continue
        accepted += 1
        if (made := _native.canonical(text)) is not None:
            written += 1
            tenant, collection, canonical = made
            assert (tenant or "default", collection or "*", canonical) == canonical_text(text, engine._options.default_tenant)
    assert written > accepted * 0.7 > 1000 / PARTS
