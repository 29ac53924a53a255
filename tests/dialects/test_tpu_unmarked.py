"""TPU cores of which the recording has ops but no steps, or programs but no ops."""

from __future__ import annotations

import pytest

import nbprof
from tests.fuzz.values import jax_loop
from tests.support import corrupt
from tests.support.build import profile
from tests.support.notes import of_key
from tests.support.xspace import MS, PlaneWriter, xspace

STEPS, OPS = 8, 12


def recorded(*lines: str, marks: bool = True, host: str = "host-a") -> bytes:
    """Steps of 10 ms with 12 ops of 0.7 ms, marked by the program; the lines of the core."""
    core, cpu = PlaneWriter("/device:TPU:0"), PlaneWriter("/host:CPU")
    events: dict[str, list[bytes]] = {"Steps": [], "XLA Modules": [], "XLA Ops": []}
    calls: list[bytes] = []
    for step in range(STEPS):
        begin = 10 * step * MS
        calls.append(cpu.event("train", begin, 10 * MS, step_num=step, _r=1))
        calls.append(cpu.event("PjitFunction(train)", begin + MS // 10, MS // 2))
        events["Steps"].append(core.event(str(step), begin, 10 * MS, group_id=step))
        events["XLA Modules"].append(core.event("jit_train(1)", begin, 9 * MS, run_id=step))
        for i in range(OPS):
            name = corrupt.OPS_OF_TPU[i % 2].format(i)
            events["XLA Ops"].append(core.event(name, begin + i * 7 * MS // 10, 7 * MS // 10))
    for number, line in enumerate(lines):
        core.line(line, events[line], line_id=number)
    if marks:
        cpu.line("python", calls, line_id=9)
    return xspace(core, cpu, hostname=host)


@pytest.mark.parametrize("lines", [("XLA Modules", "XLA Ops"), ("XLA Ops",)])
def test_ops_that_state_no_step_are_in_the_one_that_is_marked_meanwhile(tmp_path, lines):
    p = profile(tmp_path, recorded(*lines))
    assert p.overview["verdict"] == "Device-bound"
    assert p.overview["device_busy_percent"] == pytest.approx(84.0)
    assert p.steps.frame["device_compute_ms"].tolist() == pytest.approx([8.4] * STEPS)
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([10.0] * STEPS)


def test_ops_without_any_steps_are_work(tmp_path):
    p = profile(tmp_path, recorded("XLA Ops", marks=False))
    assert p.overview["verdict"] == "Unknown"
    assert p.overview["verdict_text"].startswith("no steps were found")
    assert p.ops.frame.query("where == 'device'")["total_us"].sum() == pytest.approx(67_200)


def test_programs_without_ops_are_no_idle_device(tmp_path):
    p = profile(tmp_path, recorded("Steps", "XLA Modules"))
    assert p.overview["verdict"] == "Ops not recorded"
    assert p.overview["device_busy_percent"] is None
    assert not len(p.advice)
    assert p.steps.frame["device_compute_ms"].isna().all()
    assert of_key(p.receipt, "lost_ops")


def test_a_host_with_a_tpu_has_a_device(tmp_path):
    """Next to one with a GPU, and to one without any device."""
    (tmp_path / "a.xplane.pb").write_bytes(jax_loop())
    data = recorded("Steps", "XLA Modules", "XLA Ops", host="b")
    (tmp_path / "b.xplane.pb").write_bytes(data)
    assert not of_key(nbprof.load(tmp_path).receipt, "hosts_without_device")
    bare = PlaneWriter("/host:CPU")
    bare.line("python", [bare.event("train", 0, 10 * MS, step_num=0, _r=1)])
    (tmp_path / "a.xplane.pb").write_bytes(xspace(bare, hostname="c"))
    (note,) = of_key(nbprof.load(tmp_path).receipt, "hosts_without_device")
    assert note.text.startswith("c recorded no device")
