"""The format of a source's messages, and the registry of their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, final, get_args

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from streamer.config.schema.claims import Claim
from streamer.config.schema.urls import checked_url
from streamer.config.schema.values import File, Section, wrong_inside
from streamer.config.secret import Secret

#: `matching.format` and `matching.layout` apply to `json`; a decoder of `streamer.cdc` reads all other formats.
SourceFormat: TypeAlias = Literal[
    "json", "canal", "cloudevents", "debezium", "debezium_unwrapped", "dynamodb", "mongodb", "wal2json"
]
#: The encoding of a message.
Encoding: TypeAlias = Literal["json", "avro", "protobuf", "json_schema"]


def _address(url: str) -> str:
    checked_url(url, "write them into `user` and `password`")
    if "?" in url:
        raise PydanticCustomError("url", "{reason}", {"reason": "expected no query, from ? on: paths are added to the URL"})
    return url.rstrip("/")


@final
class Registry(Section):
    """The registry of schemas, with the API of Confluent's (docs/registry.md)."""

    url: Annotated[str, AfterValidator(_address)] | None = None
    """Its address, as `https://HOST:8081`; of Apicurio's as `https://HOST/apis/ccompat/v7`."""
    user: Annotated[str, Field(min_length=1)] | None = None
    """The name, or the key of an API, if the registry wants one."""
    password: Secret | None = None
    """The password: its place, never the password itself."""
    ca: File | None = None
    """Certificates to trust in place of the system's, in PEM; relative to the configuration file."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        yield from self.reads("ca")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        if self.url is None:
            wrong += [(("url",), f"expected next to {name}") for name in ("user", "password", "ca") if getattr(self, name)][:1]
        if (self.user is None) != (self.password is None):
            wrong.append((("password" if self.password is None else "user",), "expected user and password, or none of them"))
        if self.ca is not None and self.url is not None and not self.url.startswith("https:"):
            wrong.append((("ca",), "expected a url that begins with https:"))
        if wrong:
            raise wrong_inside(wrong)
        return self


@final
class Format(Section):
    """The format of a message. A plain name, such as `format: debezium`, is short for that format in JSON."""

    name: SourceFormat = "json"
    """The content of a message: `json` is an event of `matching.format`; the others need a decoder (docs/sources.md)."""
    encoding: Encoding = "json"
    """How the content is encoded: `json` is JSON text; the others need a schema from the registry (docs/registry.md)."""
    key_encoding: Encoding | None = None
    """How keys are encoded; null: like the value. A key that begins with no id of a schema stays as it is."""
    registry: Registry = Field(default_factory=Registry)

    SHORT: ClassVar[str] = "name"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        encoded = [name for name in ("encoding", "key_encoding") if getattr(self, name) not in (None, "json")]
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        if encoded and self.registry.url is None:
            wrong.append((("registry", "url"), f"expected next to {encoded[0]}: {getattr(self, encoded[0])}"))
        if not encoded and self.registry.url is not None:
            wrong.append((("encoding",), "expected avro, protobuf or json_schema next to registry"))
        if self.name == "cloudevents" and self.encoding != "json":
            wrong.append((("encoding",), "cloudevents are read only in JSON; expected json"))
        if wrong:
            raise wrong_inside(wrong)
        return self

    @property
    def of_keys(self) -> Encoding:
        """The encoding of keys."""
        return self.encoding if self.key_encoding is None else self.key_encoding

    @property
    def is_encoded(self) -> bool:
        """Whether the registry is needed to read messages."""
        return self.registry.url is not None


@final
class _OrName:
    """Accepts the name of a format in place of a format."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "enum": list(get_args(SourceFormat))}, handler(core)]}


FormatOrName: TypeAlias = Annotated[Format, _OrName]
