"""Convert cases of the CEL conformance suite into cases of our table.

    python testdata/convert_cel_spec.py FOLDER          write match/cel/spec_*.toml and cel_spec.toml, print the counts
    python testdata/convert_cel_spec.py FOLDER --check  fail if a file is out of date

FOLDER holds the suite's `*.textproto` files: google/cel-spec, tests/simple/testdata, commit 508bd98, Apache License 2.0.

A case of the suite is an expression, bindings, and a value or an error; ours is an event and a match. So:

- a variable `x` that is bound becomes the field `data.x` of the event, or a literal where JSON does not keep its type;
- an expected bool is the verdict; any other value is compared inside the expression, a number also by its type, which `==` does
  not tell: `[E].exists(it, type(it) == int && it == 42)`;
- an expected error is the verdict `error`, or a refusal where our checker sees it first;
- where the suite turns its checker off, literals that our checker refuses become `dyn(literal)`;
- where it turns it off and absorbs the error of a name or function that does not exist, ours refuses the expression: semantics.md
  section 4 wants such errors when a subscription is added. These are listed as refused.

What has no counterpart is left out, with the reason, in `cel_spec.toml`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamer.cel_eval import compile_cel
from streamer.cel_eval.parse import parse
from streamer.cel_eval.tree import Chain, Has, Ident, Literal, Macro, Node, Select, Step, children
from streamer.errors import CelError
from streamer.model import Limits

HERE = Path(__file__).parent
MATCH = HERE / "match" / "cel"
SUMMARY = HERE / "cel_spec.toml"

AREAS = [
    *("basic", "comparisons", "conversions", "fields", "fp_math", "integer_math", "lists", "logic", "macros", "macros2"),
    *("namespace", "parse", "plumbing", "string", "timestamps"),
]
ORIGIN = "google/cel-spec, tests/simple/testdata, commit 508bd98, Apache License 2.0"

PROTOBUF = "needs protobuf messages or enums, which Streamer does not have"
CONTAINER = "resolves names in a container, which Streamer does not have"


class LeftOutError(Exception):
    """A case without counterpart; the text says why."""


# --- text format of protocol buffers ------------------------------------------------------------------------------------

_TOKEN = re.compile(r"""\s*(?:\#[^\n]*\n\s*)*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[{}<>:,;\[\]]|[^\s{}<>:,;\[\]"'#]+)""")
_C_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_C_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

Message = list[tuple[str, Any]]


def read_textproto(text: str) -> Message:
    """Read a message as (field, value) pairs; a value is a message, bytes (a string) or str (anything else)."""
    tokens, position = [], 0
    text = text.rstrip() + "\n"
    while (match := _TOKEN.match(text, position)) is not None:
        tokens.append(match[1])
        position = match.end()
    assert not re.sub(r"#[^\n]*", "", text[position:]).strip(), text[position : position + 80]
    tokens.reverse()
    return _message(tokens, None)


def _message(tokens: list[str], end: str | None) -> Message:
    found: Message = []
    while tokens and tokens[-1] != end:
        name = tokens.pop()
        if name in ",;":
            continue
        if name == "[":
            name = "".join(iter(tokens.pop, "]"))
        if tokens[-1] == ":":
            tokens.pop()
        if tokens[-1] == "[":
            tokens.pop()
            while tokens[-1] != "]":
                if tokens[-1] == ",":
                    tokens.pop()
                found.append((name, _value(tokens)))
            tokens.pop()
        else:
            found.append((name, _value(tokens)))
    if end is not None:
        tokens.pop()
    return found


def _value(tokens: list[str]) -> Any:
    token = tokens.pop()
    if token in "{<":
        return _message(tokens, "}" if token == "{" else ">")
    if token[0] not in "\"'":
        return token
    text = _unescape(token)
    while tokens and tokens[-1][0] in "\"'":
        text += _unescape(tokens.pop())
    return text


def _unescape(token: str) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        octal, octet, short, long, single = match.groups()
        if single is not None:
            return _C_ESCAPES.get(single, single)
        if short or long:
            return chr(int(short or long, 16)).encode()
        return bytes([int(octal, 8) if octal else int(octet, 16)])

    return _C_ESCAPE.sub(one, token[1:-1].encode())


def get(message: Message, name: str, default: Any = None) -> Any:
    return next((value for key, value in message if key == name), default)


def get_all(message: Message, name: str) -> list[Any]:
    return [value for key, value in message if key == name]


# --- values -------------------------------------------------------------------------------------------------------------


def as_cel(value: Message) -> str:
    """Write a value of the suite as a CEL literal."""
    ((kind, content),) = value or [("null_value", "NULL_VALUE")]
    match kind:
        case "null_value":
            return "null"
        case "bool_value":
            return str(content)
        case "int64_value":
            return str(int(content))
        case "uint64_value":
            return f"{int(content)}u"
        case "double_value":
            return _double(float(content))
        case "string_value":
            return json.dumps(content.decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
        case "bytes_value":
            return (
                'b"'
                + "".join(chr(octet) if 32 <= octet < 127 and octet not in b'"\\' else f"\\x{octet:02x}" for octet in content)
                + '"'
            )
        case "list_value":
            return "[" + ", ".join(as_cel(item) for item in get_all(content, "values")) + "]"
        case "map_value":
            entries = get_all(content, "entries")
            return "{" + ", ".join(f"{as_cel(get(entry, 'key'))}: {as_cel(get(entry, 'value'))}" for entry in entries) + "}"
        case "type_value":
            # The name of that type is taken by the variable `type`.
            return "type(int)" if content == b"type" else content.decode()
        case "object_value" if content[0][0] == "type.googleapis.com/google.protobuf.Duration":
            duration = content[0][1]
            return f"duration('{get(duration, 'seconds', '0')}.{int(get(duration, 'nanos', '0')):09}s')"
        case _:
            raise LeftOutError(PROTOBUF)


def _double(value: float) -> str:
    return f"double('{value}')" if value != value or value in (float("inf"), float("-inf")) else repr(value)


def as_json(value: Message) -> Any:
    """Return a bound value as JSON; LookupError where JSON does not keep its type."""
    ((kind, content),) = value
    match kind:
        case "null_value":
            return None
        case "bool_value":
            return content == "true"
        case "int64_value":
            return int(content)
        case "string_value":
            return content.decode()
        case "list_value":
            return [as_json(item) for item in get_all(content, "values")]
        case "map_value":
            return {
                get(get(entry, "key"), "string_value").decode(): as_json(get(entry, "value"))
                for entry in get_all(content, "entries")
            }
        case _:
            raise LookupError


# --- expressions --------------------------------------------------------------------------------------------------------


def _free_names(
    node: Node | Step, bound: frozenset[str], following: tuple[Select, ...] = ()
) -> Iterator[tuple[Ident, tuple[Select, ...]]]:
    """Yield each name that is not a macro's variable, with the field names that follow it."""
    match node:
        case Ident():
            if node.rooted or node.name not in bound:
                yield node, following
        case Chain():
            selects = []
            for step in node.steps:
                if not isinstance(step, Select):
                    break
                selects.append(step)
            yield from _free_names(node.base, bound, tuple(selects))
            for step in node.steps:
                yield from _free_names(step, bound)
        case Has():
            yield from _free_names(node.target, bound, ())
        case Macro():
            for part in children(node):
                yield from _free_names(part, bound | {name for _, name in node.names})
        case _:
            for part in children(node):
                yield from _free_names(part, bound)


def _bind(expression: str, test: Message, event: dict[str, Any]) -> str:
    """Replace the variables of the suite by fields of *event*, which is filled, or by literals."""
    container = get(test, "container", b"").decode()
    values = {get(entry, "key").decode(): get(get(entry, "value"), "value") for entry in get_all(test, "bindings")}
    declared = set(values) | {get(entry, "name").decode() for entry in get_all(test, "type_env")}
    edits = []
    for ident, selects in _free_names(parse(expression, Limits()), frozenset()):
        names = [ident.name, *(select.name for select in selects)]
        spelled = [".".join(names[:count]) for count in range(len(names), 0, -1)]
        if (
            not ident.rooted
            and container
            and any(name.startswith(f"{container}.") and name[len(container) + 1 :] in spelled for name in declared)
        ):
            raise LeftOutError(CONTAINER)
        name = next((name for name in spelled if name in declared), None)
        if name is None or name in ("true", "false", "null"):
            continue
        last = selects[name.count(".") - 1] if "." in name else ident
        start = ident.at[1] - 1 - ident.rooted
        end = last.at[1] - 1 + len(last.name)
        if name not in values:
            raise LeftOutError("a declared variable without a value")
        try:
            event[name] = as_json(values[name])
            text = f"data.{name}" if "." not in name else f"data.`{name}`"
        except LookupError:
            text = as_cel(values[name])
        edits.append((start, end, text))
    for start, end, text in sorted(edits, reverse=True):
        expression = expression[:start] + text + expression[end:]
    return expression


def _with_dyn(expression: str) -> str:
    """Wrap the literals of an expression in dyn()."""
    places, stack = [], [parse(expression, Limits())]
    while stack:
        node: Node | Step = stack.pop()
        stack.extend(children(node))
        if isinstance(node, Literal):
            places.append(node.at[1] - 1)
    for start in sorted(places, reverse=True):
        match = re.compile(r"'[^']*'|\"[^\"]*\"|[-0-9.eu]+|true|false|null").match(expression, start)
        assert match is not None
        expression = f"{expression[:start]}dyn({match[0]}){expression[match.end() :]}"
    return expression


def _complaint(expression: str) -> str:
    """Say why our parser or checker refuses an expression; empty if they do not."""
    try:
        compile_cel(expression, Limits())
    except CelError as error:
        return error.reason
    return ""


def _refused(expression: str) -> bool:
    return bool(_complaint(expression))


# --- cases --------------------------------------------------------------------------------------------------------------


@dataclass
class Area:
    name: str
    cases: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def convert(test: Message, name: str) -> str:
    """Return a case as TOML.

    Raises:
        LeftOutError: it has no counterpart.
    """
    expression = get(test, "expr").decode()
    value = get(test, "value", [("bool_value", "true")])
    fails = get(test, "eval_error") is not None
    if re.search(r"(?<!\bin)(?<=\w)\s*{", re.sub(r"//.*| (?={)", "", expression)) or re.search(
        r"google\.protobuf\.(?!Timestamp\b|Duration\b)", expression
    ):
        raise LeftOutError(PROTOBUF)
    data: dict[str, Any] = {}
    expression = _bind(expression, test, data)
    note = None
    unchecked = get(test, "disable_check") == "true"
    question = _error_question(expression) if fails else _question(expression, value)
    if unchecked and _refused(question):
        uncheckable = _with_dyn(expression)
        other = _error_question(uncheckable) if fails else _question(uncheckable, value)
        if not _refused(other):
            expression, question = uncheckable, other
            note = "the suite turns its checker off here; dyn() does the same"
    lines = ["[[case]]", f"name = {_toml(name)}"]
    if note:
        lines.append(f"note = {_toml(note)}")
    event = f"event = {_toml(json.dumps({'data': data}, ensure_ascii=False))}"
    undeclared = _complaint(expression) if unchecked and not fails else ""
    if undeclared.startswith(("undeclared name", "unknown function")):
        lines.append(f"subscription = {_toml(_subscription(expression))}")
        lines.append(f'subscription_error = {{ type = "CelError", contains = {_toml(undeclared.partition(";")[0])} }}')
    elif fails:
        lines.append(f"subscription = {_toml(_subscription(question))}")
        if _refused(question):
            lines.append('subscription_error = { type = "CelError" }')
        else:
            lines += [event, 'expect = "no match"', 'verdict = "error"']
    else:
        lines.append(f"subscription = {_toml(_subscription(question))}")
        holds = value != [("bool_value", "false")]
        lines += [event, f'expect = "{"match" if holds else "no match"}"', f'verdict = "{str(holds).lower()}"']
    return "\n".join(lines) + "\n"


def _question(expression: str, value: Message) -> str:
    """Ask for the expected value, where that is not a bool."""
    ((kind, _),) = value
    if kind == "bool_value":
        return expression
    types = {"int64_value": "int", "uint64_value": "uint", "double_value": "double"}
    if kind in types:
        return f"[{expression}].exists(it, type(it) == {types[kind]} && it == {as_cel(value)})"
    return f"({expression}) == {as_cel(value)}"


def _error_question(expression: str) -> str:
    """Ask for an error, of whatever type the value would be."""
    return f"type({expression}) == bool" if _refused(expression) else expression


def _subscription(expression: str) -> str:
    return json.dumps({"cel": expression}, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(text: str) -> str:
    if "'''" not in text and not text.endswith("'") and text.isprintable():
        return f"'''{text}'''" if any(char in text for char in "\"\\'") else f'"{text}"'
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def convert_area(folder: Path, name: str) -> Area:
    area, seen = Area(name), Counter[str]()
    for section in get_all(read_textproto((folder / f"{name}.textproto").read_text("utf-8")), "section"):
        for test in get_all(section, "test"):
            title = f"{get(section, 'name').decode()}/{get(test, 'name').decode()}"
            seen[title] += 1
            title += f" ({seen[title]})" if seen[title] > 1 else ""
            try:
                area.cases.append(convert(test, title))
                if get(test, "eval_error") is None and "subscription_error" in area.cases[-1]:
                    area.refused.append(title)
            except LeftOutError as reason:
                area.left_out.append((title, str(reason)))
    return area


def main(folder: Path, check: bool) -> int:
    areas = [convert_area(folder, name) for name in AREAS]
    files = {}
    for area in areas:
        header = f"# Converted by testdata/convert_cel_spec.py; do not edit. Origin: {ORIGIN}:\n# {area.name}.textproto.\n\n"
        files[MATCH / f"spec_{area.name}.toml"] = header + "\n".join(area.cases)
    summary = [f"# What testdata/convert_cel_spec.py made of {ORIGIN}.\n# Written by it; do not edit.\n"]
    for area in areas:
        summary.append(f"[{area.name}]\nconverted = {len(area.cases)}\nleft_out = {len(area.left_out)}\n")
        if area.refused:
            listed = "".join(f"    {_toml(title)},\n" for title in area.refused)
            summary.append(
                f"# Of the converted: the suite evaluates them unchecked, the contract refuses them.\nrefused = [\n{listed}]\n"
            )
        reasons = dict.fromkeys(reason for _, reason in area.left_out)
        for reason in reasons:
            titles = [title for title, other in area.left_out if other == reason]
            listed = "".join(f"    {_toml(title)},\n" for title in titles)
            summary.append(f"[[{area.name}.reasons]]\nreason = {_toml(reason)}\ncases = [\n{listed}]\n")
    files[SUMMARY] = "\n".join(summary)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in () if check else stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
    for area in areas:
        reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(reason for _, reason in area.left_out).items())
        print(f"{area.name:14} {len(area.cases):4} converted, {len(area.left_out):3} left out{': ' + reasons if reasons else ''}")
    print(f"{'all':14} {sum(len(a.cases) for a in areas):4} converted, {sum(len(a.left_out) for a in areas):3} left out")
    if check and stale:
        print("out of date:", *(path.name for path in stale))
    return bool(check and stale)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    sys.exit(main(Path(arguments[0]), "--check" in sys.argv))
