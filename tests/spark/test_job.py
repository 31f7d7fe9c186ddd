"""The job: what it reads and writes, what it tells, and how it ends, in one process with the tests' session."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from streamer import Engine

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from streamer.spark.job.failures import diagnose
from streamer.spark.job.job import FAILED, app
from streamer.spark.job.places import Address, Format, Place, place, read
from streamer.spark.job.session import TERMINATED
from streamer.spark.job.stages import Stages
from streamer.spark.versions import publish
from streamer.terminal import INTERRUPTED, OK, SOME_BAD, USAGE

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

SUBSCRIPTIONS = [
    {
        "id": f"s{number}",
        "gateway_id": f"g{number % 3}",
        "collection": ("orders", "users")[number % 2],
        "filters": [{"field": "n", "op": "==", "value": number}],
    }
    for number in range(40)
]


def events(count: int = 400) -> list[bytes]:
    random = Random(7)
    made = []
    for number in range(count):
        collection = random.choices(["orders", "users", "nobody's"], [90, 8, 2])[0]
        event = {"id": f"e{number}", "collection": collection, "type": "insert", "data": {"n": random.randrange(40)}}
        made.append(json.dumps(event).encode())
    return made


def expected(lines: list[bytes]) -> Counter[tuple[str, str]]:
    engine = Engine()
    engine.add_many(SUBSCRIPTIONS)
    return Counter((json.loads(line)["id"], match.subscription_id) for line in lines for match in engine.match(line))


def pairs(frame: DataFrame) -> Counter[tuple[str, str]]:
    return Counter((row["event_id"], row["subscription_id"]) for row in frame.collect())


PATHS = ("--events", "-s", "--out", "--metrics-file", "--report", "--checkpoint")


def run(folder: Path, *arguments: str) -> Any:
    """Run the job on names in a folder: the JVM has a working directory of its own."""
    words = list(arguments)
    for index, word in enumerate(words[:-1]):
        if word in PATHS and ":" not in words[index + 1]:
            words[index + 1] = str(folder / words[index + 1])
    return CliRunner().invoke(app, words)


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with events, some of them bad, and subscriptions."""
    monkeypatch.chdir(tmp_path)
    bad = [b'{"collection": "or\xff"}', b"{", b"", b"  "]
    Path("events.jsonl").write_bytes(b"\n".join([*events(), *bad]))
    Path("subscriptions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in SUBSCRIPTIONS))
    return tmp_path


def test_json_lines_become_matches_rejected_events_and_an_account(files: Path, spark: SparkSession) -> None:
    done = run(
        files,
        "--events",
        "events.jsonl",
        "-s",
        "subscriptions.jsonl",
        "--out",
        "out",
        "--metrics-file",
        "job.prom",
        "--report",
        "job.json",
    )
    assert done.exit_code == SOME_BAD, done.output
    assert done.stdout == ""
    output = spark.read.parquet(str(files / "out"))
    assert pairs(output) == expected(events())
    bad = {row["code"]: bytes(row["event"]) for row in spark.read.parquet(str(files / "out.rejected")).collect()}
    assert bad == {"bad_utf8": b'{"collection": "or\xff"}', "malformed_json": b"{"}

    message = re.search(r"(\d+) events, ([\d,]+) matches, 2 rejected events", done.stderr)
    assert message is not None
    assert (int(message[1]), int(message[2].replace(",", ""))) == (402, output.count())
    samples = dict(line.rsplit(" ", 1) for line in Path("job.prom").read_text().splitlines() if not line.startswith("#"))
    by_collection = Counter(json.loads(line)["collection"] for line in events())
    for collection, count in by_collection.items():
        assert float(samples[f'streamer_spark_events_total{{collection="{collection}"}}']) == count
    assert float(samples['streamer_spark_events_rejected_total{code="bad_utf8"}']) == 1
    assert (
        sum(float(value) for name, value in samples.items() if name.startswith("streamer_spark_matches_total")) == output.count()
    )
    report = json.loads(Path("job.json").read_text())
    assert (report["exit_code"], report["events"], report["matches"]) == (SOME_BAD, 402, output.count())
    assert report["codes"] == {"bad_utf8": 1, "malformed_json": 1}
    assert {part["collection"]: part["events"] for part in report["collections"]} == {**by_collection, None: 2}
    assert report["skew"] == max(by_collection.values()) * len(by_collection) / by_collection.total()
    assert report["strategy"].startswith("broadcast: ")
    matching = [stage for stage in report["stages"] if stage["phase"] == "matching"]
    assert matching[0]["records"] == sum(task["records"] for task in matching[0]["readers"]) > 0
    assert 0 < matching[0]["durations"]["max"] <= report["seconds"]


def test_events_without_a_change_are_counted_and_a_misfit_layout_is_reported(files: Path, spark: SparkSession) -> None:
    changes = [b'{"op": "c", "after": {"n": %d}, "source": {"table": "orders"}}' % number for number in range(10)]
    Path("debezium.jsonl").write_bytes(b"\n".join([*changes, b"null", b'{"op": "t"}', b'{"ts_ms": 1}']))
    says = "the events have no collection, type or document at the layout's places; --format debezium would fit\n"
    common = ["--events", "debezium.jsonl", "-s", "subscriptions.jsonl"]
    done = run(files, *common, "--out", "wrong")
    assert (done.exit_code, says in done.stderr) == (OK, True), done.stderr
    for strategy in ("broadcast", "cogroup"):
        done = run(
            files, *common, "--out", strategy, "--strategy", strategy, "--format", "debezium", "--metrics-file", "job.prom"
        )
        assert (done.exit_code, says in done.stderr) == (OK, False), done.stderr
        assert "13 events, 5 matches, 0 rejected events; 3 ignored; " in done.stderr
        assert "streamer_spark_events_ignored_total 3.0" in Path("job.prom").read_text()
        assert not Path(f"{strategy}.rejected").exists()


def test_parquet_snapshots_gateways_and_carried_columns(files: Path, spark: SparkSession) -> None:
    rows = [(number, line.decode()) for number, line in enumerate(events())]
    spark.createDataFrame(rows, "place int, change string").repartition(3).write.parquet(str(files / "events.parquet"))
    engine = Engine()
    engine.add_many(SUBSCRIPTIONS)
    engine.save("subscriptions.snapshot")
    common = ["--events", "events.parquet", "-s", "subscriptions.snapshot", "--out", "out", "--by-gateway", "-q"]
    common += ["--event-col", "change", "--keep", "place", "--keep-event"]
    done = run(files, *common)
    assert (done.exit_code, done.output) == (OK, "")
    output = spark.read.parquet(str(files / "out"))
    assert pairs(output) == expected(events())
    assert sorted(each.name for each in Path("out").iterdir() if each.is_dir()) == [
        f"gateway_id=g{number}" for number in range(3)
    ]
    assert output.where("get_json_object(event, '$.id') != concat('e', place)").count() == 0
    assert not Path("out.rejected").exists()

    again = run(files, *common)
    assert again.exit_code == USAGE
    assert again.stderr == f"streamer: {files / 'out'} exists already; --overwrite replaces it\n"
    assert run(files, *common, "--overwrite", "--strategy", "cogroup").exit_code == OK
    assert pairs(spark.read.parquet(str(files / "out"))) == expected(events())


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_options_of_the_sink_hold_for_matches_and_rejected_events(files: Path, stream: bool) -> None:
    Path("events").mkdir()
    Path("events.jsonl").rename("events/1.jsonl")
    arguments = ["--events", "events", "-s", "subscriptions.jsonl", "--out", "out", "--out-option", "compression=gzip"]
    more = ["--stream", "--checkpoint", "checkpoint", "--trigger", "available-now"] if stream else []
    done = run(files, *arguments, *more)
    assert done.exit_code == SOME_BAD, done.output
    for out in ("out", "out.rejected"):
        written = [path.name for path in Path(out).rglob("part-*")]
        assert {name.endswith(".gz.parquet") for name in written} == {True}, written


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_in_json_the_event_of_a_match_is_text_and_a_rejected_one_base64(files: Path, spark: SparkSession, stream: bool) -> None:
    Path("events").mkdir()
    Path("events.jsonl").rename("events/1.jsonl")
    arguments = ["--events", "events", "-s", "subscriptions.jsonl", "--out", "out", "--out-format", "jsonl", "--keep-event"]
    more = ["--stream", "--checkpoint", "checkpoint", "--trigger", "available-now"] if stream else []
    done = run(files, *arguments, *more)
    assert done.exit_code == SOME_BAD, done.output
    output = spark.read.json(str(files / "out")).collect()
    assert len(output) == expected(events()).total()
    assert all(json.loads(row["event"])["id"] == row["event_id"] for row in output)
    bad = {base64.b64decode(row["event"]) for row in spark.read.json(str(files / "out.rejected")).collect()}
    assert bad == {b'{"collection": "or\xff"}', b"{"}


def test_a_stream_takes_what_is_there_and_goes_on_with_what_comes(files: Path, spark: SparkSession) -> None:
    Path("events").mkdir()
    engine = Engine()
    engine.add_many(SUBSCRIPTIONS[:20])
    publish(engine, "subscriptions")
    arguments = ["--events", "events", "--events-format", "jsonl", "-s", "subscriptions", "--out", "out", "--out-format", "jsonl"]
    arguments += ["--stream", "--checkpoint", "checkpoint", "--trigger", "available-now", "--by-gateway", "--report", "job.json"]
    lines = events()
    Path("events/1.jsonl").write_bytes(b"\n".join(lines[:200]))
    first = run(files, *arguments)
    assert first.exit_code == OK, first.output
    assert re.search(r"^batch 0: 200 events, [\d,]+ matches, .*, subscriptions [0-9a-f]{12}$", first.stderr, re.M)
    engine.add_many(SUBSCRIPTIONS[20:])
    publish(engine, "subscriptions")
    Path("events/2.jsonl").write_bytes(b"\n".join([*lines[200:], b"{"]))
    second = run(files, *arguments)
    assert second.exit_code == SOME_BAD, second.output
    wanted = expected(lines)
    early = {f"s{number}" for number in range(20)}
    wanted = Counter({pair: n for pair, n in wanted.items() if int(pair[0][1:]) >= 200 or pair[1] in early})
    assert pairs(spark.read.json(str(files / "out"))) == wanted
    assert spark.read.json(str(files / "out.rejected")).count() == 1
    report = json.loads(Path("job.json").read_text())
    assert (report["batch_count"], report["stages"], report["events"]) == (1, [], len(lines) - 199)
    assert [(batch["id"], batch["version"]) for batch in report["batches"]] == [(1, report["snapshot"])]


@pytest.mark.parametrize("stream", [(), ("--stream", "--checkpoint", "checkpoint")], ids=["batch", "stream"])
def test_subscriptions_are_looked_at_before_spark_is_started(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: tuple[str, ...]
) -> None:
    """Which takes twenty seconds on a small machine."""

    def started(*_: Any) -> Any:
        pytest.fail("Spark was started")

    monkeypatch.setattr("streamer.spark.job.job.session", started)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(events(3)))
    (tmp_path / "bad.jsonl").write_text('{"id": "a"}\n{"id": "b", "collection": 7}\n')
    engine = Engine()
    engine.add_many(SUBSCRIPTIONS)
    engine.save(tmp_path / "good.snapshot")
    (tmp_path / "cut.snapshot").write_bytes((tmp_path / "good.snapshot").read_bytes()[:-1])
    for name, message in (
        ("nothing.jsonl", "nothing.jsonl: no such file or directory"),
        ("nothing.snapshot", "nothing.snapshot: no such file or directory"),
        (f"file://{tmp_path}/nothing", "nothing: no such file or directory"),
        ("bad.jsonl", "bad.jsonl:2: subscription 'b': collection: expected a string"),
        ("cut.snapshot", "cut.snapshot: header: damaged: the file is cut off"),
        (f"file://{tmp_path}/cut.snapshot", "cut.snapshot: header: damaged: the file is cut off"),
    ):
        done = run(tmp_path, "--events", "events.jsonl", "-s", name, "--out", "out", *stream)
        assert (done.exit_code, message in done.stderr) == (USAGE, True), done.stderr


