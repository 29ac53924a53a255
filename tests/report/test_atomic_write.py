"""A file that cannot be written leaves the old one as it was; links, devices, FIFOs, modes and
owners stay what they are.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

import nbprof
from nbprof.core import atomic_write as module
from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.gate.baseline import Baseline
from tests.cli.support import DATA, SLOW, call

MENDED = str(DATA / "xspace" / "tf_mended.xplane.pb")
NULL = Path(os.devnull)
ROOT = os.geteuid() == 0 if hasattr(os, "geteuid") else False
posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs, modes and owners here")


def write(target, content=b"new"):
    with atomic_write(target, "report", len(content)) as file:
        file.write(content)


def test_a_file_is_there_when_it_is_complete(tmp_path):
    target = tmp_path / "report.html"
    with atomic_write(target, "report") as file:
        file.write(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("number", "size", "says"),
    [
        (
            errno.ENOSPC,
            3 << 20,
            r"No space left on device\). It needs 3.00 MiB: free some space, or choose a folder on another disk \(.+ free here\)",
        ),
        (
            errno.ENOSPC,
            None,
            r"No space left on device\). Free some space, or choose a folder on another disk",
        ),
        (errno.EACCES, 3, r"Permission denied\). Choose a folder that you can write to\.$"),
        (errno.EIO, 3, r"Input/output error\). Choose another folder\.$"),
    ],
)
def test_a_disk_that_does_not_take_it_leaves_what_was_there(tmp_path, number, size, says):
    target = tmp_path / "report.html"
    target.write_text("before")

    def fail():
        with atomic_write(target, "report", size) as file:
            file.write(b"half")
            raise OSError(number, os.strerror(number))

    with pytest.raises(
        NbprofError, match=rf"report\.html: the report could not be written \({says}"
    ):
        fail()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_any_other_exception_leaves_what_was_there_and_passes(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("before")

    def fail():
        with atomic_write(target, "report") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_device_stays_a_device():
    before = NULL.stat()
    write(NULL)
    after = NULL.stat()
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev, after.st_mode, after.st_uid) == (
        before.st_ino,
        before.st_rdev,
        before.st_mode,
        before.st_uid,
    )
    assert not list(NULL.parent.glob("*.part"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_that_is_full_is_a_sentence():
    with pytest.raises(
        NbprofError,
        match=r"^/dev/full: the report could not be written \(No space left on device\)",
    ):
        write(Path("/dev/full"))


@posix
def test_a_fifo_is_written_to(tmp_path):
    target, received = tmp_path / "pipe", []
    os.mkfifo(target)
    reader = threading.Thread(target=lambda: received.append(target.read_bytes()), daemon=True)
    reader.start()
    write(target, b"new" * 100_000)
    reader.join(60)
    assert received == [b"new" * 100_000]
    assert stat.S_ISFIFO(target.stat().st_mode)


@posix
def test_a_link_to_a_fifo_is_written_to(tmp_path):
    fifo, link, received = tmp_path / "pipe", tmp_path / "link", []
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()), daemon=True)
    reader.start()
    write(link)
    reader.join(60)
    assert received == [b"new"]
    assert link.is_symlink()


@posix
def test_a_socket_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(
            NbprofError, match=r"^s: the report could not be written \(.+\)\. Nothing reads from it"
        ):
            write(Path("s"))
        assert stat.S_ISSOCK(Path("s").stat().st_mode)


def test_a_folder_is_a_sentence(tmp_path):
    with pytest.raises(
        NbprofError,
        match=r"the report could not be written \(.+\)\. It is a folder: add the name of a file",
    ):
        write(tmp_path)
    assert tmp_path.is_dir()


@pytest.mark.parametrize("below", [("no", "x.html"), ("file", "x.html")])
def test_a_folder_that_is_missing_is_a_sentence(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(NbprofError, match=rf"There is no folder .*{below[0]}: create it"):
        write(tmp_path.joinpath(*below))


@posix
@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, absolute):
    (tmp_path / "real").mkdir()
    real, link, second = (
        tmp_path / "real" / "report.html",
        tmp_path / "link.html",
        tmp_path / "second.html",
    )
    real.write_text("before")
    link.symlink_to(real if absolute else Path("real", "report.html"))
    second.symlink_to("link.html")
    write(second)
    assert second.is_symlink()
    assert link.is_symlink()
    assert not real.is_symlink()
    assert real.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "link.html",
        "real",
        "report.html",
        "second.html",
    ]


@posix
def test_a_dangling_link_creates_its_target(tmp_path):
    link = tmp_path / "link.html"
    link.symlink_to("later.html")
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "later.html").read_bytes() == b"new"


@posix
def test_a_circle_of_links_is_a_sentence(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NbprofError, match="the report could not be written"):
        write(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


@posix
def test_a_link_that_lies_where_the_temporary_file_is_to_be_is_not_followed(tmp_path, monkeypatch):
    """Nobody knows the name beforehand; whoever guesses it gains nothing."""
    monkeypatch.setattr(module.secrets, "token_hex", lambda _: "guessed")
    victim = tmp_path / "victim"
    victim.write_bytes(b"before")
    (tmp_path / ".nbprof-guessed.part").symlink_to(victim)
    with pytest.raises(NbprofError, match="could not be written"):
        write(tmp_path / "report.html")
    assert victim.read_bytes() == b"before"
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_no_file_can_be_called_is_a_sentence(tmp_path, name):
    with pytest.raises(NbprofError, match="it is not a valid file name"):
        write(tmp_path / name)


@pytest.mark.parametrize("how", ["save", "trace"])
def test_an_empty_name_is_a_sentence(profile, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NbprofError, match="An empty name is the working folder"):
        profile.save("") if how == "save" else profile.trace.export("")
    assert not list(tmp_path.iterdir())


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_a_replaced_file_keeps_its_mode_and_owner(tmp_path, mode):
    target = tmp_path / "report.html"
    target.write_text("before")
    target.chmod(mode)
    owner = (12345, 23456) if ROOT else (os.geteuid(), os.getegid())
    os.chown(target, *owner)
    during = []
    with atomic_write(target, "report") as file:
        file.write(b"new")
        during = [path.stat().st_mode & 0o777 & ~mode for path in tmp_path.iterdir()]
    status = target.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (mode, *owner)
    assert target.read_bytes() == b"new"
    # Nobody reads the new content who could not read the old one.
    assert during == [0, 0]


@posix
def test_a_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "report.html")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.html").stat().st_mode) == 0o640


@posix
@pytest.mark.parametrize("content", [b"short", b"longer than before"])
def test_a_file_whose_owner_cannot_be_given_is_overwritten(tmp_path, monkeypatch, content):
    target = tmp_path / "report.html"
    target.write_text("what was there")
    inode = target.stat().st_ino

    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(module.os, "fchmod", refused)
    write(target, content)
    assert target.read_bytes() == content
    assert target.stat().st_ino == inode
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_mount_point_is_overwritten(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    inode = target.stat().st_ino

    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write(target)
    assert target.read_bytes() == b"new"
    assert target.stat().st_ino == inode


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved here")
def test_overwriting_on_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_renamed", lambda *_: False)
    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(NbprofError, match="No space left on device"):
        write(target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_write_protected_file_stays(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    target.chmod(0o444)
    if ROOT:
        # For root all files are writable.
        monkeypatch.setattr(module.os, "access", lambda path, _mode: path != target)
    with pytest.raises(
        NbprofError, match=r"report\.html: the report could not be written \(Permission denied\)"
    ):
        write(target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_file_in_a_folder_that_takes_no_new_files_is_overwritten(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    opened = os.open

    def refused(path, flags, *mode):
        if str(path).endswith(".part"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr(module.os, "open", refused)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    write(target)
    assert target.read_bytes() == b"new"
    with pytest.raises(NbprofError, match="Permission denied"):
        write(tmp_path / "another.html")


@posix
def test_the_other_hard_link_keeps_the_old_content(tmp_path):
    target, other = tmp_path / "report.html", tmp_path / "other.html"
    target.write_text("before")
    os.link(target, other)
    write(target)
    assert target.read_bytes() == b"new"
    assert other.read_text() == "before"


def test_a_name_of_the_greatest_length_is_written(tmp_path):
    target = tmp_path / ("x" * 250 + ".html")
    write(target)
    assert target.read_bytes() == b"new"


# Everything that nbprof writes.


@pytest.fixture(scope="module")
def profile():
    return nbprof.load(SLOW)


@pytest.fixture(scope="module")
def comparison():
    return nbprof.compare(SLOW, MENDED)


WRITERS = {
    "report": lambda profile, _, path: profile.save(path, events=0),
    "comparison": lambda _, comparison, path: comparison.save(path, events=0),
    "trace": lambda profile, _, path: profile.trace.export(path, between=(100, 101)),
    "baseline": lambda profile, _, path: Baseline.of([profile.run]).write(path),
    "list of redacted names": lambda profile, _, path: profile.brief(redact=path),
    "frame": lambda _, __, path: call("frame", SLOW, "steps", "--csv", "-o", path),
    "report of the command": lambda _, __, path: call("report", SLOW, "--events", 0, "-o", path),
    "trace of the command": lambda _, __, path: call(
        "trace", SLOW, "--range", "100:101", "-o", path
    ),
    "comparison of the command": lambda _, __, path: call("compare", SLOW, MENDED, "-o", path),
}


@posix
@pytest.mark.parametrize("writer", WRITERS)
def test_all_that_is_written_goes_by_this_way(writer, profile, comparison, tmp_path):
    target, link = tmp_path / "file.json", tmp_path / "link.json"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    WRITERS[writer](profile, comparison, link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "before" not in target.read_text()[:10]
    assert sorted(tmp_path.iterdir()) == [target, link]
    device = NULL.stat()
    WRITERS[writer](profile, comparison, NULL)
    assert NULL.stat().st_rdev == device.st_rdev
    assert stat.S_ISCHR(NULL.stat().st_mode)


@posix
def test_the_skill_keeps_the_mode_and_link_of_its_file(tmp_path):
    from nbprof.assistant import skill

    target, link = tmp_path / "SKILL.md", tmp_path / "nbprof" / "SKILL.md"
    target.write_text("before")
    target.chmod(0o640)
    link.parent.mkdir()
    link.symlink_to(target)
    skill.install(tmp_path, force=True)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_text("utf-8") == skill.text()


def test_a_trace_still_needs_a_name_that_says_its_format(profile, tmp_path):
    with pytest.raises(NbprofError, match=r"must end in \.json or \.json\.gz"):
        profile.trace.export(tmp_path / "trace.txt")
