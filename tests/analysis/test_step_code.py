"""What advice sees of how a step is written: element types, calls into Python, loops, attention,
passes without gradients.
"""

from __future__ import annotations

import pytest

from tests.analysis.test_advice_programs import dot, f32, instr, torch, tpu
from tests.support import hlo
from tests.support.build import profile
from tests.support.kineto import BACKWARD
from tests.support.xspace import MS, PlaneWriter, chunk, xspace

TARGET = 28
A100 = {
    "id": 0,
    "name": "NVIDIA A100",
    "totalGlobalMem": 2**34,
    "computeMajor": 8,
    "computeMinor": 0,
}


def op(k, name, start, length, *shapes, types=None, number=None, back=False):
    """An op on tensors of these shapes; with a number, autograd sees it."""
    more = {} if number is None else {"Sequence number": number, "Fwd thread id": 1 if back else 0}
    k.op(
        name,
        start,
        length,
        BACKWARD if back else 100,
        types or ["float"] * len(shapes),
        **{"Input Dims": [list(shape) for shape in shapes], **more},
    )


def code(p):
    return p.run._evidence().code


def rules(p):
    return set(p.advice["rule"])


def test_float64_is_told_of_tensors_and_not_of_python_numbers(tmp_path):
    def body(k, start):
        op(k, "aten::mm", start, 450, (64, 64), (64, 64), types=["double", "double"])
        op(k, "aten::mul", start + 450, 250, (64, 64), (), types=["float", "double"])
        op(k, "aten::add", start + 700, 200, (64, 64), (64, 64))

    p = torch(tmp_path, body)
    assert code(p).float64_percent == pytest.approx(50.0)
    row = p.advice.set_index("rule").loc["float64"]
    assert "**50%** of op time is spent on float64, mostly in aten::mm" in row["evidence"]
    # Half of the 450 µs.
    assert row["gain_ms_per_step"] == pytest.approx(0.225)


def test_without_types_kernels_of_products_tell_float64(tmp_path):
    def body(k, start, name="ampere_dgemm_64x64_nn"):
        k.launched(name, start + 1, start + 5, 900, op=k.op("aten::mm", start, 100))

    p = torch(tmp_path, body, deviceProperties=[A100])
    assert code(p).float64_percent is None
    row = p.advice.set_index("rule").loc["float64"]
    assert "**100%** of kernel time" in row["evidence"]
    assert row["view"] == "kernels"
    named = "vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at::native::MulFunctor<double> > >"
    assert "float64" not in rules(
        torch(tmp_path, lambda k, start: body(k, start, named), deviceProperties=[A100])
    )


@pytest.mark.parametrize(("element", "expected"), [(12, True), (11, False)])
def test_float64_of_compiled_programs(tmp_path, element, expected):
    main = hlo.computation(
        "main",
        instr("a", "parameter", hlo.shape(element, 100, 100), 1),
        instr("b", "parameter", hlo.shape(element, 100, 100), 2),
        instr("dot.1", "dot", hlo.shape(element, 100, 100), 3, (1, 2), extra=dot()),
    )
    p = tpu(tmp_path, [("dot.1", 90, "dot", 10**12, 1)], hlo.program("jit_f", main, ident=7))
    assert code(p).float64_percent == (100.0 if expected else 0.0)
    assert ("float64" in rules(p)) is expected


@pytest.mark.parametrize(
    ("target", "expected"), [("xla_ffi_python_gpu_callback", True), ("__cublas$gemm", False)]
)
def test_callbacks_of_compiled_programs(tmp_path, target, expected):
    main = hlo.computation(
        "main", instr("pure_callback.1", "custom-call", f32(8), 1, extra=chunk(TARGET, target))
    )
    p = tpu(
        tmp_path,
        [("pure_callback.1", 40, "custom-call", 1, 1)],
        hlo.program("jit_f", main, ident=7),
    )
    assert ("host_callback" in rules(p)) is expected
    if expected:
        row = p.advice.set_index("rule").loc["host_callback"]
        assert (
            "**1.0** times per step (pure_callback.1): **40.00 ms** (**40%** of step time)"
            in row["evidence"]
        )
        assert row["gain_ms_per_step"] == pytest.approx(40.0)


