"""A snapshot of the engine next to the store, so that a start need not compile every subscription.

```
data_dir/  store.db          the truth; it has the mark of each snapshot
           engine.snapshot   the engine, compiled (docs/snapshots.md)
           engine.versions   mark, checksum of the other file, configuration; version and id of each subscription

start: mark in the store? ─► engine.snapshot mapped ─► versions compared ─► removed: not in the store any more
                                                                      └─► added: the store has them, the file does not
```

Contract: after `load` the engine has exactly the active subscriptions of the store, or the snapshot is not used and the caller
loads all of them. Both files may be deleted at any time. Failing to write them never ends the service.

Why that holds: a version is used once, and a row's text never changes without a new version. The mark is committed before the
rows are read, and only rows up to the version of that moment are written. So if a store has the mark, its rows of these versions
are those that were written, even if the store is an older copy that was put back. Each version that is in the file and not in the
store is removed from the engine, each one that is only in the store is added, and the number is compared at the end. The file is
mapped, and every checksum in it verified before the first event.

Cost: a start reads the version of each row and each page of the file. Writing takes as long as loading without a snapshot, in a
thread that sleeps as long as it works in Python; one section, a tenant's subscriptions of one collection, is in memory at a time.

Rejected: writing at the end of the process (a million subscriptions take longer than supervisors wait, and a crash would have
none); only comparing ids and versions (a store that was replaced by an older copy uses its versions again).
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple, final

from streamer import __version__
from streamer.config.schema.service import SNAPSHOT
from streamer.core import snapshot
from streamer.engine.engine import Engine
from streamer.errors import ServiceError, StreamerError
from streamer.files import replacing
from streamer.service import faults
from streamer.service.store.ids import inside, stored
from streamer.service.store.snapshots import PAGE, Marks
from streamer.service.store.store import Store
from streamer.service.tenants.loading import Loading
from streamer.service.tenants.shards import Shard

ENGINE: Final = f"{SNAPSHOT}snapshot"
VERSIONS: Final = f"{SNAPSHOT}versions"
#: The fewest subscriptions with a snapshot: fewer are loaded in less than a second.
FEWEST: Final = 20_000
#: A snapshot is written again after changes of this fraction of the subscriptions, because each is loaded from its text.
_FRACTION: Final = 10
#: The interval between looks, in seconds, and the pause after a snapshot as a multiple of the time that it took.
LOOK: Final = 60.0
_PATIENCE: Final = 20.0
_FORMAT: Final = 1
#: Larger than any version.
MOST: Final = 2**62
_LOGGER: Final = logging.getLogger("streamer.service")


class _Unfit(Exception):
    """The reason for which a snapshot is not used, or not written."""


class _Image(NamedTuple):
    """The file of versions. *ids* has the id of each subscription in the engine, a line of JSON each."""

    head: Mapping[str, Any]
    versions: array[int]
    ids: memoryview


@final
class EngineSnapshot:
    """The snapshot of an engine in a directory. One thread loads; after `start`, another one writes.

    Args:
        engine: its options now are those that the snapshot's subscriptions are accepted under.
        but: returns the origin of subscriptions that are not in the snapshot, or nothing.
    """

    def __init__(self, directory: Path, engine: Engine, store: Store, shard: Shard, but: Callable[[], str]) -> None:
        self._directory, self._engine, self._shard, self._but = directory, engine, shard, but
        self._marks, self._is_shared = Marks(store), store.database.is_shared
        self._options = engine._options
        # The last version that the files have; 0 without.
        self._upto = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """End the thread; a snapshot that is being written is dropped."""
        self._ended.set()
        if self._thread is not None:
            # One section may take some seconds more. The thread cannot outlive the process.
            self._thread.join(timeout=5)
        self._marks.close()

    def _fits(self) -> str:
        """Return a digest of all that decides how rows become the engine's subscriptions."""
        shard, options = (self._shard.number, self._shard.count), snapshot.shown_options(self._options)
        core = getattr(sys.modules.get("streamer._native"), "__file__", None)
        build = "" if core is None else snapshot.checksum(Path(core).read_bytes()).hex()
        parts = [_FORMAT, __version__, build, options, shard, self._but()]
        return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    # Loading

    def load(self, last: int, loading: Loading) -> bool:
        """Fill an engine that only has subscriptions of files, which are lost, with those of the store up to a version.

        Args:
            loading: counts them.

        Returns:
            Whether the snapshot was used. If not, the engine is empty, or unchanged without files.

        Raises:
            ServiceError: the store failed.
        """
        for draft in self._directory.glob(".streamer-*"):
            # Of a process that ended while it wrote.
            with suppress(OSError):
                draft.unlink()
        if not (self._directory / VERSIONS).exists():
            return False
        began, before = time.monotonic(), loading.loaded
        try:
            changed = self._load(last if self._is_shared else MOST, loading)
        except ServiceError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, _Unfit | StreamerError | OSError) else f"{type(error).__name__}: {error}"
            _LOGGER.warning("snapshot: %s is not used, and all subscriptions are read: %s", self._directory / ENGINE, reason)
            self._engine._begin_with(None)
            return False
        count = len(self._engine)
        loading.loaded = loading.total = before + count
        _LOGGER.info("snapshot: %d subscriptions in %.1f s, %d of them changed since", count, time.monotonic() - began, changed)
        return True

    def _load(self, last: int, loading: Loading) -> int:
        image = self._read()
        if image.head["fits"] != self._fits():
            raise _Unfit("it is of another configuration, or of another version of Streamer")
        upto = self._marks.version(image.head["mark"])
        if upto is None or upto > last:
            raise _Unfit("it is of another store, or of a later state of this one")
        head = snapshot.read_head(self._directory / ENGINE)
        if head.checksum.hex() != image.head["snapshot"]:
            raise _Unfit(f"{VERSIONS} belongs to another one")
        loading.total = loading.loaded + len(image.versions)
        self._engine._begin_with(head)
        wanted = self._wanted(last)
        if len(self._engine) != len(image.versions):
            raise _Unfit("the numbers of subscriptions and of versions differ")
        gone = {at for at, version in enumerate(image.versions) if version not in wanted}
        if gone:
            self._engine.remove_many(ids=[json.loads(line) for at, line in enumerate(BytesIO(image.ids)) if at in gone])
        missing = {version for version in wanted if version > upto}
        added = self._marks.changed(upto, last, self._but()) if missing else []
        most = self._options.limits.max_subscription_bytes
        self._engine.add_many(stored(t, i, text, most) for t, i, version, text in added if version in missing)
        missing.difference_update([version for _, _, version, _ in added])
        # In a shared store, another process may have changed a row since: the caller follows these changes.
        if len(self._engine) != len(wanted) - len(missing) or (missing and not self._is_shared):
            raise _Unfit("the subscriptions of the store are others")
        self._upto = upto
        return len(added)

    def _wanted(self, last: int) -> set[int]:
        """Return the versions of the subscriptions that the engine is to have."""
        is_part = self._shard.count > 1
        rows = self._marks.versions(last, self._but(), tenants=is_part)
        versions = array("q", (row[0] for row in rows if not is_part or self._shard.holds(row[1])))
        # Rows take ten times as much memory as numbers.
        del rows
        wanted = set(versions)
        if len(wanted) != len(versions):
            raise _Unfit("several subscriptions of the store have one version")
        return wanted

    def _read(self) -> _Image:
        content = (self._directory / VERSIONS).read_bytes()
        versions = array("q")
        try:
            end = content.index(b"\n")
            head, rest = json.loads(content[:end]), memoryview(content)[end + 1 :]
            count, total = head["count"], head["checksum"]
            versions.frombytes(rest[: 8 * count])
            head["fits"], head["mark"], head["snapshot"]
        except (KeyError, TypeError, ValueError):
            raise _Unfit(f"{VERSIONS} is damaged") from None
        if snapshot.checksum(rest).hex() != total or len(versions) != count:
            raise _Unfit(f"{VERSIONS} is damaged")
        return _Image(head, versions, rest[8 * count :])

    # Writing

    def start(self, last: Callable[[], tuple[int, int]]) -> None:
        """Write snapshots from here on, in a thread of its own.

        Args:
            last: returns the last version of the store, and the number of subscriptions.
        """
        if self._engine._core.image_kind:
            self._thread = threading.Thread(target=self._run, args=(last,), name="streamer-snapshot", daemon=True)
            self._thread.start()

    def _run(self, last: Callable[[], tuple[int, int]]) -> None:
        pause, failure = LOOK, ""
        while not self._ended.wait(pause):
            pause = LOOK
            began = time.monotonic()
            try:
                version, count = last()
                if count >= FEWEST and version - self._upto >= count / _FRACTION:
                    self.write()
                    pause, failure = max(LOOK, _PATIENCE * (time.monotonic() - began)), ""
            except Exception as error:
                if self._ended.is_set():
                    return
                # The service works without a snapshot: only its next start is slower.
                pause = max(LOOK, _PATIENCE * (time.monotonic() - began))
                if str(error) != failure:
                    _LOGGER.warning("snapshot: %s cannot be written: %s", self._directory / ENGINE, error)
                failure = str(error)

    def write(self) -> None:
        """Write a snapshot of the store's subscriptions.

        Raises:
            Exception: it cannot be written. The old files stay, or do not fit one another and are not used.
        """
        began, mark, fits = time.monotonic(), token_hex(16), self._fits()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        upto = self._marks.put(mark)
        core = self._engine._core
        names = [(each.tenant, each.collection) for each in core.partitions()]
        versions, ids = array("q"), bytearray()
        sections = self._sections(upto, versions, ids)
        saved = snapshot.save_sections(self._directory / ENGINE, self._options, sections, core, names)
        faults.point("snapshot.half")
        content = versions.tobytes() + ids
        head = {"fits": fits, "mark": mark, "snapshot": saved.hex(), "count": len(versions)}
        with replacing(self._directory / VERSIONS, is_private=True) as file:
            file.write(json.dumps({**head, "checksum": snapshot.checksum(content).hex()}).encode() + b"\n" + content)
        self._upto = upto
        _LOGGER.info("snapshot: %d subscriptions written in %.1f s", len(versions), time.monotonic() - began)

    def _sections(self, upto: int, versions: array[int], ids: bytearray) -> Iterator[tuple[tuple[str, str], list[bytes]]]:
        """Yield the sections of each tenant, and note the version and the id of each subscription."""
        canonical, most = self._engine._core.canonical, self._options.limits.max_subscription_bytes
        for tenant, rows in groupby(self._rows(upto), key=lambda row: row[0]):
            sections: dict[tuple[str, str], list[bytes]] = {}
            for _, id_, version, text in rows:
                _, collection, line = canonical(stored(tenant, id_, text, most))
                if version < 1:
                    raise _Unfit("a subscription of an earlier version of Streamer has no version")
                if snapshot.needs_python(line, self._options):
                    raise _Unfit("cel-python evaluates some subscriptions")
                sections.setdefault((tenant, collection), []).append(b"[%d,%b]\n" % (len(versions), line))
                versions.append(version)
                ids += json.dumps(inside(tenant, id_)).encode() + b"\n"
            yield from sorted(sections.items())

    def _rows(self, upto: int) -> Iterator[tuple[str, str, int, bytes]]:
        """Yield the store's rows, and rest after each page as long as it took, so that matching is not delayed."""
        after, size, is_last = ("", ""), 0, False
        while not is_last:
            began = time.monotonic()
            page = self._marks.texts(after, upto, self._but())
            is_last = len(page) < PAGE
            for row in page:
                size += len(row[3])
                after = row[0], row[1]
                if self._shard.holds(row[0]):
                    yield row
            if shutil.disk_usage(self._directory).free < max(2 * size, 64 << 20):
                raise _Unfit("there is not enough room on the disk")
            if self._ended.wait(time.monotonic() - began):
                raise _Unfit("the service ends")
