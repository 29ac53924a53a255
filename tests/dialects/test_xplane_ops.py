"""Ops of GPUs, TPUs and host threads in XSpace files, also in the shapes that a file should not
have.
"""

from __future__ import annotations

import pytest

from nbprof.profiles.load import load
from tests.support.build import profile
from tests.support.hlo import computation, instruction, metadata_plane, program
from tests.support.xspace import MS, PlaneWriter, UInt, chunk, xspace

US = MS // 1000
DETAIL = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"
NVIDIA = {
    "device_vendor": "Nvidia",
    "compute_cap_major": 8,
    "compute_cap_minor": 0,
    "core_count": 100,
    "clock_rate": 1_000_000,
}
JIT = program(
    "jit_f",
    computation(
        "main",
        instruction(
            "loop_add_fusion", "fusion", "jit(f)/enc/add", kind="kLoop", source="model.py:3"
        ),
        instruction("dot.1", "dot", "jit(f)/dot_general", "dot_general"),
        instruction("bare_fusion", "fusion", kind="kInput"),
    ),
)


def gpu(*events, stats=None, streams=1, **more):
    plane = PlaneWriter("/device:GPU:0", {**NVIDIA, "memory_bandwidth": 10**12, **(stats or {})})
    made = [plane.event(name, at, length, **stated) for name, at, length, stated in events]
    for stream in range(streams):
        plane.line(f"Stream #{stream + 7}(Compute)", made[stream::streams], line_id=stream + 7)
    return plane


def xla(op, ident=3, **stats):
    return {
        "hlo_op": op,
        "hlo_module": "jit_f",
        "program_id": ident,
        "kernel_details": DETAIL,
        "tf_op": "XlaModule:",
        **stats,
    }


def device(p, *columns):
    table = p.ops.frame
    return table[table["where"] == "device"][list(columns)].to_numpy().tolist()


def idle(p, where="device"):
    table = p.ops.with_idle
    return table[(table["where"] == where) & (table["op"] == "IDLE")]["self_us"].tolist()


def test_a_kernel_is_the_op_that_the_compiler_noted(tmp_path):
    plane = gpu(
        ("k1", 0, 4 * US, xla("loop_add_fusion")),
        ("k2", 10 * US, 8 * US, xla("while.1::dot.1")),
        ("k3", 20 * US, 2 * US, xla("bare_fusion")),
    )
    p = profile(tmp_path, xspace(plane, metadata_plane(jit_f=(3, JIT))))
    assert device(p, "op", "type", "occurrences", "self_us") == [
        ["jit(f)/dot_general", "dot_general", 1, 8.0],
        ["jit(f)/enc/add", "add", 1, 4.0],
        ["bare_fusion", "Unknown", 1, 2.0],
    ]
    assert idle(p) == [22.0 - 14.0]
    parts = p.run.activity.op_parts.frame()
    assert parts["category"].tolist() == ["loop fusion", "dot", "input fusion"]
    assert parts["source"].tolist() == ["model.py:3", "", ""]
    assert p.ops.as_xprof()["op"].tolist() == p.ops.frame["op"].tolist()


def test_idents_are_the_same_signed_or_not(tmp_path):
    ident = -6255983156473747731
    plane = gpu(("k", 0, US, xla("dot.1", UInt(ident + (1 << 64)))))
    p = profile(tmp_path, xspace(plane, metadata_plane(jit_f=(ident, JIT))))
    assert device(p, "op") == [["jit(f)/dot_general"]]


def test_equal_idents_on_two_hosts_are_two_programs(tmp_path):
    other = program("jit_g", computation("main", instruction("dot.1", "dot", "jit(g)/dot_general")))
    for name, data in (("a", JIT), ("b", other)):
        plane = gpu(("k", 0, US, xla("dot.1")))
        (tmp_path / f"{name}.xplane.pb").write_bytes(
            xspace(plane, metadata_plane(jit_f=(3, data)), hostname=name)
        )
    assert sorted(device(load(tmp_path), "op")) == [["jit(f)/dot_general"], ["jit(g)/dot_general"]]


