"""What fields of every section are made of: numbers, paths, names, lists, each with its error; and a section itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

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

from streamer.config.yaml import kind_of, leading_zero, shown
from streamer.model import INT64_MAX


def number(value: Any) -> Any:
    """Refuse for a number what is none in a file: pydantic takes true for 1, and `010` of the environment for 10."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number, not {shown}", {"shown": str(value).lower()})
    if isinstance(value, str) and (reason := leading_zero(value)) is not None:
        raise PydanticCustomError("number", "{reason}", {"reason": reason})
    return value


def _no_number(value: Any) -> Any:
    """Refuse a number for true or false; of the environment, `1` is text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("bool", "expected true or false, not {shown}", {"shown": shown(value)})
    return value


def wrong_inside(faults: Sequence[tuple[tuple[str | int, ...], str]]) -> PydanticCustomError:
    """Make one error of all that is wrong inside a value, each with the names that lead to it; the loader takes it apart."""
    return PydanticCustomError(
        "inside", "{reason}", {"reason": "; ".join(reason for _, reason in faults), "faults": list(faults)}
    )


def _files(value: Any) -> Any:
    """Take one path for a list of it, as `STREAMER_SUBSCRIPTIONS=a.jsonl` says it, and nothing for none."""
    if isinstance(value, str | os.PathLike):
        return [value]
    if value is not None and not isinstance(value, list | tuple):
        raise PydanticCustomError("files", "expected the path of a file, or a list of them, not {kind}", {"kind": kind_of(value)})
    return value or ()


def as_names(value: Any) -> Any:
    """Take nothing, as where every line of it is a comment, for no names."""
    return {} if value is None else value


def as_list(value: Any) -> Any:
    """Take nothing for no list."""
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
    """A part of the tree. Unknown names are errors; null, as where every line of a section is a comment, is its defaults."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may be a secret that stands where none may
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_the_defaults(cls, value: Any) -> Any:
        return {} if value is None else value


#: As an environment variable can say it, too: its two underscores stand between names.
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=63)]
