"""Times on TPU cores and streams of GPUs in XSpace files that cannot be: in no sum, named in a
warning; sound long ops are left.
"""

from __future__ import annotations

import pytest

from nbprof.dialects.corrupt import RECORDED, RECORDED_START
from tests.fuzz.values import jax_loop
from tests.support import corrupt
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

STEPS, OPS = corrupt.TPU_STEPS, corrupt.TPU_OPS
SECONDS = 3_000 * MS
training = corrupt.tpu_training


def folder(tmp_path, name):
    out = tmp_path / name
    out.mkdir()
    return out


def warnings(p) -> list[str]:
    return [note.text for note in p.receipt.lines if note.level == "warning"]


def both(tmp_path, changed, **how):
    return (
        profile(folder(tmp_path, name), training(given, **how))
        for name, given in (("sound", None), ("corrupt", changed))
    )


def agree(sound, p) -> None:
    times = [name for name in sound.steps.frame if name.endswith("_ms")]
    assert p.steps.frame[times].round(3).equals(sound.steps.frame[times].round(3))
    assert p.overview["verdict"] == sound.overview["verdict"]
    assert p.overview["device_busy_percent"] == pytest.approx(sound.overview["device_busy_percent"])
    assert p.run.recorded_s == pytest.approx(sound.run.recorded_s)
    assert p.advice["rule"].tolist() == sound.advice["rule"].tolist()


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("programs", [False, True])
@pytest.mark.parametrize(
    "rows", [[20], [3, 40, 41], [8], [60], [STEPS * (OPS + 1) - 1], [STEPS * (OPS + 1) - 2]]
)
def test_ops_that_state_seconds(tmp_path, rows, programs, measured):
    """Of the middle, the loop of a program, one within it, and the last two of the recording."""
    changed = {("XLA Ops", row): {"duration": SECONDS} for row in rows}
    sound, p = both(tmp_path, changed, programs=programs, measured=measured)
    agree(sound, p)
    total = [float(each.ops.frame["total_us"].sum()) for each in (sound, p)]
    assert total[1] == pytest.approx(total[0])
    (text,) = set(warnings(p)) - set(warnings(sound))
    assert text.startswith(
        f"{len(rows)} device event{'s' if len(rows) > 1 else ''} ({len(rows)} on TPU 0, XLA Ops: "
    )
    assert "3,000.00 ms" in text
    assert len(p.run.trace.args[RECORDED]) == len(rows)


@pytest.mark.parametrize("line", ["Steps", "XLA Modules"])
@pytest.mark.parametrize("row", [0, 3, STEPS - 1])
def test_steps_and_programs_that_state_seconds(tmp_path, line, row):
    sound, p = both(tmp_path, {(line, row): {"duration": SECONDS}})
    agree(sound, p)
    where = "steps" if line == "Steps" else line
    assert any(f"1 on TPU 0, {where}" in text for text in warnings(p))


@pytest.mark.parametrize("start", [3_600_000 * MS, 7_200_000 * MS])
@pytest.mark.parametrize("row", [0, 30, STEPS * (OPS + 1) - 1])
def test_ops_at_a_time_that_cannot_be(tmp_path, start, row):
    p = profile(tmp_path, training({("XLA Ops", row): {"start": start}}))
    assert p.steps.frame["step_time_ms"].round(3).tolist() == [10.0] * STEPS
    assert p.run.recorded_s == pytest.approx(0.08)
    assert any(
        text.startswith(
            "1 device event (1 on TPU 0, XLA Ops; 0.70 ms) begins at an impossible time"
        )
        for text in warnings(p)
    )
    assert p.run.trace.args[RECORDED_START].floats().tolist() == [start / 1e6]


def test_a_loop_that_runs_long_once_is_left(tmp_path):
    """Its ops run as often, and its program ends behind it."""
    plane, at = PlaneWriter("/device:TPU:0"), 0
    steps, programs, ops = [], [], []
    for step in range(8):
        count = 4_000 if step == 5 else 10
        length = count * MS // 10
        steps.append(plane.event(str(step), at, length + MS, group_id=step))
        programs.append(plane.event("jit_train(1)", at, length, run_id=step))
        ops.append(plane.event("%while.1 = f32[8] while(f32[8] %p0)", at, length))
        ops += [
            plane.event(corrupt.OPS_OF_TPU[0].format(1), at + i * MS // 10, MS // 10)
            for i in range(count)
        ]
        at += length + MS
    for number, (line, events) in enumerate(
        {"Steps": steps, "XLA Modules": programs, "XLA Ops": ops}.items()
    ):
        plane.line(line, events, line_id=number)
    p = profile(tmp_path, xspace(plane))
    assert p.steps.frame["step_time_ms"].max() == pytest.approx(401.0)
    assert RECORDED not in p.run.trace.args
    assert not warnings(p)


def test_an_op_that_runs_long_once_is_left(tmp_path):
    """What follows begins behind it."""
    late = {}
    row = {"Steps": 5, "XLA Modules": 5, "XLA Ops": 5 * (OPS + 1) + 3}
    data = training()
    p = profile(folder(tmp_path, "sound"), data)
    events = p.run.trace.events
    for line, first in row.items():
        lane = p.run.trace.lanes.index[p.run.trace.lanes["line"] == line][0]
        of_line = events.lane == lane
        for nth, start in enumerate(events.start[of_line].tolist()):
            if nth > first:
                late[line, nth] = {"start": start + SECONDS}
        late[line, first] = {"duration": int(events.duration[of_line][first]) + SECONDS}
    p = profile(folder(tmp_path, "long"), training(late))
    assert RECORDED not in p.run.trace.args
    assert p.steps.frame["step_time_ms"].max() == pytest.approx(3_010)


@pytest.mark.parametrize("row", [0, 30, 119])
def test_kernels_at_a_time_that_cannot_be(tmp_path, row):
    sound, p = (
        profile(folder(tmp_path, name), jax_loop(later=given))
        for name, given in (("sound", None), ("corrupt", {row: 3_600_000.0}))
    )
    assert (
        p.steps.frame["step_time_ms"].round(3).tolist()
        == sound.steps.frame["step_time_ms"].round(3).tolist()
    )
    assert p.run.recorded_s == pytest.approx(sound.run.recorded_s, rel=0.01)
    counts = [int(each.kernels.by_name()["occurrences"].sum()) for each in (sound, p)]
    assert counts[1] == counts[0] - 1
    assert any(
        "1 device event (1 on GPU 0, stream 2; 0.80 ms) begins at an impossible time" in text
        for text in warnings(p)
    )


def test_steps_that_overlap_end_where_the_next_begins(tmp_path):
    changed = {("Steps", row): {"duration": 15 * MS} for row in range(STEPS - 1)}
    sound, p = both(tmp_path, changed)
    agree(sound, p)
    assert any("7 device events (7 on TPU 0, steps" in text for text in warnings(p))


@pytest.mark.parametrize("line", ["Steps", "XLA Modules"])
def test_a_last_step_or_program_that_takes_far_longer_than_the_others(tmp_path, line):
    sound, p = both(tmp_path, {(line, STEPS - 1): {"duration": 500 * MS}})
    agree(sound, p)
    assert any("has a duration of 500.00 ms, which is impossible" in text for text in warnings(p))
