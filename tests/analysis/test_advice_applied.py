"""Advice that has been followed is not given again: every rule is silent in a recording that has
its remedy applied.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

import nbprof
from nbprof.analysis.advice import stated
from nbprof.analysis.advice.advice import every
from nbprof.analysis.advice.devices_used import Idle, InTurn
from nbprof.analysis.advice.evidence import Evidence, HostProducts, Padding, Spread
from nbprof.analysis.advice.in_use import InUse
from nbprof.analysis.advice.step_code import Callbacks, Part
from nbprof.analysis.cpu import Products
from nbprof.analysis.ops.torch_runtime import Calls
from nbprof.capture.settings import TORCH_THREADS, VARIABLES, settings
from tests.analysis import test_advice_rules as cases
from tests.analysis.test_advice import OWN_LOOP, found
from tests.support.build import profile
from tests.support.kineto import Kineto
from tests.support.xspace import MS, PlaneWriter, xspace

GIB = 2**30
GOES_ON = ("other",)
"""Rules that say what to do next where their remedy is applied:
`test_python_calls_that_were_recorded_are_named`.
"""
NOT_SHOWN = {
    "straggler": "it says which rank to look at: what is wrong with that rank is another finding, or none"
}
"""Rules whose remedy cannot be in a recording, and why."""


def used(asked, **more):
    """The same recording of a program that has these in use."""
    evidence = asked.get("evidence", Evidence())
    return {**asked, "evidence": evidence.with_values(in_use=InUse(**more))}


def busy(asked, percent):
    return {**asked, "device_busy_percent": percent}


FUSED = cases.optimizer(9.0)
GEMM = "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align{}"
SMALL = cases.gpu(kernels=cases.short(2000, 5.0))
ELEMENTWISE = {
    **cases.torch(),
    "kernels": cases.kernels(
        {"kernel": "vectorized_elementwise_kernel<4>", "total_us": 50.0}, {"total_us": 50.0}
    ),
}
FULL = {"peak_memory_bytes": 95 * GIB, "memory_capacity_bytes": 100 * GIB}
TINY = {**cases.torch(), "evidence": cases.host({"overhead": 40.0})}
OWN_GRAPH = {"parts": {"kernel_launch": 20.0}, "functions": OWN_LOOP}

APPLIED = {
    "input_ahead": (cases.jax(parts={"input": 30.0}), cases.jax(parts={"input": 0.5})),
    "arrays_copied": (
        cases.jax(parts={"input": 30.0}, evidence=Evidence(copied_ms=28.0)),
        cases.jax(parts={"input": 1.0}, evidence=Evidence(copied_ms=0.5)),
    ),
    "input_outside_tf_data": (
        cases.pipeline("Root", "ParallelMapV2", "Zip[0]", "FlatMap"),
        cases.pipeline("Root", "Prefetch", "BatchV2", "TensorSlice"),
    ),
    "input_copies": (cases.pipeline("Root", "Prefetch", own_ms=5.0), cases.pipeline("Root", "Prefetch", own_ms=5.0, input_ms=2.0)),
    "cache_missing": (cases.epochs(513, 513, 40), cases.epochs(513, 513, 40, kind="MemoryCacheImpl::ParallelMapV2")),
    "map_of_items": (cases.mapped("BatchV2", "ParallelMapV2", own_ms=1.0), cases.mapped("Prefetch", "ParallelMapV2", "BatchV2", own_ms=1.0)),
    "map_serial": (cases.pipeline("Root", "Map"), cases.pipeline("Root", "ParallelMapV2")),
    "input_bottleneck": (cases.pipeline("Root", "TFRecord"), cases.pipeline("Root", "Prefetch", "ParallelInterleaveV4", "TFRecord", input_ms=2.0)),
    "prefetch_missing": (cases.pipeline("Root", "BatchV2", "Map"), cases.pipeline("Root", "Prefetch", "BatchV2", "Map")),
    "input_outside_steps": (
        {"evidence": Evidence(between_ms=30.0, between_input_ms=25.0)},
        {"parts": {"input": 20.0}, "evidence": Evidence(between_ms=5.0, between_input_ms=0.0)},
    ),
    "loader_none": (cases.torch({"input": 30.0}, iterator_ms=29.0), cases.loader("MultiProcessing", 29.0, 30.0)),
    "loader_in_process": (cases.loader("SingleProcess", 29.0, 30.0), cases.loader("MultiProcessing", 29.0, 30.0)),
    "loader_workers": (cases.loader("MultiProcessing", 29.0, 30.0), cases.loader("MultiProcessing", 1.0, 1.0)),
    "loader_slow_items": (cases.in_loop(held=cases.Held(cases.SLOW_ITEMS, 25.0)), cases.in_loop({"input": 1.0})),
    "loader_restarts": (cases.in_loop(restarts=cases.Restarts(2, 1900.0, 25.0)), cases.in_loop({"input": 1.0})),
    "loader_pickle": (
        cases.in_loop(received=cases.Received(9e6, 25.0)),
        cases.in_loop({"input": 6.0}, received=cases.Received(500.0, 0.3)),
    ),
    "pinned_memory": (
        cases.torch({"input": 30.0}, pageable_bytes=2.0**20, calls={"copy H2D": Calls(1, 20.0, "cudaMemcpyAsync")}),
        cases.torch({"input": 30.0}, pinned_ms=20.0, calls={"copy H2D": Calls(1, 0.1, "cudaMemcpyAsync")}),
    ),
    "copies_exposed": (cases.torch({"input": 20.0}, pinned_ms=19.0), cases.torch({"input": 0.5}, pinned_ms=19.0)),
    "kernel_launch": (
        OWN_GRAPH | {"pipelines": cases.pipeline("Root")["pipelines"]},
        used(OWN_GRAPH | {"pipelines": cases.pipeline("Root")["pipelines"]}, xla=True, private_threads=True),
    ),
    "allocator": (cases.called("allocate", 20.0), cases.called("allocate", 0.0)),
    "host_ops": (cases.host_ops(50.0, 90.0, 60.0), used(cases.host_ops(50.0, 90.0, 60.0), compiled=True)),
    "mixed_precision": (cases.gpu(compute_16bit_percent=0.0), cases.gpu(compute_16bit_percent=90.0)),
    "tensor_cores": (cases.gpu(kernels=cases.eligible(80.0)), cases.gpu(kernels=cases.eligible(2.0))),
    "eager": ({"eager_host_percent": 90.0}, {"eager_host_percent": 2.0}),
    "tf_function": (cases.traced(60.0, 30.0), cases.traced(0.0, 0.0)),
    "outside_compilation": (cases.jax(outside_compilation_percent=30.0), cases.jax(outside_compilation_percent=0.0)),
    "collectives": (cases.torch({"device_collectives": 30.0}), cases.torch({"device_collectives": 1.0})),
    "output": ({"parts": {"output": 30.0}}, {"parts": {"output": 0.5}}),
    "host_memory": (
        cases.jax(parts={"input": 5.0, "output": 4.0}, host_transfer_percent=30.0),
        cases.jax(parts={"input": 5.0, "output": 4.0}, host_transfer_percent=0.0),
    ),
    "waits": (cases.called("sync", 30.0, device_idle_percent=40.0), cases.called("sync", 0.1, device_idle_percent=40.0)),
    "jit": (
        cases.jax(parts={"other": 40.0}, evidence=Evidence(programs_per_step=60.0)),
        cases.jax(parts={"other": 40.0}, evidence=Evidence(programs_per_step=1.0)),
    ),
    "batch_per_core": (
        cases.jax(evidence=cases.work({"own": 50.0}, rest=50.0, products=[cases.product(9, 512, 512, 9)])),
        cases.jax(evidence=cases.work({"own": 50.0}, rest=50.0, products=[cases.product(16, 512, 512, 16)])),
    ),
    "layout_pairs": (
        cases.jax(evidence=cases.work(cases.WIDE, rest=50.0, products=[cases.product(64, 24, 24, 64)])),
        cases.jax(evidence=cases.work(cases.WIDE, rest=50.0, products=[cases.product(64, 128, 128, 64)])),
    ),
    "mxu_size": (
        cases.jax(evidence=cases.work(cases.SMALL, rest=50.0, products=[cases.product(512, 64, 512)])),
        cases.jax(evidence=cases.work(cases.SMALL, rest=50.0, products=[cases.product(512, 128, 512)])),
    ),
    "mxu_alignment": (
        cases.jax(evidence=cases.work(cases.SMALL, rest=50.0, products=[cases.product(512, 192, 512)])),
        cases.jax(evidence=cases.work(cases.SMALL, rest=50.0, products=[cases.product(512, 256, 512)])),
    ),
    "tile_padding": (
        cases.jax(evidence=Evidence(padding=Padding("jit_f(1)", 150 * GIB, 100 * GIB))),
        cases.jax(evidence=Evidence(padding=Padding("jit_f(1)", 100 * GIB, 100 * GIB))),
    ),
    "single_ops": (
        cases.jax(evidence=cases.work({"own": 50.0}, rest=50.0, lonely=cases.alone(50.0))),
        cases.jax(evidence=cases.work({"own": 20.0}, rest=80.0)),
    ),
    "unfused": (
        cases.jax(evidence=cases.work({"own": 50.0, "category": "non-fusion elementwise"}, rest=50.0)),
        cases.jax(evidence=cases.work({"own": 20.0, "category": "loop fusion"}, rest=80.0)),
    ),
    "missed_fusion": (
        cases.jax(evidence=cases.work({"own": 50.0}, rest=50.0, chained=20.0 * cases.MS, chain="op.0", chains=1)),
        cases.jax(evidence=cases.work({"own": 30.0}, rest=70.0)),
    ),
    "broadcast": (
        cases.jax(evidence=cases.work({"own": 20.0, "spreads": True}, rest=80.0)),
        cases.jax(evidence=cases.work({"own": 20.0}, rest=80.0)),
    ),
    "layout": (
        cases.gpu(kernels=cases.kernels({"kernel": "nchwToNhwcKernel", "total_us": 30.0}, {"total_us": 70.0})),
        cases.gpu(kernels=cases.kernels({"kernel": "sm80_xmma_fprop_nhwc", "total_us": 30.0}, {"total_us": 70.0})),
    ),
    "utilisation": (
        cases.jax(evidence=cases.work({"own": 100.0, "compute_fraction": 0.2})),
        cases.jax(evidence=cases.work({"own": 100.0, "compute_fraction": 0.7})),
    ),
    "gemm_alignment": (
        cases.gpu(kernels=cases.kernels({"kernel": GEMM.format(2), "total_us": 50.0}, {"total_us": 50.0})),
        cases.gpu(kernels=cases.kernels({"kernel": GEMM.format(8), "total_us": 50.0}, {"total_us": 50.0})),
    ),
    "small_kernels": (SMALL, used(SMALL, xla=True)),
    "elementwise_kernels": (ELEMENTWISE, used(ELEMENTWISE, compiled=True)),
    "small_batch": (busy(cases.gpu(kernels=cases.short(100, 9.0)), 10.0), busy(cases.gpu(kernels=cases.short(100, 9.0)), 80.0)),
    "few_blocks": (
        cases.gpu(kernels=cases.kernels({"grid": "8,1,1", "total_us": 100.0})),
        cases.gpu(kernels=cases.kernels({"grid": "64,8,1", "total_us": 100.0})),
    ),
    "placement": (
        {"parts": {"host_compute": 50.0}, "evidence": Evidence(host_products=HostProducts(50.0, 40.0, "conv/Conv2D", 900.0))},
        {"parts": {"host_compute": 5.0}, "evidence": Evidence(host_products=None)},
    ),
    "host_bound": (
        {"parts": {"host_compute": 60.0, "device_compute": 40.0}, "device_idle_percent": 60.0},
        used({"parts": {"host_compute": 60.0, "device_compute": 40.0}, "device_idle_percent": 60.0}, several_steps=True),
    ),
    "compile": ({"parts": {"compile": 30.0}, "evidence": Evidence(compiling=5)}, {"parts": {}, "evidence": Evidence(compiling=0)}),
    "memory_full": ({**cases.torch(), **FULL}, used({**cases.torch(), **FULL}, checkpoints=True)),
    "fragmentation": (
        cases.gpu(peak_memory_bytes=9 * GIB, memory_capacity_bytes=10 * GIB, evidence=Evidence(fragmentation=0.6)),
        cases.gpu(peak_memory_bytes=9 * GIB, memory_capacity_bytes=10 * GIB, evidence=Evidence(fragmentation=0.05)),
    ),
    "uneven_workers": (
        {"parts": {"device_compute": 60.0, "device_collectives": 9.0}, "evidence": Evidence(spread=Spread("a:1", 80.0, 60.0, 8))},
        {"parts": {"device_compute": 60.0, "device_collectives": 9.0}, "evidence": Evidence(spread=Spread("a:1", 60.5, 60.0, 8))},
    ),
    "between_steps": ({"evidence": Evidence(between_ms=50.0)}, {"evidence": Evidence(between_ms=1.0)}),
    "data_parallel": ({**cases.torch(data_parallel=True), "devices": 2}, used({**cases.torch(), "devices": 2}, distributed=True)),
    "optimizer_loop": (FUSED, used(FUSED, fused_optimizer=True)),
    "gloo": (cases.torch({"device_collectives": 20.0}, gloo=9), used(cases.torch({"device_collectives": 20.0}, gloo=9), nccl=True)),
    "out_of_memory": (cases.torch(out_of_memory=3), used(cases.torch(), checkpoints=True)),
    "float64": (cases.written(float64_percent=80.0, float64_op="MatMul"), cases.written(float64_percent=0.0)),
    "host_callback": (cases.written(callbacks=Callbacks(1.0, 30.0, "PyFunc", alone_ms=30.0)), cases.written(callbacks=None)),
    "time_loop": (
        {**cases.torch({"host_compute": 100.0}), **cases.written(cells=Part(64.0, 60.0, "aten::lstm_cell", 900.0))},
        {**cases.torch({"host_compute": 100.0}), **cases.written(cells=None)},
    ),
    "attention": (
        {**cases.torch(), **cases.written(attention=Part(12.0, 40.0))},
        {**cases.torch(), **cases.written(attention=None)},
    ),
    "validation": (
        {**cases.torch(), **cases.written(ungraded=Part(0.5, 40.0))},
        {**cases.torch(), **cases.written(ungraded=Part(0.02, 1.0))},
    ),
    "unrolled": (cases.chained(24), cases.jax()),
    "tiny_batch": (
        {**cases.torch({"host_compute": 100.0}), **cases.written(most_rows=2)},
        {**cases.torch({"host_compute": 100.0}), **cases.written(most_rows=64)},
    ),
    "copied_in_turn": (
        {"parts": {"input": 30.0}, "evidence": Evidence(copies_in_turn=InTurn(2, 30.0, 0.0))},
        {"parts": {"input": 15.0}, "evidence": Evidence(copies_in_turn=InTurn(2, 30.0, 0.95))},
    ),
    "idle_devices": ({"evidence": Evidence(idle_devices=Idle("GPU", 8, 6))}, {"evidence": Evidence(idle_devices=None)}),
    "periodic": (cases.rhythm(9.0, what_ms=90.0), cases.rhythm(0.9, what_ms=9.0)),
    "slow_unrecorded": (cases.slow_unrecorded(0.2), {"evidence": Evidence()}),
    "slowing": (cases.slowing(20.0), {"evidence": Evidence()}),
    "graph_breaks": (cases.broken(3.0), cases.torch()),
    "host_memory_growth": (cases.host_growing(), cases.host_growing(rising=0.1, each=0.0)),
    "large_buffer": (cases.buffer("Shuffle", "Map"), cases.buffer("Shuffle", "Map", held=2e8)),
    "memory_growth": (cases.growing(), cases.growing(rising=0.1, each=0.0)),
    "premapped_small": (
        {"evidence": Evidence(texts=("premapped region: RESOURCE_EXHAUSTED: Attempting to allocate 6.00G.",))},
        {"evidence": Evidence(texts=("using TPU host premapped buffer of size 12884905984",))},
    ),
    "premapped_large": (
        {"evidence": Evidence(texts=("premapped buffer of size 68719476736", "CreateTpuSystemState: took 90s"))},
        {"evidence": Evidence(texts=("premapped buffer of size 4294967296", "CreateTpuSystemState: took 4s"))},
    ),
    "tpu_start": (
        {"evidence": Evidence(texts=("CreateTpuSystemState: took 90s",))},
        {"evidence": Evidence(texts=("premapped buffer of size 64GiB", "CreateTpuSystemState: took 90s"))},
    ),
    "slow_versions": (cases.slow_conv3d(50.0), cases.slow_conv3d(50.0, "2.10.0")),
    "python_code": ({"evidence": cases.host({"python": 60.0})}, {"evidence": cases.host({"python": 5.0})}),
    "library_code": ({"evidence": cases.libraries(60.0)}, {"evidence": cases.libraries(5.0)}),
    "result_waits": (cases.waiting(60.0), cases.waiting(0.5)),
    "host_waits": ({"evidence": cases.host({"waiting": 60.0})}, {"evidence": cases.host({"waiting": 2.0})}),
    "pool_waits": (
        {"evidence": cases.host({"waiting": 60.0}, pool=cases.pool(60.0))},
        {"evidence": cases.host({"waiting": 60.0}, pool=cases.pool(2.0))},
    ),
    "tiny_ops": (TINY, used(TINY, compiled=True)),
    "tiny_eager_ops": (
        {"evidence": cases.eager_host({"overhead": 60.0}), "eager_host_percent": 90.0},
        {"evidence": cases.eager_host({"overhead": 60.0}), "eager_host_percent": 2.0},
    ),
    "idle_cores": (
        {**cases.torch(), "evidence": cases.host({"compute": 90.0}, used=1.0, products=Products(60.0, 1e10))},
        {**cases.torch(), "evidence": cases.host({"compute": 90.0}, used=7.5, products=Products(60.0, 1e10))},
    ),
    "cpu_bf16": (
        {**cases.torch(), "evidence": cases.host({}, products=Products(90.0, 1e10), bf16="amx_bf16")},
        {**cases.torch(), "evidence": cases.host({}, products=Products(0.0, 0.0), bf16="amx_bf16")},
    ),
}  # fmt: skip
"""By rule, a recording in which it speaks, and one of the same program with the remedy applied.

