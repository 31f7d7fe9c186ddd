"""Metrics over HTTP, of one process and of several."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamer import Engine
from streamer.metrics.address import parse_address

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

MakeEngine = Callable[..., Engine]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_an_engine_is_served_until_it_is_closed(engine: MakeEngine) -> None:
    e = engine()
    with e.serve_metrics(0) as server:
        e.match_ids(b"{}")
        text = get(server.url)
        assert 'streamer_events_unmatched_total{engine="1"} 1.0' in text
        assert "process_resident_memory_bytes" in text
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1, port {server.port}: ") as caught:
            e.serve_metrics(server.port)
        assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_a_registry_of_ones_own_is_served_whole(engine: MakeEngine) -> None:
    registry = CollectorRegistry()
    one, two = engine(), engine()
    one.metrics.register(registry, name="one")
    with two.serve_metrics(0, registry=registry, name="two") as server:
        text = get(server.url)
        assert 'streamer_events_total{engine="one"}' in text
        assert 'streamer_events_total{engine="two"}' in text


def ask(url: str, method: str = "GET") -> tuple[int, bytes, Message]:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_a_probe_is_answered_with_a_body_of_its_own_and_an_unknown_path_is_not_found(engine: MakeEngine) -> None:
    e = engine()
    with e.serve_metrics(0) as server:
        base = server.url.removesuffix("/metrics")
        assert ask(f"{base}/healthz")[:2] == ask(f"{base}/healthz?verbose=1")[:2] == (200, b"ok\n")
        for path in ("", "/", "/metrics/", "/health", "/favicon.ico", "/healthz/x"):
            status, body, headers = ask(base + path)
            assert (status, b"streamer_" in body) == (404, False), path
            assert headers["Content-Type"] == "text/plain; charset=utf-8"
        restricted = ask(f"{server.url}?name[]=streamer_events_total")[1].decode().splitlines()
        assert {line.split("{")[0] for line in restricted if line[0] != "#"} == {"streamer_events_total"}


def test_head_is_answered_as_get_is_without_the_body(engine: MakeEngine) -> None:
    e = engine()
    with e.serve_metrics(0) as server:
        base = server.url.removesuffix("/metrics")
        for path, expected in (("/metrics", 200), ("/healthz", 200), ("/nosuch", 404)):
            status, body, headers = ask(base + path, "HEAD")
            assert (status, body) == (expected, b"")
            told = ask(base + path)
            assert headers["Content-Type"] == told[2]["Content-Type"]
            assert (int(headers["Content-Length"]) > 0, int(told[2]["Content-Length"])) == (True, len(told[1]))
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, _, headers = ask(server.url, method)
            assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_probe_waits_for_no_scrape(engine: MakeEngine) -> None:
    begun, release = threading.Event(), threading.Event()

    class Slow(Collector):
        def collect(self) -> Iterable[Metric]:
            begun.set()
            release.wait(60)
            return ()

        def describe(self) -> Iterable[Metric]:
            return ()

    registry = CollectorRegistry()
    registry.register(Slow())
    e = engine()
    with e.serve_metrics(0, registry=registry) as server, ThreadPoolExecutor(1) as pool:
        try:
            scrape = pool.submit(get, server.url)
            assert begun.wait(10)
            assert ask(server.url.replace("/metrics", "/healthz"))[:2] == (200, b"ok\n")
            assert not scrape.done()
        finally:
            release.set()
        assert "streamer_events_total" in scrape.result(10)


def run(tmp_path: Path, code: str, *, backend: str, processes: bool = True) -> str:
    variables = {**os.environ, "STREAMER_BACKEND": backend}
    if processes:
        variables["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env=variables,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_processes_of_a_service_are_scraped_as_one(backend: str, tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
        import os, urllib.request
        import streamer

        engine = streamer.Engine()
        engine.add({"id": "a", "filters": [{"field": "a", "op": "==", "value": 1}]})
        before_fork = engine.metrics.mirror(interval=60)
        engine.match_ids(b'{"data": {"a": 1}}')
        for number in (1, 2):
            if (child := os.fork()) == 0:
                for _ in range(10 * number):
                    engine.match_ids(b'{"data": {"a": 1}}')
                engine.match_batch([b"{}", b"["])
                before_fork.close()
                os._exit(0)
            os.waitpid(child, 0)
        before_fork.close()
        with engine.serve_metrics(0) as server:
            print(urllib.request.urlopen(server.url).read().decode())
        """,
        backend=backend,
    )
    lines = told.splitlines()
    assert 'streamer_events_total{engine="1"} 35.0' in lines
    assert 'streamer_events_matched_total{engine="1"} 31.0' in lines
    assert 'streamer_events_unmatched_total{engine="1"} 2.0' in lines
    assert 'streamer_events_rejected_total{code="malformed_json",engine="1"} 2.0' in lines
    # Each process holds the same one.
    assert 'streamer_subscriptions{engine="1"} 1.0' in lines
    (count,) = [line for line in lines if line.startswith('streamer_event_duration_seconds_count{engine="1"}')]
    (last,) = [line for line in lines if line.startswith('streamer_event_duration_seconds_bucket{engine="1",le="+Inf"}')]
    assert float(count.split()[-1]) == float(last.split()[-1]) >= 1


