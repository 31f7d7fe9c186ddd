"""The tutorial from a table to a webhook, followed on a real PostgreSQL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_readme import TUTORIAL, minutes, run_page
from tests.tools.ports import free_port
from tests.tools.postgres import Cluster, missing, programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.later_on_the_reference,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def test_a_newcomer_gets_from_a_table_to_a_webhook_within_ten_minutes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    port = free_port()
    page = TUTORIAL.read_text().replace("8011", str(port))
    assert 2 < minutes(page.partition("\n## 6.")[0]) < 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    monkeypatch.setenv("PG", cluster.dsn())
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{programs()}")

    def late(*_: object) -> None:
        raise TimeoutError("a command of the page does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    try:
        assert run_page(page, tmp_path, capsys, TUTORIAL.name) > 20
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        for name in ("service.pid", "receiver.pid"):
            if (path := tmp_path / name).exists():
                try:
                    os.kill(int(path.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    continue
