"""Steps that a program of JAX marks on a GPU: it returns before the work is done, and leaves copies
of batches to other threads.
"""

from __future__ import annotations

import pytest

from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

HANDED = 5


def loop(steps, copied_on):
    """Steps of 20 ms: 10 wait for a batch, 4 prepare it and launch, 8 compute, of which 2 while the
    next batch is waited for.

    The copy is handed to one thread, which prepares it for 2 ms; its call begins half a millisecond
    later, on that thread or on another.
    """
    host, gpu = (
        PlaneWriter("/host:CPU"),
        PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 9}),
    )
    threads = {"python": [], "worker": [], "another": []}
    copies, kernels = [], []
    for step in range(steps):
        at, copy, launch = 20 * step * MS, 2 * step + 1, 2 * step + 2
        stage = {"_ipl_stage_id": 1, "_ipl_stage_name": "nbprof.steps", "_ipl_stage_cat": "unknown"}
        threads["python"] += [
            host.event("train", at, 16 * MS, step_num=step, _r=1),
            host.event("nbprof.steps: next item", at, 10 * MS, **stage),
            host.event(
                "PjRtCApiCompiler::BufferFromHostBuffer(f32[8])",
                at + 10 * MS,
                MS // 10,
                _pt=HANDED,
                _p=100 + step,
            ),
            host.event("PjRtCApiLoadedExecutable::Execute", at + 10 * MS + MS // 5, 4 * MS),
            host.event("cuGraphLaunch", at + 12 * MS, MS // 4, correlation_id=launch),
        ]
        threads["worker"].append(
            host.event("H2D Dispatch", at + 10 * MS, 2 * MS, _ct=HANDED, _c=100 + step)
        )
        threads[copied_on].append(
            host.event("MemcpyH2D", at + 12 * MS + MS // 2, MS // 4, correlation_id=copy)
        )
        copies.append(gpu.event("MemcpyH2D", at + 13 * MS, MS, correlation_id=copy))
        kernels.append(gpu.event("fusion", at + 14 * MS, 8 * MS, correlation_id=launch))
    for line, (name, events) in enumerate(threads.items(), 1):
        host.line(name, events, line_id=line)
    gpu.line("Stream #1(MemcpyH2D)", copies, line_id=1)
    gpu.line("Stream #2(Compute)", kernels, line_id=2)
    return xspace(gpu, host)


@pytest.mark.parametrize("copied_on", ["worker", "another"])
def test_a_step_lasts_until_its_work_is_done_and_has_the_wait_for_its_own_batch(
    tmp_path, copied_on
):
    p = profile(tmp_path, loop(6, copied_on))
    steps = p.steps.frame
    assert p.run.activity.framework.title == "JAX"
    assert steps["step_time_ms"].tolist() == [22.0, 20.0, 20.0, 20.0, 20.0, 20.0], (
        "a loop takes what its steps take"
    )
    later = steps.iloc[1:]
    assert later["device_compute_ms"].tolist() == [8.0] * 5
    # The wait is hidden for 2 ms behind the work of the step before; preparing the copy, and the
    # copy, are input as well.
    assert later["input_ms"].to_numpy() == pytest.approx(8 + 2 + 1)
    assert later["host_to_device_ms"].to_numpy() == pytest.approx(3)
    assert later["other_ms"].to_numpy() == pytest.approx(0)
    assert p.overview["verdict"] == "Input-bound"
    assert "input_ahead" in p.advice["rule"].tolist()


def test_the_steps_of_xprof_are_as_it_has_them(tmp_path):
    """To it a copy that no step made is of the step before, which lasts until then."""
    theirs = profile(tmp_path, loop(5, "worker")).steps.as_xprof()
    assert theirs["step_time_ms"].tolist() == [20.0, 20.0, 20.0, 20.0, 8.0]


def test_what_compiles_a_program_through_the_interface_of_plugins_is_compiling(tmp_path):
    host, gpu = (
        PlaneWriter("/host:CPU"),
        PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 9}),
    )
    main, kernels = [], []
    for step in range(4):
        at = 20 * step * MS
        main.append(host.event("train", at, 20 * MS, step_num=step, _r=1))
        main.append(host.event("PJRT_Client_Compile", at + MS, 12 * MS))
        main.append(host.event("PjRtCApiLoadedExecutable::Execute", at + 14 * MS, MS))
        main.append(host.event("cuGraphLaunch", at + 14 * MS, MS // 4, correlation_id=step + 1))
        kernels.append(gpu.event("fusion", at + 16 * MS, 2 * MS, correlation_id=step + 1))
    host.line("python", main, line_id=1)
    gpu.line("Stream #1(Compute)", kernels, line_id=1)
    p = profile(tmp_path, xspace(gpu, host))
    assert p.steps.frame["compile_ms"].tolist() == [12.0] * 4
    assert p.overview["verdict"] == "Compile-bound"
