"""What advice reads out of compiled programs and traces: the sizes of products, what only moves or
repeats, who reads what.
"""

from __future__ import annotations

import pytest

from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.profiles.load import load
from nbprof.sources.recording import CaptureInfo
from nbprof.tools.overview import payload as overview
from tests.analysis.test_advice import code
from tests.support import hlo, kineto
from tests.support.build import profile
from tests.support.kineto import Kineto
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, chunk, number, training_run, varint, xspace

F32, BF16 = 11, 16
TERA = 10**12


def ints(values):
    return b"".join(varint(value) for value in values)


def instr(name, opcode, shape, ident, operands=(), called=(), op="", extra=b"", kind=""):
    more = (
        chunk(3, shape)
        + (chunk(36, ints(operands)) if operands else b"")
        + (chunk(38, ints(called)) if called else b"")
        + extra
    )
    return hlo.instruction(name, opcode, op, ident=ident, kind=kind, extra=more)


def f32(*sizes, **more):
    return hlo.shape(F32, *sizes, **more)


def dot(left=1, right=0):
    return chunk(30, chunk(1, ints([left])) + chunk(2, ints([right])))


def convolution():
    """Dimensions b01f_01io->b01f and a window of 3 by 3."""
    dims = (
        number(7, 0)
        + number(8, 3)
        + chunk(11, ints([1, 2]))
        + number(3, 2)
        + number(4, 3)
        + chunk(6, ints([0, 1]))
    )
    dims += number(9, 0) + number(10, 3) + chunk(12, ints([1, 2]))
    side = chunk(1, number(1, 3) + number(2, 1) + number(3, 1) + number(4, 1))
    return chunk(16, dims) + chunk(15, side + side)


def tpu(folder, ops, program, model="TPU v5 lite", steps=2):
    """Steps of 100 ms on a TPU of 100 TFLOP/s and 1 TB/s; `ops` are (name, ms, category, FLOPs and
    bytes of a run).
    """
    plane = PlaneWriter(
        "/device:TPU:0",
        {
            "device_type_string": model,
            "peak_teraflops_per_second": 100.0,
            "peak_hbm_bw_gigabytes_per_second": 1000.0,
            "memory_size": 2**34,
        },
    )
    host = PlaneWriter("/host:CPU")
    events, marks, calls = [], [], []
    for step in range(steps):
        start = step * 100 * MS
        marks.append(plane.event(str(step), start, 100 * MS, group_id=step))
        calls.append(host.event("PjitFunction(f)", start, MS))
        for symbol, (name, length, category, flops, moved) in enumerate(ops):
            full = f"%{name} = f32[8]{{0}} fusion()"
            plane.stated(
                full,
                hlo_category=category,
                program_id=7,
                symbol_id=symbol,
                flops=flops,
                bytes_accessed=moved,
            )
            events.append(plane.event(full, start, length * MS))
            start += length * MS
    plane.line("Steps", marks, line_id=1)
    plane.line("XLA Ops", events, line_id=3)
    host.line("python", calls, line_id=1)
    return profile(folder, xspace(plane, host, hlo.metadata_plane(**{"jit_f(7)": (7, program)})))


def evidence(p):
    return p.run._evidence()


