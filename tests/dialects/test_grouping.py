from __future__ import annotations

import numpy as np

from nbprof.core.files import LocalFile
from nbprof.dialects.xplane.grouping import group, inherit
from nbprof.formats.xspace import xspace
from tests.support.xspace import PlaneWriter, training_run
from tests.support.xspace import xspace as write


def grouped(tmp_path, data):
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(data)
    trace = xspace.read([LocalFile(path)])
    trace.lanes["kind"] = "host"
    groups = group(trace, trace.names)
    return (
        trace,
        groups,
        [
            (str(trace.names[n]), int(g))
            for n, g in zip(trace.events.name, groups.group, strict=True)
        ],
    )


def test_a_step_marker_gathers_its_thread_and_what_it_started_elsewhere(tmp_path):
    _, groups, events = grouped(tmp_path, training_run(3))
    assert groups.names == {(0, 0): "train 0", (0, 1): "train 1", (0, 2): "train 2"}
    assert [g for n, g in events if n == "dense/MatMul:MatMul"] == [0, 1, 2], (
        "linked by producer and consumer"
    )
    assert [g for n, g in events if n == "FunctionRun"] == [0, 1, 2], (
        "a function run inside a step opens none of its own"
    )


def test_function_runs_of_tf_data_open_no_group(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("FunctionRun", 0, 5, _r=1, id=9),
            host.event("FunctionRun", 10, 5, _r=1, id=10),
        ],
        line_id=1,
    )
    host.line("u", [host.event("InstantiatedCapturedFunction::Run", 0, 5, id=9)], line_id=2)
    _, groups, events = grouped(tmp_path, write(host))
    assert events == [
        ("FunctionRun", -1),
        ("FunctionRun", 0),
        ("InstantiatedCapturedFunction::Run", -1),
    ]
    assert groups.names == {(0, 0): "0"}


def test_threadpool_regions_join_no_group(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("train", 0, 9, _r=1, step_num=4),
            host.event("ThreadpoolListener::StartRegion", 1, 0, _ct=15, _c=3),
        ],
        line_id=1,
    )
    _, groups, events = grouped(tmp_path, write(host))
    assert dict(events) == {"train": 0, "ThreadpoolListener::StartRegion": -1}
    assert groups.names == {(0, 0): "train 4"}


def test_a_key_that_is_busy_on_both_sides_links_nothing(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [host.event("train", 0, 999, _r=1, step_num=0)]
        + [host.event("p", i, 0, _pt=1, _p=7) for i in range(64)],
        line_id=1,
    )
    host.line("u", [host.event("c", i, 0, _ct=1, _c=7) for i in range(64)], line_id=2)
    _, _, events = grouped(tmp_path, write(host))
    assert {g for n, g in events if n == "c"} == {-1}


def test_inherit_takes_the_nearest_ancestor():
    parent = np.array([-1, 0, 1, 0], np.int32)
    depth = np.array([0, 1, 2, 1], np.uint16)
    assert inherit(parent, depth, np.array([5, -1, -1, 8])).tolist() == [5, 5, 5, 8]


def test_iterations_of_a_loop_in_a_graph_are_the_steps(tmp_path):
    host = PlaneWriter("/host:CPU")
    main = [host.event("FunctionRun", 0, 100, _r=1, id=5)]
    pool = []
    for turn in (1, 0, 2):
        at = 10 + 30 * turn
        pool.append(host.event("ExecutorState::Process", at, 5, id=5, iter_num=turn))
        pool.append(host.event("ExecutorState::Process", at + 10, 5, id=5, iter_num=turn))
        pool.append(host.event("a:A", at + 11, 2))
    pool.append(host.event("ExecutorState::Process", 3, 2, id=8, iter_num=0))
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "0", (0, 1): "1", (0, 2): "2"}
    assert [g for n, g in events if n == "a:A"] == [0, 1, 2], (
        "the others of an iteration hang below its first"
    )
    assert [g for n, g in events if n == "FunctionRun"] == [-1], "only iterations are steps then"
    assert [g for n, g in events if n == "ExecutorState::Process"] == [-1, 0, 0, 1, 1, 2, 2], (
        "one that never loops is none"
    )


def test_a_function_with_one_iteration_is_no_loop(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("train", 0, 100, _r=1, step_num=3),
            host.event("ExecutorState::Process", 1, 5, id=5, iter_num=0),
        ],
    )
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "train 3"}
    assert dict(events) == {"train": 0, "ExecutorState::Process": 0}


