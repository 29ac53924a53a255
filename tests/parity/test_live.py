"""Runs recorded here and now, TensorFlow and JAX on the CPU with and without step markers, held
against XProf on the same files.

Every tool, every row and every column; what a run takes is not compared with anything but XProf's
answer.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from tests.parity.peer import same, tables
from tests.support import xspace_proto
from tests.support.profiles import needed
from tests.support.programs import CONVERTER, run

TF = """
import sys
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(256, activation="relu", name="hidden"), keras.layers.Dense(4, name="scores")])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x, y = np.random.rand(12 * 64, 512).astype("float32"), np.random.randint(0, 4, 12 * 64)
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x * 2 - 1, y), num_parallel_calls=2).batch(64).prefetch(2)
model.fit(data.take(2), verbose=0)
def run(folder, marked):
    batches = iter(data)
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
    tf.profiler.experimental.start(folder, options=options)
    for i in range(10):
        if marked:
            with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
                model.train_function(batches)
        else:
            model.train_function(batches)
    tf.profiler.experimental.stop()
run(sys.argv[1] + "/tf-steps", True)
run(sys.argv[1] + "/tf-plain", False)
"""
JAX = """
import sys
import jax, jax.numpy as jnp
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
w, x = jnp.ones((64, 64)), jnp.ones((32, 64))
train_step(w, x).block_until_ready()
def run(folder, marked):
    global w
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        for i in range(8):
            if marked:
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    w = train_step(w, x).block_until_ready()
            else:
                w = train_step(w, x).block_until_ready()
run(sys.argv[1] + "/jax-steps", True)
run(sys.argv[1] + "/jax-plain", False)
"""
ASK = """
import sys
from pathlib import Path
from xprof.convert import raw_to_tool_data
for path in sorted(Path(sys.argv[1]).rglob("*.xplane.pb")):
    for tool in sys.argv[2].split(","):
        answer, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], tool, {})
        path.with_name(tool + ".json").write_bytes(answer if isinstance(answer, bytes) else answer.encode())
"""
TOOLS = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "memory_profile",
    "pod_viewer",
)
RUNS = ("tf-steps", "tf-plain", "jax-steps", "jax-plain")
STEP_COLUMNS = {
    "stepnum": "name",
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
OP_COLUMNS = {
    "rank": "rank",
    "type": "type",
    "operation": "op",
    "occurrences": "occurrences",
    "total_time": "total_us",
    "avg_time": "avg_us",
    "total_self_time": "self_us",
    "avg_self_time": "avg_self_us",
    "host_total_self_time_percent": "self_fraction",
    "Host_cumulative_total_self_time_percent": "cumulative_fraction",
}
INPUT_COLUMNS = {
    "opName": "op",
    "count": "occurrences",
    "timeInMs": "total_ms",
    "timeInPercent": "total_percent",
    "selfTimeInMs": "self_ms",
    "selfTimeInPercent": "self_percent",
}
INPUT_CATEGORIES = {
    "enqueue_us": "enqueue",
    "demanded_file_read_us": "demanded_file_read",
    "advanced_file_read_us": "advanced_file_read",
    "preprocessing_us": "preprocessing",
    "unclassified_nonequeue_us": "other",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A folder with the four runs, and XProf's answers beside each of them."""
    folder = tmp_path_factory.mktemp("live")
    for framework, code in (("tensorflow", TF), ("jax", JAX)):
        if importlib.util.find_spec(framework) is not None:
            run(code, folder, needs=framework)
    run(ASK, folder, ",".join(TOOLS), needs=CONVERTER)
    for path in sorted(folder.rglob("*.xplane.pb")):
        begin_together(path, path.parent / "together" / path.name)
        run(ASK, path.parent / "together", "memory_profile", needs=CONVERTER)
    return folder


def begin_together(source: Path, target: Path) -> None:
    """The same profile with all lines of a plane beginning at one time: XProf's memory profile
    takes the offset in a line for the time.
    """
    space = xspace_proto.parse(source.read_bytes())
    for plane in space.planes:
        first = min((line.timestamp_ns for line in plane.lines), default=0)
        for line in plane.lines:
            for event in line.events:
                event.offset_ps += (line.timestamp_ns - first) * 1000
            line.timestamp_ns = first
    target.parent.mkdir()
    target.write_bytes(space.SerializeToString())