def test_a_mirror_copies_by_itself_and_at_exit(backend: str, tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import time
        import streamer
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        engine = streamer.Engine()
        engine.metrics.mirror(name="e", interval=0.01)
        engine.match_ids(b"{}")
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        deadline = time.monotonic() + 30
        while b'streamer_events_total{engine="e"} 1.0' not in generate_latest(registry):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        engine.metrics.mirror(name="f", interval=60)
        engine.match_ids(b"{}")
        """,
        backend=backend,
    )
    told = run(
        tmp_path,
        """
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        print(generate_latest(registry).decode())
        """,
        backend=backend,
    )
    assert 'streamer_events_total{engine="e"} 2.0' in told
    assert 'streamer_events_total{engine="f"} 2.0' in told


def test_importing_streamer_does_not_import_prometheus(backend: str, tmp_path: Path) -> None:
    code = "import sys, streamer; streamer.Engine().match_ids(b'{}'); print('prometheus_client' in sys.modules)"
    assert run(tmp_path, code, backend=backend, processes=False) == "False\n"


def test_mirroring_needs_a_place_to_mirror_to(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with pytest.raises(RuntimeError, match="PROMETHEUS_MULTIPROC_DIR"):
        engine().metrics.mirror()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": 5}, TypeError),
        ({"name": "\ud800"}, ValueError),
        ({"collections": 0}, ValueError),
        ({"collections": True}, TypeError),
        ({"collections": 1.5}, TypeError),
        ({"tenants": "no"}, TypeError),
    ],
)
def test_what_no_scrape_could_tell_is_refused_at_once(
    engine: MakeEngine, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"^(name|collections|tenants)"):
        engine().serve_metrics(0, **arguments)


def test_a_port_that_cannot_be_leaves_nothing_on_the_registry(engine: MakeEngine) -> None:
    e, registry = engine(), CollectorRegistry()
    with pytest.raises(OSError, match=r"cannot listen at 127\.0\.0\.1, port 65536: .*0-65535"):
        e.serve_metrics(65536, registry=registry, name="a")
    e.serve_metrics(0, registry=registry, name="a").close()


def test_an_address_that_cannot_be_is_an_os_error_that_names_it(engine: MakeEngine) -> None:
    with pytest.raises(OSError, match=r"cannot listen at 'nonsense\.\.': neither an IP address nor the name of a host"):
        engine().serve_metrics(0, "nonsense..")


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "a.b.example", "a.b.", "web_1", "x-1"]
)
def test_an_address_is_of_ip_or_a_name(text: str) -> None:
    assert parse_address(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("nonsense..", "neither"),
        (".", "neither"),
        ("a b", "neither"),
        ("-a", "neither"),
        ("a-", "neither"),
        ("a\n", "neither"),
        ("a" * 64, "neither"),
        (".".join(["a" * 49] * 6), "neither"),
        ("bücher.example", "neither"),
        ("256.0.0.1", "no IPv4 address"),
        ("127.1", "no IPv4 address"),
        ("1.2.3.4.5", "no IPv4 address"),
        ("010.0.0.1", "no IPv4 address"),
        ("::g", "no IPv6 address"),
        ("1:2:3", "no IPv6 address"),
        ("127.0.0.1:9464", "without a port"),
        ("localhost:9464", "without a port"),
        ("[::1]:9464", "without brackets"),
        ("http://localhost", "a URL"),
    ],
)
def test_what_is_no_address_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(text)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_ends_has_copied_its_last_counts(backend: str, tmp_path: Path, method: str) -> None:
    """Also one that multiprocessing forks, which runs nothing of `atexit`, and whose mirror was made before it or in it."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, urllib.request
            import streamer

            engine = streamer.Engine()
            mirrors = [engine.metrics.mirror(interval=60)]

            def work(name):
                mirrors.append(engine.metrics.mirror(interval=60, name=name))
                for _ in range(10):
                    engine.match_ids(b"{}")

            if __name__ == "__main__":
                context = multiprocessing.get_context(sys.argv[1])
                child = context.Process(target=work, args=("more",))
                child.start()
                child.join()
                with engine.serve_metrics(0) as server:
                    print(urllib.request.urlopen(server.url).read().decode())
            """
        )
    )
    files = tmp_path / "files"
    files.mkdir()
    variables = {**os.environ, "STREAMER_BACKEND": backend, "PROMETHEUS_MULTIPROC_DIR": str(files)}
    found = subprocess.run(
        [sys.executable, str(script), method], capture_output=True, text=True, timeout=60, env=variables, check=False
    )
    assert found.returncode == 0, found.stderr
    assert 'streamer_events_total{engine="1"} 10.0' in found.stdout.splitlines()
    assert 'streamer_events_total{engine="more"} 10.0' in found.stdout.splitlines()