def test_marked_steps_are_the_steps_whatever_loops_inside(tmp_path):
    """steps_per_execution, or an RNN: XProf takes iterations of the loop for steps then, and shows
    none on the CPU.
    """
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    for step in range(2):
        at = 1000 * step
        main += [
            host.event("train", at, 900, _r=1, step_num=7 + step),
            host.event("FunctionRun", at + 1, 800, _r=1, id=step, _pt=2, _p=step),
        ]
        for turn in range(3):
            pool.append(
                host.event(
                    "ExecutorState::Process",
                    at + 10 + 30 * turn,
                    20,
                    id=step,
                    iter_num=turn,
                    _ct=2,
                    _c=step,
                )
            )
            pool.append(host.event("a:A", at + 11 + 30 * turn, 2))
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "train 7", (0, 1): "train 8"}
    assert [g for n, g in events if n == "a:A"] == [0, 0, 0, 1, 1, 1]
    assert groups.over_loops == {0}


def test_marked_steps_are_there_beside_loop_ops(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [host.event("train", 0, 100, _r=1, step_num=3), host.event("WhileOp-StartBody", 1, 5)],
    )
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "train 3"}
    assert dict(events) == {"train": 0, "WhileOp-StartBody": 0}


def test_files_with_loop_ops_are_not_grouped(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python", [host.event("FunctionRun", 0, 100, _r=1), host.event("WhileOp-StartBody", 1, 5)]
    )
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {}
    assert {g for _, g in events} == {-1}


def test_names_come_from_what_the_root_hangs_below(tmp_path):
    host = PlaneWriter("/host:CPU")
    main = [
        host.event("outer", 0, 50, graph_type="pjit", step_num=12),
        host.event("FunctionRun", 1, 5, _r=1),
    ]
    main.append(host.event("FunctionRun", 60, 5, _r=1))
    host.line("python", main)
    _, groups, _ = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "pjit 12", (0, 1): "1"}, (
        "an implicit root lends its name to no step"
    )


def test_ids_of_producers_hold_within_their_process(tmp_path):
    host = PlaneWriter("/host:CPU")
    for line, process in ((1, 10), (2, 20)):
        main = [
            host.event(f"train{line}", 0, 9, _r=1, step_num=line),
            host.event("p", 1, 1, _pt=1, _p=7, _pid=process),
        ]
        host.line(f"main {line}", main, line_id=line)
        host.line(
            f"pool {line}",
            [host.event(f"c{line}", 3, 1, _ct=1, _c=7, _pid=process)],
            line_id=line + 10,
        )
    _, groups, events = grouped(tmp_path, write(host))
    found = dict(events)
    assert found["c1"] == found["train1"] != found["train2"] == found["c2"]
    assert set(groups.names.values()) == {"train1 1", "train2 2"}


def test_requests_follow_what_enqueued_them(tmp_path):
    host = PlaneWriter("/host:CPU")
    main = [
        host.event("train", 0, 90, _r=1, step_num=0),
        host.event("EnqueueRequestLocked", 1, 1, request_id=4, queue_addr=99),
    ]
    main.append(host.event("ExecutorState::Process", 3, 2, id=6, iter_num=0))
    pool = [
        host.event("RunProgramRequest", 5, 1, request_id=4, queue_addr=99),
        host.event("TransferD2HRequest", 7, 1, request_id=4, queue_addr=98),
    ]
    pool.append(host.event("TpuExecuteOp", 9, 1, id=6, iter_num=0))
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    _, _, events = grouped(tmp_path, write(host))
    found = dict(events)
    assert (found["RunProgramRequest"], found["TpuExecuteOp"], found["TransferD2HRequest"]) == (
        0,
        0,
        -1,
    )


def test_batches_of_a_server_gather_more_than_its_sessions(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("ProcessBatch", 0, 9),
            host.event("BatchingSessionRun", 1, 5),
            host.event("a:A", 2, 1),
        ],
        line_id=1,
    )
    host.line("u", [host.event("BatchingSessionRun", 20, 5)], line_id=2)
    _, groups, events = grouped(tmp_path, write(host))
    assert groups.names == {(0, 0): "ProcessBatch 0", (0, 1): "BatchingSessionRun 1"}
    assert [g for _, g in events] == [0, 0, 0, 1]


def test_each_host_counts_its_groups_from_0(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.xplane.pb").write_bytes(
            training_run(2).replace(b"host-a", b"host-" + name.encode())
        )
    trace = xspace.read([LocalFile(tmp_path / f"{name}.xplane.pb") for name in ("a", "b")])
    trace.lanes["kind"] = "host"
    groups = group(trace, trace.names)
    assert groups.names == {(h, g): f"train {g}" for h in (0, 1) for g in (0, 1)}
    of_host = trace.lanes["host"].to_numpy()[trace.events.lane]
    assert [set(groups.group[of_host == h].tolist()) - {-1} for h in trace.hosts] == [
        {0, 1},
        {0, 1},
    ]
