"""Hosts that are not in a run: empty, broken, cut and copied files cost only their host, and are
rows of `p.pods.missing`.
"""

from __future__ import annotations

import gzip
import os

import pytest

from nbprof.core.errors import ReadError
from nbprof.core.receipt import Note
from nbprof.profiles.load import load, runs
from nbprof.run import combine
from nbprof.tools.pods import findings
from tests.support import pods
from tests.support.riegeli import written

RANKS = 4


@pytest.fixture(params=["kineto", "xspace"])
def job(request, tmp_path):
    """The files of a job, by rank, and what the second and third host are called where they are not
    read.
    """
    folder = tmp_path / "a job"
    pods.write(folder, RANKS, 6, form=request.param)
    return sorted(folder.iterdir()), ["rank 1", "rank 2"] if request.param == "kineto" else [
        "host0001",
        "host0002",
    ]


def missing(files, executor):
    return load(files[0].parent, executor=executor).pods.missing


executors = pytest.mark.parametrize("executor", [None, 1])


@executors
@pytest.mark.parametrize("content", [b"", b"{", b"no profile"])
def test_a_file_that_is_no_profile_is_a_row_beside_a_host_without_one(job, executor, content):
    files, names = job
    files[1].write_bytes(content)
    files[2].unlink()
    p = load(files[0].parent, executor=executor)
    assert p.pods.missing["host"].tolist() == names
    assert p.pods.missing["file"].tolist() == [files[1].name, ""]
    assert p.pods.missing["reason"].str.endswith(".").all()
    assert "**2** hosts or files are missing and not compared" in findings.sentences(p.run)[-1]


@executors
def test_the_last_host_is_missing_though_no_name_counts_it_in(job, executor):
    files, _ = job
    files[-1].write_bytes(b"")
    assert missing(files, executor)["file"].tolist() == [files[-1].name]


@executors
def test_a_copy_is_a_row_and_costs_no_other_host(job, executor):
    files, names = job
    files[2].write_bytes(files[1].read_bytes())
    p = load(files[0].parent, executor=executor)
    assert len(p.hosts) == RANKS - 1
    assert p.pods.missing.to_numpy().tolist() == [
        [names[1], files[2].name, f"It is a copy of {files[1].name}, byte for byte."]
    ]
    assert sum("is a copy of" in note.text for note in p.receipt.entries) == 1
    assert len(runs(files[0].parent)) == 1


@executors
def test_a_file_that_breaks_off_costs_only_its_host(tmp_path, executor):
    pods.write(tmp_path / "job", RANKS, 6, form="xspace")
    files = sorted((tmp_path / "job").iterdir())
    files[1].write_bytes(files[1].read_bytes()[:2000])
    p = load(tmp_path / "job", executor=executor)
    assert p.hosts == ["host0", "host2", "host3"]
    assert p.pods.missing["file"].tolist() == [files[1].name]
    assert any(files[1].name in note.text for note in p.receipt.entries if note.level == "warning")
    for file in files:
        file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ReadError, match="host0000"):
        load(tmp_path / "job", executor=executor)


def packed(files):
    """The same files in gzip."""
    for file in files:
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
    return sorted(files[0].parent.iterdir())


