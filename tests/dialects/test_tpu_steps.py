"""Steps of TPU cores: their lines, their groups, what their ops count for."""

from __future__ import annotations

import pytest

from nbprof.profiles.load import load
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace


def core(number, ops, steps=(), modules=(), name="/device:TPU:{}"):
    """A core with ops at (name, start, end) and steps or modules at (name, start, end, args), in
    ms.
    """
    plane = PlaneWriter(name.format(number))
    if steps:
        plane.line(
            "Steps",
            [plane.event(n, a * MS, (b - a) * MS, **more) for n, a, b, more in steps],
            line_id=1,
        )
    if modules:
        plane.line(
            "XLA Modules",
            [plane.event(n, a * MS, (b - a) * MS, **more) for n, a, b, more in modules],
            line_id=2,
        )
    plane.line("XLA Ops", [plane.event(n, a * MS, (b - a) * MS) for n, a, b in ops], line_id=3)
    return plane


FUSION = "%fusion.1 = f32[8,8]{1,0} fusion(f32[8,8]{1,0} %p0)"


def times(row):
    named = {
        c.removesuffix("_ms"): row[c]
        for c in row.index
        if c.endswith("_ms") and c not in ("start_ms", "host_to_device_ms", "waiting_ms")
    }
    return {c: v for c, v in named.items() if v}


def test_ops_count_by_what_they_do(tmp_path):
    ops = [
        ("%infeed.1 = f32[8] infeed(token[] %t)", 0, 1),
        (FUSION, 1, 3),
        ("%fusion.2 = bf16[8,8]{1,0} fusion(bf16[8,8]{1,0} %p0)", 3, 7),
        ("%all-reduce.3 = f32[8] all-reduce(f32[8] %x)", 7, 10),
        ("%collective-permute-done.1 = f32[8] collective-permute-done(f32[8] %x)", 10, 11),
        ("%send.1 = f32[8] send(f32[8] %x)", 11, 12),
        ("%recv-done.1 = f32[8] recv-done(f32[8] %x), is_host_transfer=true", 12, 14),
        ("%copy-done.4 = f32[8] copy-done(f32[8] %x)", 14, 15),
        ("%outfeed.1 = token[] outfeed(f32[8] %x)", 15, 17),
    ]
    p = profile(
        tmp_path, xspace(core(0, ops, [("7", 0, 20, {"group_id": 0, "step_name": "train 7"})]))
    )
    row = p.steps.frame.iloc[0]
    assert (row["name"], row["step"]) == ("train 7", 7)
    assert times(row.dropna()) == {
        "step_time": 20,
        "device_compute": 6,
        "device_collectives": 4,
        "device_to_device": 2,
        "input": 3,
        "output": 2,
        "other": 3,
    }
    assert row[["host_compute_ms", "kernel_launch_ms", "compile_ms"]].isna().all(), (
        "no host was recorded"
    )
    assert p.overview["compute_16bit_percent"] == pytest.approx(100 * 4 / 6)
    assert p.run.activity.has_device


def test_a_core_that_a_damaged_file_has_twice_is_one_device(tmp_path):
    twice = [core(number, [(FUSION, 1, 3)], [("7", 0, 4, {"group_id": 0})]) for number in (0, 1, 0)]
    p = profile(tmp_path, xspace(*twice))
    assert p.devices["device"].tolist() == [0, 1]
    assert p.pods.cores["worker"].tolist() == ["host-a:0", "host-a:1"]
    assert "repeated_device" in set(p.receipt.notes["key"])


@pytest.mark.parametrize(
    ("op", "category"),
    [
        (
            "%copy-done.4 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:T(8)S(5)}, u32[]{:S(2)}) %copy-start.4)",
            "input",
        ),
        (
            "%copy-done.5 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]{:S(2)}) %copy-start.5)",
            "output",
        ),
        (
            "%copy-start.5 = (f32[8]{0:S(5)}, f32[8]{0}, u32[]{:S(2)}) copy-start(f32[8]{0} %x)",
            "output",
        ),
        ("%copy.1 = f32[8]{0} copy(f32[8]{0:S(5)} %x)", "input"),
        ("%copy.2 = f32[8]{0:S(1)} copy(f32[8]{0} %x)", "device_to_device"),
        (
            "%copy-done.6 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0:S(5)}, u32[]) %x)",
            "device_to_device",
        ),
    ],
)
def test_copies_from_and_to_the_memory_of_the_host(tmp_path, op, category):
    p = profile(
        tmp_path, xspace(core(0, [(FUSION, 0, 1), (op, 1, 3)], [("7", 0, 4, {"group_id": 0})]))
    )
    assert p.steps.frame[f"{category}_ms"].tolist() == [2.0]


