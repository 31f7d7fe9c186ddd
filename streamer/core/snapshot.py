"""Save and load an engine as one file: a directory, then a section per tenant and collection (docs/snapshots.md).

```
┌────────────┬──────────────────────────────────────┬─────────────────────────┬───────┬─────────────────────────┬──
│ header     │ directory: options, rows, names      │ section (acme, orders)  │ image │ section (acme, *)       │ ...
│ 128 bytes  │ a row has a section's offset         │ [0,{"id":"a",...}]      │       │ [1,{"id":"b",...}]      │
│ + checksum │ and its checksum                     │ [2,{"id":"c",...}]      │       │                         │
└────────────┴──────────────────────────────────────┴─────────────────────────┴───────┴─────────────────────────┴──
```

A section is JSON lines: a subscription's place in the order of adding, and the subscription. Every backend and every later
version reads them. An image, which the native core may add, is their compiled form; a reader that cannot use it ignores it.

Invariant: a file is complete or does not exist: it is written to a temporary file in the same directory, synced to disk, and
renamed. A reader verifies a checksum before it uses a part: of header and directory when it opens the file, of a section on first
use.

Checksums are MurmurHash3 x64-128. Each of its steps is reversible, so it always detects damage within sixteen bytes, and
otherwise misses one case in 2^128. It is fast (gigabytes per second), and both backends have it already. It detects damage; it is
not a signature against deliberate forgery. The digest, a public name of the content, is SHA-256.

Rejected: CRC-32 (it misses one damage in four thousand million, and a broadcast file is read often), pickle (it executes its
input), SQLite (its pages cannot be mapped as arrays), one checksum for the whole file (opening would read all of it).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import IO, Any, Final, Protocol, final

import mmh3

from streamer.bloom.options import BloomOptions
from streamer.core.options import Options
from streamer.errors import ConfigError, SnapshotError, SubscriptionError
from streamer.events.layout import EventLayout
from streamer.files import check_target, replacing
from streamer.model import Limits
from streamer.subscriptions.subscription import EVERY, Subscription

MAGIC: Final = b"\x89STRM\r\n\x1a"
FORMAT: Final = 1
#: Magic, format, length of the header, of the file, of the directory, subscriptions, sections, length of the options, digest,
#: the kind of the images and the seed of their hashes (0: there are none), unused, checksum of everything before it and of the
#: directory.
HEADER: Final = struct.Struct("<8sII QQQQQ 32s QQ 8x 16s")
#: Offset of the name, lengths of tenant and collection; number of subscriptions; offset, length and checksum of the lines;
#: offset, length and checksum of the image; unused.
ROW: Final = struct.Struct("<QII Q QQ16s QQ16s 8x")
ALIGNED: Final = 64
_CHECKSUM: Final = 16
#: Options that define what matches: they come from the file; the caller may override the others.
FIXED: Final = ("layout", "default_tenant", "topic_dialect", "limits", "soft_delete", "cel_evaluator")


@final
@dataclass(frozen=True, slots=True)
class Section:
    """The part of a file for one tenant (or `*`) and collection (or `*`).

    Attributes:
        bytes: the size of its lines.
    """

    tenant: str
    collection: str
    subscriptions: int
    bytes: int


@final
@dataclass(frozen=True, slots=True)
class Place:
    """The position of a part of a section, and its checksum."""

    start: int
    length: int
    checksum: bytes


@final
@dataclass(frozen=True, slots=True)
class Directory:
    """The contents of a file, without reading its sections.

    Attributes:
        digest: a name of the content, which is equal for equal options and subscriptions, added in the same order.
        options: the options of the engine as JSON; `engine_options` has them as arguments of `Engine`.
        subscriptions: number of subscriptions.
        sections: sorted by tenant and collection.
        format: the version of the format.
    """

    digest: str
    options: Mapping[str, Any]
    subscriptions: int
    sections: tuple[Section, ...]
    format: int
    path: str
    lines: tuple[Place, ...]
    images: tuple[Place, ...]

    def engine_options(self) -> dict[str, Any]:
        """Return the options as `Engine` takes them. Raises SnapshotError for those that this version does not know."""
        return _read_options(self.options, self.path)


@final
@dataclass(frozen=True, slots=True)
class Head:
    """The parts of a file that opening reads: everything except the rows of its directory, and the sections.

    Attributes:
        checksum: the checksum of header and directory.
        images: the kind of core that can use the images; 0 without images.
        seed: the seed of the images' hashes.
    """

    path: str
    digest: str
    options: Mapping[str, Any]
    checksum: bytes
    images: int
    seed: int

    @property
    def is_portable(self) -> bool:
        """Whether cel-python evaluates any subscription: then all are read when the file is opened."""
        return bool(self.options.get(_PORTABLE, False))

    def engine_options(self) -> dict[str, Any]:
        """Return the options as `Engine` takes them. Raises SnapshotError for those that this version does not know."""
        return _read_options(self.options, self.path)

    def options_with(self, overrides: Mapping[str, Any]) -> Options:
        """Return the options of the file, with *overrides* for options that do not affect which subscriptions match.

        Raises:
            ConfigError: an override is invalid, or only the file may set its option.
            SnapshotError: the options of the file are invalid.
        """
        stored = self.engine_options()
        overrides = {name: value for name, value in overrides.items() if name not in ("format", "layout") or value is not None}
        # A format is a layout, too.
        retained = {name: value for name, value in stored.items() if name != "layout" or "format" not in overrides}
        try:
            options = Options.checked(**{**retained, **overrides})
            original = Options.checked(**stored) if overrides else options
        except ConfigError as error:
            if error.place.split(".")[0] in overrides:
                raise
            raise SnapshotError(f"options that cannot be: {error}", path=self.path, place="directory") from None
        for name in FIXED:
            if getattr(options, name) != getattr(original, name):
                place = "format" if name == "layout" and "format" in overrides else name
                raise ConfigError(
                    "a snapshot was made with another one, which its subscriptions were accepted under", place=place
                )
        return options


def path_of(path: str | os.PathLike[str]) -> str:
    """Return a path as text. Raises TypeError for anything else, bytes among them, which could be a snapshot's content."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"path: expected a str or os.PathLike[str], not {type(text).__name__}; os.fsdecode makes one of bytes")
    return text