@pytest.mark.parametrize("of_the_step", [True, False])
def test_python_in_a_tf_function_is_no_python_of_tf_data(tmp_path, of_the_step):
    """The step runs ops as its context says; what runs for tf.data has none."""
    host = PlaneWriter("/host:CPU")
    main, executor = [], []
    for step in range(3):
        start = step * 100 * MS
        main.append(host.event("train", start, 100 * MS, step_num=step, _r=1, _pt=1, _p=step))
        link = {"_ct": 1, "_c": step} if of_the_step else {}
        executor.append(host.event("ExecutorState::Process", start + MS, 80 * MS, **link))
        executor.append(host.event("PyFunc:PyFunc", start + 2 * MS, 60 * MS))
    host.line("python", main, line_id=1)
    host.line("pool", executor, line_id=2)
    callbacks = code(profile(tmp_path, xspace(host))).callbacks
    if not of_the_step:
        assert callbacks is None
        return
    assert (callbacks.times, callbacks.name) == (1.0, "PyFunc")
    assert (callbacks.ms, callbacks.alone_ms) == (pytest.approx(60.0), pytest.approx(60.0))


@pytest.mark.parametrize("of_dataset", [True, False])
def test_python_of_tf_data_is_no_callback_of_the_step_that_waits_for_it(tmp_path, of_dataset):
    """tf.data calls its function within the step, as the pipeline does not run ahead."""
    host = PlaneWriter("/host:CPU")
    main, executor, pipeline = [], [], []
    for step in range(3):
        start = step * 100 * MS
        main.append(host.event("train", start, 100 * MS, step_num=step, _r=1, _pt=1, _p=step))
        executor.append(
            host.event("ExecutorState::Process", start + MS, 80 * MS, _ct=1, _c=step, id=step + 7)
        )
        executor.append(host.event("PyFunc:PyFunc", start + 2 * MS, 60 * MS))
        if of_dataset:
            name = "InstantiatedCapturedFunction::Run"
            pipeline.append(host.event(name, start, 90 * MS, id=step + 7))
    host.line("python", main, line_id=1)
    host.line("pool", executor, line_id=2)
    host.line("pipeline", pipeline, line_id=3)
    callbacks = code(profile(tmp_path, xspace(host))).callbacks
    assert (callbacks is None) is of_dataset


def callback_beside(folder, other, length):
    """Steps of 100 ms with Python for 60 of them, and after its first ms an op on another
    thread.
    """
    host = PlaneWriter("/host:CPU")
    main, pool, other_thread = [], [], []
    for step in range(3):
        start = step * 100 * MS
        main.append(host.event("train", start, 100 * MS, step_num=step, _r=1, _pt=1, _p=step))
        pool.append(
            host.event(
                "ExecutorState::Process", start + MS, 80 * MS, _ct=1, _c=step, _pt=2, _p=step
            )
        )
        pool.append(host.event("PyFunc:PyFunc", start + 2 * MS, 60 * MS))
        # What the callback itself runs is no op beside it.
        pool.append(host.event("Mul:Mul", start + 3 * MS, 50 * MS))
        other_thread.append(
            host.event("ExecutorState::Process", start + 3 * MS, length * MS, _ct=2, _c=step)
        )
        other_thread.append(host.event(other, start + 3 * MS, length * MS))
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    host.line("other", other_thread, line_id=3)
    return profile(folder, xspace(host))