def test_an_op_that_runs_others_counts_where_they_do_not(tmp_path):
    ops = [
        ("%while.1 = f32[8] while(f32[8] %x)", 0, 10),
        ("%all-reduce.1 = f32[8] all-reduce(f32[8] %x)", 2, 5),
        (FUSION, 6, 7),
    ]
    p = profile(tmp_path, xspace(core(0, ops, [("0", 0, 10, {"group_id": 0})])))
    row = p.steps.frame.iloc[0]
    assert (row["device_collectives_ms"], row["device_compute_ms"], row["other_ms"]) == (
        3.0,
        7.0,
        0.0,
    )


def test_cores_that_no_host_reached_are_grouped_in_lock_step(tmp_path):
    cores = [
        core(
            c,
            [(FUSION, 10 * i, 10 * i + 4 + c) for i in range(n)],
            [(str(30 + i), 10 * i, 10 * i + 5 + c, {}) for i in range(n)],
        )
        for c, n in ((0, 4), (1, 3))
    ]
    p = profile(tmp_path, xspace(*cores))
    steps = p.steps.frame
    assert steps["step"].tolist() == [30, 31, 32], "only steps that all cores have"
    assert steps["step_time_ms"].tolist() == [6.0] * 3, "as long as on the slowest core"
    assert steps["device_compute_ms"].tolist() == [5.0] * 3
    pods, summary = p.pods.frame, p.pods.summary
    assert pods["worker"].tolist() == ["host-a:0", "host-a:1"] * 3
    assert pods["device_compute_ms"].tolist() == [4.0, 5.0] * 3
    assert summary["slowest"].tolist() == ["host-a:1"] * 3
    assert summary["spread_percent"].tolist() == pytest.approx([100 / 6] * 3)
    assert p.steps.as_xprof()["step_time_ms"].tolist() == [6.0] * 3


def test_neighbours_of_one_group_are_one_step(tmp_path):
    parts = [
        ("0", 0, 4, {"group_id": 5}),
        ("0", 4, 9, {"group_id": 5}),
        ("1", 9, 20, {"group_id": 6}),
        ("2", 20, 24, {}),
    ]
    p = profile(tmp_path, xspace(core(0, [(FUSION, i, i + 1) for i in range(24)], parts)))
    assert p.steps.frame["step_time_ms"].tolist() == [9.0, 11.0], (
        "what is in no group is no step where others are"
    )