def read_head(path: str | os.PathLike[str]) -> Head:
    """Return the verified header and options of a file. Raises the errors of `read_directory`."""
    path = path_of(path)
    with open(path, "rb") as file:
        return _head(file, path)[0]


def read_directory(path: str | os.PathLike[str]) -> Directory:
    """Return the verified contents of a file: header and directory, without the sections.

    Raises:
        SnapshotError: the file is not a snapshot, or it is damaged, cut off, or of a later version.
        OSError: the file cannot be read.
        TypeError: *path* is not a path as text.
    """
    path = path_of(path)
    with open(path, "rb") as file:
        return _directory(file, path)


def verify(path: str | os.PathLike[str]) -> Directory:
    """Return the contents of a file after verifying every checksum in it. Raises the errors of `read_directory`."""
    path = path_of(path)
    with open(path, "rb") as file:
        directory = _directory(file, path)
        for section, lines, image in zip(directory.sections, directory.lines, directory.images, strict=True):
            _read(file, lines, directory.path, section)
            _read(file, image, directory.path, section)
    return directory


def visible_to(collections: Iterable[tuple[str, str]] | None) -> set[tuple[str, str]] | None:
    """Return the names of the sections that events of *collections* can match, including sections for `*`; None for all."""
    if collections is None:
        return None
    wanted: set[tuple[str, str]] = set()
    for pair in collections:
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise TypeError(f"collections: expected pairs of tenant and collection, not {pair!r}")
        wanted.update((tenant, collection) for tenant in (pair[0], EVERY) for collection in (pair[1], EVERY))
    return wanted


def sections_of(directory: Directory, collections: Iterable[tuple[str, str]] | None) -> list[int]:
    """Return the positions of the sections that events of *collections* can match, including those for `*`; None for all."""
    return named(directory, visible_to(collections))


def named(directory: Directory, names: Set[tuple[str, str]] | None) -> list[int]:
    """Return the positions of the sections of these names; None for all."""
    sections = enumerate(directory.sections)
    return [at for at, section in sections if names is None or (section.tenant, section.collection) in names]


