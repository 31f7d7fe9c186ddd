"""What is in force is shown so that it can be loaded again; what is generated is current; the schema agrees with the loader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from docs import generate
from streamer import BulkConfigError, Config
from streamer.config import loader
from streamer.config.loader import fields_of, section_of, show_place
from streamer.config.schema.values import Section
from streamer.config.show import json_schema, meanings, show


def load(text: str, environment: dict[str, str] | None = None) -> loader.Loaded:
    return loader.loads(text.encode(), "s.yaml", directory=Path(), environment=environment or {})


def test_what_is_generated_is_current() -> None:
    stale = [path.name for path, text in generate.generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"


def test_every_field_is_described_and_in_the_table() -> None:
    table = generate.table()

    def check(section: type[Section]) -> None:
        for name, info in section.model_fields.items():
            inner = section_of(info)
            if inner is not None:
                assert inner.__doc__
                check(inner)
            else:
                assert meanings(section)[name]
                assert f"| `{name}` |" in table

    check(Config)


def test_each_row_of_a_table_is_one_line() -> None:
    for table in generate.table().split("|---|---|---|---|\n")[1:]:
        rows = table.partition("\n\n")[0].strip().splitlines()
        assert [row for row in rows if not row.startswith("| `") or not row.endswith(" |")] == []


def test_what_is_shown_tells_each_origin_and_is_loaded_again() -> None:
    loaded = load(
        "matching:\n  default_tenant: 'no'\n  layout: {data: /x, type_map: {c: insert}}\n  cel: {cache_size: 5}\n"
        "subscriptions: [a b.jsonl]\n",
        {"STREAMER_MATCHING__LIMITS__MAX_EVENT_BYTES": "1MiB"},
    )
    text = show(loaded)
    lines = {line.split(":")[0].strip(): line.split("  # ")[-1] for line in text.splitlines()}
    assert lines["default_tenant"] == "s.yaml:2:19"
    assert lines["cache_size"] == "s.yaml:4:21"
    assert lines["max_event_bytes"] == "STREAMER_MATCHING__LIMITS__MAX_EVENT_BYTES"
    assert lines["validation"] == "default"
    assert load(text).config == loaded.config
    shown = {show_place(place) for place in fields_of(Config)}
    assert all(place.split(".")[-1] in text for place in shown)


def test_a_layout_is_shown_by_its_nearest_preset_with_each_origin() -> None:
    loaded = load("matching:\n  layout: debezium\n", {"STREAMER_MATCHING__LAYOUT__DATA": "/x"})
    text = show(loaded)
    line = next(line for line in text.splitlines() if "layout" in line)
    assert line.split("  # ") == [
        '  layout: {"preset": "debezium", "data": "/x"}',
        "s.yaml:2:11, STREAMER_MATCHING__LAYOUT__DATA",
    ]
    assert load(text).config == loaded.config


@hypothesis.given(strategies.text(min_size=1, max_size=20).filter(lambda text: text != "*"))
@hypothesis.example("...")
def test_any_text_that_is_shown_is_loaded_again(text: str) -> None:
    try:
        config = Config.from_dict({"matching": {"default_tenant": text}})
    except BulkConfigError:
        hypothesis.reject()
    shown = show(loader.Loaded(config))
    assert load(shown).config == config
    assert shown.isascii() or shown.replace("\n", "").isprintable()


GOOD: list[Any] = [
    {},
    {"matching": {"layout": "debezium", "cel": {"evaluation_timeout": "1h30m"}}},
    {"matching": {"layout": {"preset": "change", "tenant": {"constant": "x"}, "data": ["/a", "/b"], "before": None}}},
    {"matching": {"limits": {"max_event_bytes": 5, "max_cel_bytes": "16KiB"}}, "subscriptions": ["a"]},
    {"subscriptions": "a.jsonl", "metrics": {"address": "0.0.0.0"}},
    {"subscriptions": None},
    {"matching": {"default_tenant": None, "soft_delete": None}, "logging": {"level": "debug"}},
    {"sources": {"orders": {"type": "file", "path": "a", "poll": "1s"}, "in_2": {"type": "stdin", "format": "canal"}}},
    {"sinks": {"out": {"type": "stdout", "per": "gateway"}}, "routes": [{"gateway": "*", "sink": "out"}]},
    {"delivery": {"dead_letter_bytes": "1MiB"}, "service": {"data_dir": "/data"}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com/a?b=c", "secret": {"env": "HOOK"}, "batch": 10}}},
    {
        "sinks": {
            "out": {"type": "webhook", "url": "http://[::1]:80/", "allow_http": True, "networks": ["::1/128"], "ports": [80]}
        }
    },
    {"sinks": {"out": {"type": "webhook", "url": "https://a:8443", "secret": [{"file": "a"}, {"file": "b"}], "ports": [8443]}}},
    {"delivery": {"retry": {"first": "1s", "most": "1h", "attempts": 3}, "spool": {"bytes": "1GiB", "when_full": "dead_letter"}}},
]
BAD: list[Any] = [
    {"matchin": {}},
    {"matching": {"cel": {"cache_size": 0}}},
    {"matching": {"cel": {"cache_size": "x"}}},
    {"matching": {"cel": {"evaluation_timeout": 5}}},
    {"matching": {"cel": {"evaluation_timeout": "5"}}},
    {"matching": {"layout": "nosuch"}},
    {"matching": {"layout": {"dta": "/x"}}},
    {"matching": {"limits": {"max_event_bytes": "5 parsecs"}}},
    {"matching": {"validation": "fast"}},
    {"logging": {"level": 5}},
    {"subscriptions": ""},
    {"subscriptions": [""]},
    {"subscriptions": 5},
    {"subscriptions": {"a": "b"}},
    {"sources": {"orders": {"type": "file"}}},
    {"sources": {"orders": {"type": "carrier pigeons"}}},
    {"sources": {"orders": {"path": "a"}}},
    {"sources": {"Orders": {"type": "stdin"}}},
    {"sinks": {"out": {"type": "stdout", "path": "a"}}},
    {"sinks": {"out": None}},
    {"routes": [{"gateway": "", "sink": "out"}]},
    {"service": {"data_dir": ""}},
    {"sinks": {"out": {"type": "webhook"}}},
    {"sinks": {"out": {"type": "webhook", "url": "ftp://example.com"}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://exa mple.com"}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com", "secret": "whsec_AAAA"}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com", "secret": [{"env": "A"}] * 3}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com", "batch": 0}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com", "networks": [5]}}},
    {"sinks": {"out": {"type": "webhook", "url": "https://example.com", "ports": [0]}}},
    {"delivery": {"retry": {"attempts": 0}}},
    {"delivery": {"on_exhausted": "explode"}},
    {"delivery": {"spool": {"when_full": "explode"}}},
]


def test_the_schema_agrees_with_the_loader() -> None:
    """What the schema accepts loads, and what it refuses does not."""
    schema = json.loads(json_schema())
    for members in GOOD:
        assert accepts(schema, schema, members), members
        Config.from_dict(members)
    for members in BAD:
        assert not accepts(schema, schema, members), members
        with pytest.raises(BulkConfigError):
            Config.from_dict(members)


def test_every_default_in_the_schema_is_what_a_file_may_say() -> None:
    schema = json.loads(json_schema())
    for definition in schema["$defs"].values():
        for name, field in definition["properties"].items():
            if "default" in field:
                assert accepts(schema, field, field["default"]), name


def accepts(root: Any, schema: Any, value: Any) -> bool:
    """Tell whether a value obeys a JSON Schema, as far as ours go; an unknown keyword is an error."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": int | float,
    }
    for keyword, operand in schema.items():
        match keyword:
            case "$ref":
                good = accepts(root, root["$defs"][operand.rsplit("/", 1)[-1]], value)
            case "type":
                names = operand if isinstance(operand, list) else [operand]
                good = any(
                    isinstance(value, kinds[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
                )
            case "anyOf" | "oneOf":
                good = any(accepts(root, one, value) for one in operand)
            case "enum":
                good = value in operand
            case "const":
                good = value == operand
            case "properties":
                good = not isinstance(value, dict) or all(
                    name not in value or accepts(root, one, value[name]) for name, one in operand.items()
                )
            case "patternProperties":
                good = not isinstance(value, dict) or all(
                    accepts(root, one, inner)
                    for pattern, one in operand.items()
                    for name, inner in value.items()
                    if re.search(pattern, name)
                )
            case "propertyNames":
                good = not isinstance(value, dict) or all(accepts(root, operand, name) for name in value)
            case "maxLength":
                good = not isinstance(value, str) or len(value) <= operand
            case "additionalProperties":
                known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
                others = [
                    one
                    for name, one in (value.items() if isinstance(value, dict) else ())
                    if name not in known and not any(re.search(pattern, name) for pattern in patterns)
                ]
                good = not others if operand is False else all(accepts(root, operand, one) for one in others)
            case "required":
                good = not isinstance(value, dict) or all(name in value for name in operand)
            case "items":
                good = not isinstance(value, list) or all(accepts(root, operand, item) for item in value)
            case "minItems":
                good = not isinstance(value, list) or len(value) >= operand
            case "maxItems":
                good = not isinstance(value, list) or len(value) <= operand
            case "minLength":
                good = not isinstance(value, str) or len(value) >= operand
            case "minimum":
                good = not isinstance(value, int | float) or value >= operand
            case "maximum":
                good = not isinstance(value, int | float) or value <= operand
            case "exclusiveMinimum":
                good = not isinstance(value, int | float) or value > operand
            case "exclusiveMaximum":
                good = not isinstance(value, int | float) or value < operand
            case "pattern":
                good = not isinstance(value, str) or re.search(operand, value) is not None
            case "$schema" | "$defs" | "title" | "description" | "default" | "examples" | "discriminator":
                good = True
            case _:
                raise AssertionError(f"an unknown keyword {keyword!r}")
        if not good:
            return False
    return True
