"""Call Python functions from CEL: `Engine(cel_functions={"is_vip": is_vip})`.

```
is_vip(data.user) ─► copy of the argument, plain Python ─► is_vip({"id": 7}) ─► True ─► checked copy of the result
```

Invariant: a function never gets a value that other code uses, so it may store or change its arguments; its result is copied
before use. Every `Exception` becomes an error of CEL, and so not a match; `KeyboardInterrupt` and similar ones pass through.

Cost: a unit for each element copied in either direction, and the string work of texts (docs/cel-cost.md). The author is
responsible for a function's running time, because Python code cannot be stopped from outside.

Rejected: cel-python's own types as arguments, which have no `bool` and print as `StringType('a')`; read-only views instead of
copies, because `json.dumps`, `isinstance` and pattern matching need a dict.
"""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from streamer.cel_eval.values import (
    TYPE_NAMES,
    CelReason,
    CelType,
    Duration,
    Failure,
    OptionalValue,
    Timestamp,
    Value,
    as_key,
    from_key,
    read,
)
from streamer.errors import ConfigError
from streamer.model import INT64_MIN, UINT64_MAX, is_unicode

if TYPE_CHECKING:
    from streamer.cel_eval.check import Arity
    from streamer.cel_eval.evaluate import Run

Function: TypeAlias = Callable[..., Any]

#: The nesting limit of a function's result.
MAX_DEPTH: Final = 512
#: The most characters of an exception's message that are shown.
SHOWN: Final = 200

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnusableError(Exception):
    """A function returned a value that CEL does not have."""


@final
class Functions(Mapping[str, Function]):
    """The functions of an engine, by name; immutable.

    Raises:
        ConfigError: a name is invalid or has a meaning in CEL; a value is not callable; a function is a coroutine function.
    """

    __slots__ = ("_functions", "arities")

    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        if functions is not None and not isinstance(functions, Mapping):
            raise ConfigError(f"expected a mapping of names to functions, not {type(functions).__name__}", place="cel_functions")
        self._functions: Final = dict(functions or {})
        self.arities: Final[Mapping[str, Arity]] = {name: _arity(name, each) for name, each in self._functions.items()}

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        return f"<Functions: {', '.join(sorted(self._functions)) or 'none'}>"

    def __copy__(self) -> Functions:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Functions:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        for name, function in self._functions.items():
            try:
                pickle.dumps(function)
            except Exception as error:
                reason = f"cel_functions[{name!r}] cannot be pickled, and so neither can its engine: {_words(error)}"
                advice = "a function at the top of a module can; a lambda or one inside another function cannot"
                raise pickle.PicklingError(f"{reason}; {advice}") from error
        return Functions, (self._functions,)

    def call(self, run: Run, name: str, args: list[Value]) -> Value:
        """Return the result of a function, or a `Failure`; the evaluation is charged for the copies."""
        copies = []
        for arg in args:
            copy = _to_python(run, arg)
            if type(copy) is Failure:
                return copy
            copies.append(copy)
        try:
            result = self._functions[name](*copies)
        except Exception as error:
            return Failure(CelReason.FUNCTION, f"{name}() raised {type(error).__name__}: {_words(error)}")
        try:
            return _from_python(run, result)
        except UnusableError as error:
            return Failure(CelReason.FUNCTION, f"{name}() returned {error}")


@cache
def _reserved() -> frozenset[str]:
    """Return the names that have a meaning in CEL; their modules are imported late, because most engines have no functions."""
    from streamer.cel_eval.parse import MACROS, MACROS_OF_TWO, RESERVED
    from streamer.cel_eval.types import FUNCTIONS, METHODS, VARIABLES

    names = (RESERVED, FUNCTIONS, METHODS, MACROS, MACROS_OF_TWO, VARIABLES, TYPE_NAMES)
    return frozenset({"has", "in", "true", "false", "null"}.union(*names))


def _arity(name: str, function: Function) -> Arity:
    place = f"cel_functions[{name!r}]"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError("the name of a function is made of letters, digits and _, and does not begin with a digit", place=place)
    if name in _reserved():
        raise ConfigError(f"`{name}` has a meaning in CEL already; choose another name", place=place)
    if not callable(function):
        raise ConfigError(f"expected a function, not {type(function).__name__}", place=place)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError("a function cannot be `async`, because a match does not wait", place=place)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # many functions in C have no signature
        return 0, None
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        raise ConfigError("CEL has no arguments by name, and this function needs one", place=place)
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return sum(each.default is each.empty for each in positional), None if is_open else len(positional)


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return "an exception that cannot be printed"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