def read_texts(directory: Directory, positions: Iterable[int]) -> list[bytes]:
    """Return the JSON texts of the subscriptions of some sections, in the order of adding. Raises SnapshotError."""
    numbered: list[tuple[int, bytes]] = []
    with open(directory.path, "rb") as file:
        for at in positions:
            section = directory.sections[at]
            before = len(numbered)
            for line in _read(file, directory.lines[at], directory.path, section).splitlines():
                order, comma, text = line[1:-1].partition(b",")
                if not (comma and line.startswith(b"[") and line.endswith(b"]") and order.isdigit()):
                    raise _damaged(directory.path, _name(section), "a line that is none")
                numbered.append((int(order), text))
            if len(numbered) - before != section.subscriptions:
                raise _damaged(directory.path, _name(section), f"{len(numbered) - before} lines, not {section.subscriptions}")
    numbered.sort(key=lambda pair: pair[0])
    return [text for _, text in numbered]


def read_named(path: str, names: Set[tuple[str, str]] | None) -> list[bytes]:
    """Return the JSON texts of the sections of these names, in the order of adding; None for all. Raises as `read_directory`."""
    directory = read_directory(path)
    return read_texts(directory, named(directory, names))


class Images(Protocol):
    """Compiles sections, and writes texts in the form of a snapshot; see `streamer.core.protocol.Core`."""

    @property
    def image_kind(self) -> int: ...

    def image(self, lines: bytes, seed: int) -> bytes | None: ...

    def canonical(self, stored: bytes | Subscription) -> tuple[str, str, bytes]: ...


def save(path: str | os.PathLike[str], options: Options, subscriptions: Iterable[bytes | Subscription], images: Images) -> None:
    """Write subscriptions, in their order, with the options of their engine.

    Raises:
        SubscriptionError: the JSON text of a subscription is too long for a snapshot.
        OSError: the file cannot be written, or *path* exists and is not a regular file; it stays as it was.
        TypeError: *path* is not a path as text.
    """
    path = path_of(path)
    # Fail early, before the work.
    check_target(path)
    sections: dict[tuple[str, str], list[bytes]] = {}
    for order, source in enumerate(subscriptions):
        tenant, collection, text = images.canonical(source)
        sections.setdefault((tenant, collection), []).append(b"[%d,%b]\n" % (order, text))
    is_portable = any(needs_python(line, options) for lines in sections.values() for line in lines)
    with replacing(path, is_private=True) as file:
        _write(file, options, sorted(sections.items()), images, sections, is_portable=is_portable)


def save_sections(
    path: str | os.PathLike[str],
    options: Options,
    sections: Iterable[tuple[tuple[str, str], list[bytes]]],
    images: Images,
    names: Collection[tuple[str, str]],
) -> bytes:
    """Write sections as they come, so that only one of them is in memory; return the checksum of header and directory.

    Args:
        sections: tenant and collection of each, and its lines, none of which needs Python.
        names: at least their names, for which the directory gets room.

    Raises:
        SubscriptionError: a subscription is invalid under these options.
        SnapshotError: a section is not among *names*, and there is no room for it.
        OSError: see `save`.
    """
    with replacing(path, is_private=True) as file:
        return _write(file, options, sections, images, names, is_strict=True)


