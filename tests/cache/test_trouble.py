"""Whatever happens to the cache, a profile opens as if there were none."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from nbprof import cache as face
from nbprof.core.codec.container import Writer
from nbprof.core.errors import ReadError
from nbprof.profiles.load import load
from nbprof.run.cache import background, run_cache
from nbprof.run.cache.part import Part
from nbprof.run.cache.stored import StoredTrace
from tests.cache.conftest import written
from tests.cache.same import same
from tests.support.programs import Program
from tests.support.xspace import training_run


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(training_run())
    return path


@pytest.fixture
def truth(path, monkeypatch):
    """The profile as it is without a cache."""
    monkeypatch.setenv("NBPROF_CACHE", "0")
    profile = load(path)
    out = profile.run.trace, profile.ops.frame, profile.steps.frame, str(profile.receipt)
    monkeypatch.setenv("NBPROF_CACHE", "1")
    return out


def check(path, truth):
    profile = load(path)
    assert str(profile.receipt) == truth[3]
    same(truth[1], profile.ops.frame)
    same(truth[2], profile.steps.frame)
    same(truth[0].events, profile.run.trace.events)
    same(dict(truth[0].args), dict(profile.run.trace.args))
    same(truth[0], profile.run.trace)
    return profile


def healed(path, truth, reads):
    """Whether all of the profile is in the cache: nothing is read from the file any more."""
    before = len(reads)
    assert isinstance(check(path, truth).run.trace, StoredTrace)
    assert len(reads) == before


def parts(cache):
    return sorted(cache.path.rglob("*.part"))


def test_a_changed_byte_anywhere_is_healed(cache, path, truth, reads):
    check(path, truth)
    written()
    rng = np.random.default_rng(1)
    for _ in range(40):
        for part in parts(cache):
            data = bytearray(part.read_bytes())
            for at in rng.integers(0, len(data), 3):
                data[at] ^= int(rng.integers(1, 256))
            part.write_bytes(data)
        check(path, truth)
        written()
    # Where a frame had to be made anew, the columns were those of the file that was read for it,
    # and none was asked of the cache.
    check(path, truth)
    written()
    healed(path, truth, reads)


def test_every_kind_of_block_is_healed(cache, path, truth, reads):
    """One byte at a time, in the middle of a block, in files that are otherwise whole."""
    check(path, truth)
    written()
    for name in {part.name for part in parts(cache)}:
        count = len(Part(next(part for part in parts(cache) if part.name == name))._blocks)
        for number in range(0, count, 5):
            where = next((part for part in parts(cache) if part.name == name), None)
            if where is None:
                break
            at, length, _ = Part(where)._blocks[number]
            data = bytearray(where.read_bytes())
            if not length:
                continue
            data[at + length // 2] ^= 1
            where.write_bytes(data)
            check(path, truth)
            written()
            healed(path, truth, reads)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_cut_off_parts_are_healed(cache, path, truth, share, reads):
    check(path, truth)
    written()
    for part in parts(cache):
        os.truncate(part, int(part.stat().st_size * share))
    check(path, truth)
    written()
    healed(path, truth, reads)


@pytest.mark.parametrize("left", ["columns", "frames"])
def test_half_an_entry_is_enough_to_open_and_is_completed(cache, path, truth, left, reads):
    check(path, truth)
    written()
    for part in parts(cache):
        if (part.stem == "columns") != (left == "columns"):
            part.unlink()
    check(path, truth)
    written()
    healed(path, truth, reads)


def test_damage_that_shows_when_the_source_has_changed_is_a_sentence(cache, path, truth):
    check(path, truth)
    written()
    run = load(path).run
    column = next(part for part in parts(cache) if part.stem == "columns")
    os.truncate(column, 200)
    path.write_bytes(training_run() + b"\x12\x00")
    with pytest.raises(
        ReadError, match=r"a\.xplane\.pb.*changed since it was opened; load it again"
    ):
        run.trace.events.start  # noqa: B018


def test_an_entry_that_is_removed_under_an_open_profile(cache, path, truth):
    load(path).ops.frame  # noqa: B018
    written()
    profile = load(path)
    face.clear()
    same(truth[0].events, profile.run.trace.events)
    same(truth[2], profile.steps.frame)


def test_nonsense_where_the_key_should_be(cache, path, truth, monkeypatch):
    monkeypatch.setattr("nbprof.run.cache.identity._SETTLED_NS", -(10**12))
    check(path, truth)
    written()
    (note,) = (cache.path / "places").iterdir()
    for text in (
        "",
        "[]",
        "{",
        '{"key": 5}',
        note.read_text().replace('"key": "', '"key": "../'),
        '"x"',
    ):
        note.write_text(text)
        check(path, truth)
        written()


def test_a_file_where_the_folder_should_be(cache, path, truth):
    cache.path.write_text("not a folder")
    check(path, truth)
    written()
    assert cache.path.read_text() == "not a folder"
    assert face.info().runs == 0


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_folder_that_may_not_be_written_to(cache, path, truth):
    cache.path.mkdir(mode=0o500)
    check(path, truth)
    written()
    assert not list(cache.path.iterdir())


@pytest.mark.parametrize(
    ("number", "what"),
    [(28, "No space left on device"), (13, "Permission denied"), (30, "Read-only file system")],
)
def test_a_disk_that_takes_nothing(cache, path, truth, monkeypatch, number, what):
    def full(*_):
        raise OSError(number, what)

    monkeypatch.setattr(Writer, "add", full)
    check(path, truth)
    written()
    assert not parts(cache)
    assert not list((cache.path / "new").iterdir())


def test_a_bug_in_writing_stays_in_the_background(cache, path, truth, monkeypatch, capfd):
    monkeypatch.setattr(Writer, "add", None)
    check(path, truth)
    written()
    assert capfd.readouterr() == ("", "")


def test_more_than_the_limit_is_not_written(cache, path, truth, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE_SIZE", "2000")
    check(path, truth)
    written()
    assert not parts(cache)
    assert not list((cache.path / "new").iterdir())


def test_columns_that_are_too_large_leave_the_frames(cache, path, truth, monkeypatch):
    check(path, truth)
    written()
    frames = sum(part.stat().st_size for part in parts(cache) if part.stem != "columns")
    face.clear()
    monkeypatch.setenv("NBPROF_CACHE_SIZE", str(frames + 2000))
    check(path, truth)
    written()
    assert [part.stem == "columns" for part in parts(cache)] == [False]
    assert isinstance(check(path, truth).run.trace, StoredTrace)


def test_no_home(path, truth, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE_DIR", "~nobody-of-that-name/x")
    check(path, truth)


def test_a_person_who_waits_is_waited_for(cache, path, monkeypatch):
    """Nothing is written while a frame is computed."""
    inside, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(run_cache, "_AFTER_READING_S", 60.0)
    profile = load(path)

    def slow(activity, **options):
        inside.set()
        assert go_on.wait(30)
        return original(activity, **options)

    from nbprof.analysis.steps import steps

    original = steps.measured
    monkeypatch.setattr(steps, "measured", slow)
    thread = threading.Thread(target=lambda: profile.steps.frame)
    thread.start()
    assert inside.wait(30)
    background.write(profile.run.memo.run_cache, 0.0)
    time.sleep(0.3)
    assert not parts(cache)
    go_on.set()
    thread.join(30)
    assert background.finish(30)
    assert parts(cache)


def test_who_comes_back_to_work_is_waited_for_in_the_middle_too(cache, path, monkeypatch):
    profile = load(path)
    kept = profile.run.memo.run_cache
    started, seen = threading.Event(), []
    original = Writer.add

    def add(self, name, value):
        seen.append(name)
        kept._computing = 1
        started.set()
        return original(self, name, value)

    monkeypatch.setattr(Writer, "add", add)
    background.write(kept, 0.0)
    assert started.wait(30)
    time.sleep(0.3)
    assert len(seen) == 1
    monkeypatch.setattr(Writer, "add", original)
    kept._computing = 0
    written()
    assert parts(cache)


SCRIPT = """
import sys, time
from nbprof.run.cache import run_cache
run_cache.WORTH_S = 0.0
import nbprof
p = nbprof.load(sys.argv[1])
print(len(p.ops.frame), len(p.steps.frame), type(p.run.trace).__name__, flush=True)
"""


def script(path, cache, more="", before=""):
    settings = {"NBPROF_CACHE": "1", "NBPROF_CACHE_DIR": str(cache.path)}
    return Program(before + SCRIPT + more, (str(path),), ("nbprof",), environment=settings)


def test_what_waits_is_written_when_the_process_ends(cache, path):
    for kind in ("Trace", "StoredTrace"):
        ended = script(path, cache).wait()
        assert not ended.stderr
        assert ended.stdout.split()[2] == kind


def test_a_large_file_is_hashed_when_the_process_ends(cache, path):
    """No pool of threads can be started then."""
    more = "from nbprof.run.cache import identity\nidentity._SETTLED_NS, identity._CHUNK = -(10**12), 100\n"
    for kind in ("Trace", "StoredTrace"):
        ended = script(path, cache, before=more).wait()
        assert not ended.stderr
        assert ended.stdout.split()[2] == kind


def test_nothing_is_written_while_a_cell_is_recorded(cache, path, monkeypatch):
    from nbprof.capture import session

    monkeypatch.setattr(session, "_active", object())
    load(path).ops.frame  # noqa: B018 -- leaves work for the thread
    assert not background.finish(1.0)
    assert not parts(cache)
    monkeypatch.setattr(session, "_active", None)
    written()
    assert parts(cache)


def test_files_that_nobody_will_open_again_are_not_kept(cache, path):
    from nbprof.core.files import LocalFile, RunFiles
    from nbprof.run.run import Run

    files = RunFiles("run", path.parent, (LocalFile(path),), 0.0, "xspace")
    assert len(Run.read(files, keep=False).ops)
    written()
    assert not cache.entries()


def test_many_kernels_at_once(cache, path, truth):
    """Six processes open and write the same profile, and throw the cache away in between."""
    running = [
        script(
            path, cache, "import nbprof.cache\n" + ("nbprof.cache.clear()\n" if i % 3 == 2 else "")
        )
        for i in range(6)
    ]
    for process in running:
        ended = process.wait()
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.split()[:2] == [str(len(truth[1])), str(len(truth[2]))]
    assert not list((cache.path / "new").iterdir()) if (cache.path / "new").exists() else True
    check(path, truth)
    written()
    check(path, truth)


def test_a_killed_writer_leaves_no_entry_that_is_wrong(cache, path, truth):
    """Killed in the middle of a part."""
    slow = """
from nbprof.core.codec.container import Writer
plain = Writer._block
def slowly(self, data):
    time.sleep(0.05)
    return plain(self, data)
Writer._block = slowly
time.sleep(60)
"""
    process = script(path, cache, slow)
    deadline = time.monotonic() + 30
    while not (cache.path / "new").exists() or not list((cache.path / "new").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.process.kill()
    assert process.wait().returncode == -signal.SIGKILL
    assert len(list((cache.path / "new").iterdir())) == 1
    check(path, truth)
    written()
    assert isinstance(check(path, truth).run.trace, StoredTrace)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_writes_for_itself(cache, path):
    load(path).ops.frame  # noqa: B018
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            load(path).steps.frame  # noqa: B018
            code = 0 if background.finish(20) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    written()