def test_a_program_that_is_not_in_the_file(tmp_path):
    p = profile(
        tmp_path, xspace(gpu(("k", 0, 3 * US, xla("dot.1", 9))), metadata_plane(jit_f=(3, JIT)))
    )
    assert device(p, "op", "type", "self_us") == [["dot.1", "Unknown", 3.0]]
    assert "missing_programs" in set(p.receipt.notes["key"])
    # XProf leaves such kernels out.
    assert p.ops.as_xprof()["op"].tolist() == []
    assert p.ops.as_xprof(with_idle=True)["self_us"].tolist()[0] == 3.0


@pytest.mark.parametrize("damage", [JIT[:-3], JIT[:40] + b"\xff" * 8 + JIT[48:], b"\x0a\x7f"])
def test_a_damaged_program_costs_the_names_alone(tmp_path, damage):
    plane = gpu(("k", 0, 3 * US, xla("dot.1")), ("k", 5 * US, US, xla("loop_add_fusion")))
    p = profile(tmp_path, xspace(plane, metadata_plane(jit_f=(3, damage))))
    assert device(p, "op", "self_us") == [["dot.1", 3.0], ["loop_add_fusion", 1.0]]
    notes = p.receipt.notes.set_index("key")
    assert notes.loc["damaged_program", "level"] == "warning"
    assert "jit_f is damaged" in notes.loc["damaged_program", "text"]


def test_programs_are_read_only_when_their_ops_ran(tmp_path):
    p = profile(
        tmp_path,
        xspace(
            gpu(("k", 0, US, xla("dot.1"))),
            metadata_plane(jit_f=(3, JIT), jit_other=(4, b"\x0a\x7f")),
        ),
    )
    assert device(p, "op") == [["jit(f)/dot_general"]]
    assert "damaged_program" not in set(p.receipt.notes["key"])


def test_an_op_ran_as_often_as_its_most_frequent_kernel(tmp_path):
    dense = {"tf_op": "dense/MatMul:MatMul", "kernel_details": DETAIL}
    plane = gpu(
        ("gemm", 0, 5 * US, dense),
        ("bias", 6 * US, US, dense),
        ("gemm", 10 * US, 5 * US, dense),
        ("gemm", 20 * US, 5 * US, dense),
    )
    p = profile(tmp_path, xspace(plane))
    assert device(p, "op", "type", "occurrences", "total_us", "avg_us") == [
        ["dense/MatMul", "MatMul", 3, 16.0, pytest.approx(16 / 3)]
    ]


def test_kernels_without_an_op_are_idle_time(tmp_path):
    plane = gpu(("k", 0, 4 * US, {"kernel_details": DETAIL}), ("MemcpyHToD", 6 * US, 2 * US, {}))
    p = profile(tmp_path, xspace(plane))
    assert device(p, "op") == []
    assert idle(p) == [8.0]


def test_an_empty_gpu_plane_was_idle_for_no_time(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("dense/MatMul:MatMul", 0, US)])
    p = profile(tmp_path, xspace(PlaneWriter("/device:GPU:0", NVIDIA), host))
    assert idle(p) == [0.0]
    assert p.ops.frame["where"].tolist() == ["host"]
    assert p.ops.as_xprof(with_idle=True)["op"].tolist() == ["IDLE", "dense/MatMul", "IDLE"]


def test_streams_at_once_leave_no_idle_below_zero(tmp_path):
    op = {"tf_op": "a:A", "kernel_details": DETAIL}
    p = profile(tmp_path, xspace(gpu(("k", 0, 10 * US, op), ("l", 0, 10 * US, op), streams=2)))
    assert idle(p) == [0.0]
    assert device(p, "self_us") == [[20.0]]


