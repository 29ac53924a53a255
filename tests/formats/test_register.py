"""One object a format: what nbprof reads is what the register lists, and a format that is added to
it is read everywhere.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nbprof
from nbprof.core.errors import ReadError
from nbprof.formats import register
from nbprof.server.on_disk import OnDisk
from nbprof.server.runs import Search
from tests.support import beats

DATA = Path(__file__).parents[1] / "data"
TRACK = beats.MAGIC + b"kick 0 10\nsnare 20 5\nkick 40 10\n"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line more in the register."""
    monkeypatch.setattr(register, "FORMATS", (*register.FORMATS, beats.FORMAT))


def drummed(profile: nbprof.Profile, count: int = 3) -> None:
    """The profile has the events of the track."""
    trace = profile.run.as_read
    assert [str(trace.names[code]) for code in trace.events.name] == ["kick", "snare", "kick"] * (
        count // 3
    )
    assert trace.events.start.tolist()[:3] == [0, 20_000_000, 40_000_000]
    assert len(profile.trace.events()) == count
    assert profile.run.activity.framework.title == "a drummer"


def test_unknown_before_it_is_added(tmp_path: Path) -> None:
    (tmp_path / "solo.beats").write_bytes(TRACK)
    with pytest.raises(ReadError, match="this is a text file"):
        nbprof.load(tmp_path / "solo.beats")


@pytest.mark.usefixtures("added")
def test_a_file_of_an_added_format(tmp_path: Path) -> None:
    (tmp_path / "solo.beats").write_bytes(TRACK)
    drummed(nbprof.load(tmp_path / "solo.beats"))


@pytest.mark.usefixtures("added")
def test_a_logdir_of_an_added_format(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "solo.beats").write_bytes(TRACK)
    (tmp_path / "a" / "notes.txt").write_text("no profile")
    assert nbprof.runs(tmp_path)[["run", "hosts", "format"]].to_numpy().tolist() == [
        ["solo", 1, "beats"]
    ]
    drummed(nbprof.load(tmp_path))


@pytest.mark.usefixtures("added")
def test_an_added_format_packed_and_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "solo.beats.gz").write_bytes(gzip.compress(TRACK))
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        archive.writestr("deep/solo.beats", TRACK)
    drummed(nbprof.load(tmp_path / "solo.beats.gz"))
    drummed(nbprof.load(tmp_path / "runs.zip"))


@pytest.mark.usefixtures("added")
def test_files_of_an_added_format_as_hosts_of_one_run(tmp_path: Path) -> None:
    paths = [tmp_path / "left.beats", tmp_path / "right.beats"]
    for path in paths:
        path.write_bytes(TRACK)
    # A copy is read once.
    paths[1].write_bytes(TRACK.replace(b"snare 20 5", b"snare 20 6"))
    drummed(nbprof.load(paths), 6)


@pytest.mark.usefixtures("added")
def test_the_list_of_runs_has_an_added_format(tmp_path: Path) -> None:
    (tmp_path / "solo.beats").write_bytes(TRACK)
    (found,) = Search(tmp_path).below("", tmp_path)
    assert isinstance(found, OnDisk)
    assert (found.path, found.name, found.format) == ("solo.beats", "solo", "beats")
    assert found.lines()[0]["run"]["hosts"] == 1


@pytest.mark.usefixtures("added")
def test_errors_name_an_added_format(tmp_path: Path) -> None:
    (tmp_path / "solo.beats").write_bytes(TRACK)
    (tmp_path / "notes.txt").write_text("no profile")
    with pytest.raises(
        ReadError, match=r"snapshots of PyTorch's allocator, .*and drum tracks \(\*\.beats\)\."
    ):
        nbprof.load(tmp_path / "notes.txt")
    with pytest.raises(
        ReadError, match=r"\*\.xplane\.pb and drum tracks \(\*\.beats\) cannot be one run"
    ):
        nbprof.load([DATA / "xspace" / "jax_cpu.xplane.pb", tmp_path / "solo.beats"])


def test_names_are_told_apart() -> None:
    names = [form.name for form in register.FORMATS]
    assert len(set(names)) == len(names)
    assert [register.by_name(name).name for name in names] == names


SCRIPT = """
import sys
import nbprof
assert "nbprof.formats" not in sys.modules
import nbprof.formats.msprof.export, nbprof.formats.register, nbprof.formats.torch_snapshot.beside
assert "pandas" not in sys.modules
import nbprof.formats.chrome.graph_annotations, nbprof.formats.chrome.inductor, nbprof.formats.msprof.iterations
light = set(sys.modules)
profile = nbprof.load(sys.argv[1])
profile.ops.frame
print(*{name.split(".")[2] for name in set(sys.modules) - light if name.startswith("nbprof.formats.") and name.count(".") > 2})
"""


@pytest.mark.parametrize(
    ("path", "room"),
    [("xspace/jax_cpu.xplane.pb", "xspace"), ("kineto/cpu_train.pt.trace.json.gz", "chrome")],
)
def test_readers_of_other_formats_are_not_imported(path: str, room: str) -> None:
    environment = {**os.environ, "NBPROF_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(DATA / path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert set(done.stdout.split()) == {room}