class Live:
    """One run: our profile, and XProf's answers."""

    def __init__(self, path: Path) -> None:
        self.profile: Profile = load(path)
        self.folder = path.parent
        planes = xspace_proto.parse(path.read_bytes()).planes
        stamps = [
            line.timestamp_ns
            for plane in planes
            if plane.name == "/host:CPU"
            for line in plane.lines
        ]
        self.first_ms = min(stamps, default=0) / 1e6

    def answer(self, tool: str) -> object:
        return json.loads((self.folder / f"{tool}.json").read_text())

    def tables(self, tool: str) -> list[pd.DataFrame]:
        return tables(self.answer(tool))


@pytest.fixture(scope="module", params=RUNS)
def live(request, recorded) -> Live:
    found = [
        path
        for path in (recorded / request.param).rglob("*.xplane.pb")
        if path.parent.name != "together"
    ]
    if not found:
        needed(f"{request.param.partition('-')[0]} is not installed")
    return Live(found[0])


def found_by_program(live) -> bool:
    """Whether the steps are runs of a compiled program, or calls of a function, which XProf does
    not look for.
    """
    return (
        "steps: runs of the program" in str(live.profile.receipt)
        or live.profile.overview["unit"]["kind"] == "call"
    )


def test_the_runs_hold_what_is_compared(live):
    """Else all the tables below could be empty."""
    p, kind = live.profile, live.folder.relative_to(live.folder.parents[3]).parts[0]
    assert len(p.steps.frame) == {
        "tf-steps": 10,
        "tf-plain": 10,
        "jax-steps": 8,
        "jax-plain": 8,
    }.get(kind, 0)
    assert p.overview["framework"] == ("TensorFlow" if kind.startswith("tf") else "JAX")
    if kind.startswith("tf"):
        assert len(p.ops.frame) > 10
        assert len(p.input_pipeline.frame) >= 3
        assert len(p.memory.timeline)


def test_steps(live):
    theirs, ours = live.tables("overview_page")[1], live.profile.steps.as_xprof()
    assert set(theirs.columns) == {*STEP_COLUMNS, "tooltip"}, "every column is compared"
    assert len(ours) == len(theirs)
    for key, column in STEP_COLUMNS.items():
        same(ours[column], theirs[key], column, absolute=1e-9)
    for category in CATEGORIES:
        name = {"input": "infeed", "output": "outfeed"}.get(category, category)
        values = ours[f"{category}_ms"].astype(float)
        rounded(theirs.attrs[f"{name}_time_ms_avg"], values.mean() if len(values) else 0.0)
        rounded(theirs.attrs[f"{name}_time_ms_sdv"], values.std() if len(values) > 1 else 0.0)
    again = live.tables("input_pipeline_analyzer")[1]
    pd.testing.assert_frame_equal(again, theirs)


def rounded(theirs: str, ours: float) -> None:
    """A figure that the peer gives with one decimal."""
    assert abs(float(theirs) - ours) <= 0.05 + 1e-9, (theirs, ours)


def test_the_frame_of_steps_has_the_same_steps_and_the_first_and_last(live):
    """Ours keep the first and the last step, which are told apart; in between they are XProf's."""
    ours, theirs = live.profile.steps.frame, live.profile.steps.as_xprof()
    if found_by_program(live):
        assert not len(theirs), "XProf has no steps where none is marked"
        return
    middle = ours.iloc[1:-1] if len(ours) > 5 else ours
    assert middle["name"].tolist() == theirs["name"].tolist()
    same(middle["step_time_ms"], theirs["step_time_ms"], "step time")
    # XProf has no wait for a batch that no thread asks for yet: it counts as host compute there.
    more = middle["input_ms"].fillna(0.0).to_numpy() - theirs["input_ms"].to_numpy()
    assert (more > -1e-9).all()
    assert (more < theirs["host_compute_ms"].to_numpy() + 1e-9).all()