# --- copies, by loops: values may be deeper than Python's stack, or contain themselves ----------------------------------


def _to_python(run: Run, value: Value) -> Any:
    """Return a copy of a value as plain Python, or a `Failure` if a part of it cannot be read."""
    root: list[Any] = [None]
    pending: list[tuple[Value, Any, Any]] = [(value, root, 0)]
    while pending:
        item, into, at = pending.pop()
        item = read(item)
        match item:
            case Failure():
                return item
            case list():
                run.charge(len(item))
                into[at] = made = [None] * len(item)
                pending.extend((each, made, index) for index, each in enumerate(item))
            case dict():
                run.charge(len(item))
                names = [from_key(key) for key in item]
                run.charge_text(*(name for name in names if isinstance(name, str)))
                into[at] = members = dict.fromkeys(names)
                if len(members) < len(names):
                    return Failure(CelReason.BAD_KEY, "keys that are one for Python, as 1 and true")
                pending.extend((each, members, name) for name, each in zip(names, item.values(), strict=True))
            case str() | bytes():
                run.charge_text(item)
                into[at] = item
            case bool() | float() | None:
                into[at] = item
            case int():
                into[at] = int(item)
            case Timestamp(ns):
                into[at] = _EPOCH + ns // 1000 * _MICROSECOND
            case Duration(ns):
                into[at] = ns // 1000 * _MICROSECOND
            case CelType(name):
                into[at] = name
            case OptionalValue(inner, has_value):
                pending.append((inner if has_value else None, into, at))
    return root[0]


def _from_python(run: Run, value: Any) -> Value:
    """Return a copy of a function's result.

    Raises:
        UnusableError: CEL does not have such a value; the error names it.
    """
    root: list[Value] = [None]
    pending: list[tuple[Any, Any, Any, int]] = [(value, root, 0, 0)]
    while pending:
        item, into, at, depth = pending.pop()
        if isinstance(item, list | tuple):
            items = list(item)
            run.charge(len(items))
            into[at] = made = [None] * len(items)
            pending.extend((each, made, index, depth + 1) for index, each in enumerate(items))
        elif isinstance(item, dict):
            members: dict[Any, Value] = {}
            run.charge(len(item))
            for key, each in dict.items(item):
                name = _scalar(run, key)
                if type(name) is float or not isinstance(name, bool | int | str):
                    raise UnusableError(f"a dict with a key of type {type(key).__name__}; expected str, int or bool")
                members[as_key(name)] = None
                pending.append((each, members, as_key(name), depth + 1))
            into[at] = members
        else:
            into[at] = _scalar(run, item)
        if depth > MAX_DEPTH:
            raise UnusableError(f"a value nested more than {MAX_DEPTH} levels deep, or in itself")
    return root[0]


def _scalar(run: Run, item: Any) -> Value:
    if item is None or type(item) is bool:
        return item
    if isinstance(item, int):
        number = int.__int__(item)
        # cel-python's bool is a subclass of int.
        if type(item).__name__ == "BoolType":
            return bool(number)
        if not INT64_MIN <= number <= UINT64_MAX:
            raise UnusableError("an int beyond 64 bits")
        return read(number)
    if isinstance(item, float):
        return float.__float__(item)
    if isinstance(item, str):
        text = str.__str__(item)
        if not is_unicode(text):
            raise UnusableError("a str with half of a surrogate pair")
        run.charge_text(text)
        return text
    if isinstance(item, bytes | bytearray):
        octets = bytes(item)
        run.charge_text(octets)
        return octets
    if isinstance(item, datetime):
        from streamer.cel_eval import times

        if item.utcoffset() is None:
            raise UnusableError("a datetime without a time zone")
        return _usable(times.timestamp((item - _EPOCH) // _MICROSECOND * 1000))
    if isinstance(item, timedelta):
        from streamer.cel_eval import times

        return _usable(times.duration(item // _MICROSECOND * 1000))
    expected = "None, bool, int, float, str, bytes, list, tuple, dict, datetime or timedelta"
    raise UnusableError(f"a value of type {type(item).__name__}; expected {expected}")


def _usable(value: Timestamp | Duration | Failure) -> Timestamp | Duration:
    if isinstance(value, Failure):
        raise UnusableError(value.detail)
    return value
