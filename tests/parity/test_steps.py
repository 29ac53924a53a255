"""The step table, held against XProf (`as_xprof`) and against what TensorFlow wrote when the
profiles were recorded (`frame`).
"""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps import steps as analysis
from nbprof.core.files import LocalFile
from nbprof.dialects.xplane.grouping import group
from nbprof.dialects.xplane.xplane import _name_lanes
from nbprof.formats.xspace import xspace
from tests.analysis.test_bad_steps import gpu_plane, host_steps, marked_host
from tests.analysis.test_honest import gpu_without_steps_line
from tests.parity.peer import GUIDE_NAMES, NAMES, guide, profile, same, tables, xprof
from tests.parity.test_pods import answer
from tests.support.build import profile as made
from tests.support.profiles import real
from tests.support.xspace import gpu_run
from tests.support.xspace import xspace as write

COLUMNS = {
    "deviceComputeTimeMs": "device_compute_ms",
    "deviceToDeviceTimeMs": "device_to_device_ms",
    "deviceCollectivesTimeMs": "device_collectives_ms",
    "hostComputeTimeMs": "host_compute_ms",
    "kernelLaunchTimeMs": "kernel_launch_ms",
    "infeedTimeMs": "input_ms",
    "outfeedTimeMs": "output_ms",
    "compileTimeMs": "compile_ms",
    "otherTimeMs": "other_ms",
    "stepTimeMs": "step_time_ms",
}
PROPERTIES = {
    "device_compute": "device_compute_ms",
    "device_to_device": "device_to_device_ms",
    "device_collectives": "device_collectives_ms",
    "host_compute": "host_compute_ms",
    "kernel_launch": "kernel_launch_ms",
    "infeed": "input_ms",
    "outfeed": "output_ms",
    "compile": "compile_ms",
    "other": "other_ms",
}
LABELS = ["All others", "Compilation", "Output", "Input", "Kernel launch", "Host compute"]
LABELS += ["Device collectives", "Device to device", "Device compute"]
GUIDE_FIELDS = {
    "step_time_ms": lambda row: row["step_time_ms"],
    "unknown_time_ms": lambda row: row["other_ms"],
    "device_compute_ms": lambda row: row["device_compute_ms"],
    "device_to_device_ms": lambda row: row["device_to_device_ms"],
    "host_compute_ms": lambda row: row["host_compute_ms"],
    "host_prepare_ms": lambda row: row["kernel_launch_ms"],
    "host_compile_ms": lambda row: row["compile_ms"],
    "host_wait_input_ms": lambda row: row["input_ms"] - row["host_to_device_ms"],
    "host_to_device_ms": lambda row: row["host_to_device_ms"],
    "device_to_host_ms": lambda row: row["output_ms"],
}


@pytest.mark.parametrize("tool", ["input_pipeline_analyzer", "overview_page"])
@pytest.mark.parametrize("name", NAMES)
def test_every_row_and_column_of_xprof(name, tool):
    theirs, ours = xprof(name, tool)[1], profile(name).steps.as_xprof()
    assert len(ours) == len(theirs)
    if not len(theirs):
        return
    assert set(theirs.columns) == {*COLUMNS, "stepnum", "tooltip"}
    same(ours["name"], theirs["stepnum"], "name")
    for column, mine in COLUMNS.items():
        same(ours[mine], theirs[column], mine)
    for row, tooltip in zip(ours.to_dict("records"), theirs["tooltip"], strict=True):
        values = [row[c] for c in list(COLUMNS.values())[8::-1]]
        text = f"Step {row['name']}, duration: {row['step_time_ms']:.2f} ms"
        assert (
            text
            + "".join(f"\n-{label}: {v:.2f} ms" for label, v in zip(LABELS, values, strict=True))
            == tooltip
        )