def cut_behind_a_part(file, form):
    """Cuts a file where a part of its events can be read."""
    data = file.read_bytes()
    # The first plane of the two of a host is whole.
    file.write_bytes(data[: len(data) - 200 if form == "xspace" else len(data) * 2 // 3])


@pytest.mark.parametrize("ranks", [4, 10])
@pytest.mark.parametrize("form", ["kineto", "gzip", "xspace"])
def test_a_host_that_was_read_in_part_is_a_row_that_says_so(tmp_path, form, ranks):
    """Few hosts are read at once, more than eight apart, in processes unless told otherwise."""
    executor = 1 if ranks == 10 and form != "kineto" else None
    folder = tmp_path / "a job"
    pods.write(folder, ranks, 6, form="xspace" if form == "xspace" else "kineto")
    files = packed(sorted(folder.iterdir())) if form == "gzip" else sorted(folder.iterdir())
    whole = load(folder, executor=executor)
    assert whole.pods.missing.empty
    for file in files[1:3]:
        cut_behind_a_part(file, form)
    files[3].write_bytes(b"")
    if form == "gzip":
        # What it lacks is the checksum behind the trace.
        files[0].write_bytes(files[0].read_bytes()[:-8])
    p = load(folder, executor=executor)
    assert len(p.hosts) == ranks - 1
    rows = p.pods.missing
    assert rows["file"].tolist() == [file.name for file in files[1:4]]
    assert rows["host"].tolist()[:2] == p.hosts[1:3]
    said = {
        "kineto": r"That is 5\d events\.",
        "gzip": r"could be decompressed was read\. That is \d+ events\.",
        "xspace": "The 1 plane before",
    }
    assert rows["reason"].str.contains(said[form]).tolist() == [True, True, False]
    assert p.receipt.events < whole.receipt.events * (ranks - 1) / ranks
    # The cut may go through an event, which is then counted as damaged.
    about = [
        note.text for note in p.receipt.entries if any(file.name in note.text for file in files[1:])
    ]
    assert len(about) == 2
    assert any(
        text.startswith(f"2 files were read in part: {files[1].name}, {files[2].name}. ")
        for text in about
    )
    assert findings.sentences(p.run)[-2:] == [
        "**1** host or file is missing and not compared; see p.pods.missing.",
        "**2** hosts were read only in part, and are compared as far as possible; see p.pods.missing.",
    ]


@executors
def test_many_files_that_cannot_be_read_are_one_line(job, executor):
    files, names = job
    for file, content in zip(files[1:], (b"", b"{", b"no profile"), strict=True):
        file.write_bytes(content)
    p = load(files[0].parent, executor=executor)
    assert p.pods.missing["host"].tolist()[:2] == names
    (line,) = (note.text for note in p.receipt.lines if files[1].name in note.text)
    assert line.startswith(
        f"3 files were skipped, and the figures do not include their hosts: {files[1].name}, "
    )


def test_what_is_left_beside_a_profile_in_parts_is_no_missing_host(tmp_path):
    pods.write(tmp_path, 2, 6, form="xspace")
    whole = tmp_path / "host0001.xplane.pb"
    (tmp_path / "host0001.xplane.riegeli").write_bytes(written([whole.read_bytes()]))
    whole.write_bytes(b"")
    p = load(tmp_path)
    assert len(p.hosts) == 2
    assert p.pods.missing.empty


@pytest.mark.usefixtures("_cache")
def test_what_is_missing_is_looked_for_each_time(job):
    files, names = job
    kept = files[1].read_bytes()
    assert missing(files, 1).empty
    for content in (b"", kept):
        files[1].write_bytes(content)
        assert missing(files, 1)["host"].tolist() == names[: not content]


@pytest.fixture
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NBPROF_CACHE", "1")
    monkeypatch.setenv("NBPROF_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no rights here")
def test_a_file_that_may_not_be_read_is_a_row(job, monkeypatch):
    files, names = job
    open_ = os.open

    def refuse(path, *more, **options):
        if os.fspath(path) == str(files[1]):
            raise PermissionError(13, "Permission denied", str(path))
        return open_(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    (row,) = missing(files, 1).to_dict("records")
    assert row["host"] == names[0]
    assert "ermission denied" in row["reason"]


def test_a_note_on_a_file_is_of_its_host_alone():
    cut, both = (
        Note("warning", "two.json: The file is truncated.", "test"),
        Note("warning", "Launches are missing.", "test"),
    )
    groups, files = [["rank 1", "rank 2"], ["rank 3"]], [["one.json", "two.json"], ["three.json"]]
    found = combine.folded(
        [[cut, both], [Note("warning", "The file is truncated.", "test")]], groups, files
    )
    assert [note.text for note in found] == [
        "rank 2, rank 3: The file is truncated.",
        "rank 1, rank 2: Launches are missing.",
    ]