def test_rates_of_what_events_state(tmp_path):
    plane = gpu(
        (
            "k",
            0,
            10 * US,
            {
                "tf_op": "a/big:MatMul",
                "kernel_details": DETAIL,
                "flops": 10**9,
                "bytes_accessed": 10**6,
            },
        ),
        (
            "k",
            20 * US,
            10 * US,
            {
                "tf_op": "a/big:MatMul",
                "kernel_details": DETAIL,
                "flops": 10**9,
                "bytes_accessed": 10**6,
            },
        ),
        (
            "l",
            40 * US,
            5 * US,
            {"tf_op": "b/wide:Add", "kernel_details": DETAIL, "flops": 10, "bytes_accessed": 10**6},
        ),
        ("m", 50 * US, 4 * US, {"tf_op": "c/none:Add", "kernel_details": DETAIL}),
        (
            "n",
            60 * US,
            US,
            {
                "tf_op": "d/silly:Copy",
                "kernel_details": DETAIL,
                "flops": 0,
                "bytes_accessed": 10**12,
            },
        ),
    )
    table = profile(tmp_path, xspace(plane)).ops.frame.set_index("op")
    # 100 multiprocessors x 1 GHz x 2048 operations a clock.
    assert table.loc["a/big", ["flops_per_second", "bytes_per_second"]].tolist() == [
        pytest.approx(1e14),
        pytest.approx(1e11),
    ]
    assert table["operational_intensity"].tolist()[:2] == [1000.0, pytest.approx(1e-5)]
    assert table["bound_by"].tolist() == ["Compute", "HBM", "", ""]
    assert table.loc["c/none", ["flops_per_second", "bytes_per_second"]].isna().all()
    assert table.loc["d/silly", ["bytes_per_second"]].isna().all(), (
        "a million times the memory's peak is no rate"
    )
    assert (
        profile(tmp_path, xspace(plane))
        .ops.as_xprof()
        .set_index("op")
        .loc["d/silly", "bytes_per_second"]
        == 1e18
    )


def tpu(*lines, stats=None, facts=None, number=0):
    plane = PlaneWriter(
        f"/device:TPU:{number}",
        {
            "device_type_string": "TPU v5",
            "peak_teraflops_per_second": 100.0,
            "peak_hbm_bw_gigabytes_per_second": 1000.0,
            **(stats or {}),
        },
    )
    for ident, (name, events) in enumerate(lines):
        plane.line(
            name,
            [plane.event(*event[:3], **(event[3] if len(event) > 3 else {})) for event in events],
            line_id=ident + 1,
        )
    for name, stated in (facts or {}).items():
        short = stated.pop("display", "")
        plane.event_extra[name] = b"".join(
            chunk(5, plane.stat(k, v)) for k, v in stated.items()
        ) + (chunk(4, short) if short else b"")
    return plane


