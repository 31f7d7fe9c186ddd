"""Sections under names that the user chose: their type chooses the fields, and all of the room knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer import BulkConfigError, Config
from streamer.config.loader import fields_of, show_place
from streamer.config.schema.connectors.file import FileSink, FileSource
from streamer.config.schema.connectors.kafka import KafkaSource
from streamer.config.schema.connectors.stdio import StdinSource
from streamer.config.schema.encoded import Format, Registry
from streamer.config.schema.service import Route
from streamer.config.secret import SecretValue
from streamer.config.show import show, table
from streamer.engine.reload import changes, check
from tests.config.loading import load, wrong

TEXT = """\
sources:
  orders: {type: file, path: in.jsonl, follow: no}
  more: {type: stdin, format: wal2json}
sinks:
  out: {type: file, path: /m.jsonl}
  screen: {type: stdout, event: none}
routes:
  - {gateway: billing, sink: screen}
  - {gateway: "*", sink: out}
service: {data_dir: data}
"""


def test_the_type_chooses_the_fields_and_paths_follow_the_file() -> None:
    config = load(TEXT).config
    assert config.sources == {
        "orders": FileSource(type="file", path=Path("/etc/streamer/in.jsonl"), follow=False),
        "more": StdinSource(type="stdin", format="wal2json"),
    }
    assert config.sinks["out"] == FileSink(type="file", path=Path("/m.jsonl"))
    assert config.routes == (Route(gateway="billing", sink="screen"), Route(gateway="*", sink="out"))
    assert config.service.data_dir == Path("/etc/streamer/data")
    assert Config().service.data_dir is None


def test_nothing_under_a_name_of_sections_is_none() -> None:
    assert load("sources:\nsinks:\nroutes:\n").config == Config()


def test_every_error_says_where_it_stands() -> None:
    assert wrong(
        """\
sources:
  a: {type: kafak}
  b: {path: x}
  c: {type: file, pth: x}
  d: {type: stdin, path: x}
  e: 5
  F: {type: stdin}
  g: {type: file, path: x, poll: 5}
sinks: [1]
routes:
  - {gateway: x, snk: y}
