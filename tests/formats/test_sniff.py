"""What a file is follows from its bytes, whatever it is called."""

from __future__ import annotations

import bz2
import json
import lzma
import pickle
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core.errors import ReadError
from nbprof.profiles.load import load
from nbprof.sources.sniff import HEAD, recognise
from tests.support.places import gz, space, tarred, trace, zipped
from tests.support.profiles import ROOT
from tests.support.xspace import chunk, double, gpu_run, number, training_run

PACKINGS = [(lambda data: data, ""), (gz, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")]


@pytest.mark.parametrize(("pack", "packed"), PACKINGS, ids=["plain", "gzip", "bzip2", "xz"])
@pytest.mark.parametrize("name", ["", "host.xplane.pb", "profile", "x.json"])
def test_profiles_are_known_by_content(pack, packed, name):
    for data in (training_run(2), gpu_run(), space()):
        kind = recognise(pack(data), name)
        assert (kind.format, kind.packed, kind.sure) == ("xspace", packed, True)
    for data in (
        trace(),
        trace(exporter=True),
        b'[{"ph":"X","ts":1,"name":"a"}]',
        b'\xef\xbb\xbf {\n "traceEvents" :[]}',
    ):
        kind = recognise(pack(data), name)
        assert (kind.format, kind.packed, kind.sure) == ("chrome", packed, True)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives_are_known_by_content(mode):
    kind = recognise(tarred({"a/b.xplane.pb": space()}, mode), "x.json.gz")
    assert (kind.format, kind.packed) == (
        "archive",
        {"w": "", "w:gz": "gzip", "w:bz2": "bzip2", "w:xz": "xz"}[mode],
    )
    assert recognise(zipped({"a.xplane.pb": space()}), "x.xplane.pb").what == "a zip archive"
    assert recognise(zipped({}), "x").format == "archive"


def saved_model() -> bytes:
    return number(1, 1) + chunk(2, chunk(2, chunk(1, chunk(1, "node") + chunk(2, "MatMul"))))


def graph() -> bytes:
    return b"".join(
        chunk(1, chunk(1, f"layer{i}") + chunk(2, "MatMul") + chunk(3, "x")) for i in range(20)
    )


def event_file() -> bytes:
    event = double(1, 1.7e9) + chunk(3, "brain.Event:2")
    return struct.pack("<Q", len(event)) + b"abcd" + event + b"efgh"


def sqlite() -> bytes:
    with sqlite3.connect(":memory:") as db:
        db.execute("create table people (name text)")
        return db.serialize() if hasattr(db, "serialize") else b"SQLite format 3\0" + bytes(84)


OTHERS = {
    "a TensorFlow graph": ("graph.pb", graph(), "not an XSpace profile"),
    "a SavedModel": ("saved_model.pb", saved_model(), "SavedModel"),
    "a compiled program": (
        "m.hlo_proto.pb",
        chunk(1, chunk(1, "jit_f") + chunk(2, "main") + chunk(3, chunk(1, "main"))),
        "HLO",
    ),
    "pprof": ("memory.prof", gz(chunk(1, number(1, 1) + number(2, 2)) * 3 + chunk(6, "")), "pprof"),
    "a KernelStatsDb": (
        "h.kernel_stats.pb",
        chunk(1, chunk(1, "sgemm") + number(2, 32)),
        "TensorBoard created",
    ),
    "an OverviewPage": (
        "h.overview_page.pb",
        chunk(2, chunk(5, b"\x08\x96\x01")) + chunk(6, number(1, 1)),
        "TensorBoard created",
    ),
    "TensorBoard events": ("events.out.tfevents.170.host", event_file(), "event file"),
    "package.json": ("package.json", b'{"name": "x", "dependencies": {}}', "not a trace"),
    "a notebook": (
        "a.ipynb",
        json.dumps({"cells": [{"source": '{"traceEvents": []}'}], "nbformat": 4}).encode(),
        "notebook",
    ),
    "a list of numbers": ("a.json", b"[1, 2, 3]", "not a trace"),
    "annotations": (
        "a.json",
        json.dumps([{"id": i, "bbox": [1, 2]} for i in range(5000)]).encode(),
        "not a trace",
    ),
    "a memory table": (
        "h.memory_profile.json.gz",
        gz(b'{"memoryProfilePerAllocator": {}}'),
        "TensorBoard created",
    ),
    "a pickle": ("s.pkl", pickle.dumps([1, 2]), "Python pickle"),
    "a pickle of protocol 0": (
        "s.pkl",
        pickle.dumps({"weights": [1, 2]}, 0),
        "pickle of protocol 0",
    ),
    "a number in protocol 0": ("s", pickle.dumps((1.5, 2), 0), "pickle of protocol 0"),
    "an object in protocol 0": ("s", pickle.dumps(Path, 0), "pickle of protocol 0"),
    "text in brackets": (
        "notes",
        b"(draft)\n(dp0 is a name)\n(I think so)\ncalled\nso\n",
        "text file",
    ),
    "a torch checkpoint": ("m.pt", zipped({"m/data.pkl": b"x"}), "torch.save"),
    "sqlite": ("r.sqlite", sqlite(), "SQLite"),
    "nsys": ("r.nsys-rep", b"\xa5\x01\x02\x03", "nsys export --type sqlite r.nsys-rep"),
    "an Ascend table": (
        "op_summary_0.csv",
        b"Device_id,Model Name,Task ID,Op Name,OP Type\n0,a,1,b,c\n",
        "Ascend",
    ),
    "a login page": ("x.json", b"<!DOCTYPE html><title>Sign in</title>", "HTML page"),
    "an LFS pointer": (
        "x.xplane.pb",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        "git lfs pull",
    ),
    "zstd": ("t.json.zst", b"\x28\xb5\x2f\xfd\x00", "unzstd"),
    "text": ("notes", b"learning rate 0.1\n", "text file"),
    "nothing": ("x", b"", "empty"),
    "a cut gzip": ("x.json.gz", b"\x1f\x8b\x08\x00", "truncated"),
    "a cProfile": ("p.prof", b"{(\xfa\x01~\xe9\x00\x00\x00\x00", "cProfile"),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "top",
    [
        {"segments": [], "device_traces": []},
        {"device_traces": [[]]},
        [{"device": 0, "total_size": 512}],
    ],
)
def test_snapshots_of_an_allocator(top, protocol):
    kind = recognise(pickle.dumps(top, protocol), "anything", complete=True)
    assert (kind.format, kind.sure) == ("torch_memory", True)
    assert (
        recognise(pickle.dumps({"weights": [1, 2]}, protocol), "s.pickle", complete=True).format
        == ""
    )


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_profile_is_named(case):
    name, data, says = OTHERS[case]
    kind = recognise(data, name, complete=True)
    assert kind.format == ""
    assert says in f"{kind.what}. {kind.remedy}"


@pytest.mark.parametrize(
    "case",
    [
        "a TensorFlow graph",
        "a SavedModel",
        "a KernelStatsDb",
        "an OverviewPage",
        "pprof",
        "a compiled program",
    ],
)
def test_other_protobufs_are_no_xspace_under_its_name_either(case):
    _, data, _ = OTHERS[case]
    kind = recognise(data, "host.xplane.pb")
    assert not (kind.format == "xspace" and kind.sure)


@pytest.mark.parametrize("length", range(60, 130))
def test_no_length_of_the_first_plane_looks_like_json(length):
    assert (
        recognise(chunk(1, chunk(2, "/host:CPU" + "x" * length)), "a.xplane.pb").format == "xspace"
    )


@pytest.mark.parametrize("rank", [0, 7, 127])
def test_the_rank_is_read_where_the_trace_states_it(rank):
    kind = recognise(trace(rank=rank, world=128))
    assert (kind.rank, kind.world_size) == (rank, 128)
    assert recognise(gz(trace(rank=rank, world=128))).rank == rank
    # The rank of a send in an event's args is no rank of this process.
    assert (
        recognise(b'{"traceEvents":[{"ph":"X","args":{"rank": 3, "world_size": 9}}]}').rank is None
    )


def test_events_far_behind_the_metadata_are_believed():
    assert (
        recognise(trace(rank=0, world=8, padding=3 * HEAD)[:HEAD], "a.pt.trace.json").format
        == "chrome"
    )
    assert recognise(trace(rank=0, world=8, padding=3 * HEAD)[:HEAD], "a").format == "chrome"


def test_the_exporter_of_xla_is_told_from_others():
    assert recognise(trace(exporter=True)).exporter
    assert not recognise(trace()).exporter


@given(st.integers(1, len(training_run(4))))
def test_a_cut_profile_is_still_an_xspace(cut):
    kind = recognise(training_run(4)[:cut], "x")
    assert kind.format == "xspace"


@given(
    st.binary(max_size=2000),
    st.sampled_from(["", "x.pb", "x.json", "x.xplane.pb", "x.json.gz", "x.zip"]),
)
def test_any_bytes_are_something(data, name):
    kind = recognise(data, name)
    assert kind.what


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_damaged_profiles_never_raise(tail, at, byte):
    for data in (
        training_run(2),
        trace(rank=1, world=2),
        gz(trace()),
        tarred({"a.json": trace()}),
        zipped({"a.json": trace()}),
    ):
        damaged = bytearray(data)
        damaged[at % len(damaged)] = byte
        assert recognise(bytes(damaged) + tail, "x").what


def test_every_real_profile_is_known():
    if not ROOT.exists():
        pytest.skip("the real profiles are not beside this checkout")
    seen = {"xspace": 0, "chrome": 0}
    for folder in ("tf-gpu", "tf-cpu", "jax", "kineto"):
        for path in Path(ROOT, folder).rglob("*"):
            if not path.is_file() or "expected" in path.parts:
                continue
            kind = recognise(path.read_bytes()[:HEAD], "x")
            assert kind.format == ("xspace" if ".xplane.pb" in path.name else "chrome"), path
            seen[kind.format] += 1
    assert min(seen.values()) > 5


def test_a_database_that_is_cut_off_says_so_though_its_tables_are_not_known(tmp_path):
    with closing(sqlite3.connect(tmp_path / "whole.sqlite")) as base:
        base.execute("create table numbers(n)")
        base.executemany("insert into numbers values (?)", [(n,) for n in range(9000)])
        base.commit()
    data = (tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(data[: len(data) // 2])
    with pytest.raises(
        ReadError, match=f"truncated: {len(data) // 2:,} of its {len(data):,} bytes are present"
    ):
        load(tmp_path / "cut.sqlite")
    with pytest.raises(ReadError, match="an SQLite database that is not a profile"):
        load(tmp_path / "whole.sqlite")


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        ((), "Give the path of the *.xplane.pb that it was created from."),
        (("a.xplane.pb",), "Give the path of a.xplane.pb next to it."),
        (
            ("a.xplane.pb", "b.xplane.pb"),
            "Give the path of a *.xplane.pb next to it: a.xplane.pb, b.xplane.pb.",
        ),
    ],
)
@pytest.mark.parametrize("case", ["a KernelStatsDb", "a memory table", "a compiled program"])
def test_what_was_made_from_a_profile_names_it_where_it_is(tmp_path, case, beside, says):
    name, data, _ = OTHERS[case]
    (tmp_path / name).write_bytes(data)
    for other in beside:
        (tmp_path / other).write_bytes(b"")
    with pytest.raises(ReadError) as caught:
        load(tmp_path / name)
    assert str(caught.value).endswith(says)
