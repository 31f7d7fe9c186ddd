"""The row of an extension function: its signatures and its implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from streamer.cel_eval.values import TYPES, CelReason, Failure, Value, no_overload, read

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

Implementation: TypeAlias = Callable[..., Value]
"""Takes the run and the arguments, whose types fit a signature."""

#: A parameter of any of the three types of numbers.
NUMBER: Final = "number"
_NUMBERS: Final = frozenset({"int", "uint", "double"})


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A function of an extension library.

    Attributes:
        signatures: each as `string, int -> string`; the parameters are names of types, `dyn` takes any value.
        implementation: computes the result for arguments that fit a signature.
        takes_many: it also takes two or more numbers.
    """

    signatures: tuple[str, ...]
    implementation: Implementation
    takes_many: bool = False

    def overloads(self, count: int) -> list[tuple[list[str], str]]:
        """Return the names of the parameters' types and of the result's, for a number of arguments."""
        if self.takes_many and count > 1:
            return [([NUMBER] * count, "dyn")]
        return [_split(signature) for signature in self.signatures]


def row(implementation: Implementation, *signatures: str, takes_many: bool = False) -> Row:
    return Row(signatures, implementation, takes_many)


@cache
def _split(signature: str) -> tuple[list[str], str]:
    params, _, result = signature.partition("->")
    return [name.strip() for name in params.split(",") if name.strip()], result.strip()


def function(name: str, overloads: Row) -> Callable[[Run, list[Value]], Value]:
    """Return the function of a row: it refuses arguments that fit no signature."""

    def call(run: Run, args: list[Value]) -> Value:
        kinds = [TYPES[type(arg)].name for arg in args]
        if not any(_fits(params, kinds) for params, _ in overloads.overloads(len(args))):
            return no_overload(name, args)
        return overloads.implementation(run, *args)

    return call


def _fits(params: list[str], kinds: list[str]) -> bool:
    return len(params) == len(kinds) and all(
        param in (kind, "dyn") or (param == NUMBER and kind in _NUMBERS) for param, kind in zip(params, kinds, strict=True)
    )


def readable(items: list[Value]) -> list[Value] | Failure:
    """Return the elements of a list as values, or the error of the first one that is unreadable."""
    values = []
    for item in items:
        value = read(item)
        if type(value) is Failure:
            return value
        values.append(value)
    return values


def bad_value(words: str) -> Failure:
    return Failure(CelReason.BAD_VALUE, words)


def out_of_range(index: int, size: int, what: str) -> Failure:
    return Failure(CelReason.INDEX_OUT_OF_RANGE, f"index {index} of a {what} of {size}")


def charge_sorting(run: Run, count: int, *texts: Any) -> None:
    """Count the work of sorting: a unit for each element, and the string work of all texts, for each bit of *count*."""
    for _ in range(count.bit_length()):
        run.charge(count)
        run.charge_text(*texts)