@pytest.mark.parametrize(
    ("other", "alone"),
    [("MatMul:MatMul", 40.0), ("call:PartitionedCall", 60.0), ("IteratorGetNext:__tick", 60.0)],
)
def test_an_op_beside_a_callback_need_not_wait_for_it(tmp_path, other, alone):
    """A function that waits for its ops does nothing beside them."""
    callbacks = code(callback_beside(tmp_path, other, 20)).callbacks
    assert (callbacks.ms, callbacks.alone_ms) == (pytest.approx(60.0), pytest.approx(alone))


@pytest.mark.parametrize(("length", "gain_is"), [(20, "up to"), (1, "about"), (59, None)])
def test_what_is_said_of_a_callback_that_ops_run_beside(tmp_path, length, gain_is):
    p = callback_beside(tmp_path, "MatMul:MatMul", length)
    assert ("host_callback" in rules(p)) is (gain_is is not None)
    if gain_is is None:
        return
    row = p.advice.set_index("rule").loc["host_callback"]
    assert (row["gain_ms_per_step"], row["gain_is"]) == (pytest.approx(60.0), gain_is)
    assert "**60.00 ms** (**60%** of step time)" in row["evidence"]
    assert ("For **40.00 ms** of that, no other op of the step runs" in row["evidence"]) is (
        gain_is == "up to"
    )


def test_ops_of_a_program_beside_its_callback(tmp_path):
    """JAX on the CPU runs ops that do not need each other's results on several threads."""
    program = hlo.program(
        "jit_f",
        hlo.computation(
            "main",
            instr(
                "pure_callback.1",
                "custom-call",
                f32(8),
                1,
                extra=chunk(TARGET, "xla_ffi_python_cpu_callback"),
            ),
            instr("dot.2", "dot", f32(8), 2),
        ),
        ident=7,
    )
    host = PlaneWriter("/host:CPU")
    main, pool, other = [], [], []
    for step in range(3):
        start = step * 100 * MS
        main.append(host.event("train", start, 100 * MS, step_num=step, _r=1))
        pool.append(
            host.event(
                "pure_callback.1",
                start + MS,
                40 * MS,
                hlo_op="pure_callback.1",
                hlo_module="jit_f",
                program_id=7,
            )
        )
        other.append(
            host.event(
                "dot.2", start + 31 * MS, 60 * MS, hlo_op="dot.2", hlo_module="jit_f", program_id=7
            )
        )
    for number, (name, events) in enumerate(
        {"python": main, "pool": pool, "other": other}.items(), 1
    ):
        host.line(name, events, line_id=number)
    callbacks = code(
        profile(tmp_path, xspace(host, hlo.metadata_plane(**{"jit_f(7)": (7, program)})))
    ).callbacks
    assert (callbacks.times, callbacks.ms, callbacks.alone_ms) == (
        1.0,
        pytest.approx(40.0),
        pytest.approx(30.0),
    )