def test_products_of_dots_and_convolutions(tmp_path):
    """A forward dot in a fusion, a backward one, and a convolution of a batch of 6."""
    fused = hlo.computation(
        "fused",
        instr("p0", "parameter", f32(100, 784), 11),
        instr("p1", "parameter", f32(784, 300), 12),
        instr(
            "d", "dot", f32(100, 300), 13, (11, 12), op="jit(f)/jvp(mlp)/dot_general", extra=dot()
        ),
        ident=2,
    )
    main = hlo.computation(
        "main",
        instr("a", "parameter", f32(100, 784), 1),
        instr("b", "parameter", f32(784, 300), 2),
        instr("fusion.1", "fusion", f32(100, 300), 3, (1, 2), (2,), kind="kOutput"),
        instr(
            "dot.2",
            "dot",
            f32(784, 300),
            4,
            (1, 3),
            op="jit(f)/transpose(jvp(mlp))/dot_general",
            extra=dot(0, 0),
        ),
        instr("x", "parameter", f32(6, 32, 32, 64), 5),
        instr("k", "parameter", f32(3, 3, 64, 96), 6),
        instr(
            "conv.3",
            "convolution",
            f32(6, 32, 32, 96),
            7,
            (5, 6),
            op="jit(f)/conv_general_dilated",
            extra=convolution(),
        ),
        ident=1,
    )
    ops = [
        ("fusion.1", 40, "convolution fusion", TERA, 1),
        ("dot.2", 30, "dot", TERA, 1),
        ("conv.3", 20, "convolution", TERA, 1),
    ]
    p = tpu(tmp_path, ops, hlo.program("jit_f", main, fused, ident=7))
    work = evidence(p).work
    assert work.matrix_unit == 128
    assert [tuple(figure) for figure in work.products] == [
        (0, 100, 784, 300, 100, False),
        (1, 784, 100, 300, 0, False),
        (2, 6 * 32 * 32, 9 * 64, 96, 6, True),
    ]
    assert work.total_ps == 2 * 90e9 * 1000 / 1000
    findings = p.advice.set_index("rule")
    # The products of 100 take longer than those of 6; of 90 ms, 40 lose 4 of 104 rows and 20 lose 2
    # of 8.
    assert (
        "**67%** of compute is in products of **100** examples per core"
        in findings.loc["batch_per_core", "evidence"]
    )
    assert findings.loc["batch_per_core", "gain_ms_per_step"] == pytest.approx(
        40 * 4 / 104 + 20 * 2 / 8
    )
    # Only the backward product sums over less than 128; what lies across the unit is the outer size
    # that fills it better.
    assert findings.loc["mxu_size", "gain_ms_per_step"] == pytest.approx(
        30 * (1 - 100 / 128 * 784 / 896)
    )
    assert findings.loc["mxu_alignment", "gain_ms_per_step"] == pytest.approx(
        40 * (1 - 784 / 896 * 300 / 384) + 20 * (1 - 576 / 640)
    )
    assert set(findings["view"]) <= {"op_profile", "ops", "trace"}
    for fix in findings["fix"]:
        assert code(fix).body


@pytest.mark.parametrize(("model", "unit"), [("TPU v5 lite", 128), ("TPU v6 Lite", 256)])
def test_the_matrix_unit_is_that_of_the_device(tmp_path, model, unit):
    main = hlo.computation("main", instr("a", "dot", f32(8, 8), 1), ident=1)
    assert (
        evidence(
            tpu(tmp_path, [("a", 50, "dot", 1, 1)], hlo.program("jit_f", main, ident=7), model)
        ).work.matrix_unit
        == unit
    )


def test_what_only_moves_and_what_only_repeats(tmp_path):
    swaps = hlo.computation(
        "swaps", instr("p", "parameter", f32(8, 16), 21), instr("t", "transpose", f32(16, 8), 22, (21,)),
        instr("c", "convert", hlo.shape(BF16, 16, 8), 23, (22,)), ident=2,
    )  # fmt: skip
    narrows = hlo.computation(
        "narrows",
        instr("p", "parameter", f32(8), 31),
        instr("c", "convert", hlo.shape(BF16, 8), 32, (31,)),
        ident=3,
    )
    spreads = hlo.computation(
        "spreads",
        instr("z", "constant", f32(), 41),
        instr("s", "broadcast", f32(512, 512), 42, (41,)),
        ident=4,
    )
    main = hlo.computation(
        "main",
        instr("a", "parameter", f32(8, 16), 1),
        instr("swap", "fusion", hlo.shape(BF16, 16, 8), 2, (1,), (2,), kind="kLoop"),
        instr("narrow", "fusion", hlo.shape(BF16, 8), 3, (1,), (3,), kind="kLoop"),
        instr("spread", "fusion", f32(512, 512), 4, (), (4,), kind="kLoop"),
        instr("relaid", "copy", f32(8, 16, order=(0, 1)), 5, (1,)),
        instr("same", "copy", f32(8, 16), 6, (1,)),
        ident=1,
    )
    names = ("swap", "narrow", "spread", "relaid", "same")
    ops = [(name, 10 + index, "loop fusion", 1, 10**9) for index, name in enumerate(names)]
    p = tpu(tmp_path, ops, hlo.program("jit_f", main, swaps, narrows, spreads, ident=7))
    table = evidence(p).work.ops.set_index("name")
    assert table["moves"].to_dict() == {
        "swap": True,
        "narrow": False,
        "spread": False,
        "relaid": True,
        "same": False,
    }
    assert table.index[table["spreads"]].tolist() == ["spread"]
    assert table["narrow"].to_dict() == {
        "swap": True,
        "narrow": True,
        "spread": False,
        "relaid": False,
        "same": False,
    }
    findings = p.advice.set_index("rule")
    assert (
        "bf16[16,8]" in findings.loc["layout", "evidence"]
        or "f32[8,16]" in findings.loc["layout", "evidence"]
    )
    assert "f32[512,512]" in findings.loc["broadcast", "evidence"]
    assert findings.loc["broadcast", "gain_ms_per_step"] == pytest.approx(12.0)


