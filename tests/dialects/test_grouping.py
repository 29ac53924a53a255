from __future__ import annotations

import numpy as np

from nbprof.dialects.grouping import group, inherit
from nbprof.formats import xspace
from nbprof.formats.pieces import LocalFile
from tests.support.xspace import PlaneWriter, training_run
from tests.support.xspace import xspace as write


def grouped(tmp_path, data):
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(data)
    trace = xspace.read([LocalFile(path)])
    trace.lanes["kind"] = "host"
    groups = group(trace, trace.names)
    return trace, groups, [(str(trace.names[n]), int(g)) for n, g in zip(trace.events.name, groups.group, strict=True)]


def test_a_step_marker_gathers_its_thread_and_what_it_started_elsewhere(tmp_path):
    _, groups, events = grouped(tmp_path, training_run(3))
    assert groups.names == {(0, 0): "train 0", (0, 1): "train 1", (0, 2): "train 2"}
    assert [g for n, g in events if n == "dense/MatMul:MatMul"] == [0, 1, 2], "linked by producer and consumer"
    assert [g for n, g in events if n == "FunctionRun"] == [0, 1, 2], "a function run inside a step opens none of its own"


def test_function_runs_of_tf_data_open_no_group(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("FunctionRun", 0, 5, _r=1, id=9), host.event("FunctionRun", 10, 5, _r=1, id=10)], line_id=1)
    host.line("u", [host.event("InstantiatedCapturedFunction::Run", 0, 5, id=9)], line_id=2)
    _, groups, events = grouped(tmp_path, write(host))
    assert events == [("FunctionRun", -1), ("FunctionRun", 0), ("InstantiatedCapturedFunction::Run", -1)]
    assert groups.names == {(0, 0): "0"}


def test_threadpool_regions_join_no_group(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t", [host.event("train", 0, 9, _r=1, step_num=4), host.event("ThreadpoolListener::StartRegion", 1, 0, _ct=15, _c=3)], line_id=1
    )
    _, groups, events = grouped(tmp_path, write(host))
    assert dict(events) == {"train": 0, "ThreadpoolListener::StartRegion": -1}
    assert groups.names == {(0, 0): "train 4"}


def test_a_key_that_is_busy_on_both_sides_links_nothing(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("train", 0, 999, _r=1, step_num=0)] + [host.event("p", i, 0, _pt=1, _p=7) for i in range(64)], line_id=1)
    host.line("u", [host.event("c", i, 0, _ct=1, _c=7) for i in range(64)], line_id=2)
    _, _, events = grouped(tmp_path, write(host))
    assert {g for n, g in events if n == "c"} == {-1}


def test_inherit_takes_the_nearest_ancestor():
    parent = np.array([-1, 0, 1, 0], np.int32)
    depth = np.array([0, 1, 2, 1], np.uint16)
    assert inherit(parent, depth, np.array([5, -1, -1, 8])).tolist() == [5, 5, 5, 8]
