"""The reference of the site: a page for each module that programs import from, made of docstrings.

The names are those that engine.md lists under 'Where the names are', and the errors. A docstring is Markdown with sections
`Args:`, `Returns:`, `Raises:` and so on, each a list of `name: text`.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent
SECTION: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields):\s*(.*)")
#: A signature that is longer has a parameter a line.
WIDTH: Final = 72


def names() -> dict[str, list[str]]:
    """Return what programs import, by the module to import it from, in the order of the table of engine.md."""
    section = (DOCS / "engine.md").read_text(encoding="utf-8").split("## Where the names are", 1)[1].split("\n## ", 1)[0]
    found: dict[str, list[str]] = {}
    place = ""
    for first, rest in re.findall(r"^\| *(\S*) *\|(.*)\|$", section, re.M)[1:]:
        place = first.strip("`") or place
        if place.startswith("streamer"):
            found.setdefault(place, []).extend(re.findall(r"`(\w+)`", rest))
    return found


class Reference:
    """The pages, and where each name stands on them."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[str, Any]]] = {}
        for place, listed in names().items():
            module = importlib.import_module(place)
            page = self.found.setdefault(place, [])
            for name in dict.fromkeys(listed):
                goes = self.found.setdefault("streamer.Engine", []) if (place, name) == ("streamer", "Engine") else page
                goes.append((name, getattr(module, name)))
            if place == "streamer":
                errors = [name for name in module.__all__ if name.endswith("Error")]
                known = self.found.setdefault("streamer, errors", [])
                known += [(name, getattr(module, name)) for name in errors]
                page[:] = [each for each in page if each not in known]
        #: Of names that two modules have, the first.
        self.where: dict[str, str] = {}
        for title, members in self.found.items():
            for name, _ in members:
                self.where.setdefault(name, f"{self.file(title)}#{name.lower()}")

    @staticmethod
    def file(title: str) -> str:
        """Return the file of a page."""
        return f"{title.replace(', ', '.')}.md"

    def titles(self) -> list[str]:
        """Return the titles of the pages, in their order."""
        first = ["streamer.Engine", "streamer", "streamer, errors"]
        return first + [title for title in self.found if title not in first]

    def pages(self) -> dict[str, str]:
        """Return each page by its file."""
        return {self.file(title): self._page(title) for title in self.found}

    def _page(self, title: str) -> str:
        parts = [f"# {title}"]
        module = importlib.import_module(re.sub(r"(, errors|\.Engine)$", "", title))
        if module.__name__ == title and module.__doc__:
            parts.append(self._text(module.__doc__))
        for name, value in self.found[title]:
            parts += self._entries(name, value, "##")
        return "\n\n".join(parts) + "\n"

    def _entries(self, name: str, value: Any, level: str) -> Iterator[str]:
        """Yield what is said of a name, and of what it has."""
        yield from self._entry(name, value, level)
        if inspect.isclass(value):
            for member in members(value):
                yield from self._entry(f"{name}.{member}", inspect.getattr_static(value, member), f"{level}#")
        elif inspect.ismodule(value):
            for member, offered in vars(value).items():
                if not member.startswith("_") and getattr(offered, "__module__", "") == value.__name__:
                    yield from self._entries(f"{name}.{member}", offered, f"{level}#")

    def _entry(self, name: str, value: Any, level: str) -> Iterator[str]:
        yield f"{level} {name}"
        bound = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        shown = "\n".join(signatures(name, value))
        if shown:
            yield f"```python\n{shown}\n```"
        documented = bound.func if isinstance(bound, functools.cached_property) else bound
        has_text = inspect.ismodule(documented) or isinstance(documented, property)
        # What is said of a `Literal` is said of the class of such forms.
        is_callable = callable(documented) and typing.get_origin(documented) is None
        about = inspect.getdoc(documented) if has_text or is_callable else None
        if about and not about.startswith(f"{name}("):
            yield self._text(about, name)
        if inspect.isclass(value) and issubclass(value, enum.Enum):
            yield "\n".join(f"- `{name}.{each.name}` is `{each.value!r}`" for each in value)

    def _text(self, docstring: str, of: str = "") -> str:
        """Return a docstring as Markdown, its sections as lists, the names in it as links."""
        lines: list[str] = []
        found = textwrap.dedent(inspect.cleandoc(docstring)).splitlines()
        section = ""
        for line in found:
            heading = SECTION.fullmatch(line)
            if heading:
                section = heading[1]
                lines += ["", f"**{section}**", ""] + ([f"- {heading[2]}"] if heading[2] else [])
            elif section and line.startswith("    "):
                item = re.fullmatch(r"    (\*{0,2}\w[\w, *]*): (.*)", line)
                if item:
                    lines.append(f"- `{item[1]}`: {item[2]}")
                else:
                    lines.append(("- " if not lines[-1] else "    ") + line.strip())
            else:
                section = section if not line else ""
                lines.append(line)
        return self._linked("\n".join(lines), of)

    def _linked(self, text: str, of: str) -> str:
        """Make links of public names in code marks, and of files of docs/."""

        def name(match: re.Match[str]) -> str:
            target = self.where.get(match[1])
            return f"[{match[0]}]({target})" if target and match[1] != of.partition(".")[0] else match[0]

        def file(match: re.Match[str]) -> str:
            return f"[{match[1]}](../{match[1]})" if (DOCS / match[1]).exists() else match[0]

        pieces = re.split(r"(```.*?```)", text, flags=re.S)
        for index in range(0, len(pieces), 2):
            linked = re.sub(r"(?<![`\w/.])(?:docs/)?([a-z-]+\.md)\b(?!`)", file, pieces[index])
            pieces[index] = re.sub(r"`([A-Za-z]\w*)(?:\(\))?`", name, linked)
        return "".join(pieces)