@pytest.mark.parametrize(
    ("target", "rule"),
    [("xla_ffi_python_gpu_callback", "host_callback"), ("some_library_call", "host_bound")],
)
def test_a_callback_from_a_gpu_is_in_the_thread_that_launches(tmp_path, target, rule):
    """The GPU itself only copies what the callback takes and gives."""
    call = instr("pure_callback.1", "custom-call", f32(8), 1, extra=chunk(TARGET, target))
    program = hlo.program(
        "jit_f", hlo.computation("main", call, instr("dot.2", "dot", f32(8), 2)), ident=7
    )
    host, gpu = (
        PlaneWriter("/host:CPU"),
        PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 9}),
    )
    main, stream = [], []
    for step in range(4):
        start, ran = (
            step * 100 * MS,
            {"hlo_module": "jit_f", "program_id": 7, "correlation_id": 2 * step + 1},
        )
        main.append(host.event("train", start, 100 * MS, step_num=step, _r=1))
        main.append(host.event("PjRtCApiLoadedExecutable::Execute", start, 72 * MS))
        main.append(host.event("pure_callback.1", start + 5 * MS, 60 * MS))
        main.append(host.event("cuLaunchKernel", start + 70 * MS, MS, correlation_id=2 * step + 1))
        main.append(host.event("MemcpyD2D", start + 5 * MS, MS // 10, correlation_id=2 * step + 2))
        copied = {**ran, "hlo_op": "pure_callback.1", "correlation_id": 2 * step + 2}
        stream += [
            gpu.event("MemcpyD2D", start + 6 * MS, MS // 10, **copied),
            gpu.event("dot_2", start + 72 * MS, 3 * MS, hlo_op="dot.2", **ran),
        ]
    host.line("python", main, line_id=1)
    gpu.line("Stream #1(Compute)", stream, line_id=1)
    p = profile(tmp_path, xspace(gpu, host, hlo.metadata_plane(**{"jit_f(7)": (7, program)})))
    findings = p.advice.set_index("rule")
    assert {"host_callback", "host_bound"} & set(findings.index) == {rule}
    if rule == "host_callback":
        assert (
            "(pure_callback.1): **60.00 ms** (**60%** of step time)"
            in findings.loc[rule, "evidence"]
        )
        assert code(p).callbacks.alone_ms == pytest.approx(59.9)


@pytest.mark.parametrize(("around", "expected"), [("", True), ("aten::rnn_tanh", False)])
def test_cells_that_python_calls_one_by_one(tmp_path, around, expected):
    """Ten cells of 30 µs with a backward pass of 40 µs each; those that an op for the whole
    sequence calls are its own matter.
    """

    def body(k, start):
        if around:
            op(k, around, start, 300, (8, 32), number=1)
        for i in range(10):
            op(k, "aten::rnn_tanh_cell", start + 30 * i, 30, (8, 32), number=10 + i)
            op(k, "aten::linear", start + 30 * i + 5, 20, (8, 32), number=10 + i)
        for i in range(10):
            op(
                k,
                "autograd::engine::evaluate_function: TanhBackward0",
                start + 300 + 40 * i,
                40,
                number=10 + i,
                back=True,
            )

    p = torch(tmp_path, body)
    assert ("time_loop" in rules(p)) is expected
    if expected:
        cells = code(p).cells
        assert (cells.times, cells.ops) == (10.0, 30.0)
        assert cells.ms == pytest.approx(0.7)
        row = p.advice.set_index("rule").loc["time_loop"]
        assert "Python calls aten::rnn_tanh_cell **10** times per step" in row["evidence"]
        assert "torch.nn.RNN(" in row["fix"]


def attention(k, start, scores=(16, 64, 64), over=(4, 4, 64, 64), around=""):
    if around:
        op(k, around, start, 300, (4, 4, 64, 16), number=1)
    op(k, "aten::bmm", start, 100, (16, 64, 16), (16, 16, 64), number=1)
    op(k, "aten::_softmax", start + 100, 50, over, number=2)
    op(k, "aten::bmm", start + 150, 100, scores, (16, 64, 16), number=3)
    op(
        k,
        "autograd::engine::evaluate_function: BmmBackward0",
        start + 300,
        150,
        number=3,
        back=True,
    )
    op(k, "aten::mm", start + 500, 400, (64, 64), (64, 64), number=4)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, True),
        # Another product's result; the math path of a fused op; a softmax over classes; one query,
        # as when a model generates.
        ({"scores": (16, 64, 32)}, False),
        ({"around": "aten::_scaled_dot_product_attention_math"}, False),
        ({"over": (64, 10)}, False),
        ({"scores": (16, 1, 64), "over": (4, 4, 1, 64)}, False),
    ],
)
def test_attention_is_told_by_its_shapes(tmp_path, how, expected):
    p = torch(tmp_path, lambda k, start: attention(k, start, **how))
    assert ("attention" in rules(p)) is expected
    assert (code(p).attention is not None) is expected
    if expected:
        assert code(p).attention.ms == pytest.approx(0.4)


