"""An XSpace in parts, `*.xplane.riegeli`: among the hosts of a run, beside the empty file that a
profile of over 2 GB leaves, damaged.
"""

from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest

import nbprof
from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from tests.support import xspace_proto
from tests.support.riegeli import File, in_parts, written
from tests.support.xspace import MS, PlaneWriter, training_run
from tests.support.xspace import xspace as space_of


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_11_23"
    folder.mkdir(parents=True)
    return folder


def parts(steps: int = 20, most: int = 1500) -> list[bytes]:
    return in_parts(training_run(steps), most)


def test_an_empty_file_beside_it_is_explained(run):
    (run / "host-a.xplane.pb").write_bytes(b"")
    (run / "host-a.xplane.riegeli").write_bytes(written(parts()))
    p = nbprof.load(run.parents[2])
    assert len(p.steps.frame) == 20
    assert "host-a.xplane.pb is empty: the profile is larger than 2 GiB" in str(p.receipt)
    assert "read from host-a.xplane.riegeli beside it" in str(p.receipt)


def test_an_empty_file_alone_says_what_it_may_be(run):
    (run / "host-a.xplane.pb").write_bytes(b"")
    for path in (run, run / "host-a.xplane.pb"):
        with pytest.raises(
            ReadError,
            match=r"host-a.xplane.pb: the file is empty: .*larger than 2 GiB.*In the latter case, record fewer steps",
        ):
            nbprof.load(path)


def test_an_empty_file_names_its_parts_where_they_are(run):
    (run / "host-a.xplane.pb").write_bytes(b"")
    (run / "host-a.xplane.riegeli").write_bytes(written(parts()))
    (run / "host-b.xplane.riegeli").write_bytes(written(parts()))
    with pytest.raises(ReadError, match=r"Load host-a.xplane.riegeli next to it\.$"):
        nbprof.load(run / "host-a.xplane.pb")


def test_hosts_may_differ_in_how_they_were_written(run):
    plane = PlaneWriter("/host:CPU")
    plane.line(
        "python",
        [plane.event("train", 10 * i * MS, 9 * MS, step_num=i, _r=1) for i in range(3)],
        line_id=1,
    )
    (run / "host-b.xplane.pb").write_bytes(space_of(plane, hostname="host-b"))
    (run / "host-a.xplane.riegeli").write_bytes(written(parts()))
    assert len(nbprof.load(run).steps.frame) > 20
    trace = xspace.read([LocalFile(path) for path in sorted(run.iterdir())])
    assert trace.hosts == ["host-a", "host-b"]
    assert [plane.host for plane in trace.planes].count("host-b") == 1


def test_a_damaged_part_is_left_out_and_named(run):
    path = run / "host-a.xplane.riegeli"
    pieces = parts()
    complete = xspace.read([_placed(path, written(pieces, "brotli"))])
    file, begins = File(), []
    for piece in pieces:
        begins.append(file.records(piece, packed="brotli"))
    sizes = [
        len(piece)
        if any(line.events for plane in xspace_proto.parse(piece).planes for line in plane.lines)
        else 0
        for piece in pieces
    ]
    number = sizes.index(max(sizes))
    middle = (begins[number] + begins[number + 1]) // 2
    file.out[middle : middle + 64] = b"\xff" * 64
    trace = xspace.read([_placed(path, bytes(file.out))])
    assert 0 < len(trace.events) < len(complete.events)
    assert (
        f"host-a.xplane.riegeli: bytes {begins[number]:,} to {begins[number + 1]:,} were skipped: "
        in str(trace.receipt)
    )
    assert "Their content is missing." in str(trace.receipt)


def test_a_record_that_is_no_xspace_is_left_out(run):
    pieces = parts()
    path = run / "host-a.xplane.riegeli"
    whole = xspace.read([_placed(path, written(pieces))])
    trace = xspace.read([_placed(path, written([pieces[0], b"\x0a\xff", *pieces[1:]]))])
    assert len(trace.events) == len(whole.events)
    assert "were skipped: the data ends inside a number (byte 2 of the record)." in str(
        trace.receipt
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"no such file", "it contains no records|none of its records"),
        (written([]), "it contains no records"),
        (written([b"text"] * 40), "none of its records is an XSpace"),
        (written([b""]), "its records have no planes"),
    ],
    ids=["empty", "other", "none", "texts", "nothing"],
)
def test_what_holds_no_profile_is_an_error(run, data, said):
    path = run / "host-a.xplane.riegeli"
    path.write_bytes(data)
    with pytest.raises(ReadError, match=said) as error:
        nbprof.load(path)
    assert str(path) in str(error.value)