def test_ops_of_a_tpu_without_those_inside(tmp_path):
    plane = tpu(
        (
            "XLA Ops",
            [
                ("%while.1 = (s32[]) while(%x)", 0, 100 * US),
                ("%fusion.2 = f32[8] fusion(%y)", 10 * US, 30 * US),
                ("%fusion.2 = f32[8] fusion(%y)", 50 * US, 30 * US),
                ("%copy.3 = f32[8] copy(%z)", 55 * US, 5 * US),
                ("%tail = f32[8] add(%y)", 100 * US, 10 * US),
            ],
        ),
        ("Async XLA Ops", [("%copy-start.9 = f32[8] copy-start(%z)", 0, 500 * US)]),
        facts={
            "%fusion.2 = f32[8] fusion(%y)": {
                "display": "fusion.2", "tf_op": "jit(f)/mul:", "program_id": 7, "symbol_id": 2, "flops": 3 * 10**6, "bytes_accessed": 6 * 10**6,
                "hlo_category": "loop fusion", "source": "model.py:9",
            }
        },
    )  # fmt: skip
    p = profile(tmp_path, xspace(plane))
    table = p.ops.frame.set_index("op")
    assert table["self_us"].to_dict() == {
        "jit(f)/mul": 55.0,
        "while.1": 40.0,
        "tail": 10.0,
        "copy.3": 5.0,
    }
    assert table.loc["while.1", ["total_us", "type"]].tolist() == [100.0, "Unknown"]
    assert table.loc["jit(f)/mul", ["type", "occurrences", "total_us"]].tolist() == ["mul", 2, 60.0]
    assert table.loc["jit(f)/mul", "flops_per_second"] == pytest.approx(1e11)
    assert table.loc["jit(f)/mul", "bytes_per_second"] == pytest.approx(2e11)
    assert table.loc["jit(f)/mul", ["operational_intensity", "bound_by"]].tolist() == [0.5, "HBM"]
    assert idle(p) == [0.0], "from the first op to the last; what runs beside them does not count"
    assert p.run.activity.op_parts.frame().set_index("name").loc[
        "fusion.2", ["program", "category", "source"]
    ].tolist() == [
        7,
        "loop fusion",
        "model.py:9",
    ]


def test_cores_are_added_up(tmp_path):
    ops = ("XLA Ops", [("a", 0, 10 * US), ("a", 20 * US, 10 * US)])
    p = profile(tmp_path, xspace(tpu(ops), tpu(ops, number=1)))
    assert device(p, "op", "occurrences", "total_us") == [["a", 4, 40.0]]
    assert idle(p) == [20.0]


def test_the_devices_own_clock_counts(tmp_path):
    own = {"device_offset_ps": 5 * US, "device_duration_ps": 2 * US}
    p = profile(
        tmp_path,
        xspace(
            tpu(
                (
                    "XLA Ops",
                    [
                        ("a", 0, 90 * US, own),
                        ("b", 100 * US, US, {**own, "device_offset_ps": 10 * US}),
                    ],
                )
            )
        ),
    )
    assert sorted(device(p, "op", "self_us")) == [["a", 2.0], ["b", 2.0]]
    assert idle(p) == [3.0]


@pytest.mark.parametrize(
    ("spans", "self_us"),
    [
        ([("a", 0, 10), ("b", 0, 10)], {"a": 0.0, "b": 10.0}),
        ([("a", 0, 10), ("b", 10, 5)], {"a": 10.0, "b": 5.0}),
        ([("a", 0, 10), ("b", 5, 10)], {"a": 10.0, "b": 10.0}),
        ([("a", 0, 10), ("b", 2, 6), ("c", 3, 2)], {"a": 4.0, "b": 4.0, "c": 2.0}),
        ([("a", 0, 10), ("b", 10, 0)], {"a": 10.0, "b": 0.0}),
        ([("a", 0, 0)], {"a": 0.0}),
    ],
)
def test_how_ops_of_a_tpu_may_lie(tmp_path, spans, self_us):
    p = profile(
        tmp_path, xspace(tpu(("XLA Ops", [(n, at * US, length * US) for n, at, length in spans])))
    )
    assert p.ops.frame.set_index("op")["self_us"].to_dict() == self_us
    assert idle(p)[0] >= 0


def test_a_tpu_plane_without_ops(tmp_path):
    p = profile(tmp_path, xspace(tpu(("XLA TraceMe", [("x", 0, US)]))))
    assert p.ops.frame.empty
    assert p.ops.as_xprof().empty


def test_a_custom_call_states_what_each_run_did(tmp_path):
    call = "%kernel = f32[8] custom-call(%y)"
    plane = tpu(
        (
            "XLA Ops",
            [(call, 0, 10 * US, {"flops": 10**6}), (call, 20 * US, 10 * US, {"flops": 3 * 10**6})],
        ),
        facts={call: {"flops": 5}},
    )
    assert device(profile(tmp_path, xspace(plane)), "op", "flops_per_second") == [
        ["kernel", pytest.approx(2e11)]
    ]