@pytest.mark.parametrize(("other", "part_of_peak"), [(False, 0.7), (True, 0.7), (False, 0.5)])
def test_ops_that_alone_read_what_another_wrote(tmp_path, other, part_of_peak):
    """b reads a through a tuple; where c reads a too, fusing them would compute a twice. Ops far
    from the peak do not wait for memory.
    """
    main = hlo.computation(
        "main",
        instr("x", "parameter", f32(8), 1),
        instr("a", "fusion", hlo.tuple_shape(f32(8)), 2, (1,), kind="kLoop"),
        instr("part", "get-tuple-element", f32(8), 3, (2,)),
        instr("b", "fusion", f32(8), 4, (3,), kind="kLoop"),
        instr("c", "fusion", f32(8), 5, (3 if other else 1,), kind="kLoop"),
        ident=1,
    )
    lengths = {"a": 30, "b": 20, "c": 10}
    ops = [
        (name, length, "loop fusion", 1, int(part_of_peak * length * 10**9))
        for name, length in lengths.items()
    ]
    p = tpu(tmp_path, ops, hlo.program("jit_f", main, ident=7))
    work = evidence(p).work
    if other or part_of_peak < 0.6:
        assert (work.chains, work.chained) == (0, 0.0)
        assert "missed_fusion" not in p.advice["rule"].tolist()
        return
    assert (work.chain, work.chains, work.chained) == ("b", 1, 2 * 20 * MS)
    row = p.advice.set_index("rule").loc["missed_fusion"]
    assert row["gain_ms_per_step"] == pytest.approx(20.0)
    assert "the longest is b" in row["evidence"]


def test_a_program_that_is_damaged_or_missing_gives_no_finding(tmp_path):
    ops = [("a", 60, "loop fusion", 1, 10**9)]
    for data in (b"\xff\xff\xff", hlo.program("jit_f", hlo.computation("main", ident=1), ident=7)):
        p = tpu(tmp_path, ops, data)
        work = evidence(p).work
        assert work.products == []
        assert not work.ops[["moves", "spreads"]].to_numpy().any()
        assert work.ops["narrow"].isna().all()
        assert "layout" not in p.advice["rule"].tolist()


def test_padding_of_a_program(tmp_path, monkeypatch):
    mib = 2**20
    lines = [
        hlo.instruction("x", "parameter", ident=1, extra=chunk(3, f32(1024, 1024))),
        hlo.instruction(
            "thin", "fusion", ident=2, extra=chunk(3, f32(2**18, 16, tiles=((8, 128),)))
        ),
    ]
    buffers = [hlo.buffer(1, 4 * mib, 1), hlo.buffer(2, 128 * mib, 2)]
    allocations = [
        hlo.allocation(0, 4 * mib, (1, 0, 4 * mib), parameter=0),
        hlo.allocation(1, 128 * mib, (2, 0, 128 * mib)),
    ]
    data = hlo.program("jit_f", hlo.computation("main", *lines, ident=1, root=2), ident=7)
    data += hlo.assignment(
        buffers, allocations, [hlo.heap((0, 2, "thin"), (1, 2, "thin"), allocation=1)]
    )
    p = tpu(tmp_path, [("thin", 50, "loop fusion", 1, 10**6)], data)
    padding = evidence(p).padding
    assert (padding.peak_bytes, padding.unpadded_bytes) == (132 * mib, 20 * mib)
    assert (padding.buffer, padding.buffer_bytes, padding.buffer_unpadded_bytes) == (
        "thin",
        128 * mib,
        16 * mib,
    )
    row = p.advice.set_index("rule").loc["tile_padding"]
    assert "**112.00 MiB** of the **132.00 MiB**" in row["evidence"]
    assert (row["severity"], row["view"]) == ("high", "memory_viewer")
    monkeypatch.setattr(advice_evidence, "MOST_INSTRUCTIONS", 1)
    assert (evidence(p).padding.buffer, evidence(p).padding.peak_bytes) == ("", 132 * mib)