def test_a_program_joins_the_group_of_the_call_that_enqueued_it(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(3):
        events.append(host.event("train", 20 * i * MS, 19 * MS, step_num=70 + i, _r=1))
        key = {"device_ordinal": 0, "queue_id": 9, "run_id": (1 << 27) + i}
        events.append(host.event("DoEnqueueProgram", 20 * i * MS, MS, **key))
        events.append(host.event("dense/MatMul:MatMul", 20 * i * MS + 2 * MS, MS))
    host.line("python", events, line_id=1)
    steps = [(str(i), 20 * i + 1, 20 * i + 18, {}) for i in range(3)]
    modules = [
        ("jit_f(1)", 20 * i + 1, 20 * i + 18, {"queue_id": 9, "run_id": i}) for i in range(3)
    ]
    ops = [(FUSION, 20 * i + 4, 20 * i + 14) for i in range(3)]
    p = profile(tmp_path, xspace(core(0, ops, steps, modules), host))
    found = p.steps.frame
    assert found["name"].tolist() == ["train 70", "train 71", "train 72"]
    assert found["step_time_ms"].tolist() == [19.0] * 3, (
        "the marker of the host lies around that of the core"
    )
    assert found["device_compute_ms"].tolist() == [10.0] * 3
    assert found["host_compute_ms"].tolist() == [2.0] * 3


def test_helpers_beside_the_cores_have_no_part_in_the_steps(tmp_path):
    tensor = core(0, [(FUSION, 0, 4)], [("0", 0, 5, {"group_id": 0})])
    sparse = core(
        0, [(FUSION, 0, 90)], [("0", 0, 90, {"group_id": 0})], name="/device:TPU:{} SparseCore 0"
    )
    p = profile(tmp_path, xspace(tensor, sparse))
    assert p.steps.frame["step_time_ms"].tolist() == [5.0]
    assert p.devices["kind"].tolist() == ["TPU", "SparseCore"]
    assert p.overview["devices"] == 1
    assert p.trace.lanes["process"].unique().tolist() == ["TPU 0", "TPU 0 SparseCore 0"]


def test_a_profile_with_programs_but_no_steps_says_so(tmp_path):
    p = profile(tmp_path, xspace(core(0, [(FUSION, 0, 4)], modules=[("jit_f(1)", 0, 5, {})])))
    assert not len(p.steps.frame)
    assert p.run.missing["steps"].startswith(
        "The TPU recorded runs of programs and ops, but no steps"
    )
    assert "GPU kernels are recorded only on GPUs" in p.run.missing["kernels"]


def test_runs_of_the_dominant_program_are_steps_where_none_are_marked(tmp_path):
    """Two cores, of which the second ends each run 2 ms later; a program that runs once is none,
    and a run that one core alone has is none.
    """
    cores = [
        core(
            c,
            [(FUSION, 10 * i, 10 * i + 6) for i in range(5 - c)],
            modules=[
                ("jit_init(7)", -5, -4, {}),
                *(("jit_f(12)", 10 * i, 10 * i + 7 + 2 * c, {}) for i in range(5 - c)),
            ],
        )
        for c in (0, 1)
    ]
    p = profile(tmp_path, xspace(*cores))
    steps = p.steps.frame
    assert steps["name"].tolist() == ["f 1", "f 2", "f 3", "f 4"]
    assert steps["step_time_ms"].tolist() == [9.0, 10.0, 10.0, 10.0], (
        "from the end of the run before, on the last core, to its own"
    )
    assert steps["device_compute_ms"].tolist() == [6.0] * 4
    assert p.pods.frame["worker"].tolist() == ["host-a:0", "host-a:1"] * 4
    assert p.pods.frame["step_time_ms"].tolist() == [7.0, 9.0, *[10.0] * 6], (
        "each core from its own end to its own"
    )
    assert p.pods.frame["device_compute_ms"].tolist() == [6.0] * 8
    assert "steps: runs of the program jit_f" in str(p.receipt)
    assert not len(p.steps.as_xprof()), "XProf has none"


def test_the_real_one_has_the_runs_of_its_program_as_steps():
    p = load(real("jax/tpu-v6e-inference"))
    steps = p.steps.frame
    assert steps["name"].tolist() == [f"f {n}" for n in range(1, 101)]
    assert steps["warmup"].tolist() == [True] + [False] * 99, (
        "the first begins with the call and holds what came before"
    )
    assert 675 < steps["step_time_ms"].iloc[1:].min() <= steps["step_time_ms"].iloc[1:].max() < 990
    assert (steps["other_ms"] < 1).all(), "the cores work all the time"
    used = steps[steps["counted"]]
    assert used["device_to_device_ms"].sum() == 0, (
        "the program keeps its arrays in the memory of the host"
    )
    assert 0.7 < used["input_ms"].sum() / used["step_time_ms"].sum() < 0.8
    assert (used["host_to_device_ms"] == used["input_ms"]).all()
    assert 0.2 < used["output_ms"].sum() / used["step_time_ms"].sum() < 0.3
    assert p.overview["verdict"] == "Input-bound"
    assert "copied from host memory" in p.overview["verdict_detail"]
    pods = p.pods.frame
    ends = (pods["start_ms"] + pods["step_time_ms"]).groupby(pods["step"])
    assert len(pods) == 400
    assert ends.max().to_numpy() == pytest.approx(
        (steps["start_ms"] + steps["step_time_ms"]).to_numpy()
    ), "a step ends with the last core"
    assert 10 < p.pods.summary["spread_percent"].mean() < 20, "no core waits for another"
    assert not len(p.steps.as_xprof())
