"""YAML is read in bounded work, as YAML 1.2 reads it, and what is refused is refused where it stands."""

from __future__ import annotations

import time
from typing import Any

import pytest

from streamer.config import yaml
from streamer.config.yaml import MAX_BYTES, MAX_DEPTH, MAX_TEXT, MAX_VALUES, read_yaml
from streamer.errors import BulkConfigError


def refused(text: bytes) -> list[str]:
    """Read what is refused; return `line:column: reason` of each."""
    try:
        _, errors = read_yaml(text, "f")
    except BulkConfigError as bulk:
        errors = list(bulk.errors)
    assert errors, "it was read"
    assert all(error.source == "f" for error in errors)
    return [f"{error.line}:{error.column}: {error.reason}" for error in errors]


def read(text: str | bytes) -> Any:
    node, errors = read_yaml(text.encode() if isinstance(text, str) else text, "f")
    assert not errors
    return node.plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n", None),
        ("a: 1\nb: [x, {c: null}]\n", {"a": 1, "b": ["x", {"c": None}]}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("%YAML 1.2\n---\na: 1\n", {"a": 1}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ('a: "\\u00e9\\n"', {"a": "é\n"}),
        ('a: "\\ud83d\\ude00"', {"a": "😀"}),
    ],
)
def test_what_people_write_is_read(text: str | bytes, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(
            (word, word)
            for word in ("no", "yes", "on", "off", "y", "n", "NO", "22:22", "1:30:00", "1_000", "2024-01-01", "=", "0b1")
        ),
        *((word, None) for word in ("~", "null", "Null", "NULL", "")),
        *((word, word.lower() == "true") for word in ("true", "True", "TRUE", "false", "False", "FALSE")),
        *zip(("0", "-0", "+12", "0o17", "0x1F"), (0, 0, 12, 15, 31), strict=True),
        *zip(("1.0", "1.", ".5", "1e3", "-1.5E-3", "0.5"), (1.0, 1.0, 0.5, 1000.0, -0.0015, 0.5), strict=True),
        *((f"'{word}'", word) for word in ("1", "true", "null", "010", ".nan")),
    ],
)
def test_plain_words_mean_what_they_mean_in_yaml_1_2(word: str, value: Any) -> None:
    found = read(f"a: {word}")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"a: 010",
            ["1:4: 010: a leading zero makes an octal number in some versions of YAML; write 10, or 0o10 for an octal one"],
        ),
        (b"a: 089", ["1:4: 089: a leading zero makes an octal number in some versions of YAML; write 89"]),
        (b"a: .nan\nb: -.inf\nc: 1e999", ["1:4: .nan is no", "2:4: -.inf is no", "3:4: 1e999: beyond float64"]),
        (b"a: 1\nb: 2\na: 3\n", ["3:1: 'a' stands twice, first in line 1, column 1"]),
        (b"a:\n  b: {c: 1, c: 2}\n", ["2:13: 'c' stands twice, first in line 2, column 7"]),
        (
            b"1: x\nnull: x\n[a]: x\n",
            ["1:1: a name is text, not a number; write '1'", "2:1: a name", "3:1: a name is text, not a list"],
        ),
        (b"? {a: b}\n: c", ["1:3: a name is text, not a mapping"]),
        (b"a: {<<: {b: 1}}", ["1:5: merge keys"]),
        (b"a: &x 1\nb: *x\n", ["1:4: the anchor &x", "2:4: the alias *x"]),
        (b"a: !!python/object/apply:os.system [ls]", ["1:4: the tag tag:yaml.org,2002:python/object/apply:os.system"]),
        (b"a: !!str 1\nb: !x {c: 1}", ["1:4: the tag", "2:4: the tag !x"]),
        (b"a: 1\n---\nb: 2\n", ["2:1: a second document"]),
        (b"a: 1\nb: \x00\n", ["2:4: the character '\\x00' cannot stand in YAML"]),
        (b"a: 1\nb: \x1b[31m\n", ["2:4: the character '\\x1b'"]),
        ("a: é\xa0b\x9b".encode(), ["1:7: the character '\\x9b'"]),
        (b"a: 1\nb: \xff\n", ["2:4: no UTF-8"]),
        (b"\xef\xbb\xbfa: 1\nb: \xc3", ["2:4: no UTF-8"]),
        ("a: 1".encode("utf-16"), ["1:1: UTF-16; expected UTF-8"]),
        (b'a: "\\ud800"', ["1:4: half of a surrogate pair"]),
        (b"a:\n\tb: 1\n", ["2:1: a tab cannot indent"]),
        (b"a: [1, 2\nb: 3\n", ["2:2: while parsing a flow sequence"]),
        (b"a: b: c\n", ["1:5: mapping values are not allowed here"]),
        (b"a: 'x\n", ["2:1: while scanning a quoted scalar found unexpected end of stream"]),
        (b"%YAML 3.0\n---\na: 1\n", ["1:1: found incompatible YAML document"]),
        (b"a: " + b"9" * 5000, [f"1:4: a text of 5000 characters; at most {MAX_TEXT} are read"]),
        (b'"\\e[31m": 1\n"\\e[31m": 2\n', ["2:1: '\\x1b[31m' stands twice"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_refused_is_refused_where_it_stands(text: bytes, expected: list[str]) -> None:
    found = refused(text)
    assert len(found) == len(expected)
    for error, begin in zip(found, expected, strict=True):
        assert error.startswith(begin)
        assert error.isprintable()


HOSTILE = {
    "200,000 nested lists": (b"[" * 200_000, "1:65537: longer than 65,536 bytes"),
    "nested lists": (b"[" * MAX_BYTES, f"1:{MAX_DEPTH + 1}: nested deeper than {MAX_DEPTH} levels"),
    "nested mappings": (b"{a: " * (MAX_BYTES // 4), "nested deeper"),
    "nested block lists": (b"- " * (MAX_BYTES // 2), "nested deeper"),
    "nested keys": (b"? " * (MAX_BYTES // 2), "nested deeper"),
    "nested blocks": (b"".join(b" " * n + b"a:\n" for n in range(300)), "nested deeper"),
    "exploding aliases": (
        b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)),
        "1:5: the anchor &a0",
    ),
    "a scalar of 10 MB": (b"a: " + b"x" * 10_000_000, "1:65537: longer"),
    "a file of 10 MB": (b"a: 1\n" * 2_000_000, "longer"),
    "a long plain scalar": (b"a: " + b"x" * (MAX_BYTES - 3), "1:4: a text of 65533 characters"),
    "a long quoted scalar": (b'a: "' + b"\\n" * 32_000 + b'"', "a text of 32000 characters"),
    "a folded scalar of many lines": (b"a: >\n" + b"  x\n" * 16_000, "a text of"),
    "a plain scalar of many lines": (b"a: x\n" + b"  x\n" * 16_000, "a text of"),
    "many names": (b"".join(b"k%d: 1\n" % n for n in range(7_000)), f"more than {MAX_VALUES} values"),
    "many duplicates": (b"a: 1\n" * 13_000, "2:1: 'a' stands twice"),
    "many values": (b"[" + b"1," * 32_000 + b"]", "more than"),
    "many empty lists": (b"[" + b"[]," * 21_000 + b"]", "more than"),
    "many empty items": (b"- \n" * 21_000, "more than"),
    "many aliases": (b"a: &a x\nb: [" + b"*a," * 20_000 + b"]", "1:4: the anchor"),
    "many documents": (b"---\n" * 16_000, "2:1: a second document"),
    "many directives": (b"%TAG ! x\n" * 7_000 + b"---\na: 1\n", "2:1: duplicate tag handle"),
    "lines inside of 30 brackets": (b"[" * 30 + b"a\n" * 32_000, "a text of"),
    "many quotes": (b"[" + b"''," * 20_000 + b"]", "more than"),
    "many names without values": (b"{" + b"a:," * 20_000 + b"}", "stands twice"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_bounded_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: the parser makes at most as many events as values are read, and holds at most as many levels as are allowed."""
    text, expected = HOSTILE[name]
    events, deepest = 0, 0

    class Counting(yaml._Parser):
        def get_event(self) -> Any:
            nonlocal events, deepest
            events += 1
            deepest = max(deepest, len(self.indents) + self.flow_level, len(self.states))
            return super().get_event()

    monkeypatch.setattr(yaml, "_Parser", Counting)
    began = time.thread_time()
    found = refused(text)
    took = time.thread_time() - began
    assert any(expected in error for error in found), found[:3]
    assert events <= 2 * MAX_VALUES + 10
    assert deepest <= 3 * MAX_DEPTH
    # They take at most a tenth of a second where nothing else runs; ten times that is not slow but quadratic.
    assert took < 2


def test_a_long_harmless_comment_is_read() -> None:
    assert read(b"# x\n" * (MAX_BYTES // 4 - 10) + b"a: 1\n") == {"a": 1}


def test_each_value_and_each_name_has_its_place() -> None:
    node, _ = read_yaml("a:\n  b: [1, 'x']\n  é c: 2\n".encode(), "f")
    inner = node.value["a"]
    assert (node.names["a"].line, node.names["a"].column) == (1, 1)
    assert (inner.names["é c"].line, inner.names["é c"].column) == (3, 3)
    second = inner.value["b"].value[1]
    assert (second.mark.line, second.mark.column, second.value) == (2, 10, "x")
