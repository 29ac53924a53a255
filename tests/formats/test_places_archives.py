"""Profiles inside zip and tar archives: found, read where they are, and whatever is wrong with an
archive is a sentence.
"""

from __future__ import annotations

import io
import os
import tarfile
import threading
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nbprof
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import LocalFile
from nbprof.sources import archives, locate
from tests.support.places import gz, space, tarred, trace, write, zipped
from tests.support.xspace import training_run

RUN = "plugins/profile"
PACKED = {
    "zip": zipped,
    "tar": tarred,
    "tar.gz": lambda files: tarred(files, "w:gz"),
    "tar.bz2": lambda files: tarred(files, "w:bz2"),
    "tar.xz": lambda files: tarred(files, "w:xz"),
}


def everything(root):
    return sorted(path.relative_to(root) for path in root.rglob("*"))


@pytest.mark.parametrize("kind", PACKED)
def test_a_logdir_in_an_archive_is_as_the_logdir_itself(tmp_path, kind, monkeypatch):
    files = {
        f"logs/{RUN}/a/h0.xplane.pb": space("one/X:X"),
        f"logs/{RUN}/b/h0.xplane.pb": space("two/X:X"),
        f"logs/{RUN}/b/h1.xplane.pb": space("three/X:X"),
        f"logs/{RUN}/b/nbprof.json": b'{"framework": "TensorFlow 9.9"}',
        "logs/w.1700000000000.pt.trace.json.gz": gz(trace("mm")),
        "logs/readme.txt": b"hello",
    }
    write(tmp_path / "disk", files, at=1_700_000_000)
    write(tmp_path, {f"runs.{kind}": PACKED[kind](files)})
    before = everything(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    packed, disk = nbprof.runs(tmp_path / f"runs.{kind}"), nbprof.runs(tmp_path / "disk")
    columns = ["run", "hosts", "format", "bytes"]
    assert (
        packed[columns]
        .sort_values("run")
        .reset_index(drop=True)
        .equals(disk[columns].sort_values("run").reset_index(drop=True))
    )
    for run in ("a", "b"):
        one, two = (nbprof.load(tmp_path / where, run=run) for where in (f"runs.{kind}", "disk"))
        assert one.hosts == two.hosts
        assert one.ops.frame.equals(two.ops.frame)
        assert one.overview["framework"] == two.overview["framework"]
    # What the table calls a path leads back to the run.
    for row in packed.itertuples():
        assert locate.find(row.path).name == row.run
    # Nothing was unpacked to the disk.
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", PACKED)
def test_inside_an_archive_a_folder_or_a_file_can_be_named(tmp_path, kind):
    files = {
        "x/r/h.xplane.pb": space(),
        "x/s/profile.bin": gz(trace()),
        "y.tar": tarred({"a.xplane.pb": space()}),
    }
    path = tmp_path / f"runs.{kind}"
    path.write_bytes(PACKED[kind](files))
    assert locate.find(f"{path}!/x/r").name == "r"
    assert locate.find(f"{path}!/x/r/h.xplane.pb").files[0].label == f"{path}!/x/r/h.xplane.pb"
    # Any file that is named is looked into, whatever its name.
    assert locate.find(f"{path}!/x/s/profile.bin").format == "chrome"
    scheme = "zip" if kind == "zip" else "tar"
    assert locate.find(f"{scheme}://x/r::{path}").name == "r"
    assert locate.find(f"{scheme}://x/r::file://{path}").name == "r"
    with pytest.raises(ReadError, match=r"runs.*!/y\.tar: archives inside archives are not opened"):
        locate.find(f"{path}!/y.tar")
    with pytest.raises(ReadError, match=r"there is no profile in this archive"):
        locate.find(f"{path}!/z")
    with pytest.raises(ReadError, match="a folder, not an archive"):
        locate.find(f"{tmp_path}!/x")
    (tmp_path / "plain.json").write_bytes(trace())
    with pytest.raises(ReadError, match="a Chrome trace, not a zip or tar archive"):
        locate.find(f"{tmp_path}/plain.json!/x")


@pytest.mark.parametrize("kind", PACKED)
def test_archives_in_archives_are_named(tmp_path, kind):
    (tmp_path / "a").write_bytes(PACKED[kind]({"in/runs.zip": zipped({"h.xplane.pb": space()})}))
    with pytest.raises(ReadError, match=r"in/runs\.zip, an archive: unpack the outer one first"):
        locate.find(tmp_path / "a")


@pytest.mark.parametrize("kind", PACKED)
def test_names_that_point_elsewhere_do_no_harm(tmp_path, kind):
    files = {
        "../../up.xplane.pb": space("a/X:X"),
        "/abs/root.xplane.pb": space("b/X:X"),
        "a\\b.xplane.pb": space("c/X:X"),
        "n\x1b[2J\n.xplane.pb": space(),
    }
    (tmp_path / "a").write_bytes(PACKED[kind](files))
    before = everything(tmp_path.parent)
    for run in locate.runs(tmp_path / "a"):
        assert all(piece.read().size for piece in run.files)
        assert all(piece.label.isprintable() for piece in run.files)
    assert everything(tmp_path.parent) == before


def test_one_profile_in_an_archive_of_one_file(tmp_path):
    for kind, pack in PACKED.items():
        (tmp_path / f"one.{kind}").write_bytes(pack({"h.xplane.pb": space()}))
        run = locate.find(tmp_path / f"one.{kind}")
        assert (run.name, str(run.folder)) == ("one", str(tmp_path / f"one.{kind}"))


def test_an_encrypted_member_is_said(tmp_path):
    data = bytearray(zipped({"h.xplane.pb": space()}))
    for at in (6, data.index(b"PK\x01\x02") + 8):
        data[at] |= 1
    (tmp_path / "a.zip").write_bytes(bytes(data))
    with pytest.raises(
        ReadError, match=r"a\.zip!/h\.xplane\.pb: it is encrypted.*Unpack it with its password"
    ):
        nbprof.load(tmp_path / "a.zip")


def test_a_packing_that_is_not_known_here_is_said(tmp_path):
    data = bytearray(zipped({"h.xplane.pb": space()}))
    for at in (8, data.index(b"PK\x01\x02") + 10):
        data[at] = 97
    (tmp_path / "a.zip").write_bytes(bytes(data))
    with pytest.raises(ReadError, match=r"h\.xplane\.pb: .*is not supported here"):
        nbprof.load(tmp_path / "a.zip")


@pytest.mark.parametrize("kind", PACKED)
def test_a_member_that_is_larger_than_allowed_is_not_read(tmp_path, kind):
    big = training_run(3) + bytes(3_000_000)
    (tmp_path / "a").write_bytes(PACKED[kind]({"h.xplane.pb": big}))
    with pytest.raises(ReadError, match=r"decompresses to more than 976.6 KiB.*limit_bytes"):
        nbprof.load(tmp_path / "a", limit_bytes=1_000_000)


def test_a_zip_that_lies_about_a_size_is_an_error(tmp_path):
    data = bytearray(zipped({"h.xplane.pb": training_run(30)}))
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (10**7).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(bytes(data))
    with pytest.raises(ReadError, match=r"a\.zip!/h\.xplane\.pb: the archive is damaged"):
        nbprof.load(tmp_path / "a.zip")


def test_a_bomb_before_the_profile_is_given_up(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in {"zeros.bin": b"\1" * 30_000_000, "h.xplane.pb": space()}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (tmp_path / "a.tgz").write_bytes(out.getvalue())
    assert len(out.getvalue()) < 100_000
    with pytest.raises(ReadError, match=r"a\.tgz: it decompresses to more than"):
        locate.find(tmp_path / "a.tgz", options=locate.OpenOptions(limit_bytes=1_000_000))
    assert locate.find(tmp_path / "a.tgz").files


def test_a_name_of_gigabytes_is_not_taken_into_memory(tmp_path):
    info = tarfile.TarInfo("././@LongLink")
    info.type = tarfile.GNUTYPE_LONGNAME
    info.size = 5 << 30
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))
    with pytest.raises(
        ReadError, match=r"a\.tar: the archive is damaged .*a file name of 5.00 GiB"
    ):
        locate.find(tmp_path / "a.tar")


