"""The folder of the cache: bounded, private, tidy, and no trouble to anybody."""

from __future__ import annotations

import os
import sys
import time

import pytest

from nbprof import cache as face
from nbprof.core.units import size_text
from nbprof.run.cache import folder as module

KEYS = [f"{i}-{'0' * 40}" for i in range(10)]


def fill(folder, key, size, used=None, name="a"):
    folder.add(key, name, lambda file: file.write(bytes(size)))
    if used is not None:
        os.utime(folder.path / "entries" / key, (used, used))


def names(folder):
    return [entry.path.name for entry in folder.entries()]


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("1000", 1000),
        ("2G", 2 << 30),
        ("1.5 m", 3 << 19),
        ("500KB", 500 << 10),
        ("3GiB", 3 << 30),
        ("0", 0),
        ("-5", 0),
    ],
)
def test_the_limit_can_be_said(cache, monkeypatch, text, bytes_):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", text)
    assert cache.limit() == bytes_


@pytest.mark.parametrize("text", ["", "plenty", "G", "nan", "inf"])
def test_the_limit_is_a_part_of_the_disk(cache, monkeypatch, text):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", text)
    for free, limit in ((1000, 50), (1 << 50, 4 << 30)):
        monkeypatch.setattr(
            module.shutil, "disk_usage", lambda _, free=free: type("Usage", (), {"free": free})()
        )
        assert cache.limit() == limit


def test_what_the_cache_holds_does_not_make_the_disk_smaller_for_it(cache, monkeypatch):
    monkeypatch.setattr(
        module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 60_000})()
    )
    fill(cache, KEYS[0], 2000)
    assert cache.limit() == (60_000 + 2000) // 20


def test_what_was_longest_unused_goes_first(cache, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", "3000")
    for i, used in enumerate((300, 100, 200)):
        fill(cache, KEYS[i], 1000, used)
    assert names(cache) == [KEYS[1], KEYS[2], KEYS[0]]
    fill(cache, KEYS[3], 1000)
    assert names(cache) == [KEYS[2], KEYS[0], KEYS[3]]
    os.utime(cache.path / "entries" / KEYS[3], (400, 400))
    # Looking an entry up is use of it.
    assert cache.parts(KEYS[2])
    fill(cache, KEYS[4], 2000)
    assert set(names(cache)) == {KEYS[2], KEYS[4]}


def test_there_are_not_more_entries_than_are_found_quickly(cache, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENTRIES", 2)
    for i in range(4):
        fill(cache, KEYS[i], 10, 100 + i)
    fill(cache, KEYS[4], 10)
    assert names(cache) == [KEYS[3], KEYS[4]]


def test_the_entry_just_written_stays_whatever_its_size(cache, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", "3000")
    fill(cache, KEYS[0], 1000, 100)
    fill(cache, KEYS[1], 5000, 50)
    assert names(cache) == [KEYS[1]]


def test_room_is_what_the_limit_leaves_an_entry(cache, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", "3000")
    assert cache.room(KEYS[0]) == 3000
    fill(cache, KEYS[0], 1000)
    assert cache.room(KEYS[0]) == 2000
    assert cache.room(KEYS[1]) == 3000


def test_a_failed_write_leaves_nothing(cache):
    def fails(file):
        file.write(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.add(KEYS[0], "a", fails)
    assert not cache.parts(KEYS[0])
    assert not list((cache.path / "new").iterdir())
    assert not cache.entries()
    assert not cache.has_size(int(KEYS[0].partition("-")[0], 16))


def test_leftovers_of_killed_writers_go_after_a_day(cache):
    fill(cache, KEYS[0], 10)
    old, young = cache.path / "new" / "old", cache.path / "new" / "young"
    for path, age in ((old, 25), (young, 23)):
        path.write_bytes(b"half")
        then = time.time() - age * 3600
        os.utime(path, (then, then))
    fill(cache, KEYS[1], 10)
    assert not old.exists()
    assert young.exists()


def test_places_do_not_grow_without_end(cache, monkeypatch):
    monkeypatch.setattr(module, "_MOST_PLACES", 3)
    for i in range(6):
        cache.note(f"p{i}", {"i": i})
        os.utime(cache.path / "places" / f"p{i}.json", (i, i))
    fill(cache, KEYS[0], 10)
    assert [cache.noted(f"p{i}") for i in range(6)] == [
        None,
        None,
        None,
        {"i": 3},
        {"i": 4},
        {"i": 5},
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_only_this_user_may_look(cache):
    before = os.umask(0)
    try:
        fill(cache, KEYS[0], 10)
    finally:
        os.umask(before)
    for path in (
        cache.path,
        cache.path / "entries",
        cache.path / "new",
        cache.path / "entries" / KEYS[0],
    ):
        assert path.stat().st_mode & 0o777 == 0o700, path
    assert cache.parts(KEYS[0])[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners here")
def test_the_folder_of_somebody_else_is_not_used(cache, monkeypatch):
    assert cache.owned()
    fill(cache, KEYS[0], 10)
    assert cache.owned()
    monkeypatch.setattr(os, "geteuid", lambda: cache.path.stat().st_uid + 1)
    assert not cache.owned()


def test_the_face(cache, monkeypatch):
    assert (face.info().runs, face.info().bytes, face.info().enabled) == (0, 0, True)
    fill(cache, KEYS[0], 3 << 20)
    assert (
        str(face.info())
        == f"1 run, 3.00 MiB of at most {size_text(cache.limit())}, in {cache.path}"
    )
    fill(cache, KEYS[1], 10, name="b")
    assert face.info().runs == 2
    monkeypatch.setenv("NBPROF_CACHE", "off")
    assert str(face.info()).endswith("; it is turned off (NBPROF_CACHE)")
    assert face.clear() == (3 << 20) + 10
    assert face.info().bytes == 0
    assert face.clear() == 0


def test_the_place_is_the_platforms(monkeypatch, tmp_path):
    monkeypatch.delenv("NBPROF_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, appauthor: str(tmp_path / name))
    assert module.location() == tmp_path / "nbprof"
    monkeypatch.setenv("NBPROF_CACHE_DIR", "~/elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert module.location() == tmp_path / "elsewhere"