def test_pods(live):
    answer = live.answer("pod_viewer")
    names = {str(e["id"]): e["name"] for e in answer["stepBreakdownEvents"]}
    ours = live.profile.steps.as_xprof()
    theirs = answer["podStatsSequence"]["podStatsMap"]
    assert len(theirs) == len(ours)
    labels = {
        "device_compute": "Device compute",
        "device_to_device": "Device to device",
        "host_compute": "Host compute",
        "device_collectives": "Device collective communication",
        "kernel_launch": "Kernel launch",
        "input": "Input",
        "output": "Output",
        "compile": "Compilation",
        "other": "All others",
    }
    assert set(labels.values()) == set(names.values())
    for row, step in zip(ours.to_dict("records"), theirs, strict=True):
        (core,) = step["podStatsPerCore"].values()
        assert core["hostName"] == row["host"]
        assert core["totalDurationUs"] == pytest.approx(row["step_time_ms"] * 1000, abs=1e-6)
        parts = {names[ident]: time for ident, time in core["stepBreakdownUs"].items()}
        for category, label in labels.items():
            assert parts[label] == pytest.approx(row[f"{category}_ms"] * 1000, abs=1e-6), label
    frame = live.profile.pods.frame
    assert frame["worker"].nunique() == min(len(frame), 1)
    assert len(frame) == len(live.profile.steps.frame)


@pytest.mark.parametrize("idle", [True, False])
def test_ops(live, idle):
    theirs = live.tables("framework_op_stats")[0 if idle else 1]
    ours = live.profile.ops.as_xprof(with_idle=idle)
    assert len(ours) == len(theirs)
    if not len(theirs):
        return
    assert (
        ours["where"].str.capitalize().tolist()
        == theirs["host_or_device"].tolist()
        == ["Host"] * len(theirs)
    )
    for key, column in OP_COLUMNS.items():
        same(
            ours[column].fillna(0.0) if column.startswith("avg") else ours[column],
            theirs[key],
            column,
        )
    assert ["Eager" if e else "Function" for e in ours["eager"]] == [
        e.removesuffix(" ") for e in theirs["eager"]
    ]


def test_kernels(live):
    assert len(live.tables("kernel_stats")[0]) == len(live.profile.kernels.frame) == 0
    assert "kernels" in live.profile.run.missing, "why there are none is said"


def test_input_pipeline(live):
    theirs, ours = live.tables("input_pipeline_analyzer")[2], live.profile.input_pipeline.frame
    assert len(ours) == len(theirs)
    for key, column in INPUT_COLUMNS.items():
        share = column.endswith("percent")
        same(ours[column] / 100 if share else ours[column], theirs[key], column, absolute=1e-9)
    kinds = {
        "Preprocessing": "preprocessing",
        "Advanced file read": "advanced_file_read",
        "Demanded file read": "demanded_file_read",
    }
    assert ours["category"].tolist() == [kinds.get(k, "enqueue") for k in theirs["category"]]
    five = live.profile.input_pipeline.categories.set_index("category")["time_ms"]
    for key, category in INPUT_CATEGORIES.items():
        # XProf has 0 for kinds of input work that JAX does not record.
        unknown = live.profile.overview["framework"] == "JAX" and pd.isna(five[category])
        assert float(theirs.attrs[key]) == (
            0.0 if unknown else pytest.approx(five[category] * 1000, abs=6e-4)
        ), key