def _write(
    file: IO[bytes],
    options: Options,
    sections: Iterable[tuple[tuple[str, str], list[bytes]]],
    images: Images,
    expected: Collection[tuple[str, str]],
    *,
    is_portable: bool = False,
    is_strict: bool = False,
) -> bytes:
    image_kind = 0 if is_portable else images.image_kind
    seed = secrets.randbits(64) if image_kind else 0
    options_shown = {**shown_options(options), **({_PORTABLE: True} if is_portable else {})}
    shown = _padded(json.dumps(options_shown, sort_keys=True, separators=(",", ":")).encode(), 8)
    digest = hashlib.sha256(b"streamer snapshot\n" + shown.rstrip(b"\0"))
    room = len(shown) + ROW.size * len(expected) + sum(len((tenant + collection).encode()) for tenant, collection in expected)
    at = _aligned(HEADER.size + room + -room % 8)
    names, rows = bytearray(), []
    subscriptions = 0
    for name, lines in sections:
        text = b"".join(lines)
        digest.update(json.dumps([*name, len(text)]).encode())
        digest.update(text)
        file.seek(at)
        file.write(text)
        image = _compiled(images, text, seed, is_strict=is_strict) if image_kind else None
        tenant, collection = (part.encode() for part in name)
        places = (at, len(text), checksum(text), *_image(file, image, at + len(text)))
        rows.append((name, ROW.pack(len(names), len(tenant), len(collection), len(lines), *places)))
        names += tenant + collection
        subscriptions += len(lines)
        at = _aligned(file.tell())
    # Extend the file to the end of the padding, which reads as zeros.
    file.truncate(at)
    directory = _padded(shown + b"".join(row for _, row in sorted(rows)) + bytes(names), 8)
    if rows and HEADER.size + len(directory) > min(ROW.unpack(row)[4] for _, row in rows):
        raise SnapshotError("new tenants and collections appeared meanwhile", path=file.name, place="directory")
    head = HEADER.pack(
        MAGIC,
        FORMAT,
        HEADER.size,
        at,
        len(directory),
        subscriptions,
        len(rows),
        len(shown),
        digest.digest(),
        image_kind,
        seed,
        bytes(_CHECKSUM),
    )[:-_CHECKSUM]
    file.seek(0)
    file.write(head + (whole := checksum(head + directory)) + directory)
    return whole


#: A key next to the options, set if cel-python evaluates any subscription.
_PORTABLE: Final = "portable"


def needs_python(line: bytes, options: Options) -> bool:
    """Return whether cel-python evaluates the subscription of a line."""
    # Texts are canonical. If a label contains the same text, the file is merely read at once, which is harmless.
    if b'"cel_evaluator":"portable"' in line:
        return True
    return options.cel_evaluator == "portable" and b'"cel":' in line


def _compiled(images: Images, text: bytes, seed: int, *, is_strict: bool) -> bytes | None:
    try:
        return images.image(text, seed)
    except SubscriptionError:
        if is_strict:
            raise
        return None


def _image(file: IO[bytes], image: bytes | None, after: int) -> tuple[int, int, bytes]:
    """Write an image, and return its position."""
    if image is None:
        return 0, 0, bytes(_CHECKSUM)
    file.seek(at := _aligned(after))
    file.write(image)
    return at, len(image), checksum(image)


