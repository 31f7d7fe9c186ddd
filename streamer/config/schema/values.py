"""The types of fields that all sections share (numbers, paths, names, lists), each with its errors, and the base of sections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import OWNS, READS, Claim, Placed
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.claims import shown as shown_place
from streamer.config.secret import SecretValue
from streamer.config.yaml import kind_of, leading_zero, shown
from streamer.model import INT64_MAX


def number(value: Any) -> Any:
    """Refuse values that are not numbers in a file: pydantic accepts true as 1, and `010` in a variable as 10."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number, not {shown}", {"shown": str(value).lower()})
    if isinstance(value, str) and (reason := leading_zero(value)) is not None:
        raise PydanticCustomError("number", "{reason}", {"reason": reason})
    return value


def _no_number(value: Any) -> Any:
    """Refuse a number in place of true or false. In an environment variable, `1` is text and so allowed."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("bool", "expected true or false, not {shown}", {"shown": shown(value)})
    return value


def wrong_inside(faults: Sequence[tuple[tuple[str | int, ...], str]]) -> PydanticCustomError:
    """Return one error for several faults inside a value, each with its path from there; the loader splits it again."""
    return PydanticCustomError(
        "inside", "{reason}", {"reason": "; ".join(reason for _, reason in faults), "faults": list(faults)}
    )


def _files(value: Any) -> Any:
    """Turn a single path, as in `STREAMER_SUBSCRIPTIONS=a.jsonl`, into a list, and null into an empty list."""
    if isinstance(value, str | os.PathLike):
        return [value]
    if value is not None and not isinstance(value, list | tuple):
        raise PydanticCustomError("files", "expected the path of a file, or a list of them, not {kind}", {"kind": kind_of(value)})
    return value or ()


def as_names(value: Any) -> Any:
    """Turn null, for example a mapping whose lines are all comments, into an empty mapping."""
    return {} if value is None else value


def as_list(value: Any) -> Any:
    """Turn null into an empty list."""
    return () if value is None else value


def _path(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise PydanticCustomError("file", "expected the path of a file", {})
    if "\0" in os.fsdecode(value):
        raise PydanticCustomError("file", "expected a path without U+0000", {})
    return Path(value)


Whole: TypeAlias = Annotated[int, Field(ge=1, le=INT64_MAX), BeforeValidator(number)]
Bool: TypeAlias = Annotated[bool, BeforeValidator(_no_number)]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), BeforeValidator(number)]
File: TypeAlias = Annotated[
    Path,
    PlainValidator(_path),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
_FILES_SCHEMA: Final = {
    "anyOf": [
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"type": "string", "minLength": 1},
        {"type": "null"},
    ]
}
Files: TypeAlias = Annotated[tuple[File, ...], BeforeValidator(_files), WithJsonSchema(_FILES_SCHEMA)]


class Section(BaseModel):
    """A part of the tree. Unknown names are errors. Null, for example if all its lines are comments, means its defaults."""

    #: The field that is set if the section is written as a text; None if it cannot be.
    SHORT: ClassVar[str | None] = None

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,  # it may be a secret in a field that is not for secrets
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_the_defaults(cls, value: Any) -> Any:
        return {} if value is None else cls.written_out(value)

    @classmethod
    def written_out(cls, value: Any) -> Any:
        """Return a section as names and values, if it is written as a text."""
        return {cls.SHORT: value} if cls.SHORT is not None and isinstance(value, str) else value

    def claims(self) -> Iterable[Claim]:
        """Yield claims for the resources that the section reads, appends to or owns, without those of the sections in it."""
        return ()

    def reads(self, *names: str) -> Iterator[Claim]:
        """Yield a shared claim for the file in each of the named fields that is set: others may read the file, too."""
        for name in names:
            if (path := getattr(self, name)) is not None:
                yield Claim((name,), READS, OneFile(path), f"this is {{}}.{name}")

    def placed(self, place: tuple[str | int, ...] = ()) -> Iterator[Placed]:
        """Yield the claims of the section and of the sections in it, each with its place; user-named sections come last.

        A file in a field without a claim counts as owned, and the file of a secret as read.
        """
        claims = list(self.claims())
        yield from (Placed(place, claim) for claim in claims)
        claimed = {claim.field[0] for claim in claims if claim.field}
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        for name, value in sorted(fields.items(), key=lambda field: isinstance(field[1], Mapping)):
            for step, each in _parts(value):
                where = (*place, name, *step)
                if isinstance(each, Section):
                    yield from each.placed(where)
                elif isinstance(each, Path) and name not in claimed:
                    yield Placed(place, Claim((name, *step), OWNS, OneFile(each), f"this is {shown_place(where)}"))
                elif isinstance(each, SecretValue) and each.kind == "file":
                    yield Placed(place, Claim((name, *step), READS, OneFile(Path(each.name)), f"this is {shown_place(where)}"))


def _parts(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield each value in a field, with its path from the field."""
    match value:
        case Mapping():
            yield from (((name,), each) for name, each in value.items())
        case tuple():
            yield from (((index,), each) for index, each in enumerate(value))
        case _:
            yield (), value


#: A name without double underscores, which separate names in environment variables.
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=63)]
