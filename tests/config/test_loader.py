"""A configuration is a file and the environment over it; all that is wrong is said at once, where it stands."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import streamer
from streamer import BulkConfigError, Config, EventLayout
from streamer.bloom.options import BloomOptions
from streamer.config import loader
from streamer.config.loader import fields_of, show_place
from streamer.config.schema.watching import Metrics
from tests.config.loading import load, wrong


def test_an_empty_file_is_all_defaults() -> None:
    assert load("").config == Config() == Config.from_dict({})
    assert load("matching:\n  cel:\n#   cache_size: 5\nlogging:\n").config == Config()


def test_the_defaults_are_those_of_the_engine(backend: str) -> None:
    options = Config().engine_options()
    engine = streamer.Engine()
    assert {name: getattr(engine._options, name) for name in options} == options


def test_a_file_says_everything() -> None:
    config = load(
        """
matching:
  layout: {preset: debezium, topic: /topic}
  batch_size: 7
  default_tenant: null
  validation: lazy
  soft_delete: meta.deleted
  bloom:
    {enabled: off, fp_rate: 0.001, initial_capacity: 50, rebuild_interval: 12h, rebuild_fp_threshold: 1e-2, rebuild_cooldown: 1m}
  cel: {cache_size: 7, evaluation_timeout: PT0.25S}
  limits:
    max_depth: 100
    max_event_bytes: 64KiB
    max_pattern_states: 1_000
    max_regexp_size: 200
    max_conjunctions: 8
    max_cel_bytes: 2000
    max_cel_depth: 16
    allow_unindexed: no
subscriptions: [a.jsonl, /b.jsonl]
metrics: {enabled: yes, address: 0.0.0.0, port: 1234, name: x, collections: 3, tenants: on}
logging: {level: info, format: json}
"""
    ).config
    assert config.metrics == Metrics(enabled=True, address="0.0.0.0", port=1234, name="x", collections=3, tenants=True)
    assert config.subscriptions == (Path("/etc/streamer/a.jsonl"), Path("/b.jsonl"))
    assert (config.logging.level, config.logging.format) == ("info", "json")
    options = config.engine_options()
    assert options["layout"] == EventLayout.from_dict({"preset": "debezium", "topic": "/topic"})
    assert (options["default_tenant"], options["validation"], options["soft_delete"]) == (None, "lazy", "meta.deleted")
    assert (options["cache_size"], options["batch_size"]) == (7, 7)
    assert options["bloom"] == BloomOptions(
        enabled=False,
        fp_rate=0.001,
        initial_capacity=50,
        rebuild_interval=timedelta(hours=12),
        rebuild_fp_threshold=0.01,
        rebuild_cooldown=timedelta(minutes=1),
    )
    assert options["limits"] == streamer.Limits(
        max_depth=100,
        max_event_bytes=65_536,
        max_pattern_states=1_000,
        max_regexp_size=200,
        max_conjunctions=8,
        max_cel_bytes=2_000,
        max_cel_depth=16,
        allow_unindexed=False,
        evaluation_timeout_us=250_000,
    )
    assert options["limits"].cel_budget == 2_500_000


def test_every_error_is_said_at_once_with_its_place_and_the_nearest_name() -> None:
    assert wrong(
        """\
matching:
  cel: {cache_sise: 5, evaluation_timeout: 5}
  layout: debezum
  default_tenant: 12
  validation: fulll
  soft_delete: a..b
  limits:
    max_depth: true
    max_event_bytes: 5 parsecs
    max_cel_depth: 100
    allow_unindexed: maybe
