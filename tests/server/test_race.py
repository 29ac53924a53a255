"""What is checked must be what is opened: a file or folder that becomes a link in between leads
nowhere.

Each test lets an action run once to count how often a path is resolved, and then once for each of
these times, with the path replaced right after it. So every gap between a check and what follows is
tried, none by chance.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from nbprof.assistant.roots import Roots
from nbprof.core import confinement
from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile
from nbprof.formats.beside import beside
from nbprof.run.many import open_run
from nbprof.server.complete_run import blocks, complete_run, zipped
from nbprof.server.paths import resolve
from nbprof.server.runs import Search
from nbprof.server.worker import Desk
from nbprof.sources.recording import CaptureInfo
from tests.server.conftest import place, torch_trace
from tests.support.xspace import training_run

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="links need a right there that few users have"
)


class Replaced:
    """Replaces a path by a link to another one, after it has been resolved so many times; notes
    which files are opened.
    """

    def __init__(self, monkeypatch, path, target):
        self.path, self.target = path, target
        self.resolved, self.after = 0, None
        self.opened = set()
        self._away = path.with_name(f"{path.name}.away")
        real_path, open_file = os.path.realpath, LocalFile.open

        def realpath(path, **options):
            found = real_path(path, **options)
            if str(Path(path).absolute()).startswith(str(self.path)):
                self.resolved += 1
                if self.resolved == self.after:
                    self.replace()
            return found

        def open_noted(file):
            opened_file = open_file(file)
            self.opened.add(os.fstat(opened_file.fileno()).st_ino)
            return opened_file

        monkeypatch.setattr(os.path, "realpath", realpath)
        monkeypatch.setattr(LocalFile, "open", open_noted)

    def replace(self):
        self.path.rename(self._away)
        self.path.symlink_to(self.target)

    def restore(self):
        if self._away.exists():
            self.path.unlink()
            self._away.rename(self.path)

    def tries(self, action):
        """Runs the action for every time that the path is resolved; the inodes that were opened."""
        action()
        assert self.opened, "the action reads the file"
        count = self.resolved
        assert count
        for after in range(1, count + 1):
            self.resolved, self.after = 0, after
            try:
                action()
            except (NbprofError, OSError):
                pass
            finally:
                self.restore()
        return self.opened


def inodes(folder):
    return {path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    place(root / "run", "t.pt.trace.json", torch_trace())
    place(root / "run", "t.memory_snapshot.pickle", b"\x80\x04}.")
    place(root / "run", "kernel_information.json", b"{}")
    place(root / "run", "kernel_annotations_rank0_.pkl", b"\x80\x04}.")
    place(root / "run", "nbprof.json", b'{"label": "seen"}')
    place(root / "packed", "t.pt.trace.json.gz", gzip.compress(torch_trace()))
    place(root / "2024_05_01_10_00_00", "host-a.xplane.pb", training_run(4))
    with zipfile.ZipFile(root / "runs.zip", "w") as archive:
        archive.writestr("a.xplane.pb", training_run(4))
    return root


@pytest.fixture
def outside(root, tmp_path):
    """The same files, which nobody may read."""
    outside = tmp_path / "outside"
    shutil.copytree(root, outside)
    return outside


FILES = [
    "run/t.pt.trace.json",
    "run/t.memory_snapshot.pickle",
    "run/kernel_information.json",
    "run/kernel_annotations_rank0_.pkl",
    "run/nbprof.json",
    "run",
]


@pytest.fixture
def secret(outside):
    found = inodes(outside)

    def secret(replaced, action):
        return replaced.tries(action) & found

    return secret


def desk_opens(root, path, **more):
    """What a process of the server does to open a place."""
    messages = []
    desk = Desk(lambda head, body: messages.append(head))
    there = resolve(str(root), path)
    head = {
        "id": 1,
        "path": str(there.real),
        "shown": path,
        "root": str(there.root),
        "hidden": False,
        "run": "",
        **more,
    }
    desk.handle({"do": "find", **head} if there.folder else {"do": "open", **head}, b"")
    if there.folder:
        desk.handle({"do": "open", **head}, b"")
    return messages


def read_beside(files):
    for piece in (*beside(files), *([files.sidecar] if files.sidecar else [])):
        piece.head(10)


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("opened_path", ["run/t.pt.trace.json", "run"])
def test_what_the_server_opens(root, outside, monkeypatch, secret, path, opened_path):
    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, lambda: desk_opens(root, opened_path))


@pytest.mark.parametrize("path", ["2024_05_01_10_00_00/host-a.xplane.pb", "2024_05_01_10_00_00"])
def test_what_the_server_opens_of_a_run_folder(root, outside, monkeypatch, secret, path):
    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, lambda: desk_opens(root, "2024_05_01_10_00_00"))


@pytest.mark.parametrize("path", ["packed/t.pt.trace.json.gz", "packed"])
def test_a_packed_file_that_the_server_opens(root, outside, monkeypatch, secret, path):
    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, lambda: desk_opens(root, "packed/t.pt.trace.json.gz"))


def test_an_archive_that_the_server_opens(root, outside, monkeypatch, secret):
    replaced = Replaced(monkeypatch, root / "runs.zip", outside / "runs.zip")
    assert not secret(replaced, lambda: desk_opens(root, "runs.zip"))


@pytest.mark.parametrize("path", ["run/t.pt.trace.json", "run"])
def test_a_file_that_is_downloaded(root, outside, monkeypatch, secret, path):
    def download():
        run = complete_run(str(root), "run/t.pt.trace.json")
        return b"".join(blocks(run.real, getattr(run, "confinement", None) or run.top))

    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, download)


@pytest.mark.parametrize("path", ["2024_05_01_10_00_00/host-a.xplane.pb", "2024_05_01_10_00_00"])
def test_a_run_that_is_downloaded(root, outside, monkeypatch, secret, path):
    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(
        replaced, lambda: b"".join(zipped(complete_run(str(root), "2024_05_01_10_00_00")))
    )


@pytest.mark.parametrize("path", ["run/t.pt.trace.json", "run/nbprof.json", "run"])
def test_what_the_list_of_runs_looks_into(root, outside, monkeypatch, secret, path):
    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, lambda: list(Search(root).below("", root)))


@pytest.mark.parametrize("path", [*FILES, "runs.zip"])
def test_what_an_assistant_opens(root, outside, monkeypatch, secret, path):
    def read():
        files, _ = Roots([root]).find("runs.zip" if path == "runs.zip" else "run/t.pt.trace.json")
        CaptureInfo.of(files.sidecar)
        read_beside(files)
        assert open_run(files, CaptureInfo.of(files.sidecar)).steps is not None

    replaced = Replaced(monkeypatch, root / path, outside / path)
    assert not secret(replaced, read)


@pytest.mark.parametrize("download", [False, True])
def test_a_link_to_something_hidden_in_the_root(root, monkeypatch, download):
    """Nothing that is hidden is opened, wherever the link to it comes from."""
    hidden = place(root / ".hidden", "t.pt.trace.json", torch_trace())
    replaced = Replaced(monkeypatch, root / "run" / "t.pt.trace.json", hidden)

    def act():
        if not download:
            return desk_opens(root, "run/t.pt.trace.json")
        run = complete_run(str(root), "run/t.pt.trace.json")
        return b"".join(blocks(run.real, getattr(run, "confinement", None) or run.top))

    assert hidden.stat().st_ino not in replaced.tries(act)


def test_where_the_system_opens_nothing_relative_to_a_folder(root, outside, monkeypatch, secret):
    """As on Windows: there the opened file is compared with the one that was meant."""
    monkeypatch.setattr(confinement, "_RELATIVE", False)
    replaced = Replaced(monkeypatch, root / "run", outside / "run")
    assert not secret(replaced, lambda: desk_opens(root, "run/t.pt.trace.json"))


def test_names_in_a_folder_that_became_a_link_are_not_shown(root, outside, monkeypatch):
    """The sentence for a place without a profile says what is there."""
    (root / "empty").mkdir()
    place(outside / "empty", "secret-plans.txt", b"")
    replaced = Replaced(monkeypatch, root / "empty", outside / "empty")
    said = []
    for after in (1, 2, 3, 4, 5):
        replaced.resolved, replaced.after = 0, after
        try:
            said += [str(message) for message in desk_opens(root, "empty")]
        except NbprofError as error:
            said.append(str(error))
        finally:
            replaced.restore()
    assert said
    assert not [text for text in said if "secret-plans" in text]


@pytest.mark.parametrize("keep", [True, False])
def test_a_link_within_the_root_is_followed(root, outside, keep):
    """Only what leads out is refused, in a file and in a folder on the way."""
    (root / "link").symlink_to(root / "run" if keep else outside / "run")
    if keep:
        assert desk_opens(root, "link/t.pt.trace.json")[-1]["is"] == "done"
        assert Roots([root]).find("link/t.pt.trace.json")[0].format == "chrome"
        assert b"".join(zipped(complete_run(str(root), "link"))).startswith(b"PK")
        return
    with pytest.raises(NbprofError, match="a link that points outside the folder"):
        desk_opens(root, "link/t.pt.trace.json")