def test_what_a_user_gets_wrong_is_one_sentence(files: Path) -> None:
    options = {"--events": "events.jsonl", "-s": "subscriptions.jsonl", "--out": "out"}
    Path("bad.jsonl").write_text('{"id": "a"}\n{"id": "a", "filters": [{"field": "n", "op": "~"}]}\n')
    Path("half.snapshot").write_bytes(b"\x89STRM\r\n\x1a")
    Path("unknown").mkdir()
    Path("a.parquet").write_bytes(b"no parquet")
    cases: list[tuple[dict[str, str], tuple[str, ...], str]] = [
        ({"--events": "nowhere.jsonl"}, (), "nowhere.jsonl"),
        ({"--events": "nope"}, (), "nope: no such file or directory"),
        ({"--events": "unknown"}, (), "its name does not show its format"),
        ({"--events": "a.parquet"}, (), "a.parquet"),
        ({"--events": "kafka://broker"}, (), "expected kafka://BROKER"),
        ({"-s": "nowhere.snapshot"}, (), "nowhere.snapshot"),
        ({"-s": "bad.jsonl"}, (), "filters[0].op"),
        ({"-s": "half.snapshot"}, (), "cut off"),
        ({"--out": "events.jsonl"}, (), "the same place"),
        ({"--out": "foo://nowhere/out"}, (), 'No FileSystem for scheme "foo"'),
        ({"--out": "half.snapshot/out"}, (), "half.snapshot cannot be written: Not a directory"),
        ({}, ("--metrics-port", "99999"), "Invalid value for '--metrics-port'"),
        ({}, ("--batch-size", str(10**20)), "Invalid value for '--batch-size'"),
        ({}, ("--stream",), "--checkpoint"),
        ({}, ("--trigger", "1 second"), "are for --stream"),
        ({}, ("--stream", "--checkpoint", "c", "--trigger", "now and then"), "now and then"),
        ({}, ("--keep", "number"), "there is no column 'number'"),
        ({}, ("--format", "nothing"), "nothing"),
        ({}, ("--option", "x"), "NAME=VALUE"),
        ({}, ("--out-option", "x"), "--out-option x: expected NAME=VALUE"),
        ({}, ("--report", "job.html"), "job.html: the report is JSON: choose a name such as report.json"),
        ({}, ("--title", "flights"), "No such option: --title"),
        ({}, ("--metrics-file", "no/such/folder/job.prom"), "no/such/folder"),
    ]
    for changed, more, what in cases:
        done = run(files, *[part for pair in {**options, **changed}.items() for part in pair], *more)
        assert done.exit_code == USAGE, (changed, more, done.output)
        assert what in done.stderr, (changed, more, done.stderr)
        assert "Traceback" not in done.stderr
        assert "at org.apache" not in done.stderr
        assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_ends_a_stream_in_order(number: signal.Signals, code: int, files: Path) -> None:
    Path("events").mkdir()
    Path("events.jsonl").rename("events/1.jsonl")
    places = {"--events": "events", "-s": "subscriptions.jsonl", "--out": "out", "--checkpoint": "checkpoint"}
    command = [sys.executable, "-m", "streamer.spark.job", "--stream", "--master", "local[1]", "--metrics-file", "job.prom"]
    command += [word for name, where in places.items() for word in (name, str(files / where))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        assert running.stderr is not None
        try:
            # Java says something of its own before.
            first = next(line for line in running.stderr if not line.startswith(("NOTE: ", "WARNING: ")))
            os.killpg(running.pid, number) if number == signal.SIGINT else running.send_signal(number)
            message = first + running.communicate(timeout=120)[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert first.startswith("batch 0: 402 events"), message
    assert running.returncode == code, message
    assert message.splitlines()[1].startswith("interrupted: 402 events"), message
    assert message.count("\n") == 2, message
    assert 'streamer_spark_events_rejected_total{code="bad_utf8"} 1.0' in Path("job.prom").read_text()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"--events": "days", "-o": "./days"}, "--out ./days and --events days are the same place"),
        ({"--events": "days/1.jsonl", "-o": "days"}, "--out days and --events days/1.jsonl overlap: the first holds the second"),
        ({"--events": "days", "-o": "days/out"}, "the first lies in the second"),
        ({"--events": "days/*.jsonl", "-o": "days"}, "the first holds the second"),
        ({"--events": "day[a-z]/{1,2}.jsonl", "-o": "days"}, "the first holds the second"),
        ({"--events": "{days/1,nights/2}.jsonl", "-o": "days"}, "--out days and --events {days/1,nights/2}.jsonl"),
        ({"--events": "linked.jsonl*", "-o": "days"}, "--out days and --events linked.jsonl*"),
        ({"--events": "days", "-o": "link"}, "--out link and --events days are the same place"),
        ({"--events": "days", "-o": "file:HERE/nights/../days/"}, "are the same place"),
        ({"--events": "file:///HERE/days", "-o": "days"}, "are the same place"),
        ({"-s": "subs/s.jsonl", "-o": "subs"}, "--out subs and --subscriptions subs/s.jsonl overlap"),
        ({"-s": "subs", "--rejected": "subs/bad"}, "--rejected subs/bad and --subscriptions subs overlap"),
        ({"--rejected": "out/bad"}, "--rejected out/bad and --out out overlap"),
        ({"--report": "days/report.json"}, "--report days/report.json and --events days overlap"),
        ({"--metrics-file": "report.json", "--report": "./report.json"}, "--report ./report.json and --metrics-file report.json"),
        ({"--layout": "subs/layout.json", "-o": "subs", "-s": "s.snapshot"}, "--out subs and --layout subs/layout.json"),
        ({"--events": "s3a://Bucket/a/b", "-o": "s3://bucket/a//x/../"}, "the first holds the second"),
        ({"--events": "hdfs:///a", "-o": "hdfs://name:8020/a"}, "are the same place"),
        ({"--events": "kafka://a:9092/x", "-o": "kafka://a:9092/x"}, "are the same place"),
    ],
)
def test_what_is_read_is_never_what_is_written(
    changed: dict[str, str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("days", "nights", "subs"):
        Path(folder).mkdir()
    for file in ("days/1.jsonl", "subs/s.jsonl"):
        Path(file).touch()
    Path("subs/layout.json").write_text("{}")
    Path("link").symlink_to("days")
    Path("linked.jsonl").symlink_to("days/1.jsonl")
    options = {"--events": "days", "-s": "s.jsonl", "-o": "out", **changed}
    words = [word.replace("HERE", str(tmp_path)) for pair in options.items() for word in pair]
    done = CliRunner().invoke(app, [*words, "--overwrite"])
    assert done.exit_code == USAGE, done.output
    assert what in done.stderr
    # Spark never started.
    assert done.stderr.count("\n") == 1
    assert sorted(each.name for each in tmp_path.rglob("*.json*")) == ["1.jsonl", "layout.json", "linked.jsonl", "s.jsonl"]


def test_places_side_by_side_are_apart() -> None:
    for source, target in [
        ("days/*.jsonl", "days/matches"),
        ("days", "days.rejected"),
        ("s3a://a/x", "s3a://b/x"),
        ("s3a://a/x", "/x"),
        ("days/{1,2}.jsonl", "days/3"),
        ("kafka://a/x", "kafka://a/y"),
    ]:
        assert not any(Address.of(target).overlap(each) for each in Address.all_of(source)), (source, target)


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_bad_subscriptions_are_reported_line_by_line(strategy: str, files: Path) -> None:
    good = json.dumps(SUBSCRIPTIONS[0])
    bad = [json.dumps({**SUBSCRIPTIONS[0], "id": f"bad{number}", "filters": 1}) for number in range(30)]
    Path("bad.jsonl").write_text("\n".join([good, "", *bad]))
    done = run(files, "--events", "events.jsonl", "-s", "bad.jsonl", "--out", "out", "--strategy", strategy)
    assert done.exit_code == USAGE
    first, *lines = done.stderr[done.stderr.index("streamer: ") :].splitlines()
    assert first == "streamer: bad subscriptions, so no event was matched:"
    assert lines[20:] == ["and 10 more"]
    assert any(line.startswith(f"{files / 'bad.jsonl'}:3: subscription 'bad0': filters: ") for line in lines), done.stderr
    assert "\\n" not in done.stderr


def test_a_stream_without_a_good_snapshot_says_so_without_stack_traces(files: Path) -> None:
    Path("events").mkdir()
    Path("events.jsonl").rename("events/1.jsonl")
    Path("versions").mkdir()
    Path("versions/1.snapshot").write_bytes(b"no snapshot")
    arguments = ["--events", "events", "-s", "versions", "--out", "out", "--checkpoint", "checkpoint"]
    done = run(files, *arguments, "--stream", "--trigger", "available-now")
    assert done.exit_code == USAGE
    assert re.search(r"^streamer: .*1\.snapshot", done.stderr, re.M), done.stderr
    assert "Traceback" not in done.stderr
    assert "py4j" not in done.stderr


def test_the_help_keeps_what_is_in_brackets() -> None:
    message = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).output
    for default in ("OUT.rejected", "by name, else parquet", "what runs here", "that of the snapshot, or by their matches"):
        assert f"[default: {default}]" in message


def test_the_median_of_two_tasks_lies_between_them(spark: SparkSession) -> None:
    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(batch.column(0)[0].as_py())
            yield batch

    stages = Stages(spark, time.time())
    with stages.phase("matching"):
        spark.range(0, 2, 1, 2).mapInArrow(slow, "id bigint").collect()
    (stage,) = stages.ran()
    durations = stage.durations
    assert durations["max"] - durations["min"] > 0.3
    assert durations["median"] == pytest.approx((durations["min"] + durations["max"]) / 2)


def test_the_stages_of_a_phase_account_for_the_rows_that_they_read(files: Path, spark: SparkSession) -> None:
    Path("many.jsonl").write_bytes(b"\n".join(events(5_000)))
    stages = Stages(spark, time.time())
    spark.range(3).collect()
    with stages.phase("matching"):
        spark.read.text(str(files / "many.jsonl")).repartition(2).write.format("noop").mode("overwrite").save()
    spark.range(3).collect()
    ran = stages.ran()
    assert {stage.phase for stage in ran} == {"matching"}
    assert sum(task.records for stage in ran for task in stage.readers) == sum(stage.records for stage in ran) == 5_000
    assert sum(stage.shuffled_records for stage in ran) == 5_000


def test_a_bad_event_ends_the_job_with_on_error_fail(files: Path) -> None:
    done = run(files, "--events", "events.jsonl", "-s", "subscriptions.jsonl", "--out", "out", "--on-error", "fail")
    assert done.exit_code == SOME_BAD
    assert re.search(r"^streamer: (malformed_json|bad_utf8) at byte \d+: ", done.stderr, re.M), done.stderr
    assert "Traceback" not in done.stderr


def test_kafka_without_its_connector_says_how_to_get_it(files: Path) -> None:
    done = run(files, "--events", "kafka://localhost:9/topic", "-s", "subscriptions.jsonl", "--out", "out")
    assert done.exit_code == USAGE
    assert "spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:" in done.stderr
    sent = run(files, "--events", "events.jsonl", "-s", "subscriptions.jsonl", "--out", "kafka://localhost:9/topic")
    assert sent.exit_code == USAGE
    assert "spark-submit --packages" in sent.stderr


def test_the_kind_of_a_place_follows_from_its_name(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "1.jsonl.gz").touch()
    (tmp_path / "days" / "_SUCCESS").touch()
    names = {
        "a.parquet": Format.parquet,
        "s3a://bucket/a.JSONL.zst": Format.jsonl,
        "a.ndjson": Format.jsonl,
        str(tmp_path / "days"): Format.jsonl,
        "kafka://a:9092,b:9092/topic": Format.kafka,
        "a.csv": None,
    }
    assert {name: place(name).format for name in names} == names
    assert place("kafka://a:9092,b:9092/topic").kafka == ("a:9092,b:9092", "topic")


def test_lines_keep_their_bytes_and_blank_ones_are_none(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [b'{"a": "\xff\xfe"}', b"\t \r", b"", b'{"b": 1}\r', b" " * 100, b"\xc2\xa0"]
    path.write_bytes(b"\n".join(lines))
    output = [bytes(row["value"]) for row in read(spark, Place(str(path), Format.jsonl), stream=False).collect()]
    assert [each for each in output if each.strip()] == [lines[0], lines[3], lines[5]]
    assert b"" not in output


def test_spark_s_errors_are_put_in_a_sentence() -> None:
    worker = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n  File ...\n"
    assert diagnose(RuntimeError(f"{worker}streamer.errors.EventError: malformed_json at byte 3: no value\n")) == (
        "event",
        "malformed_json at byte 3: no value",
    )
    assert diagnose(RuntimeError(f"{worker}ZeroDivisionError: division by zero\n SQLSTATE: 38000"))[0] == "spark"
    java = "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n\tat org.A.b(C.scala:1)\n"
    assert diagnose(RuntimeError(f"{java}Caused by: java.io.IOException: No space left on device\n\tat ...")) == (
        "spark",
        "IOException: No space left on device",
    )
    assert diagnose(RuntimeError("[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03")) == (
        "user",
        "Path does not exist: file:/a.",
    )
    kafka = f"{java}Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host it.\n"
    assert diagnose(RuntimeError(kafka), ["kafka://a/b"]) == ("user", "kafka://a/b: Kafka has no such topic")
    assert diagnose(RuntimeError(kafka))[0] == "spark"
    assert (
        diagnose(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."))[0] == "user"
    )
    assert FAILED not in (OK, SOME_BAD, USAGE)
