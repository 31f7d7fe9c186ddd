"""Which snapshot holds now, whatever others put at the path."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from streamer import Engine, SnapshotError
from streamer.spark import versions
from streamer.spark.versions import find, publish


def engine(*ids: str) -> Engine:
    made = Engine()
    made.add_many({"id": each, "collection": "orders"} for each in ids)
    return made


def damage(path: Path) -> None:
    """Turn a bit in the last byte that a section has."""
    data = bytearray(path.read_bytes())
    at = max(index for index, byte in enumerate(data) if byte)
    data[at] ^= 1
    replaced = path.with_suffix(".new")
    replaced.write_bytes(data)
    os.replace(replaced, path)


def test_a_file_that_is_replaced_becomes_a_new_version(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    first = find(path)
    assert (first.subscriptions, first.refused) == (1, 0)
    assert find(path) == first
    engine("a", "b").save(path)
    second = find(path)
    assert second.subscriptions == 2
    assert second.digest != first.digest
    # What a batch that is under way reads does not change under it.
    assert sorted(Engine.load(first.path)) == ["a"]
    assert sorted(Engine.load(second.path)) == ["a", "b"]


def test_a_bad_file_leaves_the_version_before_current_also_in_a_new_process(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    good = find(path)
    engine("a", "b").save(path)
    damage(path)
    monkeypatch.setattr(versions, "_errors", {})
    with caplog.at_level(logging.WARNING, "streamer.spark"):
        for _ in range(3):
            current = find(path)
            assert (current.digest, current.refused) == (good.digest, 1)
    assert len([record for record in caplog.records if "is passed over" in record.message]) == 1
    path.unlink()
    assert find(path).digest == good.digest
    engine("c").save(path)
    assert find(path).refused == 0
    assert find(path).digest != good.digest
    # Nor does it matter that somebody writes into the file instead of replacing it.
    last = find(path)
    path.write_bytes(b"\x89STRM")
    assert find(path).digest == last.digest
    assert list(Engine.load(find(path).path)) == ["c"]


def test_a_process_that_starts_anew_reads_no_file_again_that_is_known_to_be_good(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    good = find(path)

    def fails(path: object) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(versions, "verify", fails)
    assert find(path) == good


def test_the_last_good_one_is_the_last_that_was_in_use_and_not_the_youngest_file(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subscriptions.snapshot"
    for ids in ("a", "b", "a"):
        engine(ids).save(path)
        last = find(path)
    path.write_bytes(b"half")
    assert find(path).digest == last.digest
    assert list(Engine.load(find(path).path)) == ["a"]


def test_where_nothing_is_good_it_says_what_is_wrong(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subscriptions.snapshot"
    with pytest.raises(FileNotFoundError):
        find(path)
    path.write_bytes(b'{"id": "a"}\n')
    with pytest.raises(SnapshotError, match="not a snapshot of Streamer"):
        find(path)
    path.rename(tmp_path / "subscriptions.jsonl")
    with pytest.raises(SnapshotError, match=r"no file of the directory ends with \.snapshot"):
        find(tmp_path)


def test_only_a_few_versions_are_stored(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subscriptions.snapshot"
    for number in range(versions.MOST_VERSIONS + 5):
        engine(f"s{number}").save(path)
        digest = find(path).digest
    stored = [each.name for each in (tmp_path / ".subscriptions.snapshot.versions").iterdir() if each.name != "current"]
    assert len(stored) == versions.MOST_VERSIONS
    assert digest in stored


def test_without_a_place_for_versions_the_file_itself_is_read(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "subscriptions.snapshot"
    engine("a").save(path)
    (tmp_path / ".subscriptions.snapshot.versions").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING, "streamer.spark"):
        assert find(path).path == str(path)
    assert "cannot be kept" in caplog.text


def test_the_last_good_file_of_a_directory_by_name_is_current(tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "subscriptions"
    first = publish(engine("a"), folder)
    assert find(folder) == first
    second = publish(engine("a", "b"), folder)
    assert Path(second.path).name.startswith("0000000002-")
    assert find(folder).digest == second.digest
    bad = folder / "0000000003-bad.snapshot"
    bad.write_bytes(b"\x89STRM")
    assert (find(folder).digest, find(folder).refused) == (second.digest, 1)
    (folder / ".0000000009.snapshot").write_bytes(b"")
    (folder / "0000000009.tmp").write_bytes(b"")
    assert find(folder).digest == second.digest
    third = publish(engine("c"), folder)
    assert Path(third.path).name.startswith("0000000004-")
    assert find(folder).refused == 0


def test_the_same_is_not_published_twice_and_files_are_verified(tmp_path: Path, backend: str) -> None:
    folder, file = tmp_path / "subscriptions", tmp_path / "made"
    engine("a").save(file)
    first = publish(file, folder)
    assert publish(engine("a"), folder) == first
    assert [each.name for each in folder.iterdir()] == [Path(first.path).name]
    damage(file)
    with pytest.raises(SnapshotError):
        publish(file, folder)
    assert [each.name for each in folder.iterdir()] == [Path(first.path).name]
