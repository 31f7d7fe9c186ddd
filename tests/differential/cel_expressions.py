"""Random CEL expressions and documents, from a seed: every production of the grammar, every function, and mistakes."""

from __future__ import annotations

import random
from typing import Any

KINDS = ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "timestamp", "duration", "null", "type")

LITERALS: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int": ("0", "1", "2", "-1", "7", "0x10", "42", "9007199254740993", "9223372036854775807", "-9223372036854775808"),
    "uint": ("0u", "1u", "2U", "0xffu", "42u", "18446744073709551615u", "9223372036854775808u"),
    "double": ("0.0", "-0.0", "1.0", "0.5", ".25", "-1.5", "1e3", "1e-7", "2.5e+10", "9007199254740992.0", "1e19", "42.0"),
    "string": (
        "''",
        "'a'",
        '"ab"',
        "'1'",
        "'-7'",
        "'true'",
        "'é'",
        "'z\\u00df'",
        "r'\\d'",
        "'''x\ny'''",
        "'\\U0001F600'",
        "'1.5'",
        "'a.c'",
    ),
    "bytes": ("b''", "b'a'", 'b"\\xff"', "b'\\303\\251'", "br'\\x'", "b'''ab'''"),
    "timestamp": (
        "timestamp('2009-02-13T23:31:30Z')",
        "timestamp('1969-12-31T23:59:59.999999999Z')",
        "timestamp('2024-02-29T12:00:00.5+05:30')",
        "timestamp(0)",
        "timestamp(-1)",
        "timestamp('0001-01-01T00:00:00Z')",
        "timestamp('9999-12-31T23:59:59.999999999Z')",
    ),
    "duration": (
        "duration('0s')",
        "duration('1s')",
        "duration('-1.5s')",
        "duration('1h30m')",
        "duration('100ms')",
        "duration('2562047h')",
    ),
    "null": ("null",),
    "type": ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "google.protobuf.Timestamp"),
}

FIELDS: dict[str, str] = {
    "i": "int",
    "j": "int",
    "d": "double",
    "b": "bool",
    "n": "null",
    "s": "string",
    "p": "string",
    "t": "string",
    "l": "list",
    "m": "map",
}