def test_memory_profile(live):
    theirs = live.answer("together/memory_profile")["memoryProfilePerAllocator"]
    p = live.profile
    assert sorted(p.memory.summary["memory_id"]) == sorted(theirs)
    # The steps of these frames are the recorder's groups, as XProf's; `p.memory` has their numbers.
    for one in p.run.memory_summary.to_dict("records"):
        peer = theirs[one["memory_id"]]
        told, peak = peer["profileSummary"], peer["profileSummary"]["peakStats"]
        assert one["lifetime_peak_bytes"] == int(told["peakBytesUsageLifetime"])
        assert one["capacity_bytes"] == int(told["memoryCapacity"])
        for key, column in (("peakBytesInUse", "peak"), ("stackReservedBytes", "peak_stack")):
            assert one[f"{column}_bytes"] == int(peak[key])
        assert (one["peak_heap_bytes"], one["peak_free_bytes"]) == (
            int(peak["heapAllocatedBytes"]),
            int(peak["freeMemoryBytes"]),
        )
        assert one["peak_fragmentation"] == pytest.approx(peak["fragmentation"], rel=1e-6)
        rows = p.run.memory_timeline
        rows = rows[rows["memory_id"] == one["memory_id"]]
        points = peer["sampledTimelineSnapshots"]
        assert 0 < len(points) <= 1000
        assert len(points) == len(rows), "short enough to be given whole"
        of = [s["activityMetadata"] for s in points]
        state = [s["aggregationStats"] for s in points]
        begin = live.first_ms
        same(
            rows["time_ms"] - begin,
            [int(s["timeOffsetPs"]) / 1e9 for s in points],
            "time",
            absolute=1e-9,
        )
        assert one["peak_time_ms"] - begin == pytest.approx(
            int(told["peakStatsTimePs"]) / 1e9, abs=1e-9
        )
        assert [x["memoryActivity"].lower() for x in of] == rows["event"].tolist()
        same(rows["requested_bytes"], [int(x["requestedBytes"]) for x in of], "requested")
        same(rows["allocated_bytes"].abs(), [int(x["allocationBytes"]) for x in of], "allocated")
        same(rows["op"], [x["tfOpName"] for x in of], "op")
        same(rows["region_type"], [x["regionType"] for x in of], "region")
        same(rows["data_type"], [x["dataType"] for x in of], "data type")
        same(rows["shape"], [x["tensorShape"] for x in of], "shape")
        same(rows["group"], [int(x["stepId"]) for x in of], "step")
        same(rows["heap_bytes"], [int(x["heapAllocatedBytes"]) for x in state], "heap")
        same(rows["stack_bytes"], [int(x["stackReservedBytes"]) for x in state], "stack")
        same(rows["free_bytes"], [int(x["freeMemoryBytes"]) for x in state], "free")
        alive = p.memory.peak[p.memory.peak["memory_id"] == one["memory_id"]]
        assert (alive["allocated_bytes"] * alive["occurrences"]).sum() == one["peak_bytes"]
        # Of equal peaks in two steps XProf takes the figures of one and lists the blocks of the
        # other's step; ours are of one moment.
        if (
            rows.loc[rows["in_use_bytes"] == one["peak_bytes"], "group"].iloc[-1]
            != one["peak_group"]
        ):
            continue
        blocks = [
            peer["memoryProfileSnapshots"][int(a["snapshotIndex"])]["activityMetadata"]
            if int(a["snapshotIndex"]) >= 0
            else peer["specialAllocations"][int(a["specialIndex"])]
            for a in peer["activeAllocations"]
        ]
        counts = [int(a["numOccurrences"]) for a in peer["activeAllocations"]]
        same(alive["occurrences"], counts, f"occurrences of {alive.to_dict('records')}, {blocks}")
        same(alive["op"], [b["tfOpName"] for b in blocks], "op at the peak")
        same(
            alive["allocated_bytes"],
            [int(b["allocationBytes"]) for b in blocks],
            "bytes at the peak",
        )
        same(alive["region_type"], [b["regionType"] for b in blocks], "region at the peak")
        same(alive["data_type"], [b["dataType"] for b in blocks], "data type at the peak")
        same(alive["shape"], [b["tensorShape"] for b in blocks], "shape at the peak")


def test_overview(live):
    analysis, steps = live.tables("overview_page")[:2]
    p = live.profile
    told = p.overview
    for side in ("host", "device"):
        theirs = float(analysis.attrs[f"{side}_tf_op_percent"].rstrip("%"))
        rounded(str(theirs), told[f"{side}_op_percent"] or 0.0)
    rounded(
        analysis.attrs["host_op_time_eager_percent"].rstrip("%"), told["eager_host_percent"] or 0.0
    )
    assert len(analysis) == 0, "the ten ops are those of a device"
    times = p.steps.as_xprof()["step_time_ms"].astype(float)
    rounded(steps.attrs["steptime_ms_average"], times.mean() if len(times) else 0.0)
    rounded(steps.attrs["steptime_ms_standard_deviation"], times.std() if len(times) > 1 else 0.0)
    rounded(steps.attrs["steptime_ms_minimum"], times.min() if len(times) else 0.0)
    rounded(steps.attrs["steptime_ms_maximum"], times.max() if len(times) else 0.0)
    assert steps.attrs["hardware_type"] == "CPU_ONLY"
    assert told["devices"] == 0
    unknown = "No step time measured" in steps.attrs["input_conclusion"]
    assert (told["step_time_ms"] is None) == (unknown and not found_by_program(live))
