"""Perfetto traces of rocprofv3, here as their twin in JSON: the same events as in its other
files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbprof
from nbprof.core.files import LocalFile
from nbprof.dialects.rocprof import perfetto
from nbprof.dialects.rocprof.rocprof import interpret
from nbprof.formats.chrome.chrome import read
from nbprof.formats.rocprof import rocprof as reader
from nbprof.frameworks.register import HIP
from tests.support import rocprof


def _twin(run: rocprof.Run, *, streams: bool) -> bytes:
    """What rocprofv3 writes as Perfetto's, in Chrome's JSON."""
    agents = {
        agent.node: f"Agent-{agent.logical}" if streams else agent.logical for agent in run.agents
    }
    tracks: dict[str, int] = {}
    events = []

    def add(cat: str, name: str, track: str, row: dict, **args: object) -> None:
        tid = tracks.setdefault(track, 10**15 + len(tracks))
        times = {
            "begin_ns": row["start"],
            "end_ns": row["end"],
            "delta_ns": row["end"] - row["start"],
            "corr_id": row["correlation"],
        }
        span = {
            "ts": row["start"] / 1000 - rocprof.EPOCH // 1000,
            "dur": (row["end"] - row["start"]) / 1000,
        }
        events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": run.pid,
                "tid": tid,
                **span,
                "args": {**times, **args},
            }
        )

    for call in (*run.calls, *run.markers):
        cat = {"HIP": "hip_api", "HSA": "hsa_api", "RCC": "rccl_api", "MAR": "marker_api"}[
            call["kind"][:3]
        ]
        add(
            cat,
            call.get("message", call["name"]),
            f"THREAD 0 ({call['thread']})",
            call,
            tid=call["thread"],
        )
    for k in run.kernels:
        place = f"STREAM [{k['stream']}]" if streams else f"QUEUE [{k['queue']}]"
        size = {
            "group_segment_size": k["lds"],
            "private_segment_size": rocprof.SYMBOLS[k["kernel"]][2],
            "grid_size": 5,
            "workgroup_size": 1,
        }
        track = f"COMPUTE AGENT [{agents[k['node']]}] {place} (GPU)"
        add(
            "kernel_dispatch",
            rocprof.SYMBOLS[k["kernel"]][0],
            track,
            k,
            agent=agents[k["node"]],
            queue=k["queue"],
            **size,
        )
    for c in run.copies:
        ends = {"src_agent": agents[c["source"]], "dst_agent": agents[c["target"]]}
        add(
            "memory_copy",
            c["direction"],
            f"COPY to AGENT [{agents[c['target']]}] THREAD [0]",
            c,
            copy_bytes=c["bytes"],
            **ends,
        )
    names = [
        {"ph": "M", "name": "thread_name", "pid": run.pid, "tid": tid, "args": {"name": name}}
        for name, tid in tracks.items()
    ]
    return json.dumps({"traceEvents": [*names, *events]}).encode()


@pytest.mark.parametrize("streams", [False, True])
def test_equal_tables(tmp_path: Path, streams: bool) -> None:
    run = rocprof.training(3)
    rocprof.write(
        tmp_path, {"a.json": _twin(run, streams=streams), "a_results.db": rocprof.as_db(run)}
    )
    twin = read([LocalFile(tmp_path / "a.json")])
    assert perfetto.is_rocprof(twin)
    mine, theirs = interpret(twin), interpret(reader.read([LocalFile(tmp_path / "a_results.db")]))
    assert mine.framework is theirs.framework is HIP
    for table, columns in {
        "kernels": ["duration"], "transfers": ["bytes"], "markers": ["group"], "launches": [], "work": ["cls"], "collectives": [],
    }.items():  # fmt: skip
        one, other = (getattr(activity, table).frame() for activity in (mine, theirs))
        assert len(one) == len(other) > 0, table
        for column in columns:
            assert sorted(one[column].tolist()) == sorted(other[column].tolist()), (table, column)
    lanes = twin.lanes[twin.lanes["kind"] == "device"]
    where = "Stream" if streams else "Queue"
    assert {
        (p, t)
        for p, t in zip(lanes["process"], lanes["thread"], strict=True)
        if not t.startswith("Copies")
    } == {
        ("GPU 1", f"{where} 1"),
        ("GPU 2", f"{where} 2"),
    }
    assert set(twin.lanes.loc[twin.lanes["kind"] == "host", "thread"]) == {
        "main thread",
        "thread 720",
    }


def test_the_dialect_of_chrome_traces_hands_it_over(tmp_path: Path) -> None:
    rocprof.write(tmp_path, {"a.json": _twin(rocprof.training(2), streams=True)})
    profile = nbprof.load(tmp_path / "a.json")
    assert profile.run.activity.framework.title == "HIP"
    assert profile.steps.frame["name"].tolist() == ["step 0", "step 1"]


def test_other_traces_are_not_its_own() -> None:
    path = Path(__file__).parents[1] / "data" / "kineto" / "cpu_train.pt.trace.json.gz"
    assert not perfetto.is_rocprof(nbprof.load(path).run.as_read)
