"""A secret of a configuration: its location, never its value.

A file or a variable contains it, and it is read on use. So code that prints, pickles or compares a configuration never has the
value, and a changed secret is used from the next time on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from streamer.config.yaml import kind_of, shown
from streamer.errors import ConfigError

#: A longer file is probably the wrong one.
MAX_BYTES: Final = 64 * 1024
_EXPECTED: Final = "expected {env: VARIABLE} or {file: PATH}"


@final
@dataclass(frozen=True, slots=True)
class SecretValue:
    """The location of a secret.

    Attributes:
        kind: `env` for an environment variable, `file` for a file.
        name: the name of the variable, or the path.
    """

    kind: Literal["env", "file"]
    name: str

    def reveal(self, environment: Mapping[str, str] | None = None) -> str:
        """Read the secret; one newline at the end of a file is ignored.

        Args:
            environment: variables; by default those of the process.

        Raises:
            ConfigError: the secret is missing, empty, or not text. The message never contains the value.
        """
        if self.kind == "env":
            value = (os.environ if environment is None else environment).get(self.name, "")
            if not value:
                raise ConfigError(f"the variable {shown(self.name)} is not set, or empty")
            return value
        try:
            with open(self.name, "rb") as file:
                read = file.read(MAX_BYTES + 1)
            if len(read) > MAX_BYTES:
                raise ConfigError(f"{shown(self.name)}: more than the {MAX_BYTES:,} bytes that a secret may have")
            text = read.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise ConfigError(f"{shown(self.name)}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{shown(self.name)}: no UTF-8") from None
        if not text:
            raise ConfigError(f"{shown(self.name)}: empty")
        return text

    def members(self) -> dict[str, str]:
        """Return the location as a mapping, as a configuration file has it."""
        return {self.kind: self.name}


def _secret(value: Any) -> SecretValue:
    if isinstance(value, SecretValue):
        return value
    # A wrong value here may be the secret itself, so messages never repeat it.
    if not isinstance(value, Mapping):
        raise PydanticCustomError("secret", "{reason}", {"reason": f"{_EXPECTED}, not {kind_of(value)}"})
    if len(value) != 1 or not {"env", "file"} & value.keys():
        raise PydanticCustomError("secret", "{reason}", {"reason": f"{_EXPECTED}, without other members"})
    ((kind, name),) = value.items()
    if not isinstance(name, str | Path) or not str(name):
        raise PydanticCustomError("secret", "{reason}", {"reason": f"{_EXPECTED}"})
    if "\0" in str(name):
        raise PydanticCustomError("secret", "{reason}", {"reason": f"{_EXPECTED}, without U+0000"})
    return SecretValue(kind, str(name))


Secret: TypeAlias = Annotated[
    SecretValue,
    PlainValidator(_secret),
    PlainSerializer(SecretValue.members, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {name: {"type": "string", "minLength": 1}},
                    "required": [name],
                    "additionalProperties": False,
                }
                for name in ("env", "file")
            ]
        }
    ),
]
"""A field that contains a secret: `{env: VARIABLE}` or `{file: PATH}`."""
