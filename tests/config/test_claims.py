"""What sections claim of files, ports, slots, groups and topics: two that do not go together are refused."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

from streamer import BulkConfigError, Config
from streamer.config.loader import kinds_of
from streamer.config.schema.claims import OWNS, READS, Claim, File, Files, KafkaTopics, Placed, Port, conflicts
from streamer.config.schema.connectors.file import FileSink, FileSource
from streamer.config.schema.service import Service
from streamer.config.schema.sinks import Sink
from streamer.config.schema.values import File as Path_

KINDS = [kind for name in ("sources", "sinks") for kind in kinds_of(Config.model_fields[name]).values()]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_source_and_sink_says_what_it_claims(kind: type[Any]) -> None:
    """One that does not cannot be made: what it would write could be what another one reads."""
    assert not inspect.isabstract(kind)


class Silent(Sink):
    """A sink whose author forgot to say what it writes."""

    type: Literal["silent"] = "silent"
    path: Path_


class Empty(Silent):
    """One whose author said that it writes nothing."""

    def claims(self) -> Iterable[Claim]:
        return ()


class Gzip(Silent):
    """One that is written by the guide."""

    def claims(self) -> Iterable[Claim]:
        yield Claim(("path",), OWNS, File(self.path), "{} writes this file")


def test_a_sink_that_says_nothing_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract method"):
        Silent(path=Path("x"))  # type: ignore[abstract]


@pytest.mark.parametrize("kind", [Empty, Gzip])
def test_a_new_sink_cannot_write_what_a_source_reads(kind: type[Silent], tmp_path: Path) -> None:
    source = FileSource(type="file", path=tmp_path / "in.jsonl")
    for name in ("in.jsonl", "in.jsonl.1", "x/../in.jsonl"):
        found = conflicts([*source.placed(("sources", "orders")), *kind(path=tmp_path / name).placed(("sinks", "new"))])
        ((place, reason),) = found
        assert place == ("sinks", "new", "path")
        assert reason.startswith("sources.orders reads ")
    assert not list(conflicts([*source.placed(("sources", "a")), *kind(path=tmp_path / "out").placed(("sinks", "b"))]))


def refused(**sections: Any) -> list[str]:
    try:
        Config.from_dict(sections)
    except BulkConfigError as bulk:
        return [str(error) for error in bulk.errors]
    return []


def file(path: object, **more: Any) -> dict[str, Any]:
    return {"type": "file", "path": str(path), **more}


API, METRICS = {"tokens": {"file": "t"}, "port": 9}, {"enabled": True, "port": 9}
TO_A = {"routes": [{"gateway": "*", "sink": "a"}]}
SECRET = {"type": "webhook", "url": "https://example.com/", "secret": {"file": "secret"}}
KAFKA = {"type": "kafka", "brokers": "a:9092, b:9092"}
TLS = {"tls": True, "ca": "ca.pem", "certificate": "c.pem", "key": "k.pem"}


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"sources": {"a": file("x")}, "sinks": {"b": file("x")}}, "sinks.b.path: sources.a reads this file"),
        ({"sources": {"a": file("x")}, "sinks": {"b": file("./y/../x")}}, "sinks.b.path: sources.a reads this file"),
        ({"sources": {"a": file("x")}, "sinks": {"b": file("x-20261128")}}, "sinks.b.path: sources.a reads files whose names"),
        ({"sinks": {"a": file("x"), "b": file("x")}, **TO_A}, "sinks.b.path: sinks.a writes this file"),
        ({"subscriptions": "x", "sinks": {"b": file("x")}}, "sinks.b.path: subscriptions are read from this file"),
        ({"service": {"watch": "."}, "sinks": {"b": file("x.jsonl")}}, "sinks.b.path: service.watch reads this file"),
        ({"service": {"data_dir": "."}, "sinks": {"b": file("store.db-wal")}}, "sinks.b.path: the store is in this file"),
        ({"sinks": {"b": file("streamer-data/lock")}}, "sinks.b.path: the store is in this file"),
        ({"sinks": {"b": file("streamer-data/engine.versions")}}, "sinks.b.path: a snapshot of the engine is in this file"),
        ({"service": {"data_dir": "."}, "sources": {"b": file("store.db")}}, "sources.b.path: the store is in this file"),
        ({"api": {"tokens": {"file": "t"}}, "sinks": {"b": file("t")}}, "sinks.b.path: this is api.tokens.file"),
        ({"api": {"tokens": {"file": "t"}}, "sources": {"b": file("t")}}, "sources.b.path: this is api.tokens.file"),
        ({"api": {"tls": {"certificate": "c", "key": "k"}}, "sinks": {"b": file("k")}}, "sinks.b.path: this is api.tls.key"),
        ({"delivery": {"gateways": {"ca": "c"}}, "sinks": {"b": file("c")}}, "sinks.b.path: this is delivery.gateways.ca"),
        (
            {"sources": {"a": {**KAFKA, **TLS, "topics": "t"}}, "sinks": {"b": file("ca.pem")}},
            "sinks.b.path: this is sources.a.ca",
        ),
        ({"store": {"dsn": {"file": "d"}}, "sinks": {"b": file("d")}}, "sinks.b.path: this is store.dsn"),
        ({"sinks": {"a": SECRET, "b": file("secret")}, **TO_A}, "sinks.b.path: this is sinks.a.secret[0]"),
        ({"sinks": {"a": file("secret"), "c": SECRET}, **TO_A}, "sinks.c.secret[0]: sinks.a writes this file"),
        (
            {"sources": {"a": {**KAFKA, "topics": "^t"}}, "sinks": {"b": {**KAFKA, "topic": "tt"}}},
            "sinks.b.topic: sources.a reads this topic",
        ),
        (
            {"api": {"tokens": {"file": "t"}, "port": 9}, "metrics": {"enabled": True, "port": 9}},
            "metrics.port: api listens at this port",
        ),
        (
            {"api": {"tokens": {"file": "t"}, "port": 9, "address": "0.0.0.0"}, "metrics": {"enabled": True, "port": 9}},
            "metrics.port: api listens",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_its_place(sections: dict[str, Any], error: str) -> None:
    (told,) = refused(**sections)
    assert told.startswith(error)


@pytest.mark.parametrize(
    "sections",
    [
        {"sources": {"a": file("x"), "b": file("x")}},
        {"sources": {"a": file("in.jsonl")}, "sinks": {"b": file("out.jsonl")}},
        {"sources": {"a": file("d/x")}, "sinks": {"b": file("e/x")}},
        {"sources": {"a": file("x.jsonl")}, "service": {"watch": "."}},
        {"service": {"watch": "."}, "sinks": {"b": file(".x.jsonl")}},
        {"service": {"watch": ".", "data_dir": "."}, "sinks": {"b": file("matches.log")}},
        {
            "sources": {"a": {**KAFKA, **TLS, "topics": "t"}},
            "sinks": {"b": {**KAFKA, **TLS, "topic": "s"}, "c": {**KAFKA, **TLS, "topic": "s"}},
            "routes": [{"gateway": "*", "sink": "b"}],
        },
        {"sources": {"a": {**KAFKA, "topics": "t"}}, "sinks": {"b": {"type": "kafka", "brokers": "c:1", "topic": "t"}}},
        {"api": {"port": 9}, "metrics": {"enabled": True, "port": 9}},
        {"api": {"port": 0, "tokens": {"file": "t"}}, "metrics": {"enabled": True, "port": 0}},
        {"api": {"port": 9, "tokens": {"file": "t"}, "address": "127.0.0.2"}, "metrics": {"enabled": True, "port": 9}},
        {"api": {"tls": {"certificate": "both", "key": "both"}}},
    ],
)
def test_what_goes_together_is_taken(sections: dict[str, Any]) -> None:
    assert refused(**sections) == []


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_is_one_under_all_of_its_names(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    """Also a link among the files of a directory, and one to what is not there yet."""
    (tmp_path / "watched").mkdir()
    (tmp_path / "out").touch()
    link(tmp_path / "out", tmp_path / "watched" / "more.jsonl")
    (watched,) = Service(watch=tmp_path / "watched").watched()[:1]
    assert watched.meets(File(tmp_path / "out"))
    assert File(tmp_path / "out").meets(File(tmp_path / "watched" / "more.jsonl"))
    (tmp_path / "later").symlink_to(tmp_path / "not-yet")
    assert File(tmp_path / "later").meets(File(tmp_path / "not-yet"))
    (tmp_path / "other").symlink_to(tmp_path / "watched")
    assert File(tmp_path / "other" / "a").meets(File(tmp_path / "watched" / "a"))
    assert watched.meets(File(tmp_path / "other" / "a.jsonl"))


def test_standard_output_that_goes_into_the_file_of_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    (tmp_path / "s.yaml").write_text("sources: {a: {type: file, path: in.jsonl}}\n")
    command = (sys.executable, "-m", "streamer", "serve", "-c", "s.yaml", "--check")
    with open(tmp_path / "in.jsonl", "ab") as output:
        ran = subprocess.run(command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    assert ran.returncode == 2
    assert b"sinks.stdout: sources.a reads this file" in ran.stderr
    ran = subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 0, ran.stderr


def test_sets_of_files_meet_if_some_name_is_in_both() -> None:
    here = Path("d")
    assert Files(here, "a").meets(Files(here, "ab"))
    assert Files(here, "a").meets(Files(here, end=".jsonl"))
    assert not Files(here, "a").meets(Files(here, "b"))
    assert not Files(here, end=".gz").meets(Files(here, end=".jsonl"))
    assert not Files(here, "a").meets(Files(Path("e"), "a"))


def test_topics_and_ports_meet_by_what_they_stand_for() -> None:
    brokers = frozenset({"a:1"})
    assert KafkaTopics(brokers, ("^x",)).meets(KafkaTopics(brokers, ("^x",)))
    assert not KafkaTopics(brokers, ("a.b",)).meets(KafkaTopics(brokers, ("axb",)))
    assert Port("localhost", 1).meets(Port("127.0.0.1", 1))
    assert Port("::", 1).meets(Port("10.0.0.1", 1))
    assert not Port("10.0.0.2", 1).meets(Port("10.0.0.1", 1))


def test_a_section_does_not_conflict_with_itself() -> None:
    own = [Placed(("a",), Claim((), access, File(Path("x")), "{}")) for access in (READS, OWNS)]
    assert not list(conflicts(own))
    assert list(conflicts([own[0], Placed(("b",), own[1].claim)])) == [(("b",), "a")]
    assert next(FileSink(type="file", path=Path("x")).placed(("sinks", "b"))).place == ("sinks", "b", "path")