def torch(folder, body, count=4, **metadata):
    k = Kineto(**metadata)
    for i in range(count):
        k.step(i, 1000 * i, 1000)
        body(k, 1000 * i)
    return kineto.profile(folder, k)


V100 = {
    "id": 0,
    "name": "Tesla V100",
    "totalGlobalMem": 2**34,
    "computeMajor": 7,
    "computeMinor": 0,
}


@pytest.mark.parametrize("busy", [False, True])
def test_an_optimizer_that_goes_through_its_parameters(tmp_path, busy):
    """60 launches of 5 µs in each step of the optimizer; while the device still works off what came
    before, they cost nothing.
    """

    def body(k, start):
        op = k.op("aten::mm", start, 100)
        k.launched("gemm", start + 1, start + 5, 980 if busy else 95, op=op)
        k.note("Optimizer.step#AdamW.step", start + 100, 360)
        inner = k.op("aten::add_", start + 100, 350)
        for i in range(60):
            k.launched(
                "tiny",
                start + 100 + 5 * i,
                start + 985 + i / 8 if busy else start + 102 + 5 * i,
                0.1 if busy else 1,
                op=inner,
                stream=7,
            )

    p = torch(tmp_path, body, deviceProperties=[V100])
    findings = p.advice.set_index("rule")
    if busy:
        assert "optimizer_loop" not in findings.index
        return
    row = findings.loc["optimizer_loop"]
    assert (
        "AdamW.step takes **0.36 ms** per step on the host and launches **60** kernels"
        in row["evidence"]
    )
    assert row["gain_ms_per_step"] == pytest.approx(0.3, abs=0.001)
    assert "fused=True" in row["fix"]


def test_gloo_and_failures_of_the_allocator_are_counted(tmp_path):
    def body(k, start):
        k.launched("gemm", start + 1, start + 5, 900, op=k.op("aten::mm", start, 100))
        k.note("gloo:all_reduce", start + 100, 50)
        if start == 1000:
            k.add(
                "[OutOfMemory]",
                "cpu_instant_event",
                start + 200,
                None,
                args={"Bytes": 1, "Device Id": 0, "Device Type": 1},
            )

    findings = torch(tmp_path, body, deviceProperties=[V100]).advice.set_index("rule")
    assert "**4** Gloo calls" in findings.loc["gloo", "evidence"]
    assert "ran out of memory **1** time" in findings.loc["out_of_memory", "evidence"]