cel:
evaluation_timeout: 5s
subscriptions: [a.jsonl, 5]
zzz: 1
"""
    ) == [
        "s.yaml:2:9: matching.cel.cache_sise: unknown name; did you mean 'cache_size'?",
        "s.yaml:2:44: matching.cel.evaluation_timeout: expected a duration such as 24h, 1h30m, 100ms or PT15M "
        "(units: w, d, h, m, s, ms, us); 5 has no unit",
        "s.yaml:3:11: matching.layout: unknown layout 'debezum'; expected one of change, debezium, "
        "debezium_unwrapped, maxwell, canal, dms, wal2json, pgoutput, dynamodb, mongodb, supabase, "
        "hasura, sequin, cloudevents, eventbridge, sns, document; did you mean 'debezium'?",
        "s.yaml:4:19: matching.default_tenant: expected text, not 12; write '12' in quotes",
        "s.yaml:5:15: matching.validation: expected 'full' or 'lazy', not 'fulll'; did you mean 'full'?",
        "s.yaml:6:16: matching.soft_delete: an empty step in 'a..b'; "
        "expected member names with dots between them, or a JSON Pointer",
        "s.yaml:8:16: matching.limits.max_depth: expected a number, not true",
        "s.yaml:9:22: matching.limits.max_event_bytes: expected a size such as 16MiB, 64kB or a number of bytes "
        "(k = 1,000, Ki = 1,024), not '5 parsecs'",
        "s.yaml:10:20: matching.limits.max_cel_depth: expected at most 64, not 100",
        "s.yaml:11:22: matching.limits.allow_unindexed: expected true or false, not 'maybe'",
        "s.yaml:12:1: cel: unknown name; did you mean matching.cel?",
        "s.yaml:13:1: evaluation_timeout: unknown name; did you mean matching.cel.evaluation_timeout?",
        "s.yaml:14:26: subscriptions[1]: expected the path of a file",
        "s.yaml:15:1: zzz: unknown name; expected one of api, delivery, logging, matching, metrics, routes, service, shard, "
        "sinks, sources, store, subscriptions",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1]", "s.yaml:1:1: expected names and values, not a list"),
        ("5", "s.yaml:1:1: expected names and values, not a number"),
        ("matching: 5", "s.yaml:1:11: matching: expected names and values, not 5"),
        ("matching: {cel: [1]}", "s.yaml:1:17: matching.cel: expected names and values, not a list"),
        ("logging: {format: xml}", "s.yaml:1:19: logging.format: expected 'text' or 'json', not 'xml'"),
        ("matching: {layout: 5}", "s.yaml:1:20: matching.layout: a layout is an object, not int"),
        ("matching: {layout: {dta: /x}}", "s.yaml:1:21: matching.layout.dta: unknown name; did you mean 'data'?"),
        ("matching: {layout: {data: x}}", "s.yaml:1:27: matching.layout.data: 'x': a JSON Pointer is empty or begins with '/'"),
        ("matching: {layout: {type_map: {c: x}}}", "s.yaml:1:35: matching.layout.type_map.c: expected words that mean"),
        ("matching: {layout: {preset: x}}", "s.yaml:1:29: matching.layout.preset: unknown layout 'x'"),
        ("matching: {default_tenant: '*'}", "s.yaml:1:28: matching.default_tenant: '*' is not a tenant; name one, or null"),
        ("matching: {default_tenant: ''}", "s.yaml:1:28: matching.default_tenant: '' is not a tenant; name one, or null"),
        (
            "matching: {cel: {evaluation_timeout: 10000000w}}",
            "s.yaml:1:38: matching.cel.evaluation_timeout: expected an integer from 1 to 922337203685477580 microseconds",
        ),
        ("matching: {cel: {cache_size: 0}}", "s.yaml:1:30: matching.cel.cache_size: expected at least 1, not 0"),
        ("matching: {cel: {cache_size: 1.5}}", "s.yaml:1:30: matching.cel.cache_size: expected a whole number, not 1.5"),
        (
            "matching: {limits: {max_event_size: 1}}",
            "s.yaml:1:21: matching.limits.max_event_size: unknown name; did you mean 'max_event_b",
        ),
        ("metrics: {tenants: 1}", "s.yaml:1:20: metrics.tenants: expected true or false, not 1"),
        ("metrics: {enabled: 0.0}", "s.yaml:1:20: metrics.enabled: expected true or false, not 0.0"),
        ("matching: {cel: {cache_size: x}}", "s.yaml:1:30: matching.cel.cache_size: expected a whole number, not 'x'"),
        (f"matching: {{cel: {{cache_size: {10**20}}}}}", "s.yaml:1:30: matching.cel.cache_size: expected at most 9,223"),
        (
            "sinks: {a: {type: kafka, brokers: 'x:1', topic: t, path: p}}",
            "s.yaml:1:52: sinks.a.path: unknown name; a section with another 'type' has 'path'",
        ),
        ("matching: {bloom: {fp_rte: 1}}", "s.yaml:1:20: matching.bloom.fp_rte: unknown name; did you mean 'fp_rate'?"),
        ("matching: {bloom: {fp_rate: 2}}", "s.yaml:1:29: matching.bloom.fp_rate: expected less than 1, not 2"),
        ("matching: {bloom: {fp_rate: 1e-12}}", "s.yaml:1:29: matching.bloom.fp_rate: expected a share from 1e-9 to less"),
        (
            "matching: {bloom: {rebuild_fp_threshold: 0.001}}",
            "s.yaml:1:42: matching.bloom.rebuild_fp_threshold: expected at least fp_rate, 0.01",
        ),
        ("fp_rate: 0.1", "s.yaml:1:1: fp_rate: unknown name; did you mean matching.bloom.fp_rate?"),
        ("matching: {validation: 5}", "s.yaml:1:24: matching.validation: expected 'full' or 'lazy', not 5"),
        ('matching: {"\\e[2J\\n": 1}', "s.yaml:1:12: matching.\\x1b[2J\\n: unknown name; expected one of"),
        ('matching: {validation: "\\e[2J"}', "s.yaml:1:24: matching.validation: expected 'full' or 'lazy', not '\\x1b[2J'"),
        ("subscriptions: ''", "s.yaml:1:16: subscriptions[0]: expected the path of a file"),
        ('subscriptions: "a\\0"', "s.yaml:1:16: subscriptions[0]: expected a path without U+0000"),
        ("subscriptions: {a: b}", "s.yaml:1:16: subscriptions: expected the path of a file, or a list of them, not a mapping"),
        ("subscriptions: 5", "s.yaml:1:16: subscriptions: expected the path of a file, or a list of them, not a number"),
        ("subscriptions: [[a]]", "s.yaml:1:17: subscriptions[0]: expected the path of a file"),
        ("metrics: {address: nonsense..}", "s.yaml:1:20: metrics.address: 'nonsense..': neither an IP address nor the name of"),
        (
            "metrics: {address: ''}",
            "s.yaml:1:20: metrics.address: '': an empty address; 0.0.0.0 stands for all addresses of this machine",
        ),
        ("metrics: {address: [127.0.0.1]}", "s.yaml:1:20: metrics.address: expected text, not a list"),
    ],
    ids=lambda value: value[:40],
)
def test_one_error_says_where_and_what_was_expected(text: str, expected: str) -> None:
    (error,) = wrong(text)
    assert error.startswith(expected)
    assert error.isprintable()


def test_one_path_is_a_list_of_it() -> None:
    for text in ("subscriptions: a.jsonl", "subscriptions: [a.jsonl]"):
        assert load(text).config.subscriptions == (Path("/etc/streamer/a.jsonl"),)
    assert load("", {"STREAMER_SUBSCRIPTIONS": "a.jsonl"}).config.subscriptions == (Path("a.jsonl"),)
    assert Config.from_dict({"subscriptions": "a.jsonl"}).subscriptions == (Path("a.jsonl"),)


def test_no_path_is_none() -> None:
    for text in ("subscriptions:\n#  - a.jsonl\n", "subscriptions: null", "subscriptions: []"):
        assert load(text).config.subscriptions == ()


#: What one value each of the tree is taken for; what is not here is refused. A list never stands where one value does.
TAKEN = {
    "x": {
        *("matching.default_tenant", "matching.soft_delete", "subscriptions", "metrics.address", "metrics.name"),
        *("service.data_dir", "service.watch", "api.address", "api.tokens.file", "api.audit.file"),
        *("api.tls.certificate", "delivery.gateways.ca", "store.namespace"),
    },
    "[x]": {"subscriptions", "api.hosts", "api.origins"},
    "[]": {
        "subscriptions",
        "routes",
        "api.hosts",
        "api.origins",
        "delivery.gateways.ports",
        "delivery.gateways.networks",
        "delivery.gateways.keys",
    },
    "{}": {
        *("matching", "matching.bloom", "matching.cel", "matching.limits", "matching.layout", "matching.format_options"),
        *("metrics", "logging"),
        *("sources", "sinks", "delivery", "delivery.retry", "delivery.spool", "delivery.gateways", "service", "store", "shard"),
        *("api", "api.tokens", "api.audit", "api.tls", "api.limits", "api.quotas"),
    },
}


@pytest.mark.parametrize("value", TAKEN)
def test_one_value_a_list_and_a_mapping_are_not_taken_for_each_other(value: str) -> None:
    taken = set()
    for place in fields_of(Config):
        text = "".join(f"{{{name}: " for name in place) + value + "}" * len(place)
        try:
            load(text)
        except BulkConfigError:
            continue
        taken.add(show_place(place))
    assert taken == TAKEN[value]


def test_what_yaml_refuses_is_not_refused_again_by_the_schema() -> None:
    assert wrong("matching: {cel: {cache_size: &a 0, cache_sise: 5}, validation: !x 5, validation: 6}") == [
        "s.yaml:1:30: the anchor &a: anchors and aliases are not read; write the value out",
        "s.yaml:1:36: matching.cel.cache_sise: unknown name; did you mean 'cache_size'?",
        "s.yaml:1:64: the tag !x: tags are not read; for text use quotes",
        "s.yaml:1:70: 'validation' stands twice, first in line 1, column 52",
    ]


def test_the_environment_wins_over_the_file() -> None:
    loaded = load(
        "matching:\n  cel:\n    cache_size: 5\n    evaluation_timeout: 1s\nsubscriptions: [a.jsonl]\n",
        {
            "STREAMER_MATCHING__CEL__CACHE_SIZE": "6",
            "streamer_matching__limits__allow_unindexed": "off",
            "STREAMER_MATCHING__DEFAULT_TENANT": "null",
            "STREAMER_MATCHING__LAYOUT": "debezium",
            "STREAMER_SUBSCRIPTIONS": '["x.jsonl", "y.jsonl"]',
            "STREAMER_LOGGING": "{level: debug}",
            "STREAMER_MATCHING__LIMITS__MAX_DEPTH": "",
            "STREAMER_BACKEND": "reference",
            "STREAMER_HOME": "/nowhere",
            "OTHER": "x",
        },
    )
    config = loaded.config
    assert config.matching.cel.cache_size == 6
    assert config.matching.cel.evaluation_timeout == timedelta(seconds=1)
    assert config.matching.limits.allow_unindexed is False
    assert config.matching.limits.max_depth == 512
    assert config.matching.default_tenant is None
    assert config.matching.layout == EventLayout.preset("debezium")
    assert config.subscriptions == (Path("x.jsonl"), Path("y.jsonl"))
    assert config.logging.level == "debug"
    origins = {show_place(place): str(loaded.origin(place)) for place in fields_of(Config)}
    assert origins["matching.cel.cache_size"] == "STREAMER_MATCHING__CEL__CACHE_SIZE"
    assert origins["matching.cel.evaluation_timeout"] == "s.yaml:4:25"
    assert origins["matching.validation"] == "default"
    assert origins["logging.level"] == "STREAMER_LOGGING"


@pytest.mark.parametrize("value", ["123", "no", "true", "1e3", "a: b", "[x", "*"])
def test_a_text_in_the_environment_is_that_text(value: str) -> None:
    found = load("", {"STREAMER_MATCHING__SOFT_DELETE": value}).config.matching.soft_delete
    assert found == value


def test_a_part_of_the_layout_is_put_over_that_of_the_file() -> None:
    layout = load("matching: {layout: {preset: debezium}}", {"STREAMER_MATCHING__LAYOUT__TOPIC": "/t"}).config.matching.layout
    assert layout == EventLayout.from_dict({"preset": "debezium", "topic": "/t"})
    layout = load(
        "",
        {
            "STREAMER_MATCHING__LAYOUT__DATA": "[/a, /b]",
            "STREAMER_MATCHING__LAYOUT__TENANT": '{"constant": "x"}',
            "STREAMER_MATCHING__LAYOUT__TYPE_MAP": "{c: insert}",
            "STREAMER_MATCHING__LAYOUT__BEFORE": "null",
        },
    ).config.matching.layout
    assert layout == EventLayout.from_dict(
        {"data": ["/a", "/b"], "tenant": {"constant": "x"}, "type_map": {"c": "insert"}, "before": None}
    )


@pytest.mark.parametrize(
    ("part", "value", "meant"),
    [("DATA", "/x", "/x"), ("UNKNOWN", "/x", "/x"), ("TYPE_MAP", "{k: insert}", {"k": "insert"}), ("TOPIC", "/t", "/t")],
)
def test_a_part_of_the_layout_is_put_over_a_preset_that_is_named_as_text(part: str, value: str, meant: Any) -> None:
    name = f"STREAMER_MATCHING__LAYOUT__{part}"
    expected = EventLayout.from_dict({"preset": "debezium", part.lower(): meant})
    loaded = load("matching:\n  layout: debezium\n", {name: value})
    assert loaded.config.matching.layout == expected
    assert list(map(str, loaded.origins(("matching", "layout")))) == ["s.yaml:2:11", name]
    loaded = load("", {"STREAMER_MATCHING__LAYOUT": "debezium", name: value})
    assert loaded.config.matching.layout == expected
    assert list(map(str, loaded.origins(("matching", "layout")))) == ["STREAMER_MATCHING__LAYOUT", name]


def test_the_name_of_a_format_as_the_layout_still_works_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    loaded = load("matching:\n  layout: maxwell\n")
    assert loaded.config == load("matching:\n  format: maxwell\n").config
    assert list(map(str, loaded.origins(("matching", "format")))) == ["s.yaml:2:11"]
    assert "s.yaml:2:11: matching.layout: maxwell is the name of a format: set matching.format" in caplog.text
    caplog.clear()
    assert load("", {"STREAMER_MATCHING__LAYOUT": "maxwell"}).config.matching.event_layout == EventLayout.preset("maxwell")
    assert "matching.layout: maxwell is the name of a format: set matching.format" in caplog.text


def test_events_have_a_format_or_a_layout() -> None:
    assert load("").config.matching.event_layout == EventLayout.preset("change")
    assert load("matching: {format: dms}").config.matching.event_layout == EventLayout.preset("dms")
    assert wrong("matching: {format: dms, layout: {data: /x}}") == [
        "s.yaml:1:33: matching.layout: set `format` or `layout`, not both; "
        '`{"preset": ...}` in a layout names the format that it starts from'
    ]
    (unknown,) = wrong("matching: {format: debezum}")
    assert unknown.startswith("s.yaml:1:20: matching.format: unknown format 'debezum'; expected one of change, debezium, ")
    assert unknown.endswith("; did you mean 'debezium'?")
    (elsewhere,) = wrong("sources: {s: {type: file, path: a, format: pgoutput}}")
    assert elsewhere.endswith(
        "not 'pgoutput'; a message needs those before it, which other sources lack after a restart: expected type: postgres"
    )


def test_format_options_declare_tables_with_whole_rows() -> None:
    options = "{debezium: {tables: {shop.orders: {identity: full}, shop.items: {identity: default}}}}"
    layout = load(f"matching: {{format: debezium, format_options: {options}}}").config.matching.event_layout
    assert layout == replace(EventLayout.preset("debezium"), whole_rows=("shop.orders",))
    assert wrong(f"matching: {{format: maxwell, format_options: {options}}}") == [
        "s.yaml:1:56: matching.format_options.debezium: events have the format maxwell, so that only maxwell can have options"
    ]
    (misspelt,) = wrong(f"matching: {{format: debezium, format_options: {options.replace('full', 'whole')}}}")
    assert "matching.format_options.debezium.tables.shop.orders.identity: expected one of default, full, not 'whole'" in misspelt
    # Of a service, they are those of its sources.
    source = "sources: {a: {type: file, path: a.jsonl, format: FORMAT}}"
    config = load(f"{source.replace('FORMAT', 'debezium')}\nmatching: {{format_options: {options}}}").config
    assert config.matching.tables_of("debezium").whole == ("shop.orders",)
    (other,) = wrong(f"{source.replace('FORMAT', 'wal2json')}\nmatching: {{format_options: {options}}}")
    assert "format_options.debezium: events have the format wal2json, so that only wal2json can have options" in other
    (none,) = wrong(f"matching: {{format_options: {options}}}")
    assert "matching.format_options.debezium: expected the setting format: debezium next to it" in none


def test_a_part_of_the_layout_replaces_that_of_the_file_whole() -> None:
    layout = load(
        "matching: {layout: {type_map: {c: insert}, tenant: /t}}",
        {"STREAMER_MATCHING__LAYOUT__TYPE_MAP": "{u: update}", "STREAMER_MATCHING__LAYOUT__TENANT": "{constant: x}"},
    ).config.matching.layout
    assert layout == EventLayout.from_dict({"type_map": {"u": "update"}, "tenant": {"constant": "x"}})


def test_a_bad_part_of_the_layout_names_who_says_it() -> None:
    assert wrong("matching: {layout: debezium}", {"STREAMER_MATCHING__LAYOUT__DATA": "x"}) == [
        "STREAMER_MATCHING__LAYOUT__DATA: matching.layout.data: 'x': a JSON Pointer is empty or begins with '/'"
    ]
    for text in ("matching: {layout: change}", ""):
        assert wrong(text, {"STREAMER_MATCHING__LAYOUT__DATA": "/before", "STREAMER_MATCHING__THREADS": "2"}) == [
            "STREAMER_MATCHING__LAYOUT__DATA: matching.layout.before: cannot be at the place of 'data', or contain it"
        ]


def test_every_error_of_a_layout_is_said_at_once() -> None:
    assert wrong(
        """\