def members(value: type) -> list[str]:
    """Return the public methods and properties of a class, also those of bases that are no public names."""
    found: list[str] = []
    for base in value.__mro__:
        if base is value or (base.__module__.startswith("streamer") and base.__name__.startswith("_")):
            found += [
                name
                for name, member in vars(base).items()
                if not name.startswith("_")
                and name not in found
                and isinstance(member, (FunctionType, classmethod, staticmethod, property, functools.cached_property))
            ]
    return found


def signatures(name: str, value: Any) -> Iterator[str]:
    """Yield how a name is called, an overload a line; a property with its type; a constant with its value."""
    short = name.rpartition(".")[2]
    if isinstance(value, property | functools.cached_property):
        function = value.fget if isinstance(value, property) else value.func
        told = function.__annotations__.get("return", "Any") if function else "Any"
        yield f"{short}: {annotation(told)}"
    elif isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(value):
        function = value if inspect.isfunction(value) else value.__func__
        prefix = {classmethod: "@classmethod\n", staticmethod: "@staticmethod\n"}.get(type(value), "")
        keyword = "async def " if inspect.iscoroutinefunction(function) else "def "
        bound = "." in function.__qualname__.rpartition("<locals>.")[2] and not isinstance(value, staticmethod)
        for each in typing.get_overloads(function) or [function]:
            yield f"{prefix}{keyword}{short}{called(inspect.signature(each), bound)}"
    elif inspect.isclass(value):
        made = "__init__" in vars(value) and not getattr(value, "_is_protocol", False)
        yield f"class {short}{called(inspect.signature(value), bound=False, returns=False) if made else ''}"
    elif typing.get_origin(value) is typing.Literal:
        words = [repr(word) for word in typing.get_args(value)]
        line = f"{short} = Literal[{', '.join(words)}]"
        yield line if len(line) <= WIDTH else f"{short} = Literal[\n" + "".join(f"    {word},\n" for word in words) + "]"
    elif not inspect.ismodule(value):
        text = repr(value)
        yield f"{short} = {text if len(text) <= WIDTH else text[: WIDTH - 2] + ' …'}"


def annotation(value: Any) -> str:
    """Return an annotation as it is written."""
    return value if isinstance(value, str) else inspect.formatannotation(value).replace("typing.", "")


def called(signature: inspect.Signature, bound: bool, returns: bool = True) -> str:
    """Return parameters and result as they are written, on several lines where one would be long."""
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    written: list[str] = []
    starred = False
    for index, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not starred:
            written.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        written.append(parameter(each))
        last = index + 1 == len(parameters) or parameters[index + 1].kind is not each.POSITIONAL_ONLY
        if each.kind is each.POSITIONAL_ONLY and last:
            written.append("/")
    told = signature.return_annotation
    result = f" -> {annotation(told)}" if returns and told is not signature.empty else ""
    line = f"({', '.join(written)}){result}"
    return line if len(line) <= WIDTH else "(\n" + "".join(f"    {text},\n" for text in written) + f"){result}"


def parameter(each: inspect.Parameter) -> str:
    """Return a parameter as it is written; a default that has no spelling is `…`."""
    stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    typed = "" if each.annotation is each.empty else f": {annotation(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{typed}"
    default = repr(each.default)
    return f"{each.name}{typed}{' = ' if typed else '='}{'…' if default.startswith('<') else default}"
