"""Damaged inputs of every format end in a profile of which everything can be seen, or in
`ReadError`: some at random, and past finds.

`make fuzz` draws others, for as long as it is given; what it finds becomes a case here, as small as
it gets.
"""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import ReadError
from nbprof.formats.msprof import csv
from nbprof.profiles.load import read
from tests.fuzz import everything, formats, readers
from tests.support import caching_allocator
from tests.support.places import gz, tarred, write
from tests.support.xspace import PlaneWriter, training_run, xspace


@pytest.mark.parametrize("form", formats.FORMATS)
def test_inputs_drawn_by_a_seed(form, tmp_path):
    found = [
        readers.one(form, 18, number, tmp_path / "input", look=number == 3) for number in range(40)
    ]
    assert [one.find for one in found if one.find] == []
    assert {one.word for one in found} == {"profile", "error"}


_STATISTIC = (
    b"Device_id,OP Type,Core Type,Count,Total Time(us),Ratio(%)\n0,MatMul,AI_CORE,2,N/A,100\n"
)
_COLLECTIVE = [
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Communication"}},
    {
        "name": "hcom_allReduce",
        "ph": "X",
        "pid": 1,
        "tid": 0,
        "ts": "1736412474000000.5",
        "dur": 2.0,
    },
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "files",
    [
        {
            "step_trace": b"Iteration ID,FP Start(us),Iteration End(us),Iteration Time(us)\ntext,100.5,200.5,100\n"
        },
        {"op_statistic": _STATISTIC},
        {
            "op_summary": b"Op Name,Task Type,Task Start Time(us),Task Duration(us)\nmm,AI_CORE,1736412474000000.5,1e308\n"
        },
        {"op_statistic": _STATISTIC, "msprof": json.dumps(_COLLECTIVE).encode()},
    ],
    ids=[
        "iterations without a number",
        "types of ops without a time",
        "an op longer than int64 holds",
        "a collective that states nothing",
    ],
)
def test_everything_can_be_seen_of_tables_that_lack_what_counts(tmp_path, files):
    named = {
        f"{module}_20250109084754.{'json' if data[:1] == b'[' else 'csv'}": data
        for module, data in files.items()
    }
    profile = read(
        write(
            tmp_path,
            {
                f"PROF_000001/mindstudio_profiler_output/{name}": data
                for name, data in named.items()
            },
        )
    )
    everything.read_part(profile)
    everything.compute(profile)


def test_a_time_of_the_recording_that_is_no_number_is_unknown(tmp_path):
    told = {"profile_start_time": "None", "profile_stop_time": b"\x08\x01"}
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("train", 0, 1000, step_num=1, _r=1)], line_id=1)
    (tmp_path / "host.xplane.pb").write_bytes(xspace(host, PlaneWriter("Task Environment", told)))
    profile = read(tmp_path / "host.xplane.pb")
    assert profile.overview["environment"]["start_time"] is None


def test_a_number_that_decimal_does_not_read_is_what_pandas_reads(monkeypatch):
    column = pd.Series(["18446744073709521.304", "odd"], dtype=object)
    monkeypatch.setattr(
        csv, "_floats", lambda *_: np.array([18446744073709521.304, 18446744073709521.304])
    )
    found = csv._numbers(column, csv.Column("start_us", ()), [])
    assert found[0] == pytest.approx(30.312)
    assert found[1] == pytest.approx(30.0, abs=4)


def test_a_tar_packed_with_gzip_that_is_damaged_anywhere_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "run.tar.gz"
    whole = gz(tarred({"host.xplane.pb": training_run(40)}))
    for at in range(12, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(ReadError, match=r"run\.tar\.gz"):
            read(path)


@pytest.mark.parametrize("at", [-6, 60, 200])
def test_a_packed_snapshot_that_is_damaged_is_an_error_that_names_it(tmp_path, at):
    few = caching_allocator.Allocator(64 << 20)
    few.alloc(1 << 20, caching_allocator.WEIGHT)
    data = bytearray(gz(pickle.dumps(caching_allocator.snapshot(few), 4)))
    data[at] ^= 0xFF
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(bytes(data))
    with pytest.raises(ReadError, match=r"snapshot\.pickle\.gz"):
        read(path)


def test_a_snapshot_whose_records_have_two_lists_of_frames(tmp_path):
    few = caching_allocator.Allocator(64 << 20)
    for _ in range(3):
        few.alloc(1 << 20, caching_allocator.WEIGHT)
    snapshot = caching_allocator.snapshot(few)
    for entry in snapshot["device_traces"][0]:
        entry["more"] = list(entry["frames"])
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot, 4))
    assert read(path).allocator.summary["allocated_bytes"].tolist() == [3 << 20]


def test_a_snapshot_cut_behind_a_list_that_has_no_key(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(b"\x80\x04\x8c\x08segments0}\x94(]\x94")
    # What takes a value off the stack is never in a snapshot.
    with pytest.raises(
        ReadError, match=r"snapshot\.pickle, byte 12: the pickle asks for an operation"
    ):
        read(path)


def test_a_find_says_how_to_make_it_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        readers,
        "one",
        lambda form, seed, number, folder, look: readers.Outcome(
            "profile", find="it fails"[: 9 * number]
        ),
    )
    assert readers.main(["xspace", "--seed", "5", "--count", "2", "--keep", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "python -m tests.fuzz.readers xspace --seed 5 --first 1 --count 1 --look 1" in said
    assert (tmp_path / "xspace-5-1" / "host.xplane.pb").read_bytes() == formats.draw(
        "xspace", 5, 1
    )["host.xplane.pb"]
    assert "2 inputs" in said
    assert "1 finds" in said