@pytest.mark.parametrize("kind", PACKED)
def test_an_archive_that_was_cut_off_never_gives_a_part_for_the_whole(tmp_path, kind):
    data = PACKED[kind]({"a.xplane.pb": training_run(4), "b.xplane.pb": training_run(5)})
    whole = len(nbprof.load(_put(tmp_path, data)).trace.events())
    sentences = given = 0
    for cut in range(0, len(data), max(1, len(data) // 60)):
        try:
            p = nbprof.load(_put(tmp_path, data[:cut]))
        except ReadError as error:
            sentences += error.path.startswith(str(tmp_path / "a"))
        else:
            said = str(p.receipt)
            assert len(p.trace.events()) == whole or "truncated" in said or "damaged" in said
            given += 1
    assert sentences > 20
    assert sentences + given == len(range(0, len(data), max(1, len(data) // 60)))


def _put(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    return tmp_path / "a"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(list(PACKED)),
    spots=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_a_damaged_archive_is_a_sentence_or_a_profile(tmp_path, kind, spots):
    data = bytearray(
        PACKED[kind](
            {"r/h.xplane.pb": space(), "r/package.json": b"{}", "r/n.trace.json.gz": gz(trace())}
        )
    )
    for where, byte in spots:
        data[int(where * len(data))] = byte
    said = ""
    try:
        run = locate.find(_put(tmp_path, bytes(data)))
        for piece in run.files:
            piece.read()
    except NbprofError as error:
        said = str(error)
    assert not said or str(tmp_path / "a") in said


def test_a_header_of_tar_that_is_damaged_is_not_taken_for_the_end(tmp_path):
    data = bytearray(tarred({"a.xplane.pb": space(), "b.xplane.pb": space("x/Y:Y")}))
    second = data.index(b"b.xplane.pb")
    data[second + 148] ^= 1
    with pytest.raises(ReadError, match=rf"byte {second:,}: the archive is damaged"):
        locate.find(_put(tmp_path, bytes(data)))


def test_a_tar_without_its_end_is_doubted(tmp_path):
    data = tarred({"a.xplane.pb": space()})
    one = data[: 512 + -(-len(space()) // 512) * 512]
    with pytest.raises(ReadError, match="no profile"):
        locate.find(_put(tmp_path, tarred({"x.txt": b"1"})))
    assert "has no end marker" in str(nbprof.load(_put(tmp_path, one)).receipt)


def test_links_in_a_tar_are_said_and_not_followed(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("h.xplane.pb")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(ReadError, match=r"h\.xplane\.pb in the archive is a link"):
        locate.find(_put(tmp_path, out.getvalue()))


@pytest.mark.parametrize("kind", PACKED)
def test_an_archive_that_changes_before_it_is_read_is_an_error(tmp_path, kind):
    path = _put(tmp_path, PACKED[kind]({"h.xplane.pb": training_run(3)}))
    os.utime(path, (1000, 1000))
    run = locate.find(path)
    path.write_bytes(PACKED[kind]({"h.xplane.pb": training_run(3)}))
    with pytest.raises(ReadError, match="changed while being read"):
        run.files[0].read()


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz"])
def test_all_hosts_of_a_packed_tar_come_in_one_pass(tmp_path, kind, monkeypatch):
    path = _put(tmp_path, PACKED[kind]({f"h{i}.xplane.pb": space(f"op{i}/X:X") for i in range(6)}))
    run = locate.find(path)
    passes = []
    opened = archives.opened
    monkeypatch.setattr(archives, "opened", lambda *a: (passes.append(a), opened(*a))[1])
    assert [bytes(piece.read().data) for piece in run.files] == [
        space(f"op{i}/X:X") for i in range(6)
    ]
    assert len(passes) == 1
    # Once more, one by one.
    assert bytes(run.files[3].read().data) == space("op3/X:X")


@pytest.mark.parametrize("kind", PACKED)
def test_members_are_read_from_several_threads(tmp_path, kind):
    files = {f"h{i}.xplane.pb": space(f"op{i}/X:X") * 50 for i in range(8)}
    run = locate.find(_put(tmp_path, PACKED[kind](files)))
    out = {}
    threads = [
        threading.Thread(target=lambda p=p: out.__setitem__(p.name, bytes(p.read().data)))
        for p in run.files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out == files


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("kind", PACKED)
def test_no_file_stays_open(tmp_path, kind, monkeypatch):
    path = _put(tmp_path, PACKED[kind]({"h.xplane.pb": space(), "x.json": trace()}))
    files = []
    opens = LocalFile.open
    monkeypatch.setattr(LocalFile, "open", lambda self: (files.append(opens(self)), files[-1])[1])
    locate.runs(path)
    for piece in locate.find(path).files:
        piece.read()
    assert files
    assert all(file.closed for file in files)


def test_a_member_without_a_name_costs_only_itself(tmp_path):
    whole = zipped({"x": b"1", "h.xplane.pb": space()})
    data = whole.replace(b"xPK", b"\0PK")
    assert data != whole
    assert len(nbprof.runs(_put(tmp_path, data))) == 1


def test_an_old_zip_with_time_out_of_range(tmp_path):
    info = zipfile.ZipInfo("h.xplane.pb", (1980, 1, 1, 0, 0, 0))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(info, space())
    data = bytearray(out.getvalue())
    at = data.index(b"PK\x01\x02") + 12
    data[at : at + 4] = bytes(4)
    assert len(nbprof.runs(_put(tmp_path, bytes(data)))) == 1
