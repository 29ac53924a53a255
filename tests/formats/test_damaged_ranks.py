"""Folders of ranks of which one cannot be read, or two state the same number: the others are read,
and the receipt says what is not.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import nbprof
from nbprof.core.packed import unpack
from nbprof.tools import dashboard as payload
from tests.support.ranks import job


@pytest.fixture
def ranks():
    """Two files, packed."""
    return [gzip.compress(one.encode(), mtime=0) for one in job([[[500, 900]]] * 2)]


def _said(profile):
    return [note.text for note in profile.receipt.entries if note.level == "warning"]


@pytest.mark.parametrize(
    "names",
    [
        ("job_rank-0.json.gz", "job_rank-1.json.gz"),
        ("worker0.1700000000000.pt.trace.json.gz", "worker1.1700000000000.pt.trace.json.gz"),
    ],
)
@pytest.mark.parametrize("left", [0, 15])
def test_rank_that_cannot_be_read_is_told(tmp_path, ranks, names, left):
    (tmp_path / names[0]).write_bytes(ranks[0])
    (tmp_path / names[1]).write_bytes(ranks[1][:left])
    read = nbprof.load(tmp_path)
    assert len(read.steps.frame) == 1
    (lost,) = [text for text in _said(read) if names[1] in text]
    assert lost.startswith("A file was skipped, and the figures do not include its host: ")
    assert ("empty" in lost) == (left == 0)
    assert read.pods.missing[["host", "file"]].to_numpy().tolist() == [["rank 1", names[1]]]


def test_other_files_are_no_ranks(tmp_path, ranks):
    """Neither a rank that another file has, nor a file of another name, nor one of hours later is
    missed.
    """
    (tmp_path / "worker0.1700000000000.pt.trace.json.gz").write_bytes(ranks[0])
    for name in (
        "worker0.1700000009000.pt.trace.json.gz",
        "worker1.1700090000000.pt.trace.json.gz",
        "settings_rank-1.json",
        "notes.json",
    ):
        (tmp_path / name).write_bytes(b"{}")
    read = nbprof.load(tmp_path)
    assert not [text for text in _said(read) if "skipped" in text]
    assert not read.pods.missing["file"].any()


def test_rank_with_a_damaged_head_is_still_one(tmp_path):
    """What comes before the damage is read, and says which rank it is."""
    first, second = (one.encode() for one in job([[[500, 900]] * 40] * 2))
    # Numbers that do not pack well, so that the damage comes within the first bytes that are looked
    # at.
    noise = np.random.default_rng(5).integers(0, 1 << 60, 4000).tolist()
    text = json.loads(first)
    text["traceEvents"] += [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "x",
            "pid": 1,
            "tid": 1,
            "ts": 1.0,
            "dur": 1.0,
            "args": {"n": n},
        }
        for n in noise
    ]
    packed = gzip.compress(json.dumps(text).encode(), mtime=0)
    at = 2000
    broken = packed[:at] + bytes(400) + packed[at + 400 :]
    head = unpack(broken[: 1 << 16], "gzip", 1 << 16)
    assert json.dumps(text).encode().startswith(head[:4096])
    assert len(head) > 4096
    (tmp_path / "job_rank-0.json.gz").write_bytes(broken)
    (tmp_path / "job_rank-1.json.gz").write_bytes(gzip.compress(second, mtime=0))
    read = nbprof.load(tmp_path)
    assert set(read.steps.frame["host"]) >= {"rank 1"}
    assert any("job_rank-0.json.gz" in text and "damaged" in text for text in _said(read))


def test_same_rank_twice_is_two_runs(tmp_path, ranks):
    for name in ("a.json.gz", "b.json.gz"):
        (tmp_path / name).write_bytes(ranks[0])
    listed = nbprof.runs(tmp_path)["run"].tolist()
    assert sorted(listed) == ["a", "b"]
    for name, other in (("a", "b"), ("b", "a")):
        read = nbprof.load(tmp_path, run=name)
        assert any(
            note.text.startswith(f"{other}.json.gz next to it has a rank number")
            for note in read.receipt.entries
        )


def test_damage_is_no_call_to_record_fewer_steps(tmp_path, ranks):
    """The notice on top tells what helps: another copy."""
    text = gzip.decompress(ranks[0])
    at = text.index(b'"ph"', len(text) // 2)
    (tmp_path / "job_rank-0.json").write_bytes(text[:at] + b"\0\0\0\0" + text[at + 4 :])
    read = nbprof.load(tmp_path)
    assert read.receipt.dropped == 1
    notice = payload.dashboard(read.run)["meta"]["notice"]
    assert notice["title"] == "1 event could not be read."
    assert "damaged" in notice["text"]
    assert "code" not in notice
