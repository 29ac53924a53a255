"""Times of NPU tasks that cannot be, in timelines, tables and databases of Ascend's profilers: in
no sum, and named in a warning.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import nbprof
from nbprof.dialects.corrupt import RECORDED
from tests.support import corrupt, msprof
from tests.support.msprof import Task

STEPS, OPS = corrupt.NPU_STEPS, corrupt.NPU_OPS
SECONDS = 3_000_000
tasks = corrupt.npu_tasks


def tables(folder: Path, length: dict[int, int], later: dict[int, int]) -> Path:
    assert not later
    return msprof.prof(folder / "PROF_1", tasks(length), files=("op_summary", "op_statistic"))


def warnings(p) -> list[str]:
    return [note.text for note in p.receipt.lines if note.level == "warning"]


def opened(tmp_path, form, length=None, later=None):
    """The sound recording, and one that states other times."""
    out = []
    for name, given in (("sound", ({}, {})), ("corrupt", (length or {}, later or {}))):
        folder = tmp_path / name
        folder.mkdir()
        out.append(nbprof.load(str(form(folder, *given))))
    return out


def figures(p) -> dict[str, object]:
    steps, tasks = p.steps.frame, p.ascend.ops.frame
    return {
        "steps": steps["step_time_ms"].round(1).tolist(),
        "compute": steps["device_compute_ms"].round(1).tolist(),
        "collectives": steps["device_collectives_ms"].round(1).tolist(),
        "verdict": p.overview["verdict"],
        "advice": p.advice["rule"].tolist(),
        "kernels": round(float(p.kernels.by_name()["total_us"].sum())),
        "tasks": round(float(tasks["duration_us"].sum())),
        "recorded": round(p.run.recorded_s, 3),
    }


@pytest.mark.parametrize(
    "form",
    [
        corrupt.npu_torch_text,
        corrupt.npu_torch_text_and_tables,
        tables,
        corrupt.npu_timeline,
        corrupt.npu_database,
    ],
    ids=lambda form: form.__name__.removeprefix("npu_"),
)
@pytest.mark.parametrize("numbers", [[23], [0, 40, 41], [STEPS * OPS - 1]])
def test_tasks_that_state_seconds(tmp_path, form, numbers):
    sound, p = opened(tmp_path, form, dict.fromkeys(numbers, SECONDS))
    if numbers[0] == STEPS * OPS - 1 and form is tables:
        pytest.skip("without the host nothing says that the last task had ended")
    assert figures(p) == figures(sound)
    text = next(iter(set(warnings(p)) - set(warnings(sound))))
    assert text.startswith(
        f"{len(numbers)} device event{'s' if len(numbers) > 1 else ''} ({len(numbers)} on NPU 0, stream 2: "
    )
    assert "3,000.00 ms, which is impossible: " in text
    assert len(p.run.trace.args[RECORDED]) == len(numbers)


@pytest.mark.parametrize(
    "form",
    [corrupt.npu_torch_text, corrupt.npu_torch_text_and_tables, corrupt.npu_database],
    ids=lambda form: form.__name__.removeprefix("npu_"),
)
@pytest.mark.parametrize("number", [STEPS * OPS - 1, STEPS * OPS - 2])
def test_a_last_task_that_takes_far_longer_than_calls_launched_alike(tmp_path, form, number):
    sound, p = opened(tmp_path, form, {number: 70_000})
    assert figures(p) == figures(sound)
    assert any("has a duration of 70.00 ms, which is impossible" in text for text in warnings(p))


def test_a_last_task_of_another_shape_is_left(tmp_path):
    """Which only a table says."""
    folder = corrupt.npu_torch_text_and_tables(tmp_path, {STEPS * OPS - 1: 70_000}, {})
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    lines = table.read_bytes().split(b"\r\n")
    last = next(nth for nth, line in enumerate(lines) if b",70000" in line)
    lines[last] = lines[last].replace(b"32,64;", b"65536,64;")
    table.write_bytes(b"\r\n".join(lines))
    p = nbprof.load(str(folder))
    assert RECORDED not in p.run.trace.args


@pytest.mark.parametrize(
    "form",
    [corrupt.npu_torch_text, corrupt.npu_timeline, corrupt.npu_database],
    ids=lambda form: form.__name__.removeprefix("npu_"),
)
def test_a_collective_that_states_seconds(tmp_path, form):
    sound, p = opened(tmp_path, form, {STEPS * OPS + 3: SECONDS})
    assert figures(p) == figures(sound)
    assert any(
        "1 device event (1 on NPU 0, group 1 Communication: hcom_allReduce" in text
        for text in warnings(p)
    )


@pytest.mark.parametrize(
    "form",
    [corrupt.npu_torch_text, corrupt.npu_timeline, corrupt.npu_database],
    ids=lambda form: form.__name__.removeprefix("npu_"),
)
@pytest.mark.parametrize("later", [10**9, -(10**9)])
def test_a_task_at_a_time_that_cannot_be(tmp_path, form, later):
    sound, p = opened(tmp_path, form, later={23: later})
    left, all_of_it = figures(p), figures(sound)
    assert left["steps"] == all_of_it["steps"]
    assert left["recorded"] == pytest.approx(all_of_it["recorded"], abs=0.001)
    # The table of kernels has the right time of it.
    assert left["kernels"] == all_of_it["kernels"] - (0 if form is corrupt.npu_torch_text else 800)
    assert any(
        "1 device event (1 on NPU 0, stream 2; 0.80 ms) begins at an impossible time" in text
        for text in warnings(p)
    )


def test_a_table_that_the_timeline_contradicts(tmp_path):
    folder = msprof.torch_npu(tmp_path / "host_1_20250109084754_ascend_pt", tasks(), steps=STEPS)
    details = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    details.write_bytes(msprof.op_summary(tasks({23: SECONDS}), age="torch", end="\r\n"))
    p = nbprof.load(str(folder))
    assert p.ascend.ops.frame["duration_us"].max() == 800
    assert any(
        text.startswith("1 row of the tables of tasks states another duration than the timeline")
        for text in warnings(p)
    )


def test_a_task_that_runs_long_once_is_left(tmp_path):
    """Of its name too, while another stream goes on."""
    made = tasks({STEPS * OPS - 1: SECONDS})
    made += [
        Task("Cast", "Cast", Decimal(1000 * i + 50), Decimal(30), stream=5, task=500 + i)
        for i in range(400)
    ]
    p = nbprof.load(str(msprof.prof(tmp_path / "PROF_1", made, files=("op_summary",))))
    assert RECORDED not in p.run.trace.args
    assert not any("impossible" in text for text in warnings(p))


def test_a_profile_opens_again_as_it_did(tmp_path, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE", str(tmp_path / "cache"))
    folder = corrupt.npu_torch_text_and_tables(tmp_path, {23: SECONDS}, {})
    seen = []
    for _ in range(2):
        p = nbprof.load(str(folder))
        seen.append((figures(p), str(p.receipt)))
    assert seen[0] == seen[1]
    assert "3,000.00 ms, which is impossible: " in seen[1][1]