def _head(file: IO[bytes], path: str) -> tuple[Head, Sequence[int], bytes]:
    """Return the head, the numbers of the header, and the part of the directory after the options."""
    head = file.read(HEADER.size)
    if not head.startswith(MAGIC):
        if MAGIC.startswith(head[: len(MAGIC)]):
            raise _damaged(path, "header", "the file is cut off")
        raise SnapshotError("it is not a snapshot of Streamer", path=path, place="header")
    if len(head) >= 12 and (version := int.from_bytes(head[8:12], "little")) > FORMAT:
        reason = f"its format is {version}, and this version of Streamer reads up to {FORMAT}: read it with a later one"
        raise SnapshotError(reason, path=path, place="header")
    if len(head) < HEADER.size:
        raise _damaged(path, "header", "the file is cut off")
    _, version, header, *numbers, digest, images, seed, expected = HEADER.unpack(head)
    length, directory_length, _, _, options_length = numbers
    actual = os.fstat(file.fileno()).st_size
    if actual < length:
        raise _damaged(path, "header", f"the file is cut off: {actual} bytes of {length}")
    if version < 1 or header != HEADER.size or length != actual or directory_length > actual:
        raise _damaged(path, "header", "lengths that cannot be")
    directory = file.read(directory_length)
    if checksum(head[:-_CHECKSUM] + directory) != expected:
        raise _damaged(path, "header and directory", "the checksum differs")
    try:
        options = json.loads(directory[:options_length].rstrip(b"\0"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "directory", str(error)) from None
    if not isinstance(options, dict):
        raise _damaged(path, "directory", "options that are none")
    return Head(path, digest.hex(), options, expected, images, seed), [version, *numbers], directory[options_length:]


def _directory(file: IO[bytes], path: str) -> Directory:
    head, (version, length, _, subscriptions, count, _), rest = _head(file, path)
    rows, names = rest[: ROW.size * count], rest[ROW.size * count :]
    sections, lines, images = [], [], []
    try:
        for at, tenant, collection, number, start, size, check, image, image_size, image_check in ROW.iter_unpack(rows):
            middle, end = at + tenant, at + tenant + collection
            if end > len(names) or start + size > length or image + image_size > length:
                raise ValueError("a place outside of the file")
            sections.append(Section(names[at:middle].decode(), names[middle:end].decode(), number, size))
            lines.append(Place(start, size, check))
            images.append(Place(image, image_size, image_check))
        if len(sections) != count or sum(section.subscriptions for section in sections) != subscriptions:
            raise ValueError("numbers that do not agree")
    except (ValueError, struct.error) as error:
        raise _damaged(path, "directory", str(error)) from None
    return Directory(head.digest, head.options, subscriptions, tuple(sections), version, path, tuple(lines), tuple(images))


def _read(file: IO[bytes], place: Place, path: str, section: Section) -> bytes:
    file.seek(place.start)
    text = file.read(place.length)
    if len(text) < place.length:
        raise _damaged(path, _name(section), "the file is cut off")
    if place.length and checksum(text) != place.checksum:
        raise _damaged(path, _name(section), "the checksum differs")
    return text


def checksum(data: bytes | memoryview) -> bytes:
    """Return the checksum of a part of a file."""
    return mmh3.mmh3_x64_128_digest(data)


def shown_options(options: Options) -> dict[str, Any]:
    """Return the options of an engine as a file has them."""
    bloom = asdict(options.bloom)
    for name, value in bloom.items():
        if isinstance(value, timedelta):
            bloom[name] = value.total_seconds()
    layout = options.layout.to_dict()
    if layout["envelope"] == _usual_envelope(layout):
        # Omitted, so that earlier versions read the file.
        del layout["envelope"]
    return {
        "layout": layout,
        "default_tenant": options.default_tenant,
        "validation": options.validation,
        "limits": asdict(options.limits),
        "soft_delete": options.soft_delete,
        "cache_size": options.cache_size,
        "bloom": bloom,
        # Omitted for default values, so that earlier versions read the file.
        **({} if options.batch_size is None else {"batch_size": options.batch_size}),
        **({} if options.topic_dialect == "amqp" else {"topic_dialect": options.topic_dialect}),
        **({} if options.cel_evaluator == "native" else {"cel_evaluator": options.cel_evaluator}),
    }


def _usual_envelope(layout: Mapping[str, Any]) -> Any:
    """Return the envelope of the preset with the same places of `data`."""
    presets = (EventLayout.preset(name).to_dict() for name in EventLayout.PRESETS)
    return next((preset["envelope"] for preset in presets if preset["data"] == layout["data"]), "")


def _read_options(shown: Mapping[str, Any], path: str) -> dict[str, Any]:
    known = {field.name for field in fields(Options)} - {"default", "cel_functions"}
    if unknown := sorted(set(shown) - known - {_PORTABLE}):
        raise SnapshotError(f"options of a later version of Streamer: {', '.join(unknown)}", path=path, place="directory")
    try:
        options = {name: value for name, value in shown.items() if name != _PORTABLE}
        options["layout"] = {"envelope": _usual_envelope(options["layout"]), **options["layout"]}
        options["limits"] = Limits(**options["limits"])
        bloom: dict[str, Any] = dict(options["bloom"])
        for name in ("rebuild_interval", "rebuild_cooldown"):
            if bloom.get(name) is not None:
                bloom[name] = timedelta(seconds=bloom[name])
        options["bloom"] = BloomOptions(**bloom)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _damaged(path, "directory", f"options that cannot be: {error}") from None
    return options


def _damaged(path: str, place: str, reason: str) -> SnapshotError:
    return SnapshotError(f"damaged: {reason}", path=path, place=place)


def _name(section: Section) -> str:
    return f"section {section.tenant}/{section.collection}"


def _aligned(at: int) -> int:
    return -(-at // ALIGNED) * ALIGNED


def _padded(data: bytes | bytearray, unit: int) -> bytes:
    return bytes(data) + bytes(-len(data) % unit)