def passes(k, start, held=(512, 64), inner=(64, 64), within=""):
    """A training step of two layers, then a pass without gradients."""
    for i, first in enumerate((32, 64)):
        op(k, "aten::addmm", start + 50 * i, 50, (64,), (128, first), (first, 64), number=i)
    op(
        k,
        "autograd::engine::evaluate_function: AddmmBackward0",
        start + 100,
        100,
        number=1,
        back=True,
    )
    op(k, "aten::mm", start + 110, 80, (128, 64), (64, 64), back=True)
    k.note("Optimizer.step#SGD.step", start + 200, 50)
    op(k, "aten::mm", start + 210, 20, (32, 64), (32, 64))
    if within:
        op(k, within, start + 300, 400, held, number=5)
    op(k, "aten::addmm", start + 300, 200, (64,), (held[0], 32), (32, 64))
    op(k, "aten::relu", start + 500, 50, held)
    op(k, "aten::addmm", start + 550, 150, (64,), held, inner)


@pytest.mark.parametrize(
    ("how", "expected"),
    # Another model without gradients, as a teacher is; the first pass of a checkpoint.
    [({}, True), ({"inner": (64, 32)}, False), ({"within": "CheckpointFunction"}, False)],
)
def test_passes_without_gradients_through_the_model_that_is_trained(tmp_path, how, expected):
    p = torch(tmp_path, lambda k, start: passes(k, start, **how))
    assert ("validation" in rules(p)) is expected
    if expected:
        assert code(p).ungraded.ms == pytest.approx(0.4)
        assert (
            "In **100%** of the steps" in p.advice.set_index("rule").loc["validation", "evidence"]
        )


@pytest.mark.parametrize(
    ("rows", "more", "expected"), [(2, "", True), (8, "", False), (2, "aten::lstm", False)]
)
def test_products_of_few_rows(tmp_path, rows, more, expected):
    def body(k, start):
        op(k, "aten::addmm", start, 10, (64,), (rows, 32), (32, 64), number=1)
        op(k, more or "aten::relu", start + 10, 900, (rows, 64), number=2)

    p = torch(tmp_path, body)
    assert ("tiny_batch" in rules(p)) is expected


@pytest.mark.parametrize(
    ("ops", "length", "expected"), [(60, 5, True), (49, 5, False), (60, 11, False)]
)
def test_an_optimizer_that_goes_through_its_parameters_on_the_cpu(tmp_path, ops, length, expected):
    def body(k, start):
        op(k, "aten::mm", start, 100, (64, 64), (64, 64))
        k.note("Optimizer.step#Adam.step", start + 100, 700)
        for i in range(ops):
            op(k, "aten::lerp_", start + 100 + 11 * i, length, (64,))
            op(k, "aten::to", start + 101 + 11 * i, 1, (64,))

    p = torch(tmp_path, body)
    assert ("optimizer_loop" in rules(p)) is expected
    if expected:
        row = p.advice.set_index("rule").loc["optimizer_loop"]
        assert "calls **60** ops" in row["evidence"]
        assert row["gain_ms_per_step"] == pytest.approx(0.65 * 0.7), "a fused one takes 35 %"
        assert row["title"] == "Use a fused optimizer"
        assert "Adam(params, lr, fused=True)" in row["fix"]


def test_where_no_shapes_or_types_were_recorded_nothing_is_said(tmp_path):
    def body(k, start):
        for i, name in enumerate(("aten::bmm", "aten::_softmax", "aten::bmm", "aten::addmm")):
            k.op(name, start + 100 * i, 100, **{"Sequence number": i, "Fwd thread id": 0})
        k.op("aten::addmm", start + 500, 400)

    step = code(torch(tmp_path, body))
    assert (step.float64_percent, step.attention, step.ungraded, step.most_rows) == (
        None,
        None,
        None,
        None,
    )