@pytest.mark.parametrize(
    ("spans", "self_us"),
    [
        ([("a:A", 0, 10), ("b:B", 2, 3)], {"a": 7.0, "b": 3.0}),
        ([("a:A", 0, 10), ("b:B", 10, 3)], {"a": 10.0, "b": 3.0}),
        # Partly overlapping, equal and ending together: the time is that of the one that began
        # last, or is the inner one.
        ([("a:A", 0, 10), ("b:B", 5, 10)], {"a": 5.0, "b": 10.0}),
        ([("a:A", 0, 10), ("b:B", 0, 10)], {"a": 0.0, "b": 10.0}),
        ([("a:A", 0, 10), ("b:B", 4, 6)], {"a": 4.0, "b": 6.0}),
        ([("a:A", 0, 10), ("b:B", 4, 0)], {"a": 10.0, "b": 0.0}),
    ],
)
def test_how_ops_of_a_thread_may_lie(tmp_path, spans, self_us):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event(n, at * US, length * US) for n, at, length in spans])
    p = profile(tmp_path, xspace(host))
    assert p.ops.frame.set_index("op")["self_us"].to_dict() == self_us
    assert sum(self_us.values()) + idle(p, "host")[0] == max(at + length for _, at, length in spans)


def test_events_that_only_name_an_op_are_none(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("dense/MatMul:MatMul", 0, 10 * US),
        host.event("MemoryAllocation", 4 * US, 0, tf_op="dense/MatMul:MatMul", allocator_name="a"),
        host.event("MemoryAllocation", 5 * US, 0, tf_op="what ever", allocator_name="a"),
        host.event("hipLaunchKernel", 20 * US, US, tf_op="XlaModule:"),
        host.event("plain", 30 * US, US, tf_op=""),
    ]
    host.line("python", events)
    p = profile(tmp_path, xspace(host))
    assert p.ops.frame["op"].tolist() == ["dense/MatMul"]
    theirs = p.ops.as_xprof()
    assert theirs[["op", "type", "occurrences", "self_us"]].to_numpy().tolist() == [
        ["dense/MatMul", "MatMul", 2, 10.0],
        ["XlaModule", "XlaModule", 1, 1.0],
        ["what ever", "", 1, 0.0],
    ]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        (
            "a/b-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose",
            ("a/b-0-TransposeNHWCToNCHW-LayoutOptimizer", "Transpose"),
        ),
        ("a/b->c:Add", ("a/b->c", "Add")),
        ("Iterator::Root::Map", ("Iterator::Root::Map", "Dataset")),
        ("jit(f)/reduce_sum_3:", ("jit(f)/reduce_sum_3", "reduce_sum")),
        ("scope/Op:", ("scope/Op", "Op")),
        ("MEMCPYHtoD stuff", ("MEMCPYHtoD stuff", "MemcpyHToD")),
        ("a:B:C", None),
        ("plain", None),
        ("日本:Op", None),
        ("a" * 5000 + ":MatMul", ("a" * 5000, "MatMul")),
    ],
)
def test_names_of_ops_on_a_thread(tmp_path, name, row):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event(name, 0, US)])
    table = profile(tmp_path, xspace(host)).ops.frame
    assert [tuple(r) for r in table[["op", "type"]].to_numpy().tolist()] == ([row] if row else [])


@pytest.mark.parametrize("line_id", [-559038737 + 60, 0xDEADBEEF + 60])
def test_lines_that_were_made_of_others_count_once(tmp_path, line_id):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("a:A", 0, US)], line_id=1)
    host.line("python-Framework Ops", [host.event("a:A", 0, US)], line_id=line_id)
    assert profile(tmp_path, xspace(host)).ops.frame["occurrences"].tolist() == [1]