@pytest.mark.parametrize("names", [("conv", "conv"), ("conv", "other")])
def test_products_on_the_host_beside_a_gpu(tmp_path, names):
    """A product that a kernel belongs to only launches it from the host, however long that
    takes.
    """
    host, gpu = PlaneWriter("/host:CPU"), PlaneWriter("/device:GPU:0")
    ops, kernels = [], []
    for i in range(5):
        start = i * 10 * MS
        ops.append(host.event("train", start, 10 * MS, step_num=i, _r=1))
        ops.append(host.event(f"model/{names[0]}/Conv2D:Conv2D", start, 8 * MS))
        stats = {
            "tf_op": f"model/{names[1]}/Conv2D:Conv2D",
            "kernel_details": "regs:1 grid:1,1,1 block:1,1,1",
            "correlation_id": i + 1,
        }
        kernels.append(gpu.event("k", start + 9 * MS, MS // 10, **stats))
    host.line("python", ops, line_id=1)
    gpu.line("Stream #1(Compute)", kernels, line_id=1)
    p = profile(tmp_path, xspace(host, gpu))
    assert ("placement" in p.advice["rule"].tolist()) is (names[0] != names[1])


def test_time_between_steps(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(6):
        events.append(host.event("train", i * 10 * MS, 8 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", i * 10 * MS, 8 * MS))
    host.line("python", events, line_id=1)
    row = profile(tmp_path, xspace(host)).advice.set_index("rule").loc["between_steps"]
    assert "**2.00 ms** pass between steps, **20%** of the loop" in row["evidence"]
    assert row["gain_ms_per_step"] == pytest.approx(2.0)


def gapped(tmp_path, gaps):
    """A profile with steps of 10 ms, and these gaps between them, in ms."""
    host = PlaneWriter("/host:CPU")
    events, start = [], 0
    for i, gap in enumerate([*gaps, 0]):
        events.append(host.event("train", start, 10 * MS, step_num=i, _r=1))
        events.append(host.event("dense/MatMul:MatMul", start, 10 * MS))
        start += (10 + gap) * MS
    host.line("python", events, line_id=1)
    return profile(tmp_path, xspace(host))


def test_rare_long_gaps_between_steps_count_by_what_they_cost_the_loop(tmp_path):
    p = gapped(tmp_path, [100 if i % 10 == 9 else 0 for i in range(49)])
    row = p.advice.set_index("rule").loc["between_steps"]
    mean = 400 / 49
    assert row["gain_ms_per_step"] == pytest.approx(mean)
    assert (
        f"On average **{mean:.2f} ms** pass between steps, **{100 * mean / (10 + mean):.0f}%** of the loop"
        in row["evidence"]
    )
    assert (
        "in **4** of the gaps, which typically take **100.00 ms** each: validation"
        in row["evidence"]
    )
    rate = next(
        figure
        for figure in p.payload()["overview"]["figures"]
        if figure["key"] == "steps_per_second"
    )
    assert (rate["value"], rate["note"]) == (pytest.approx(100), "without the time between steps")


def test_one_long_gap_may_lie_between_two_loops(tmp_path):
    p = gapped(tmp_path, [500 if i == 20 else 0 for i in range(49)])
    assert "between_steps" not in p.advice["rule"].tolist()
    (tmp_path / "more").mkdir()
    row = (
        gapped(
            tmp_path / "more", [5000 if i == 20 else 100 if i % 10 == 9 else 0 for i in range(49)]
        )
        .advice.set_index("rule")
        .loc["between_steps"]
    )
    assert row["gain_ms_per_step"] == pytest.approx(400 / 48)
    assert row["evidence"].endswith(
        "The longest gap (**5,000.00 ms**) is not counted: it may lie between two loops."
    )


def test_of_two_validations_the_longer_one_is_not_passed_over_in_silence(tmp_path):
    row = (
        gapped(tmp_path, [{10: 100, 20: 160}.get(i, 0) for i in range(30)])
        .advice.set_index("rule")
        .loc["between_steps"]
    )
    assert "mostly in **1** gap of **100.00 ms**: validation" in row["evidence"]
    assert "The longest gap (**160.00 ms**) is not counted" in row["evidence"]


REAL = {
    "jax/mi300-jax_conv_minimal_08": ["layout"],
    "jax/tpu-v6e-inference": ["host_memory", "mixed_precision"],
    "jax/mi300-jax08_attention": ["single_ops", "idle_devices"],
    "kineto/a100-nccl-ranks": ["collectives", "gemm_alignment", "other"],
    "kineto/mi300-ddp-resnet18": ["allocator"],
    "kineto/v100-resnet50-workers0": ["loader_in_process", "mixed_precision"],
    "kineto/v100-resnet50-workers4": ["mixed_precision", "pinned_memory"],
    "kineto/h100-bert": ["other", "host_ops", "kernel_launch", "small_batch"],
    "tf-gpu/rtx5000-cnn-batch8": ["kernel_launch", "mixed_precision", "other", "small_batch"],
    "tf-gpu/t4-one-step": ["mixed_precision", "other"],
    "tf-gpu/v100x8-collectives": ["idle_devices"],
    "tf-cpu/prefetch-128-empty-gpu-plane": ["placement"],
}
"""What an expert would say of each."""


@pytest.mark.parametrize("name", REAL)
def test_findings_on_real_profiles(name):
    assert load(real(name)).advice["rule"].tolist() == REAL[name]


def test_ops_that_ran_one_by_one_in_jax():
    """Fourteen of the ops of an attention that was called outside of jit are programs of their
    own.
    """
    work = evidence(load(real("jax/mi300-jax08_attention"))).work
    assert len(work.lonely) == 14
    assert 100 * work.lonely["own"].sum() / work.total_ps == pytest.approx(41.55, abs=0.01)


def test_the_conv_of_a_real_program_computes_in_16_bits():
    work = evidence(load(real("jax/mi300-jax_conv_minimal_08"))).work
    assert work.ops["narrow"].all()


def test_advice_for_a_real_npu_is_that_of_its_tools():
    rules = load(real("ascend/msprof-old-layout")).advice["rule"].tolist()
    assert rules[:2] == ["npu_input", "npu_all_reduce"]
    assert all(rule.startswith("npu_") for rule in rules), "MindSpore knows no tf.data"


def test_what_a_failed_cell_said_of_the_premapped_buffer(tmp_path):
    """The error is no part of the files, which keep what is advised of them alone."""
    run = profile(tmp_path, training_run()).run
    before = run._advice_of_files["rule"].tolist()
    error = "cell failed in step 3, after 2 complete steps: XlaRuntimeError: RESOURCE_EXHAUSTED: premapped region: Attempting to allocate 6.00G"
    run.capture = CaptureInfo(backend="jax", error=error, cell_failed=True)
    assert run.advice["rule"].tolist() == [*before, "premapped_small"]
    assert "**6.00 GiB**" in run.advice["evidence"].iloc[-1]
    assert "premapped_small" not in run._advice_of_files["rule"].tolist()


def test_names_of_events_speak_of_the_buffer_too(tmp_path):
    host = PlaneWriter("/host:CPU")
    names = (
        "TransferToDevice: premapped buffer exhausted, RESOURCE_EXHAUSTED",
        "unrelated RESOURCE_EXHAUSTED",
    )
    host.line("python", [host.event(name, i * MS, MS) for i, name in enumerate(names)], line_id=1)
    row = profile(tmp_path, xspace(host)).advice.set_index("rule").loc["premapped_small"]
    assert "ran out **1** time" in row["evidence"], "and without a step"
    slow = PlaneWriter("/host:CPU")
    slow.line(
        "python",
        [
            slow.event("CreateTpuSystemState", 0, 16_000 * MS),
            slow.event("premapped buffer of size 64G", 0, MS),
        ],
        line_id=1,
    )
    assert (
        "**16.0 s**"
        in profile(tmp_path, xspace(slow))
        .advice.set_index("rule")
        .loc["premapped_large", "evidence"]
    )


def test_findings_lead_to_calls_of_the_optimizer(tmp_path):
    def body(k, start):
        k.op("aten::mm", start, 100)
        k.note("Optimizer.step#AdamW.step", start + 100, 360)

    run = torch(tmp_path, body).run
    assert overview._target(run, "optimizer_loop") == {
        "kind": "name",
        "name": "Optimizer.step#AdamW.step",
    }
    assert overview._target(run, "gloo") is None


def test_findings_lead_only_to_tabs_that_are_there(tmp_path):
    run = profile(tmp_path, training_run()).run
    row = {
        "rule": "x",
        "severity": "low",
        "title": "t",
        "evidence": "e",
        "gain_ms_per_step": 1.0,
        "fix": "",
        "link": "Program memory",
    }
    assert overview._advice(run, {**row, "view": "memory_viewer"})["view"] == "ops"
    assert overview._advice(run, {**row, "view": "memory_viewer"})["link"] == "Ops"
    assert overview._advice(run, {**row, "view": "pods"})["view"] == "ops"
    assert overview._advice(run, {**row, "view": "input"})["view"] == "input"