@pytest.mark.parametrize("tool", ["input_pipeline_analyzer", "overview_page"])
@pytest.mark.parametrize("name", NAMES)
def test_the_averages_of_xprof(name, tool):
    theirs, ours = xprof(name, tool)[1].attrs, profile(name).steps.as_xprof()
    if not len(ours):
        # "-nan" or 0 stand for no steps there.
        assert float(theirs.get("steptime_ms_average", "0.0")) == 0.0
        return

    def mean_and_deviation(column):
        values = ours[column]
        # Of one step XProf prints 0, or "-nan" where the category has no time.
        deviation = [f"{values.std():.1f}"] if len(values) > 1 else ["0.0", "-nan", "nan"]
        return f"{values.mean():.1f}", deviation

    average, deviation = mean_and_deviation("step_time_ms")
    assert theirs["steptime_ms_average"] == average
    assert theirs["steptime_ms_standard_deviation"] in deviation
    assert theirs["steptime_ms_minimum"] == f"{ours['step_time_ms'].min():.1f}"
    assert theirs["steptime_ms_maximum"] == f"{ours['step_time_ms'].max():.1f}"
    for key, column in PROPERTIES.items():
        average, deviation = mean_and_deviation(column)
        assert theirs[f"{key}_time_ms_avg"] == average, key
        assert theirs[f"{key}_time_ms_sdv"] in deviation, key


@pytest.mark.parametrize("tool", ["input_pipeline", "overview_page"])
@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_every_step_of_the_guides_tools(name, tool):
    theirs = guide(name, tool)
    theirs = theirs if tool == "input_pipeline" else theirs["input_analysis"]
    details = theirs.get("step_details", [])
    if not details:
        assert not theirs["step_time_summary"], "no steps, no averages"
        return
    activity = profile(name).run.activity
    # Undone is this alone: their tools did not know the copies of their time (MemcpyH2D) for
    # copies, and counted them as compute.
    ours = analysis.frame(activity, activity.xprof_work.frame())
    same(ours["group"], [d.get("step_number", 0) for d in details], "group")
    assert {key for d in details for key in d} <= {
        *GUIDE_FIELDS,
        "@type",
        "step_number",
        "step_name",
    }
    for field, value in GUIDE_FIELDS.items():
        same(
            [0.0 if np.isnan(v := value(row)) else v for row in ours.to_dict("records")],
            [d.get(field, 0.0) for d in details],
            field,
            absolute=1e-9,
        )
    summary, times = theirs["step_time_summary"], ours["step_time_ms"]
    deviation = times.std() if len(times) > 1 else 0.0
    same(
        [times.mean(), deviation, times.min(), times.max()],
        [
            summary[k] if k != "standard_deviation" else summary.get(k, 0.0)
            for k in ("average", "standard_deviation", "minimum", "maximum")
        ],
        "summary",
    )


@pytest.mark.parametrize("name", GUIDE_NAMES[:4])
def test_copies_of_old_files_are_copies(name):
    activity = profile(name).run.activity
    ours, theirs = profile(name).steps.frame, analysis.frame(activity, activity.xprof_work.frame())
    assert ours["step_time_ms"].tolist() == theirs["step_time_ms"].tolist()
    moved = ours["host_to_device_ms"] + ours["output_ms"] + ours["device_to_device_ms"]
    assert moved.sum() > 0
    assert not theirs[["host_to_device_ms", "output_ms", "device_to_device_ms"]].any(axis=None)
    less = theirs["device_compute_ms"] - ours["device_compute_ms"]
    # A copy to the device has a smaller class than waiting for input, in which it may be hidden.
    assert (less >= moved - 1e-9).all()
    parts = ours[[f"{c}_ms" for c in CATEGORIES]].fillna(0.0).sum(axis=1)
    assert parts.to_numpy() == pytest.approx(ours["step_time_ms"].to_numpy(), abs=1e-9)


def test_host_work_is_part_of_the_steps_of_a_gpu(tmp_path):
    p = made(tmp_path, gpu_run())
    ours, theirs = p.steps.frame.iloc[0], p.steps.as_xprof().iloc[0]
    assert (ours["kernel_launch_ms"], ours["step_time_ms"], ours["other_ms"]) == (2.0, 10.0, 2.0)
    assert (theirs["kernel_launch_ms"], theirs["step_time_ms"], theirs["other_ms"]) == (
        0.0,
        8.0,
        2.0,
    )
    assert (ours["name"], theirs["name"]) == ("train 5", "1")


