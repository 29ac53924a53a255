"""Files, run folders and logdirs on a disk: what is found, what is taken, and what is said where
nothing can be.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

import nbprof
from nbprof.core import files
from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer, Growing, LocalFile
from nbprof.core.sidecar import SIDECAR
from nbprof.sources import detect, folders, locate
from tests.support.places import gz, space, trace, write
from tests.support.xspace import training_run

RUN = "plugins/profile"


def names(found):
    return [piece.name for piece in found.files]


# What is found


def test_the_newest_run_of_a_logdir_wins(tmp_path):
    for i, name in enumerate(["run_a", "run_b"]):
        write(tmp_path, {f"{RUN}/{name}/h.xplane.pb": space()}, at=1000 + i)
    assert locate.find(tmp_path).name == "run_b"
    assert [run.name for run in locate.runs(tmp_path)] == ["run_b", "run_a"]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("run_a1", "run_a1"),
        ("run_b", "run_b"),
        ("ru", None),
        (0, "run_b"),
        (1, "run_a2"),
        (-1, "run_a1"),
        ("x", None),
        (3, None),
    ],
)
def test_a_run_is_chosen_by_name_beginning_or_number(tmp_path, run, name):
    for i, each in enumerate(["run_a1", "run_a2", "run_b"]):
        write(tmp_path, {f"{RUN}/{each}/h.xplane.pb": space()}, at=1000 + i)
    if name:
        assert locate.find(tmp_path, run).name == name
    else:
        with pytest.raises(ReadError, match=r"run_a1|3 runs are here"):
            locate.find(tmp_path, run)


def test_a_name_that_is_the_beginning_of_another_is_that_run(tmp_path):
    write(tmp_path, {f"{RUN}/run/h.xplane.pb": space(), f"{RUN}/run_2/h.xplane.pb": space()})
    assert locate.find(tmp_path, "run").name == "run"
    with pytest.raises(ReadError, match="Did you mean run_2"):
        locate.find(tmp_path, "runn_2")


def test_a_run_folder_has_a_file_for_each_host(tmp_path):
    write(tmp_path, {f"{RUN}/r/host-{i}.xplane.pb": space(f"op{i}/X:X") for i in (1, 0, 2)})
    for at in (tmp_path, tmp_path / "plugins", tmp_path / RUN / "r"):
        found = locate.find(at)
        assert (found.name, names(found), found.notes) == (
            "r",
            [f"host-{i}.xplane.pb" for i in range(3)],
            (),
        )
    assert nbprof.load(tmp_path).hosts == ["host-0", "host-1", "host-2"]


def test_a_missing_host_is_said(tmp_path):
    write(tmp_path, {f"{RUN}/r/host-{i:02d}.xplane.pb": space(f"op{i}/X:X") for i in (0, 1, 3)})
    (note,) = locate.find(tmp_path).notes
    assert (note.level, note.key) == ("warning", "missing_hosts")
    assert "host-02" in note.text
    assert note in nbprof.load(tmp_path).receipt.lines


def test_a_copy_of_another_host_is_read_once_and_said(tmp_path):
    write(
        tmp_path,
        {
            f"{RUN}/r/a.xplane.pb": space(),
            f"{RUN}/r/b.xplane.pb": space(),
            f"{RUN}/r/c.xplane.pb": space("other/Y:Y"),
        },
    )
    found = locate.find(tmp_path)
    assert names(found) == ["a.xplane.pb", "c.xplane.pb"]
    assert [note.key for note in found.notes] == ["copied_file"]


def test_many_copies_of_a_host_are_one_line(tmp_path):
    write(tmp_path, {f"{RUN}/r/h{i:02d}.xplane.pb": space() for i in range(64)})
    found = locate.find(tmp_path)
    assert names(found) == ["h00.xplane.pb"]
    (note,) = (note for note in found.notes if note.key == "copied_file")
    assert note.text.startswith("63 files are copies of ")
    assert "h03.xplane.pb and 60 more; it was read once." in note.text


def test_files_of_one_size_and_head_that_differ_later_are_both_read(tmp_path):
    long = {letter: space("a" * 100_000 + letter + "/X:X") for letter in "pq"}
    write(tmp_path, {f"{letter}.xplane.pb": data for letter, data in long.items()})
    assert names(locate.find(tmp_path)) == ["p.xplane.pb", "q.xplane.pb"]


def test_the_name_of_a_file_decides_nothing(tmp_path):
    write(
        tmp_path,
        {
            "renamed": space(),
            "trace.bin": trace(),
            "x.json": space(),
            "y.pb": gz(trace()),
            "z.xplane.pb": trace(),
        },
    )
    for name, form in {
        "renamed": "xspace",
        "trace.bin": "chrome",
        "x.json": "xspace",
        "y.pb": "chrome",
        "z.xplane.pb": "chrome",
    }.items():
        assert locate.find(tmp_path / name).format == form
    assert nbprof.load(tmp_path / "renamed").ops.frame["op"].tolist() == ["dense/MatMul"]


def test_a_packed_xspace_is_read(tmp_path):
    write(tmp_path, {"a.xplane.pb.gz": gz(space()), "b.xplane.pb": space()})
    packed, plain = nbprof.load(tmp_path / "a.xplane.pb.gz"), nbprof.load(tmp_path / "b.xplane.pb")
    assert packed.ops.frame.equals(plain.ops.frame)


@pytest.mark.parametrize("name", ["profile", "host.pb", "trace", "host.json.gz"])
def test_a_folder_is_searched_by_content(tmp_path, name):
    others = {
        "package.json": b"{}",
        "config.json": b'{"a": 1}',
        "graph.pb": b"\x0a\x03\x0a\x01x",
        "events.out.tfevents.1": b"x",
    }
    write(tmp_path, {**others, f"sub/{name}": gz(trace()) if name.endswith("gz") else space()})
    found = locate.runs(tmp_path)
    assert [(run.format, len(run.files)) for run in found] == [
        ("chrome" if name.endswith("gz") else "xspace", 1)
    ]


def test_unfinished_recordings_are_no_runs(tmp_path):
    write(
        tmp_path,
        {
            f".recording-x/{RUN}/r/h.xplane.pb": space(),
            f".recording-y/{RUN}/r/h.trace.json": trace(),
        },
    )
    assert locate.runs(tmp_path) == []


def test_runs_of_one_name_are_told_apart_by_their_folder(tmp_path):
    write(tmp_path, {f"{part}/{RUN}/2024/h.xplane.pb": space() for part in ("train", "eval")})
    assert {run.name for run in locate.runs(tmp_path)} == {"train/2024", "eval/2024"}
    assert locate.find(tmp_path, "eval/2024").folder == tmp_path / "eval" / RUN / "2024"
    assert locate.find(tmp_path, "ev").name == "eval/2024"


def test_several_files_are_hosts_of_one_run(tmp_path):
    write(tmp_path, {"one/h0.xplane.pb": space("a/X:X"), "two/h1.xplane.pb": space("b/Y:Y")})
    p = nbprof.load([tmp_path / "one/h0.xplane.pb", str(tmp_path / "two/h1.xplane.pb")])
    assert p.hosts == ["h0", "h1"]
    assert set(p.ops.frame["op"]) == {"a/X", "b/Y"}
    assert len(nbprof.runs([tmp_path / "one", tmp_path / "two"])) == 1


def test_files_of_two_kinds_are_no_run(tmp_path):
    write(tmp_path, {"a.xplane.pb": space(), "b.json": trace()})
    with pytest.raises(ReadError, match=r"b\.json: the files have different formats"):
        nbprof.load([tmp_path / "a.xplane.pb", tmp_path / "b.json"])
    with pytest.raises(ReadError, match="the list is empty"):
        nbprof.load([])


def test_links_to_folders_are_followed_once(tmp_path):
    write(tmp_path / "far", {f"{RUN}/r/h.xplane.pb": space()})
    logs = write(tmp_path / "logs", {"here/h.xplane.pb": space()})
    (logs / "linked").symlink_to(tmp_path / "far")
    (logs / "again").symlink_to(tmp_path / "far" / "plugins")
    (logs / "loop").symlink_to(logs)
    (logs / "up").symlink_to(tmp_path)
    assert sorted(run.name for run in locate.runs(logs)) == ["here", "r"]


def test_runs_lists_without_reading(tmp_path, monkeypatch):
    write(
        tmp_path,
        {f"{RUN}/a/h0.xplane.pb": space(), f"{RUN}/a/h1.xplane.pb": space("x/Y:Y")},
        at=2000,
    )
    write(
        tmp_path,
        {"w.1700000000000.pt.trace.json": trace(), "w.1700000009000.pt.trace.json": trace()},
    )
    monkeypatch.setattr(LocalFile, "read", lambda self: pytest.fail(f"{self.path} was read"))
    (tmp_path / RUN / "a" / SIDECAR).write_text(
        json.dumps({"backend": "jax", "label": "training [3]"})
    )
    table = nbprof.runs(tmp_path)
    assert table["label"].tolist() == ["", "", "training [3]"]
    assert list(table.columns) == ["run", "label", "hosts", "format", "bytes", "modified", "path"]
    assert table["run"].tolist() == ["w.1700000009000", "w.1700000000000", "a"]
    assert table["hosts"].tolist() == [1, 1, 2]
    assert table["format"].tolist() == ["chrome", "chrome", "xspace"]
    assert table["bytes"].tolist() == [
        len(trace()),
        len(trace()),
        len(space()) + len(space("x/Y:Y")),
    ]
    monkeypatch.undo()
    for row in table.itertuples():
        assert locate.find(row.path).name == row.run
        assert locate.find(tmp_path, row.run).name == row.run
    (tmp_path / "void").mkdir()
    assert nbprof.runs(tmp_path / "void").empty


def test_a_large_logdir_is_walked_once_and_few_files_are_opened(tmp_path, monkeypatch):
    for i in range(60):
        write(
            tmp_path,
            {
                f"step_{i}/{name}": b"{}"
                for name in ("config.json", "index.json", "weights.bin", "state")
            },
        )
    write(tmp_path, {f"{RUN}/r/h.xplane.pb": space()})
    opened = []
    head = LocalFile.head
    monkeypatch.setattr(
        LocalFile, "head", lambda self, count: (opened.append(self.name), head(self, count))[1]
    )
    monkeypatch.setattr(detect, "CHEAP_LOOKS", 20)
    walked = []
    scandir = os.scandir
    monkeypatch.setattr(folders.os, "scandir", lambda path: (walked.append(path), scandir(path))[1])
    assert [run.name for run in locate.runs(tmp_path)] == ["r"]
    assert len(opened) == 20
    assert len(walked) == len(set(walked)) == 60 + 4


@pytest.mark.parametrize("seconds", [-5, 0, 1e10, 8e9])
def test_a_file_of_an_odd_time_opens(tmp_path, seconds):
    write(tmp_path, {"h.xplane.pb": space()}, at=seconds)
    assert nbprof.runs(tmp_path)["modified"].isna().tolist() == [
        seconds <= 0 or seconds > 2**63 / 1e9
    ]
    assert nbprof.load(tmp_path).payload()


# What is said where there is nothing


def test_an_empty_logdir_says_what_was_looked_for(tmp_path):
    with pytest.raises(ReadError, match=r"plugins/profile.*empty"):
        locate.find(tmp_path)
    write(tmp_path, {"events.out": b"x"})
    with pytest.raises(ReadError, match=r"It holds events\.out"):
        locate.find(tmp_path)
    with pytest.raises(ReadError, match="no such file"):
        locate.find(tmp_path / "nowhere")


def test_a_near_miss_of_a_name_is_offered(tmp_path):
    write(tmp_path, {"host.xplane.pb": space()})
    with pytest.raises(ReadError, match=r"Did you mean host\.xplane\.pb"):
        locate.find(tmp_path / "host.xplane.bp")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"old/runs.zip": b"PK"}, r"old/runs.zip, an archive: pass its path"),
        ({"a.txt": b"", "b/c.txt": b""}, r"It holds a.txt, b/"),
        (
            {f"{i}.txt": b"" for i in range(8)},
            "It holds 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 3 more",
        ),
    ],
)
def test_a_folder_without_a_profile_says_what_it_holds(tmp_path, files, says):
    write(tmp_path, files)
    with pytest.raises(ReadError, match=says):
        locate.find(tmp_path)


def test_a_folder_inside_output_of_ascend_is_a_run_of_its_own_timelines(tmp_path):
    timelines = [f"PROF_1_2_X/device_0/timeline/msprof_0_{i}.json" for i in (1, 2, 10)]
    write(tmp_path, dict.fromkeys(timelines, trace()))
    for folder in (tmp_path, tmp_path / "PROF_1_2_X", tmp_path / "PROF_1_2_X" / "device_0"):
        run = locate.find(folder)
        assert run.format == "msprof"
        assert run.name == "PROF_1_2_X"
        assert {piece.path for piece in run.files} == {
            tmp_path / timeline for timeline in timelines
        }
    # A file that is named is what its content says.
    assert locate.find(tmp_path / timelines[0]).format == "chrome"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.xplane.pb", b"", "the file is empty"),
        ("x.json", b"", "the file is empty"),
        ("package.json", b'{"name": "x"}', "JSON, but not a trace"),
        (
            "events.out.tfevents.1",
            b"\x18\0\0\0\0\0\0\0abcd\x09\0\0\0\0\0\0\0\0\x1a\x0dbrain.Event:2",
            "event file.*Name the logdir",
        ),
        ("x.pb", b"\x08\x01\x12\x00", "protobuf file, but not an XSpace"),
        ("x.bin", b"\x00\x01\x02", "not a profile format that nbprof knows"),
    ],
)
def test_a_file_that_is_no_profile_says_what_it_is(tmp_path, name, data, says):
    write(tmp_path, {name: data})
    with pytest.raises(ReadError, match=says) as caught:
        locate.find(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)
    assert nbprof.runs(tmp_path / name).empty


def test_one_bad_host_costs_only_itself(tmp_path):
    write(
        tmp_path,
        {
            "a.xplane.pb": b"",
            "b.xplane.pb": space(),
            "c.xplane.pb": b"PK\x05\x06" + bytes(18),
            "d.xplane.pb": trace(),
        },
    )
    found = locate.find(tmp_path)
    assert names(found) == ["b.xplane.pb"]
    assert [one.file for one in found.unread] == ["a.xplane.pb", "c.xplane.pb"]
    assert any(note.key == "not_a_profile" and "d.xplane.pb" in note.text for note in found.notes)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_file_is_named_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.xplane.pb")
    with pytest.raises(ReadError, match="a named pipe, not a file"):
        locate.find(tmp_path / "pipe.xplane.pb")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.xplane.pb"))
        with pytest.raises(ReadError, match="a socket, not a file"):
            locate.find(tmp_path / "s.xplane.pb")
        with pytest.raises(ReadError, match=r"It holds pipe\.xplane\.pb, s\.xplane\.pb"):
            locate.find(tmp_path)
    with pytest.raises(ReadError, match="a device, not a file"):
        locate.find("/dev/null")
    # One that becomes a pipe between the look and the reading.
    with pytest.raises(ReadError, match="a named pipe"):
        LocalFile(tmp_path / "pipe.xplane.pb").read()


def test_a_broken_link_says_where_it_points(tmp_path):
    (tmp_path / "h.xplane.pb").symlink_to("/nowhere/h.xplane.pb")
    with pytest.raises(ReadError, match="the link points to /nowhere/h"):
        locate.find(tmp_path / "h.xplane.pb")
    with pytest.raises(ReadError, match=r"h\.xplane\.pb is a broken link"):
        locate.find(tmp_path)


def test_what_may_not_be_read(tmp_path, monkeypatch):
    write(tmp_path, {"h.xplane.pb": space(), "d/g.xplane.pb": space()})
    open_, scandir = os.open, os.scandir

    def refuse(do):
        def act(path, *more, **options):
            if Path(path).name in ("h.xplane.pb", "d"):
                raise PermissionError(13, "Permission denied", str(path))
            return do(path, *more, **options)

        return act

    monkeypatch.setattr(os, "open", refuse(open_))
    monkeypatch.setattr(os, "scandir", refuse(scandir))
    for at in (tmp_path / "h.xplane.pb", tmp_path / "d"):
        with pytest.raises(ReadError, match=r"(h\.xplane\.pb|d): permission denied"):
            locate.find(at)
    # A folder further down costs only itself.
    (tmp_path / "h.xplane.pb").unlink()
    with pytest.raises(ReadError, match="d could not be examined: Permission denied"):
        locate.find(tmp_path)
    write(tmp_path, {"e/k.xplane.pb": space()})
    assert names(locate.find(tmp_path)) == ["k.xplane.pb"]


@pytest.mark.parametrize(
    "bad", ["a\0b", "~nobody-of-this-name/x", "", " ", "x" * 5000, "a/b\n\x1b[31m"]
)
def test_impossible_paths_are_a_sentence(bad):
    with pytest.raises(ReadError) as caught:
        locate.find(bad)
    assert "\x1b" not in str(caught.value)
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize("bad", [None, 3, 2.5])
def test_what_is_no_path_is_a_type_error(bad):
    with pytest.raises(TypeError, match="a path, a URL or a list"):
        locate.find(bad)


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_names_that_are_no_utf8(tmp_path):
    name = os.fsdecode(b"h\xff\xfe.xplane.pb")
    try:
        write(tmp_path, {name: space()})
    except OSError:
        pytest.skip("this file system wants UTF-8")
    for at in (tmp_path, tmp_path / name, os.fsencode(tmp_path / name)):
        found = locate.find(at)
        assert found.files[0].label.encode()
        assert found.files[0].read().size == len(space())
    assert nbprof.runs(tmp_path).to_html()


# Reading


@pytest.mark.parametrize("change", ["grows", "shrinks", "is rewritten", "is replaced", "goes away"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, monkeypatch, change):
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(training_run(20))
    os.utime(path, (1000, 1000))
    fill = Buffer.fill

    def meddle(self, file):
        came = fill(self, file)
        if change == "grows":
            with path.open("ab") as more:
                more.write(b"x")
            os.utime(path, (1000, 1000))
        elif change == "shrinks":
            os.truncate(path, 100)
        elif change == "is rewritten":
            path.write_bytes(training_run(20))
        elif change == "is replaced":
            (tmp_path / "new").write_bytes(training_run(20))
            os.utime(tmp_path / "new", (1000, 1000))
            (tmp_path / "new").replace(path)
        else:
            path.unlink()
        return came

    monkeypatch.setattr(Buffer, "fill", meddle)
    with pytest.raises(
        ReadError,
        match=r"h\.xplane\.pb: (changed while being read.*finished|there is no such file)",
    ):
        nbprof.load(path)


def test_a_profile_that_unpacks_to_more_than_is_allowed(tmp_path):
    write(tmp_path, {"a.xplane.pb.gz": gz(training_run(200))})
    with pytest.raises(
        ReadError, match=r"a\.xplane\.pb\.gz: it decompresses to more than 9.8 KiB.*limit_bytes"
    ):
        nbprof.load(tmp_path / "a.xplane.pb.gz", limit_bytes=10_000)
    assert len(nbprof.load(tmp_path / "a.xplane.pb.gz", limit_bytes=10_000_000).steps.frame) == 200


def test_a_packed_profile_that_was_cut_off(tmp_path):
    write(tmp_path, {"a.xplane.pb.gz": gz(training_run(200))[:-100]})
    with pytest.raises(ReadError, match=r"a\.xplane\.pb\.gz: .*damaged or truncated"):
        nbprof.load(tmp_path / "a.xplane.pb.gz")


@pytest.mark.parametrize("sizes", [[], [0], [1], [5, 0, 7], [100, 64, 1], [64, 64, 64]])
def test_bytes_that_come_in_blocks_make_one_buffer(monkeypatch, sizes):
    monkeypatch.setattr(Growing, "_PART", 64)
    grown, whole = Growing("x", 1000), b""
    for i, size in enumerate(sizes):
        grown.add(bytes([i + 1]) * size)
        whole += bytes([i + 1]) * size
    buffer = grown.buffer()
    assert bytes(buffer.data) == whole
    assert bytes(buffer.array) == whole + bytes(files.PADDING)


def test_pages_that_are_given_back_read_as_zero():
    buffer = Buffer.of(b"x" * (1 << 20))
    buffer.release(5000, 900_000)
    data = bytes(buffer.data)
    assert data[:5000] == b"x" * 5000
    assert data[900_000:] == b"x" * (len(data) - 900_000)
    assert data.count(b"\0") > 880_000 if os.name == "posix" else True


def test_two_profiles_at_once(tmp_path):
    write(tmp_path, {f"{i}/h.xplane.pb": space(f"op{i}/X:X") for i in range(6)})
    out: dict[int, list[str]] = {}

    def work(i):
        out[i] = nbprof.load(tmp_path / str(i)).ops.frame["op"].tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out == {i: [f"op{i}/X"] for i in range(6)}


def test_a_sidecar_of_nbprof_is_read_wherever_the_run_is_named(tmp_path):
    write(
        tmp_path,
        {
            f"{RUN}/r/h.xplane.pb": space(),
            f"{RUN}/r/nbprof.json": b'{"framework": "TensorFlow 9.9"}',
        },
    )
    for at in (tmp_path, tmp_path / RUN / "r", tmp_path / RUN / "r" / "h.xplane.pb"):
        assert nbprof.load(at).overview["framework"] == "TensorFlow 9.9"


class PathLike:
    def __init__(self, path):
        self.path_ = path

    def __fspath__(self):
        return self.path_


@pytest.mark.parametrize(
    "make",
    [
        str,
        Path,
        os.fsencode,
        lambda p: PathLike(str(p)),
        lambda p: PathLike(os.fsencode(p)),
        lambda p: f"file://{p}",
    ],
)
def test_every_way_to_write_a_path(tmp_path, make):
    path = write(tmp_path / "with space ü", {"h.xplane.pb": space()})
    assert locate.find(make(path)).files[0].path == path / "h.xplane.pb"


def test_a_file_url_with_escapes(tmp_path):
    write(tmp_path / "a b", {"h.xplane.pb": space()})
    assert names(locate.find((tmp_path / "a b").as_uri())) == ["h.xplane.pb"]
    write(tmp_path / "a%20b", {"g.xplane.pb": space()})
    assert names(locate.find(f"file://{tmp_path}/a%20b")) == ["g.xplane.pb"]


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, {"logs/h.xplane.pb": space()})
    assert names(locate.find("~/logs")) == ["h.xplane.pb"]