def test_a_file_of_records_is_known_by_its_content(run):
    path = run / "profile.bin"
    path.write_bytes(written(parts()))
    assert len(nbprof.load(path).steps.frame) == 20


def test_another_file_of_records_is_no_run(run):
    (run / "data.riegeli").write_bytes(written([b"text"]))
    (run / "host-a.xplane.pb").write_bytes(training_run(4))
    assert len(nbprof.load(run).steps.frame) == 4
    with pytest.raises(ReadError, match="none of its records is an XSpace"):
        nbprof.load(run / "data.riegeli")


def test_times_before_the_first_part_count_from_the_earliest(run):
    """The clock of a file is known at its end only: its earliest line may come in the last record,
    and the first without absolute times.
    """
    stamps = (30, 1_700_000_000_000_000_500, 1_700_000_000_000_000_100, 1_700_000_000_000_900_000)
    planes = []
    for number, stamp in enumerate(stamps):
        plane = PlaneWriter(f"/device:GPU:{number}")
        plane.line(
            "Stream",
            [plane.event("a", 1000 * i, 500) for i in range(3)],
            line_id=1,
            timestamp_ns=stamp,
        )
        planes.append(plane)
    whole = space_of(*planes)
    one = xspace.read([_placed(run / "a.xplane.pb", whole)])
    other = xspace.read(
        [_placed(run / "a.xplane.riegeli", written([space_of(plane) for plane in planes]))]
    )
    assert one.epoch_ns == other.epoch_ns
    for name in ("lane", "start", "duration"):
        assert np.array_equal(getattr(one.events, name), getattr(other.events, name)), name


def test_planes_of_one_name_are_one_whatever_their_ids(run):
    """Parts that were recorded apart number their names anew, as a session that goes on does."""
    first, second = (
        PlaneWriter("/device:GPU:0", {"a": 1}),
        PlaneWriter("/device:GPU:0", {"a": 2, "b": 3}),
    )
    second.event("other", 0, 1)
    lines = [(first, ["gemm", "relu"], 0), (second, ["relu", "gemm"], 10)]
    for plane, names, at in lines:
        plane.line(
            "Stream",
            [plane.event(name, (at + i) * MS, MS, size=i) for i, name in enumerate(names)],
            line_id=7,
        )
    trace = xspace.read(
        [_placed(run / "a.xplane.riegeli", written([space_of(first), space_of(second)]))]
    )
    assert (len(trace.planes), len(trace.lanes)) == (1, 1)
    assert trace.planes[0].stats == {"a": 1, "b": 3}
    assert [trace.names[code] for code in trace.events.name] == ["gemm", "relu", "relu", "gemm"]
    assert trace.args["size"].value.tolist() == [0, 1, 0, 1]


def test_lines_that_come_later_stand_with_their_plane(run):
    pieces = []
    for number in range(3):
        first, second = PlaneWriter("/device:GPU:0"), PlaneWriter("/device:GPU:1")
        for plane in (first, second):
            plane.line(
                f"Stream {number}", [plane.event(f"{number}", number * MS, MS)], line_id=number
            )
        pieces += [space_of(first), space_of(second)]
    trace = xspace.read([_placed(run / "a.xplane.riegeli", written(pieces))])
    assert trace.lanes["process"].tolist() == ["/device:GPU:0"] * 3 + ["/device:GPU:1"] * 3
    assert trace.lanes["thread"].tolist() == ["Stream 0", "Stream 1", "Stream 2"] * 2
    assert trace.lanes["events"].tolist() == [1] * 6
    assert [trace.names[code] for code in trace.events.name] == ["0", "1", "2"] * 2


def _placed(path, data: bytes) -> LocalFile:
    path.write_bytes(data)
    return LocalFile(path)


def test_packed_it_is_read_too(run, tmp_path):
    path = run / "host-a.xplane.riegeli.gz"
    path.write_bytes(gzip.compress(written(parts(), "zstd")))
    assert len(nbprof.load(run).steps.frame) == 20
    shutil.make_archive(str(tmp_path / "runs"), "zip", run.parents[2])
    assert len(nbprof.load(tmp_path / "runs.zip").steps.frame) == 20


def test_the_parts_are_those_of_the_recorder():
    data = training_run(20)
    pieces = in_parts(data, 1500)
    assert len(pieces) > 5
    assert max(map(len, pieces)) < len(data)
    events = [
        sum(len(line.events) for plane in space.planes for line in plane.lines)
        for space in map(xspace_proto.parse, [data, *pieces])
    ]
    assert events[0] == sum(events[1:])