ZONES = ("", "UTC", "+01:00", "-02:30", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Nowhere/City")
GETTERS = (
    *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
REGEXPS = ("'^a'", "'[a-c]+'", "'\\\\d+$'", "'(a|b)*c'", "''", "'.'", "r'\\w'", "'(?i)A'")


class Expressions:
    """Makes expressions; `bool_` is what a program may be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names: list[str] = []

    def program(self) -> str:
        """Return an expression that mostly is a bool."""
        return self.of("bool", self.random.choice((1, 2, 2, 3, 3, 4)))

    def of(self, kind: str, depth: int) -> str:
        """Return an expression that mostly is of *kind*, about *depth* deep."""
        choose = self.random
        if choose.random() < 0.04:
            return f"dyn({self.of(choose.choice(KINDS), min(depth, 1))})"
        if choose.random() < 0.12:
            return self.read(kind)
        if depth <= 0:
            return self.leaf(kind)
        if choose.random() < 0.06:
            return f"({self.of('bool', depth - 1)} ? {self.of(kind, depth - 1)} : {self.of(kind, depth - 1)})"
        made: str = getattr(self, f"{kind}_")(depth - 1)
        return made

    def leaf(self, kind: str) -> str:
        if kind == "list":
            return self.random.choice(("[]", "[1, 2, 3]", "['a', 'b']", "[1, 1.0, 1u]", "[null, true]", "[[1], [2]]", "[1.5,]"))
        if kind == "map":
            maps = ("{}", "{'a': 1}", "{'a': 1, 'b': [1]}", "{1: 'x', 2u: 'y'}", "{true: 1,}", "{'a-b': null}")
            return self.random.choice(maps)
        return self.random.choice(LITERALS[kind])

    def read(self, kind: str) -> str:
        """Return a field of the document, mostly of *kind*; or a macro's variable."""
        if self._names and self.random.random() < 0.5:
            return self.random.choice(self._names)
        fitting = [name for name, other in FIELDS.items() if other == kind] or list(FIELDS)
        name = self.random.choice(fitting if self.random.random() < 0.9 else [*FIELDS, "missing"])
        return self.random.choice((f"data.{name}", f"data.{name}", f"data['{name}']", f"data.`{name}`"))

    def any(self, depth: int) -> str:
        return self.of(self.random.choice(KINDS), depth)

    # --- by kind

    def bool_(self, depth: int) -> str:
        choose = self.random
        kind = choose.choice(KINDS)
        match choose.randrange(16):
            case 0 | 1:
                return f"{self.of('bool', depth)} {choose.choice(('&&', '||'))} {self.of('bool', depth)}"
            case 2:
                return f"!{self.operand('bool', depth)}"
            case 3 | 4:
                return f"{self.operand(kind, depth)} {choose.choice(('==', '!='))} {self.operand(kind, depth)}"
            case 5:
                op = choose.choice(("==", "!=", "<", "<=", ">", ">="))
                return f"dyn({self.number(depth)}) {op} {self.operand(choose.choice(('int', 'uint', 'double')), depth)}"
            case 6 | 7:
                ordered = choose.choice(("int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration"))
                return f"{self.operand(ordered, depth)} {choose.choice(('<', '<=', '>', '>='))} {self.operand(ordered, depth)}"
            case 8:
                return f"dyn({self.any(depth)}) in {self.operand('list', depth)}"
            case 9:
                return f"{self.operand('string', depth)} in data"
            case 10:
                target = choose.choice(("data", "data.m", "data.l", "data.missing", self.leaf("map")))
                return f"has({target}.{choose.choice(('a', 'i', 'missing'))})"
            case 11:
                method = choose.choice(("contains", "startsWith", "endsWith"))
                return f"{self.target('string', depth)}.{method}({self.of('string', depth)})"
            case 12:
                regexp = choose.choice(REGEXPS)
                if choose.random() < 0.5:
                    return f"matches({self.of('string', depth)}, {regexp})"
                return f"{self.target('string', depth)}.matches({regexp})"
            case 13:
                return f"bool({self.of(choose.choice(('bool', 'string')), depth)})"
            case _:
                macro = choose.choice(("all", "exists", "exists_one"))
                return self.macro(macro, "bool", depth)

    def number(self, depth: int) -> str:
        return self.of(self.random.choice(("int", "uint", "double")), depth)

    def operand(self, kind: str, depth: int) -> str:
        made = self.of(kind, depth)
        return made if made.isalnum() or (made.endswith("'") and made.count("'") == 2) else f"({made})"

    target = operand

    def macro(self, name: str, result: str, depth: int) -> str:
        variable = self.random.choice(("x", "y", "k"))
        over = self.target(self.random.choice(("list", "list", "map")), depth)
        self._names.append(variable)
        body = self.of(result, depth)
        filtered = f"{self.of('bool', depth)}, " if name == "map" and self.random.random() < 0.3 else ""
        self._names.pop()
        return f"{over}.{name}({variable}, {filtered}{body})"

    def arithmetic(self, kind: str, ops: tuple[str, ...], depth: int) -> str:
        return f"{self.operand(kind, depth)} {self.random.choice(ops)} {self.operand(kind, depth)}"

    def int_(self, depth: int) -> str:
        choose = self.random
        match choose.randrange(7):
            case 0 | 1:
                return self.arithmetic("int", ("+", "-", "*", "/", "%"), depth)
            case 2:
                return f"-{self.operand('int', depth)}"
            case 3:
                return f"int({self.of(choose.choice(('int', 'uint', 'double', 'string', 'timestamp')), depth)})"
            case 4:
                kind = choose.choice(("string", "bytes", "list", "map"))
                return f"size({self.of(kind, depth)})" if choose.random() < 0.5 else f"{self.target(kind, depth)}.size()"
            case 5:
                zone = f"'{choose.choice(ZONES)}'" if choose.random() < 0.5 else ""
                return f"{self.target('timestamp', depth)}.{choose.choice(GETTERS)}({zone})"
            case _:
                return f"{self.target('duration', depth)}.{choose.choice(GETTERS[6:])}()"

    def uint_(self, depth: int) -> str:
        if self.random.random() < 0.6:
            return self.arithmetic("uint", ("+", "-", "*", "/", "%"), depth)
        return f"uint({self.of(self.random.choice(('int', 'uint', 'double', 'string')), depth)})"

    def double_(self, depth: int) -> str:
        if self.random.random() < 0.6:
            return self.arithmetic("double", ("+", "-", "*", "/"), depth)
        return f"double({self.of(self.random.choice(('int', 'uint', 'double', 'string')), depth)})"

    def string_(self, depth: int) -> str:
        if self.random.random() < 0.5:
            return self.arithmetic("string", ("+",), depth)
        kinds = ("string", "bool", "int", "uint", "double", "bytes", "timestamp", "duration")
        return f"string({self.of(self.random.choice(kinds), depth)})"

    def bytes_(self, depth: int) -> str:
        if self.random.random() < 0.5:
            return self.arithmetic("bytes", ("+",), depth)
        return f"bytes({self.of(self.random.choice(('string', 'bytes')), depth)})"

    def list_(self, depth: int) -> str:
        match self.random.randrange(5):
            case 0:
                return f"dyn({self.of('list', depth)}) + {self.operand('list', depth)}"
            case 1:
                return self.macro("filter", "bool", depth)
            case 2:
                return self.macro("map", self.random.choice(KINDS), depth)
            case _:
                items = [self.any(depth) for _ in range(self.random.randrange(4))]
                return f"[{', '.join(items)}{',' if items and self.random.random() < 0.2 else ''}]"

    def map_(self, depth: int) -> str:
        entries = []
        for _ in range(self.random.randrange(3)):
            key = self.of(self.random.choice(("string", "string", "int", "uint", "bool")), min(depth, 1))
            entries.append(f"{key}: {self.any(depth)}")
        return f"{{{', '.join(entries)}}}"

    def timestamp_(self, depth: int) -> str:
        match self.random.randrange(3):
            case 0:
                return f"{self.operand('timestamp', depth)} {self.random.choice('+-')} {self.operand('duration', depth)}"
            case 1:
                return f"timestamp({self.random.choice(('data.t', self.of('int', depth), self.of('timestamp', depth)))})"
            case _:
                return self.leaf("timestamp")

    def duration_(self, depth: int) -> str:
        match self.random.randrange(3):
            case 0:
                return f"{self.operand('duration', depth)} {self.random.choice('+-')} {self.operand('duration', depth)}"
            case 1:
                return f"{self.operand('timestamp', depth)} - {self.operand('timestamp', depth)}"
            case _:
                return self.leaf("duration")

    def null_(self, depth: int) -> str:
        return "null"

    def type_(self, depth: int) -> str:
        return f"type({self.any(depth)})"

    # --- documents

    def document(self) -> dict[str, Any]:
        """Return a document that mostly has the fields, mostly of their kinds."""
        made: dict[str, Any] = {}
        for name, kind in FIELDS.items():
            if self.random.random() < 0.85:
                made[name] = self.value(kind if self.random.random() < 0.85 else self.random.choice(list(FIELDS.values())), name)
        return made

    def value(self, kind: str, name: str = "") -> Any:
        choose = self.random
        match kind:
            case "int":
                return choose.choice((0, 1, -1, 7, 42, 2**53 + 1, 2**63 - 1, -(2**63)))
            case "double":
                return choose.choice((0.0, 1.0, -1.5, 0.5, 42.0, 2.0**53, 1e300))
            case "string" if name == "t":
                return choose.choice(("2009-02-13T23:31:30Z", "2024-02-29T12:00:00+02:00", "yesterday"))
            case "string":
                return choose.choice(("", "a", "ab", "é", "😀", "42", "true", "abc.def"))
            case "bool":
                return choose.random() < 0.5
            case "list":
                scalars = ("int", "string", "double", "bool", "null")
                return [self.value(choose.choice(scalars)) for _ in range(choose.randrange(4))]
            case "map":
                keys = choose.sample(("a", "b", "i"), choose.randrange(4))
                return {key: self.value(choose.choice(("int", "string", "list"))) for key in keys}
            case _:
                return None