def test_steps_of_the_host_where_a_gpu_recorded_nothing():
    steps = profile("tf-cpu/prefetch-128-empty-gpu-plane").steps.frame
    assert steps["name"].tolist() == [f"train {n}" for n in range(109, 128)], (
        "before and after them are eager ops that no mark is around"
    )
    assert steps[["device_compute_ms", "kernel_launch_ms", "output_ms"]].isna().all(axis=None)
    assert (steps["host_compute_ms"] > 0).all()


def test_an_eager_op_is_no_step_but_the_recording_is_the_unit():
    """The recorder made a group of one call, `EagerKernelExecute 0`, as it would of each op of an
    eager loop. The program marked nothing.
    """
    p = profile("tf-cpu/prefetch-example")
    assert p.steps.frame["name"].tolist() == ["recording"]
    assert p.overview["unit"]["kind"] == "recording"
    assert p.steps.as_xprof().empty


@pytest.mark.parametrize("name", NAMES[:3])
def test_stored_groups_come_back_when_they_are_recomputed(name):
    trace = xspace.read([LocalFile(next(real(name).glob("*.xplane.pb")))])
    _name_lanes(trace)
    stored, step_name = trace.arg("group_id"), trace.text_arg("step_name")
    trace.args = {
        key: column for key, column in trace.args.items() if key not in ("group_id", "step_name")
    }
    again = group(trace, trace.names)
    raw = np.isin(trace.lanes["kind"].to_numpy(), ["host", "device"])[trace.events.lane]
    found = raw & (again.group >= 0)
    assert (again.group[found] == stored[found]).all()
    lost = np.flatnonzero(raw & (stored >= 0) & ~found)
    # The recorder of that time also took eager ops outside of any step for roots: at most these 13
    # events before and after the steps.
    above = trace.events.parent[lost]
    names = trace.names[trace.events.name]
    launched = trace.arg("correlation_id")[lost] > 0
    assert (launched | np.isin(above, lost) | (names[lost] == "EagerKernelExecute")).all()
    assert len(lost) == 13
    told = {
        int(stored[e]): trace.strings[step_name[e]]
        for e in np.flatnonzero((step_name >= 0) & (stored >= 0)).tolist()
    }
    assert told == {ident: text for (_, ident), text in again.names.items()}


IDLE_STEP = [(g, 10 * g + 2, 10 * g + 6) for g in (0, 1, 3)]
FIRST, SECOND = [(0, 0, 10), (1, 10, 20)], [(0, 0, 6), (1, 10, 24), (2, 24, 30)]
ODD = {
    "two GPUs with unequal steps": lambda: write(
        gpu_plane(0, FIRST, FIRST), gpu_plane(1, SECOND, SECOND)
    ),
    "a step without device work": lambda: write(
        gpu_plane(0, IDLE_STEP, IDLE_STEP),
        marked_host([(g, 10 * g, 10 * g + 10) for g in range(4)]),
    ),
    "stored groups without a Steps line": lambda: write(
        gpu_plane(0, [(0, 0, 4), (1, 5, 6), (0, 7, 9)])
    ),
    "no stored groups and no Steps line": gpu_without_steps_line,
    "an empty GPU": lambda: write(gpu_plane(0, []), marked_host([(0, 0, 10)])),
    "steps on the host with gaps": lambda: host_steps((0, 10), (10, 10), (25, 10)),
    "one step": lambda: host_steps((0, 10)),
    "five steps": lambda: host_steps(*[(10 * i, 10) for i in range(5)]),
    "six steps": lambda: host_steps(*[(10 * i, 10) for i in range(6)]),
    "a step without time": lambda: host_steps((0, 10), (12, 0), (14, 10)),
    "steps without work": lambda: host_steps((0, 10), (10, 10), work=False),
    "host and GPU": gpu_run,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_as_xprof_reads_them_now(tmp_path, name):
    ours = made(tmp_path, ODD[name]()).steps.as_xprof()
    theirs = tables(answer("input_pipeline_analyzer", *tmp_path.glob("*.xplane.pb")))[1]
    assert len(ours) == len(theirs)
    for column, mine in {"stepnum": "name", **COLUMNS}.items() if len(theirs) else ():
        same(ours[mine], theirs[column], mine)
