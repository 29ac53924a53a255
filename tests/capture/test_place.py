"""Where a run goes when the disk of its logdir is full, or becomes full."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

from nbprof.capture import place as module
from nbprof.capture.options import Options
from nbprof.capture.place import RunFolder
from nbprof.capture.reserve import COUNT, Reserve
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from tests.capture.notes import text_of


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def logdir(tmp_path, monkeypatch):
    """A logdir on a disk of its own: `logdir.free` bytes are free, and a copy of more fails."""
    disk = SimpleNamespace(path=tmp_path / "logs", free=60 << 10)
    copytree = shutil.copytree

    def usage(path):
        return SimpleNamespace(
            free=disk.free if os.fspath(path).startswith(str(disk.path)) else 1 << 40
        )

    def copy(source, target):
        if (
            str(target).startswith(str(disk.path))
            and sum(file.stat().st_size for file in source.rglob("*")) > disk.free
        ):
            target.mkdir()
            (target / "half").write_bytes(b"1")
            raise shutil.Error(
                [
                    (
                        str(source),
                        str(target),
                        f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}: 'run'",
                    )
                ]
            )
        return copytree(source, target)

    monkeypatch.setattr(module.shutil, "disk_usage", usage)
    monkeypatch.setattr(module.shutil, "copytree", copy)
    monkeypatch.setattr(
        module,
        "_same_disk",
        lambda one, other: str(disk.path) in str(one.resolve()) and str(disk.path) in str(other),
    )
    return disk


def record(place, size):
    """What a profiler does at its end."""
    run = place.scratch / "plugins" / "profile" / "2026_01_01"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").write_bytes(b"x" * size)


def test_a_run_that_fits_a_disk_that_is_nearly_full_is_in_the_logdir(logdir, temporary):
    place = RunFolder(Options(logdir=str(logdir.path)))
    record(place, 1000)
    run = place.settle("-steps-1-2")
    assert run == logdir.path / "plugins" / "profile" / "2026_01_01-steps-1-2"
    assert (run / "host.xplane.pb").stat().st_size == 1000
    assert place.notes == []
    assert list(temporary.iterdir()) == []
    assert not list(logdir.path.glob(".recording-*"))


@pytest.mark.parametrize("suffix", ["", "-steps-1-2"])
def test_a_run_is_named_by_the_time_that_its_header_states(logdir, temporary, suffix):
    started = datetime(2026, 1, 1, 10, 20, 30)
    for name, expected in [
        ("2026_01_01_10_21_00", f"2026_01_01_10_20_30{suffix}"),
        ("2026_01_01_10_22_00", f"2026_01_01_10_20_30{suffix}_2"),
        ("their_name", f"their_name{suffix}"),
    ]:
        place = RunFolder(Options(logdir=str(logdir.path)))
        run = place.scratch / "plugins" / "profile" / name
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(b"x")
        assert place.settle(suffix, started).name == expected


@pytest.mark.skipif(sys.platform == "win32", reason="a link needs a privilege there")
@pytest.mark.parametrize("becomes_full", [False, True])
def test_a_run_that_a_full_disk_does_not_take_is_kept_elsewhere_and_says_where(
    logdir, temporary, becomes_full
):
    left = logdir.free
    logdir.free = 1 << 40 if becomes_full else left
    place = RunFolder(Options(logdir=str(logdir.path)))
    logdir.free = left
    place.secure()
    record(place, 73 << 10)
    run = place.settle()
    (kept,) = temporary.iterdir()
    assert run == kept / "plugins" / "profile" / "2026_01_01"
    assert (run / "host.xplane.pb").stat().st_size == 73 << 10
    note = text_of(place.notes, "run_moved")
    assert note.startswith(
        f"the disk of {logdir.path} is full: the run needs 73.0 KiB, and 60.0 KiB are free. "
    )
    assert note.endswith(
        f"The run is saved in {kept} instead; free some space, or choose another location with --logdir DIR"
    )
    assert not list(logdir.path.glob(".recording-*"))
    assert not list(kept.glob(".recording-*"))
    # The next window of the same cell goes to the same place.
    place.renew()
    record(place, 73 << 10)
    assert place.settle() == kept / "plugins" / "profile" / "2026_01_01_2"


@pytest.mark.parametrize("why", ["written", "no links"])
def test_a_scratch_folder_that_cannot_move_stays(logdir, temporary, monkeypatch, why):
    logdir.free = 1 << 40
    place = RunFolder(Options(logdir=str(logdir.path)))
    logdir.free = 100 << 10
    if why == "written":
        record(place, 1000)
        place.secure()
    else:

        def refuse(*_, **__):
            raise NotImplementedError

        monkeypatch.setattr(module.Path, "symlink_to", refuse)
        place.secure()
        record(place, 1000)
    assert place.settle().parent == logdir.path / "plugins" / "profile"
    assert list(temporary.iterdir()) == []


def test_a_disk_with_room_has_the_scratch_folder_itself(logdir, temporary):
    logdir.free = 1 << 40
    place = RunFolder(Options(logdir=str(logdir.path)))
    place.secure()
    record(place, 73 << 10)
    assert place.scratch.parent == logdir.path
    assert place.settle().parent == logdir.path / "plugins" / "profile"
    assert list(temporary.iterdir()) == []


def test_where_there_is_room_nowhere_the_sentence_says_where_the_run_is(
    logdir, temporary, monkeypatch
):
    place = RunFolder(Options(logdir=str(logdir.path)))
    record(place, 73 << 10)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_move_into", full)
    with pytest.raises(
        CaptureError, match=f"No space left on device; it is in {temporary}"
    ) as caught:
        place.settle()
    assert "choose another location with --logdir" in remedies.disk_remedy(str(caught.value))


@pytest.mark.skipif(sys.platform == "win32", reason="there is one place for temporary files")
def test_temporary_files_go_where_there_is_room(logdir, temporary, monkeypatch):
    monkeypatch.setattr(module.tempfile, "tempdir", str(logdir.path))
    logdir.path.mkdir()
    place = RunFolder(Options(save=False))
    assert logdir.path not in place.logdir.parents
    assert temporary not in place.logdir.parents
    place.remove()
    assert not place.logdir.exists()


def test_descriptors_are_held_and_given_back():
    reserve = Reserve()
    held = reserve._held[:]
    assert len(set(held)) == COUNT
    reserve.release()
    reserve.release()
    for each in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
    assert "ulimit -n" in remedies.disk_remedy("[Errno 24] Too many open files: 'a'")