Where the remedy leaves the cost as it was, the second has the same cost, and shows the remedy: a
model that is compiled may be slow all the same.
"""


def advice_of(folder, trace, **sidecar):
    folder.mkdir(exist_ok=True)
    (folder / "host0.pt.trace.json").write_bytes(trace.encode())
    if sidecar:
        (folder / "nbprof.json").write_text(json.dumps(sidecar))
    return nbprof.load(folder).advice.set_index("rule")


def torch_loop(*bodies, steps=12, length=1000.0, **metadata):
    k = Kineto(**metadata)
    for i in range(steps):
        k.step(i, length * i, length)
        for body in bodies:
            body(k, length * i)
    return k


def product(k, start):
    k.op("aten::mm", start, 300)


def augment(k, start):
    k.add(
        "train.py(12): augment",
        "python_function",
        start + 310,
        600,
        args={"Python id": int(start) + 1},
    )


def many_kernels(k, start):
    op = k.op("aten::add", start + 1, 900)
    for i in range(60):
        k.launched("tiny", start + 2 + 14 * i, start + 8 + 14 * i, 2, op=op)


def updates(op):
    def body(k, start):
        k.note("Optimizer.step#AdamW.step", start + 910, 80)
        k.op(op, start + 911, 5)

    return body


def backward(k, start):
    k.op("autograd::engine::evaluate_function: MmBackward0", start + 905, 3)


def compiled(k, start):
    k.note("Torch-Compiled Region: 0/0", start, 901)


def test_every_rule_declares_what_shows_that_it_is_done():
    assert all(rule.done is not None and rule.done.text for rule in every())
    assert all(rule.requires.text for rule in every() if rule.requires is not None)


def test_every_rule_has_a_recording_with_its_remedy():
    covered = {*APPLIED, *GOES_ON, *NOT_SHOWN}
    assert covered == {rule.name for rule in every()}
    assert not set(APPLIED) & set(NOT_SHOWN)
    assert all(NOT_SHOWN.values())


@pytest.mark.parametrize("rule", APPLIED)
def test_a_rule_is_silent_where_its_remedy_is_applied(rule):
    before, after = ({"functions": OWN_LOOP, **asked} for asked in APPLIED[rule])
    if rule == "host_bound":
        before, after = (asked | {"functions": cases_of_keras()} for asked in (before, after))
    assert rule in found(**before).index
    assert rule not in found(**after).index


def cases_of_keras():
    return OWN_LOOP.assign(function=["multi_step_on_iterator"])


def test_python_calls_that_were_recorded_are_named(tmp_path):
    row = advice_of(tmp_path / "before", torch_loop(product)).loc["other"]
    assert row["title"] == "Record the Python calls outside ops"
    assert pd.isna(row["gain_ms_per_step"]), "to record again saves nothing"
    row = advice_of(tmp_path / "after", torch_loop(product, augment)).loc["other"]
    assert row["title"] == "Look at the Python calls outside ops"
    assert "augment, train.py line 12 (**86%**)" in row["evidence"]
    assert not row["fix"]
    assert row["gain_ms_per_step"] == pytest.approx(0.7)


@pytest.mark.parametrize("recorded", [False, True])
def test_python_calls_of_tensorflow_and_jax_are_work_of_the_host(tmp_path, recorded):
    host = PlaneWriter("/host:CPU")
    events = []
    for i in range(12):
        start = 10 * i * MS
        python = [host.event("$loop.py:7 augment", start + MS, 6 * MS)] if recorded else []
        events += [
            host.event("train", start, 10 * MS, step_num=i, _r=1),
            *python,
            host.event("MatMul:MatMul", start + 7 * MS, 3 * MS),
        ]
    host.line("python", events, line_id=1)
    assert ("other" in profile(tmp_path, xspace(host)).advice["rule"].tolist()) is not recorded


@pytest.mark.parametrize(
    ("sidecar", "first", "says"),
    [
        (None, "-with torch.profiler.profile()", "with_stack=True"),
        ({"backend": "torch", "by": "block"}, "-with nbprof.profile()", "stacks=True"),
        ({"backend": "torch", "by": "cell"}, "-%%nbprof", "%%nbprof --stacks --steps 3:5"),
        ({"backend": "torch"}, "-%%nbprof", "%%nbprof --stacks --steps 3:5"),
    ],
)
def test_how_to_record_python_is_said_as_to_who_recorded(tmp_path, sidecar, first, says):
    row = advice_of(tmp_path, torch_loop(product), **(sidecar or {})).loc["other"]
    assert row["fix"].startswith(first)
    assert says in row["fix"]
    assert ("this first line in the cell" in row["evidence"]) is first.startswith("-%%")


def test_inference_gets_no_advice_on_training(tmp_path):
    infers = advice_of(tmp_path / "infers", torch_loop(many_kernels))
    assert "torch.compile" in infers.loc["host_ops", "fix"]
    assert not infers["fix"].str.contains("optim|backward|checkpoint|GradScaler").any()
    trains = advice_of(
        tmp_path / "trains", torch_loop(many_kernels, backward, updates("aten::_foreach_add_"))
    )
    assert "torch.optim.AdamW(model.parameters(), fused=True)" in trains.loc["host_ops", "fix"]
    fused = advice_of(
        tmp_path / "fused", torch_loop(many_kernels, backward, updates("aten::_fused_adamw_"))
    )
    assert "fused" not in fused.loc["host_ops", "fix"]


def test_full_memory_of_inference_is_not_that_of_activations(tmp_path):
    def full(k, start):
        k.memory(start + 2, 2**30, 0xA0 + int(start), 2**34 - 2**20, 2**34, device=0)

    device = {
        "id": 0,
        "name": "A",
        "totalGlobalMem": 2**34,
        "computeMajor": 8,
        "computeMinor": 0,
        "numSms": 108,
    }
    infers = advice_of(
        tmp_path / "infers", torch_loop(many_kernels, full, deviceProperties=[device])
    ).loc["memory_full"]
    assert "checkpoint" not in infers["fix"].lower() + infers["evidence"].lower()
    trains = advice_of(
        tmp_path / "trains", torch_loop(many_kernels, full, backward, deviceProperties=[device])
    ).loc["memory_full"]
    assert "checkpoint" in trains["fix"]


def test_a_compiled_model_is_not_to_be_compiled(tmp_path):
    assert "host_ops" in advice_of(tmp_path / "before", torch_loop(many_kernels)).index
    assert "host_ops" not in advice_of(tmp_path / "after", torch_loop(many_kernels, compiled)).index


def test_gloo_beside_nccl_is_no_mistake(tmp_path):
    def gloo(k, start):
        k.op("gloo:all_gather", start + 902, 2)

    def nccl(k, start):
        k.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start + 903, start + 904, 5)

    assert "gloo" in advice_of(tmp_path / "before", torch_loop(many_kernels, gloo))["fix"].str.cat()
    assert "gloo" not in advice_of(tmp_path / "after", torch_loop(many_kernels, gloo, nccl)).index


def copies(k, start):
    op = k.op("aten::copy_", start, 500)
    k.copy(
        "Memcpy HtoD (Pageable -> Device)",
        start + 2,
        400,
        k.call("cudaMemcpyAsync", start + 1, 450, op),
        bytes=2**20,
    )
    k.launched("gemm", start + 510, start + 520, 300, op=k.op("aten::mm", start + 505, 5))


def test_who_has_no_loader_gets_no_code_of_one(tmp_path):
    def loads(k, start):
        k.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start + 850, 1)

    assert (
        "DataLoader"
        not in advice_of(tmp_path / "none", torch_loop(copies)).loc["pinned_memory", "fix"]
    )
    assert (
        "DataLoader"
        in advice_of(tmp_path / "one", torch_loop(copies, loads)).loc["pinned_memory", "fix"]
    )


@pytest.mark.parametrize("thread", ["python", "tf_gpu_private_0"])
def test_threads_of_their_own_are_not_advised_twice(tmp_path, thread):
    gpu = PlaneWriter(
        "/device:GPU:0",
        {
            "device_vendor": "Nvidia",
            "compute_cap_major": 7,
            "compute_cap_minor": 5,
            "memory_size": 2**34,
        },
    )
    host = PlaneWriter("/host:CPU")
    kernels, steps, launches, reads = [], [], [], []
    for i in range(12):
        start = 10 * i * MS
        detail = "regs:32 static_shared:0 dynamic_shared:0 grid:64,1,1 block:64,1,1 occ_pct:50"
        kernels.append(
            gpu.event(
                "sgemm",
                start + 6 * MS,
                3 * MS,
                correlation_id=i + 1,
                kernel_details=detail,
                tf_op="dense/MatMul:MatMul",
            )
        )
        steps.append(host.event("train", start, 10 * MS, step_num=i, _r=1))
        launches.append(host.event("ExecutorState::Process", start + MS, 5 * MS, group_id=i))
        reads.append(host.event("Iterator::Prefetch", start, MS // 2, id=11, parent_id=0))
        reads.append(host.event("Iterator::Prefetch::Map", start, MS // 4, id=12, parent_id=11))
    gpu.line("Stream #1", kernels, line_id=20)
    host.line("main", steps, line_id=1)
    host.line(thread, launches, line_id=2)
    host.line("pool", reads, line_id=3)
    p = profile(tmp_path, xspace(gpu, host))
    advised = "gpu_private" in p.advice["fix"].str.cat()
    checked = p.overview["checks"].set_index("check").loc["kernel_launch", "statement"]
    assert "kernel_launch" in p.advice["rule"].tolist()
    assert (advised, "gpu_private" in checked) == (thread == "python", thread == "python")


@pytest.mark.parametrize(
    ("rule", "sidecar"),
    [
        (
            "fragmentation",
            {
                "settings": {
                    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64"
                }
            },
        ),
        ("fragmentation", {"settings": {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}}),
        ("idle_cores", {"settings": {"torch.get_num_threads": "8"}, "cores": 8.0}),
        ("mixed_precision", {"precision": "mixed_float16"}),
    ],
)
def test_what_the_recording_states_to_be_set_is_not_advised(rule, sidecar):
    rows = found(**{"functions": OWN_LOOP, **APPLIED[rule][0]}).reset_index()
    covered = {"settings": {}, "precision": "", "cores": 8.0} | sidecar
    assert rule in stated.without(rows, {}, "", 8.0)["rule"].tolist()
    assert rule not in stated.without(rows, **covered)["rule"].tolist()


def test_threads_that_are_set_are_not_set_again():
    rows = found(**{"functions": OWN_LOOP, **APPLIED["kernel_launch"][0]}).reset_index()
    fix = (
        stated.without(rows, {"TF_GPU_THREAD_MODE": "gpu_private"}, "", 8.0)
        .set_index("rule")
        .loc["kernel_launch", "fix"]
    )
    assert "gpu_private" not in fix
    assert "jit_compile=True" in fix


def test_settings_are_those_that_advice_names(monkeypatch):
    monkeypatch.setenv("TF_GPU_ALLOCATOR", "cuda_malloc_async")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert settings()["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert "SECRET_TOKEN" not in settings()
    assert set(settings()) <= {*VARIABLES, TORCH_THREADS}