"""
    ) == [
        "s.yaml:2:13: sources.a.type: expected 'file' or 'stdin' or 'postgres' or 'kafka', not 'kafak'; did you mean 'kafka'?",
        "s.yaml:3:6: sources.b: expected a type, and there is none",
        "s.yaml:4:6: sources.c.path: expected a value, and there is none",
        "s.yaml:4:19: sources.c.pth: unknown name; did you mean 'path'?",
        "s.yaml:5:20: sources.d.path: unknown name; a section with another 'type' has 'path'",
        "s.yaml:6:6: sources.e: expected names and values, not 5",
        "s.yaml:7:3: sources.F: expected a name of lower-case letters and digits, with single underscores between them, such as "
        "orders_eu",
        "s.yaml:8:34: sources.g.poll: expected a duration such as 24h, 1h30m, 100ms or PT15M (units: w, d, h, m, s, ms, us); "
        "5 has no unit",
        "s.yaml:9:8: sinks: expected names and values, not a list",
        "s.yaml:11:5: routes[0].sink: expected a value, and there is none",
        "s.yaml:11:18: routes[0].snk: unknown name; did you mean 'sink'?",
    ]


def test_parts_that_do_not_fit_are_said_where_they_stand() -> None:
    assert wrong("sinks: {a: {type: stdout}}\nroutes: [{gateway: x, sink: b}]\n") == [
        "s.yaml:2:29: routes[0].sink: unknown sink 'b'; there are: a"
    ]
    assert wrong("sinks:\n  a: {type: stdout}\n  b: {type: file, path: /x}\n") == [
        "s.yaml:1:1: routes: expected which sink gets what, as there are 2: a, b"
    ]
    assert wrong("sources: {a: {type: file, path: x}}\nsinks: {b: {type: file, path: x}}\n") == [
        "s.yaml:2:31: sinks.b.path: sources.a reads this file"
    ]
    assert wrong("sources: {a: {type: stdin}, b: {type: stdin}}\n") == [
        "s.yaml:1:39: sources.b.type: only one of the sources can be stdin"
    ]


def test_a_variable_is_laid_over_a_section_with_a_name() -> None:
    environment = {
        "STREAMER_SOURCES__ORDERS__PATH": "/other.jsonl",
        "STREAMER_SOURCES__ORDERS__FOLLOW": "true",
        "STREAMER_SINKS__LAST": "{type: file, path: /last.jsonl}",
        "STREAMER_ROUTES": "[{gateway: '*', sink: last}]",
        "STREAMER_SERVICE__DATA_DIR": "/data",
    }
    loaded = load(TEXT, environment)
    assert loaded.config.sources["orders"] == FileSource(type="file", path=Path("/other.jsonl"), follow=True)
    assert loaded.config.sinks["last"] == FileSink(type="file", path=Path("/last.jsonl"))
    assert loaded.config.routes == (Route(gateway="*", sink="last"),)
    origins = {show_place(place): str(loaded.origin(place)) for place in fields_of(loaded.config)}
    assert origins["sources.orders.path"] == "STREAMER_SOURCES__ORDERS__PATH"
    assert origins["sources.orders.type"] == "s.yaml:2:18"
    assert origins["sinks.last.path"] == "STREAMER_SINKS__LAST"
    assert origins["routes"] == "STREAMER_ROUTES"
    assert load("", {"STREAMER_SOURCES": "{a: {type: stdin}}"}).config.sources == {"a": StdinSource(type="stdin")}


def test_a_variable_of_a_section_that_is_wrong_is_named() -> None:
    assert wrong(TEXT, {"STREAMER_SOURCES__ORDERS__POLL": "5"}) == [
        "STREAMER_SOURCES__ORDERS__POLL: sources.orders.poll: expected a duration such as 24h, 1h30m, 100ms or PT15M "
        "(units: w, d, h, m, s, ms, us), not '5'; it has no unit"
    ]
    (error,) = wrong(TEXT, {"STREAMER_SOURCES__ORDERS__PTH": "5"})
    assert error.startswith("STREAMER_SOURCES__ORDERS__PTH: unknown variable")


HOOK = "{type: webhook, url: 'https://example.com/hook', secret: {file: hook.secret}}"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", "expected https://…, or allow_http: true"),
        ("https://example.com:8443/", "port 8443 is none of `ports`: 443"),
        ("https://user:hunter2@example.com/", "a user or a password in a URL is not sent"),
        ("https://hunter2@example.com/", "a user or a password in a URL is not sent"),
        ("https://example.com/#hunter2", "a fragment, from # on, is never sent"),
        ("https:///hunter2", "expected https://HOST…"),
        ("https://[hunter2/", "no URL"),
        ("https://example.com:hunter2/", "no URL"),
        ("https://example.com:0/", "expected a port from 1 to 65,535"),
        ("https://exämple.com/hunter2", "expected ASCII without spaces"),
        ("gopher://example.com/hunter2", "expected https://HOST…"),
    ],
)
def test_a_url_that_is_not_posted_to_is_said_without_it(url: str, reason: str) -> None:
    (error,) = wrong(f"sinks: {{hooks: {{type: webhook, url: '{url}'}}}}\n")
    assert error.startswith(f"s.yaml:1:37: sinks.hooks.url: {reason}")
    assert "hunter2" not in error


def test_what_else_is_wrong_of_a_webhook_is_said_at_its_place() -> None:
    (error,) = wrong("sinks: {a: {type: webhook, url: 'https://example.com/', secret: whsec_hunter2}}\n")
    assert "sinks.a.secret" in error
    assert "hunter2" not in error
    (error,) = wrong("sinks: {a: {type: webhook, url: 'https://example.com/', networks: [10.0.0.1/8]}}\n")
    assert "sinks.a.networks[0]: expected a network such as 10.0.0.0/8" in error
    (error,) = wrong("sinks: {a: {type: stdout}}\ndelivery: {dead_letter: b}\n")
    assert error == "s.yaml:2:25: delivery.dead_letter: unknown sink 'b'; there are: a"


def test_the_file_of_a_secret_is_relative_to_the_configuration_and_shown_as_a_place() -> None:
    loaded = load(f"sinks: {{hooks: {HOOK}}}\n")
    (secret,) = loaded.config.sinks["hooks"].secret  # type: ignore[union-attr]
    assert secret == SecretValue("file", "/etc/streamer/hook.secret")
    assert load(show(loaded)).config == loaded.config
    two = load("sinks: {a: {type: webhook, url: 'https://example.com', secret: [{file: x}, {env: Y}], ca: z}}\n").config.sinks[
        "a"
    ]
    assert two.secret == (SecretValue("file", "/etc/streamer/x"), SecretValue("env", "Y"))  # type: ignore[union-attr]
    assert two.ca == Path("/etc/streamer/z")  # type: ignore[union-attr]


def test_every_path_is_relative_to_the_configuration() -> None:
    """As the schema has them: a new one cannot be forgotten."""
    config = load(
        "subscriptions: s.jsonl\nservice: {data_dir: d, watch: w}\nstore: {dsn: {file: dsn}}\n"
        "api: {tokens: {file: t.json}, tls: {certificate: c.pem, key: k.pem}}\n"
        "delivery: {gateways: {ca: ca.pem}}\n"
    ).config
    here = Path("/etc/streamer")
    assert config.subscriptions == (here / "s.jsonl",)
    assert (config.service.data_dir, config.service.watch) == (here / "d", here / "w")
    assert config.store.dsn == SecretValue("file", "/etc/streamer/dsn")
    assert config.api.tokens.file == here / "t.json"
    assert (config.api.tls.certificate, config.api.tls.key) == (here / "c.pem", here / "k.pem")
    assert config.delivery.gateways.ca == here / "ca.pem"
    # A variable is no part of the file.
    other = load("service: {data_dir: d}\n", {"STREAMER_SERVICE__WATCH": "w"}).config
    assert other.service.watch == Path("w")


def test_what_is_shown_tells_each_origin_and_is_loaded_again() -> None:
    loaded = load(TEXT, {"STREAMER_SINKS__OUT__PER": "gateway"})
    text = show(loaded)
    lines = {tuple(line.split("  # ")) for line in map(str.strip, text.splitlines()) if "  # " in line}
    told = {line.strip(): origin for line, origin in lines}
    assert told["path: /etc/streamer/in.jsonl"] == "s.yaml:2:30"
    assert told["per: gateway"] == "STREAMER_SINKS__OUT__PER"
    assert load(text).config == loaded.config
    assert "sources: {}" in show(load(""))


def test_each_kind_has_a_table() -> None:
    text = table()
    for title in ("`sources.NAME`, `type: file`", "`sinks.NAME`, `type: stdout`", "`routes[]`"):
        assert f"### {title}\n" in text
    assert "| `path` | needed | service |" in text


def test_a_change_of_a_section_with_a_name_is_told_by_its_place() -> None:
    old, new = (
        load(TEXT),
        load(TEXT.replace("follow: no", "follow: yes").replace("  more: {type: stdin, format: wal2json}\n", "")),
    )
    assert [show_place(place) for place in changes(old.config, new.config)] == ["sources.orders.follow", "sources.more"]
    with pytest.raises(BulkConfigError, match=r"s.yaml:2:48: sources.orders.follow: cannot change while the engine runs"):
        check(old.config, new)


KAFKA = "type: kafka, brokers: 'a:9092, [::1]:9093'"


def test_a_section_of_kafka() -> None:
    text = (
        f"sources: {{a: {{{KAFKA}, topics: [orders, '^shop\\..*'], tls: true, ca: ca.pem, options: {{fetch.min.bytes: 9}},"
        " sasl: {mechanism: PLAIN, user: u, password: {file: secret}}}}\n"
        "sinks: {b: {type: kafka, brokers: a:9092, topic: matches}}"
    )
    config = load(text).config
    source = config.sources["a"]
    assert isinstance(source, KafkaSource)
    assert (source.brokers, source.topics) == (("a:9092", "[::1]:9093"), ("orders", r"^shop\..*"))
    assert (source.ca, source.sasl.password) == (Path("/etc/streamer/ca.pem"), SecretValue("file", "/etc/streamer/secret"))
    assert load(show(load(text))).config == config


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ("brokers: a", ["brokers[0]: 'a': expected HOST:PORT"]),
        ("brokers: 'a:99999'", ["brokers[0]: 'a:99999': expected HOST:PORT"]),
        ("topics: []", ["topics: expected one, or a list of some"]),
        ("topics: a b", ["topics[0]: 'a b': expected a topic of Kafka: up to 249 letters, digits, '.', '_' and '-'"]),
        ("topics: '^('", ["topics[0]: '^(': no pattern: missing ), unterminated subpattern at position 1"]),
        ("sasl: {user: u}", ["sasl.mechanism: expected together with user", "sasl.password: expected together with user"]),
        ("ca: x", ["ca: expected tls: true with it"]),
        ("tls: true, key: x", ["certificate: expected certificate and key, or none of them"]),
        ("options: {group.id: x}", ["options.group.id: this setting of librdkafka cannot be set here; did you mean"]),
        ("options: {plugin.library.paths: x}", ["options.plugin.library.paths: this setting of librdkafka cannot be set here"]),
        ("options: {linger.ms: 1}", ["options.linger.ms: this setting of librdkafka cannot be set here"]),
    ],
)
def test_what_is_wrong_in_a_section_of_kafka(fields: str, reasons: list[str]) -> None:
    name = fields.partition(":")[0]
    given = ", ".join(each for each in (KAFKA.partition(", ")[0], "brokers: 'a:1'", "topics: t") if not each.startswith(name))
    found = wrong(f"sources: {{a: {{{given}, {fields}}}}}")
    assert [reason in error for error, reason in zip(found, reasons, strict=True)] == [True] * len(reasons), found


def test_sections_of_kafka_that_do_not_go_together() -> None:
    text = (
        "sources: {{a: {{{k}, topics: '^o.*'}}, b: {{{k}, topics: t}}}}\n"
        "sinks: {{c: {{type: kafka, brokers: 'a:9092', topic: orders}}}}"
    )
    first, second = wrong(text.format(k=KAFKA))
    assert "sources.b.group: sources.a is of this group" in first
    assert "sinks.c.topic: sources.a reads this topic" in second


OF_KAFKA = f"sources: {{orders: {{{KAFKA}, topics: t, format: %s}}}}"
REGISTRY = "registry: {url: 'https://r:8081/'}"


def format_of(text: str, **environment: str) -> Format:
    source = load(OF_KAFKA % text, environment).config.sources["orders"]
    assert isinstance(source, KafkaSource)
    return source.format


def test_the_name_of_a_format_is_short_for_its_json() -> None:
    assert format_of("debezium") == format_of("{name: debezium}") == Format(name="debezium", encoding="json")
    assert format_of("null") == Format()
    found = format_of(f"{{name: debezium, encoding: avro, key_encoding: json, {REGISTRY[:-1]}, ca: ca.pem}}}}")
    assert (found.encoding, found.of_keys, found.registry.url) == ("avro", "json", "https://r:8081")
    assert found.registry.ca == Path("/etc/streamer/ca.pem")
    loaded = load(OF_KAFKA % f"{{name: debezium, encoding: protobuf, {REGISTRY}}}")
    assert load(show(loaded)).config == loaded.config


def test_a_variable_says_a_part_of_a_format_whose_name_is_in_the_file() -> None:
    prefix = "STREAMER_SOURCES__ORDERS__FORMAT"
    found = format_of("debezium", **{f"{prefix}__ENCODING": "avro", f"{prefix}__REGISTRY__URL": "http://r"})
    assert found == Format(name="debezium", encoding="avro", registry=Registry(url="http://r"))
    assert format_of("debezium", **{prefix: "mongodb"}) == Format(name="mongodb")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("debezum", "format.name: expected 'json', .* not 'debezum'; did you mean 'debezium'"),
        ("7", "format: expected names and values, not 7"),
        ("{nam: debezium}", "format.nam: unknown name; did you mean 'name'"),
        (
            "{encoding: avr}",
            "format.encoding: expected 'json', .* not 'avr'; did you mean 'avro'",
        ),
        ("{encoding: avro}", "format.registry.url: expected next to encoding: avro"),
        ("{key_encoding: avro}", "format.registry.url: expected next to key_encoding: avro"),
        (f"{{{REGISTRY}}}", "format.encoding: expected avro, protobuf or json_schema next to registry"),
        (f"{{name: cloudevents, encoding: avro, {REGISTRY}}}", "format.encoding: cloudevents are read only in JSON"),
        ("{encoding: avro, registry: {url: ftp://r}}", "format.registry.url: expected https://HOST"),
        ("{encoding: avro, registry: {url: 'https://u:p@r'}}", "a password in a URL is not sent; write them into `user` and"),
        ("{encoding: avro, registry: {url: 'https://r?x'}}", "format.registry.url: expected no query"),
        ("{encoding: avro, registry: {url: 'https://r', user: u}}", "format.registry.password: expected user and password"),
        ("{encoding: avro, registry: {url: 'http://r', ca: x}}", "format.registry.ca: expected a url that begins with https:"),
        ("{encoding: avro, registry: {ca: x}}", "format.registry.url: expected next to ca"),
        (
            "{encoding: avro, registry: {url: 'http://r', user: u, password: hunter2}}",
            "format.registry.password: expected {env:",
        ),
    ],
)
def test_a_format_that_does_not_fit_is_refused_and_no_secret_is_shown(text: str, reason: str) -> None:
    with pytest.raises(BulkConfigError, match=reason.replace("{", r"\{")) as refused:
        format_of(text)
    assert "u:p" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