matching:
  threads: 0
  layout:
    preset: debezum
    data: []
    colection: /c
    type_map: {x: inserted, y: zzz, c: insert}
    ts_format: rfc3393
    before: x
    tenant: {const: x}
"""
    ) == [
        "s.yaml:2:12: matching.threads: expected at least 1, not 0",
        "s.yaml:4:13: matching.layout.preset: unknown layout 'debezum'; expected one of change, debezium, "
        "debezium_unwrapped, maxwell, canal, dms, wal2json, pgoutput, dynamodb, mongodb, supabase, "
        "hasura, sequin, cloudevents, eventbridge, sns, document; did you mean 'debezium'?",
        "s.yaml:5:11: matching.layout.data: expected a JSON Pointer, a list of them or None, not []",
        "s.yaml:6:5: matching.layout.colection: unknown name; did you mean 'collection'?",
        "s.yaml:7:19: matching.layout.type_map.x: expected words that mean insert, update, delete, ignore, none, "
        "not ('x', 'inserted'); did you mean 'insert'?",
        "s.yaml:7:32: matching.layout.type_map.y: expected words that mean insert, update, delete, ignore, none, "
        "not ('y', 'zzz')",
        "s.yaml:8:16: matching.layout.ts_format: expected one of ms, us, ns, s, rfc3339, not 'rfc3393'; did you mean 'rfc3339'?",
        "s.yaml:9:13: matching.layout.before: 'x': a JSON Pointer is empty or begins with '/'",
        's.yaml:10:13: matching.layout.tenant: expected a pointer, a list of pointers, {"constant": value} or null',
    ]
    assert wrong("matching: {layout: {data: /before, ts: 5}}") == [
        "s.yaml:1:20: matching.layout.before: cannot be at the place of 'data', or contain it",
        "s.yaml:1:40: matching.layout.ts: expected a JSON Pointer, a list of them, a constant or None, not 5",
    ]


def test_a_variable_is_the_origin_of_what_it_says_alone() -> None:
    loaded = load(
        "matching: {cel: {cache_size: 5}}",
        {"STREAMER_MATCHING": "{threads: 2}", "streamer_matching__cel": "{evaluation_timeout: 1s}"},
    )
    origins = {show_place(place): str(loaded.origin(place)) for place in fields_of(Config)}
    assert origins["matching.threads"] == "STREAMER_MATCHING"
    assert origins["matching.cel.evaluation_timeout"] == "streamer_matching__cel"
    assert origins["matching.cel.cache_size"] == "s.yaml:1:30"
    assert origins["matching.validation"] == "default"


def test_a_section_that_is_none_is_an_error_whatever_is_laid_over_it() -> None:
    expected = "matching: expected names and values, not 5"
    assert wrong("", {"STREAMER_MATCHING": "5", "STREAMER_MATCHING__THREADS": "2"}) == [f"STREAMER_MATCHING: {expected}"]
    assert wrong("", {"streamer_matching": "5", "STREAMER_MATCHING__THREADS": "2"}) == [f"streamer_matching: {expected}"]
    assert wrong("matching: 5", {"STREAMER_MATCHING__THREADS": "2"}) == [f"s.yaml:1:11: {expected}"]
    assert load("", {"STREAMER_MATCHING": "null", "STREAMER_MATCHING__THREADS": "2"}).config.matching.threads == 2


def test_an_error_of_the_environment_names_its_variable() -> None:
    assert wrong(
        "matching: {cel: {cache_sise: 1}}",
        {
            "STREAMER_MATCHING__CELL__CACHE_SIZE": "5",
            "STREAMER_MATCHING__CEL__CACHE_SIZE": "0",
            "STREAMER_SUBSCRIPTIONS": "[*a]",
            "STREAMER_LOGING__LEVEL": "info",
            "STREAMER_MATCHING__LIMITS": "5",
            "Streamer_Matching__Cel__Cache_Size": "7",
        },
    ) == [
        "s.yaml:1:18: matching.cel.cache_sise: unknown name; did you mean 'cache_size'?",
        "STREAMER_MATCHING__CEL__CACHE_SIZE: matching.cel.cache_size: expected at least 1, not '0'",
        "STREAMER_MATCHING__LIMITS: matching.limits: expected names and values, not 5",
        "STREAMER_LOGING__LEVEL: unknown variable; did you mean STREAMER_LOGGING__LEVEL?",
        "STREAMER_MATCHING__CELL__CACHE_SIZE: unknown variable; did you mean STREAMER_MATCHING__CEL__CACHE_SIZE?",
        "Streamer_Matching__Cel__Cache_Size: sets the same field as STREAMER_MATCHING__CEL__CACHE_SIZE",
        "STREAMER_SUBSCRIPTIONS: subscriptions: the alias *a: aliases are not read; write the value out",
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STREAMER_CACHE_SIZE", "STREAMER_MATCHING__CEL__CACHE_SIZE"),
        ("STREAMER_MATCHING_CEL_CACHE_SIZE", "STREAMER_MATCHING__CEL__CACHE_SIZE"),
        ("STREAMER_CACHE_SISE", "STREAMER_MATCHING__CEL__CACHE_SIZE"),
        ("STREAMER_MATCHING_LAYOUT_DATA", "STREAMER_MATCHING__LAYOUT__DATA"),
        ("streamer_enabled", "STREAMER_MATCHING__BLOOM__ENABLED or STREAMER_METRICS__ENABLED"),
        ("STREAMER_LOGING", "STREAMER_LOGGING"),
        ("STREAMER_METRICS_PORT", "STREAMER_METRICS__PORT"),
    ],
)
def test_a_variable_whose_underscores_are_probably_a_slip_is_told_once(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    loader._warn_once.cache_clear()
    for _ in range(2):
        assert load("", {name: "5"}).config == Config()
    assert caplog.record_tuples == [("streamer.config", logging.WARNING, f"{name}: unknown variable; did you mean {meant}?")]


def test_variables_that_others_set_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    loader._warn_once.cache_clear()
    others = {
        "STREAMER_BACKEND": "native",
        "STREAMER_BUILD_RUST": "1",
        "STREAMER_HOME": "/srv",
        "STREAMER_SERVICE_HOST": "10.0.0.1",
        "STREAMER_SERVICE_PORT": "80",
        "STREAMER_PORT": "tcp://10.0.0.1:80",
        "STREAMER_PORT_80_TCP": "tcp://10.0.0.1:80",
        "STREAMER_PORT_80_TCP_ADDR": "10.0.0.1",
        "STREAMER_METRICS_SERVICE_HOST": "10.0.0.1",
        "STREAMER_METRICS_SERVICE_PORT": "9464",
        "STREAMER_METRICS_SERVICE_PORT_METRICS": "9464",
        "STREAMER_METRICS_PORT": "tcp://10.0.0.1:9464",
        "STREAMER_METRICS_PORT_9464_TCP_PROTO": "tcp",
    }
    assert load("", others).config == Config()
    assert caplog.record_tuples == []


@pytest.mark.parametrize("name", ["THREADS", "CEL__CACHE_SIZE", "LIMITS__MAX_EVENT_BYTES", "LIMITS__MAX_CEL_DEPTH"])
def test_a_leading_zero_is_refused_in_the_environment_as_in_a_file(name: str) -> None:
    (error,) = wrong("", {f"STREAMER_MATCHING__{name}": "010"})
    place = f"matching.{name.lower().replace('__', '.')}"
    assert error == (
        f"STREAMER_MATCHING__{name}: {place}: 010: a leading zero makes an octal number in some versions of YAML; "
        "write 10, or 0o10 for an octal one"
    )


def test_true_and_false_of_the_environment_may_be_1_and_0() -> None:
    config = load("", {"STREAMER_METRICS__TENANTS": "1", "STREAMER_MATCHING__BLOOM__ENABLED": "0"}).config
    assert (config.metrics.tenants, config.matching.bloom.enabled) == (True, False)


def test_a_variable_that_is_no_utf_8_is_named() -> None:
    text = os.fsdecode(b"\xff\xfe")
    for name in ("DEFAULT_TENANT", "SOFT_DELETE", "LAYOUT__DATA", "LAYOUT"):
        place = f"matching.{name.lower().replace('__', '.')}"
        assert wrong("matching: {default_tenant: x}", {f"STREAMER_MATCHING__{name}": text}) == [
            f"STREAMER_MATCHING__{name}: {place}: no UTF-8"
        ]


def test_making_a_config_never_looks_at_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMER_MATCHING__CEL__CACHE_SIZE", "5")
    assert Config().matching.cel.cache_size == Config.from_dict({}).matching.cel.cache_size == 10_000
    (tmp_path / "s.yaml").write_text("")
    assert Config.load(tmp_path / "s.yaml").matching.cel.cache_size == 5
    assert Config.load(tmp_path / "s.yaml", {}).matching.cel.cache_size == 10_000


def test_a_mapping_is_checked_like_a_file() -> None:
    with pytest.raises(BulkConfigError) as refused:
        Config.from_dict({"matching": {"cel": {"cache_size": 0}, "layout": {"dta": "/x"}}})
    assert [error.place for error in refused.value.errors] == ["matching.layout.dta", "matching.cel.cache_size"]
    assert all(error.source is None for error in refused.value.errors)
    with pytest.raises(BulkConfigError, match="expected a mapping, not list"):
        Config.from_dict([])  # type: ignore[arg-type]


def test_a_config_is_immutable_and_comparable() -> None:
    config = Config.from_dict({"matching": {"cel": {"cache_size": 5}}})
    assert config == Config.from_dict({"matching": {"cel": {"cache_size": 5}}}) != Config()
    with pytest.raises(ValidationError):
        config.matching.cel.cache_size = 6


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Config.load(tmp_path / "nosuch.yaml")


def test_the_public_name_is_imported_when_it_is_used() -> None:
    assert streamer.Config is Config
    with pytest.raises(AttributeError, match="no attribute 'Konfig'"):
        streamer.Konfig  # noqa: B018


def test_bulk_errors_count_what_they_do_not_spell_out() -> None:
    with pytest.raises(BulkConfigError) as refused:
        load("matching:\n" + "".join(f"  x{n}: 1\n" for n in range(50)))
    assert len(refused.value.errors) == 50
    assert str(refused.value).splitlines()[0] == "50 errors in the configuration:"
    assert str(refused.value).splitlines()[-1] == "  ... and 30 more"
