"""Calls of JAX in which the host waits for devices that run nothing."""

from __future__ import annotations

import pytest

import nbprof
from tests.support.xspace import MS, PlaneWriter, xspace

CALL = "$api.py:3154 block_until_ready"


def steps(
    tmp_path, *, wait: str = CALL, other: tuple[str, int, int] | None = None, idle: int = 8 * MS
):
    """Three steps: 1 ms of dispatch, then a call that waits, at the end of whose `idle` time a
    kernel of 1 ms runs.
    """
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    kernels, marks, main, pool, at = [], [], [], [], 0
    for i in range(3):
        main.append(host.event("train", at, idle + 2 * MS, step_num=i, group_id=i + 1))
        main.append(host.event("PjitFunction(step)", at, MS, group_id=i + 1))
        main.append(host.event(wait, at + MS, idle + MS, group_id=i + 1))
        if other is not None:
            name, begin, length = other
            pool.append(host.event(name, at + begin, length, group_id=i + 1))
        kernels.append(
            gpu.event("fusion", at + MS + idle, MS, correlation_id=i + 1, group_id=i + 1)
        )
        marks.append(gpu.event(str(i), at, idle + 2 * MS, group_id=i + 1, step_name=f"train {i}"))
        at += idle + 2 * MS
    host.line("python", main, line_id=1)
    if pool:
        host.line("pool", pool, line_id=2)
    gpu.line("Stream #7(Compute)", kernels, line_id=7)
    gpu.line("Steps", marks, line_id=-559038737)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(xspace(gpu, host))
    return nbprof.load(path)


def parts(p):
    return (
        p.steps.frame[["host_compute_ms", "other_ms", "device_compute_ms", "waiting_ms"]]
        .iloc[1]
        .tolist()
    )


@pytest.mark.parametrize("wait", [CALL, "ArrayImpl.block_until_ready", "block_until_ready"])
def test_a_host_that_waits_for_an_idle_device_computes_nothing(tmp_path, wait) -> None:
    p = steps(tmp_path, wait=wait)
    assert parts(p) == [1, 8, 1, 8]
    assert p.overview["verdict"] == "Stalled"
    assert "host_bound" not in p.advice["rule"].tolist()


@pytest.mark.parametrize(
    "name", ["$api.py:1 block_until_ready_or_not", "$x.py:1 not_block_until_ready"]
)
def test_other_calls_are_host_work(tmp_path, name) -> None:
    assert parts(steps(tmp_path, wait=name))[:3] == [9, 0, 1]


def test_while_another_thread_works_the_step_waits_for_that(tmp_path) -> None:
    p = steps(tmp_path, other=("callback", 2 * MS, 4 * MS))
    # 1 ms of dispatch and 4 ms of the callback; before it 1 ms, which is no longer than a device's
    # latency.
    assert parts(p) == [6, 3, 1, 3]


def test_what_lies_around_a_task_that_waits_is_no_work_but_to_xprof(tmp_path) -> None:
    p = steps(tmp_path, other=("BufferSequencingEvent::Execute", MS, 8 * MS))
    assert parts(p) == [1, 8, 1, 8]
    trace, counts = p.run.trace, []
    for work in (p.run.activity.work.frame(), p.run.activity.xprof_work.frame()):
        names = [trace.names[one] for one in trace.events.name[work["event"].to_numpy()].tolist()]
        counts.append(names.count("BufferSequencingEvent::Execute"))
    assert counts == [0, 3]


def test_the_latency_of_a_device_is_the_hosts_time(tmp_path) -> None:
    assert parts(steps(tmp_path, idle=MS))[:3] == [2, 0, 1]


def test_an_event_of_no_length_does_not_end_a_wait(tmp_path) -> None:
    idle = 16 * MS // 10
    expected = parts(steps(tmp_path, idle=idle))
    assert expected == [1, 1.6, 1, 1.6]
    assert parts(steps(tmp_path, idle=idle, other=("callback", MS + idle // 2, 0))) == expected
