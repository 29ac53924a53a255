"""The rules of advice: each speaks from its threshold on, and not below it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.advice import step as advice_step
from nbprof.analysis.advice.advice import WORTH_PERCENT, every, without_steps
from nbprof.analysis.advice.devices_used import Idle, InTurn
from nbprof.analysis.advice.evidence import (
    DeviceLoop,
    Evidence,
    HostProducts,
    HostUse,
    Padding,
    Spread,
    Straggler,
)
from nbprof.analysis.advice.facts import INPUT_SHARE, Facts
from nbprof.analysis.advice.programs import Product, Work
from nbprof.analysis.advice.step_code import Callbacks, Part, StepCode
from nbprof.analysis.advice.unrolled import Unrolled
from nbprof.analysis.compiles.again import Again, Group
from nbprof.analysis.compiles.breaks import Breaks
from nbprof.analysis.cpu import CpuSplit, Products
from nbprof.analysis.input.loops import Held, LoopWaits, Received, Restarts
from nbprof.analysis.input.workers import SlowItems
from nbprof.analysis.memory.growth import Growth
from nbprof.analysis.memory.host import HostGrowth
from nbprof.analysis.ops.torch_runtime import Calls, Runtime
from nbprof.analysis.pools import PoolWait, PoolWork
from nbprof.analysis.python import PythonUse, TopFunction
from nbprof.analysis.result_waits import ResultWaits
from nbprof.analysis.rule import ALL, JAX, OURS, PYTORCH, TENSORFLOW, Found, Rule, Target, Threshold
from nbprof.analysis.steps.bare_parts import BareParts
from nbprof.analysis.steps.over_run import Slow, Slowing
from nbprof.analysis.steps.periodic import Periodic
from nbprof.core.pool_times import Pool, PoolTimes
from tests.analysis.test_advice import OWN_LOOP, code, found
from tests.support import advice_page

MS = 1e9
GIB = 2**30
GPU = {
    "name": "A100",
    "kind": "GPU",
    "compute_capability": "8.0",
    "architecture": "Ampere",
    "cores": 100,
    "count": 1,
}
COMPUTE = {"device_compute": 90.0}


def work(*rows, rest=0.0, products=(), unit=128, **more):
    """Ops of so many ms and what they are: 100 ms with `rest` in ops that are nothing special."""
    plain = {
        "program": "jit_step(1)", "category": "convolution fusion", "framework_op": "", "runs": 10.0, "compute_fraction": 0.9, "shape": "f32[8]",
        "bandwidth_fraction": 0.1, "known": True, "moves": False, "spreads": False, "narrow": True,
    }  # fmt: skip
    ops = [
        {**plain, "name": f"op.{i}", **row}
        for i, row in enumerate([*rows, *([{"own": rest}] if rest else [])])
    ]
    table = pd.DataFrame(ops).astype({"own": float})
    table["own"] *= MS
    table["narrow"] = table["narrow"].astype("boolean")
    return Evidence(work=Work(table, float(table["own"].sum()), list(products), unit, **more))


def product(rows, depth, columns, batch=0, spatial=False):
    return Product(0, rows, depth, columns, batch, spatial)


AUGMENT = TopFunction("augment", "Cell [3]", 12, "", 0.6, 0.5)
SPLIT = CpuSplit(0.5, 2000.0, 1500.0, "aten::add", 50.0)


def host(parts, used=8.0, cpu=SPLIT, **more):
    """What the host did on a machine with 8 cores, in percent of a step."""
    use = PythonUse(1.0, 0.0, 0.0, 0.0, AUGMENT, None, AUGMENT)
    return Evidence(
        host=HostUse(parts, use, cpu, {"cores": 8.0, "own_cores": used, "other_cores": 0.0}, **more)
    )


def programs_between(count, **parts):
    """Programs in a step, and what the host did between them, as fractions."""
    use = PythonUse(0.0, 0.0, 0.0, 0.0, None, None, None)._replace(**parts)
    return Evidence(programs_per_step=count, host=HostUse({}, use, None, {}))


def broken(ms, **more):
    """Graphs that break at a line, for so long in a step of 100 ms."""
    breaks = Breaks(1, ms, 4.0, float("nan"), "step", "train.py:7", "", ms)
    return torch() | {"evidence": Evidence(graph_breaks=breaks._replace(**more))}


def compiled_again(ms):
    group = Group("tensorflow", "step", "train.py:7", "shape", "x", "x is 3 and was 2", 4)
    return Again(4, ms, True, group, ms)


def pool(percent):
    """A wait for a pool in so much of a step."""
    times = PoolTimes((Pool("Pool", 2, 8, ((0, 10**9),), False, False),))
    return PoolWait(percent, percent, AUGMENT, "Pool", PoolWork(times, 0), "", "")


def libraries(percent, samples=20, **more):
    """The same of a program that spends so much of a step in code of libraries."""
    use = PythonUse(0.0, 1.0, 0.0, 0.0, None, AUGMENT, None, None, samples, 1.0, AUGMENT)
    return Evidence(host=HostUse({}, use, SPLIT, {}, library=percent), **more)


def waiting(ms, busy=20.0, where=AUGMENT):
    """A JAX program that waits for its results for so long in a step, and how busy its device
    is.
    """
    host = HostUse({}, None, None, {}, waits=ResultWaits(ms, where))
    return jax(evidence=Evidence(host=host), device_busy_percent=busy)


def of_some(ms):
    """Every tenth step takes longer, which is so many ms per step on average, in no recorded
    event.
    """
    return Periodic(
        every=10,
        slow=4,
        steps=40,
        chance=1e-9,
        extra_ms=10 * ms,
        category="other",
        category_ms=10 * ms,
    )


def eager_host(parts, programs=2.0):
    """The same of a program that runs so many compiled programs in a step."""
    return host(parts).with_values(programs_per_step=programs)


def alone(own_ms):
    return pd.DataFrame(
        {"program": ["jit_add(1)", "jit_mul(2)"], "own": [own_ms * MS / 2] * 2, "runs": 1.0}
    )


def kernels(*rows):
    plain = {
        "kernel": "k",
        "op": "dense/MatMul",
        "op_tensor_core_eligible": False,
        "uses_tensor_core": True,
        "occurrences": 10,
        "grid": "200,1,1",
    }
    return pd.DataFrame([{**plain, **row} for row in rows])


def gpu(**more):
    return {"parts": COMPUTE, "environment": {"devices": [GPU]}, **more}


def jax(**more):
    return {"parts": COMPUTE, "framework": "JAX", **more}


def torch(parts=None, **more):
    return {"parts": parts or COMPUTE, "framework": "PyTorch", "runtime": Runtime(**more)}


def slow_conv3d(ms, torch_version="2.9.1+cu128", cudnn="9.10.2", op="aten::slow_conv_dilated3d"):
    """90 ms of kernels a step, of which so many are of one op."""
    all_kernels = kernels(
        {"op": op, "total_us": 10.0 * ms}, {"op": "aten::mm", "total_us": 10.0 * (90 - ms)}
    )
    versions = {name: text for name, text in (("PyTorch", torch_version), ("cuDNN", cudnn)) if text}
    return {**torch(), "kernels": all_kernels, "evidence": Evidence(versions=versions)}


def optimizer(idle, launches=50.0, name="Adam"):
    return torch(
        optimizer=f"Optimizer.step#{name}.step",
        optimizer_ms=9.0,
        optimizer_idle_ms=idle,
        optimizer_launches=launches,
    )


def chained(times):
    return jax(
        evidence=Evidence(unrolled=Unrolled("jit_step", 1000, times, "f32[8,8]", "model.py:12"))
    )


def short(count, mean, share=10):
    return kernels({"occurrences": count * share, "total_us": count * share * mean})


def pipeline(*chain, own_ms=50.0, input_ms=50.0, **more):
    """Steps that wait for a pipeline of these iterators, the last of which is its bottleneck."""
    names = ["::".join(["Iterator", *chain[: i + 1]]) for i in range(len(chain))]
    nodes = pd.DataFrame(
        {
            "host": "h",
            "pipeline": "Host:0",
            "iterator": chain,
            "long_name": names,
            "id": names,
            "parent": [None, *names[:-1]],
        }
    )
    nodes = nodes.assign(
        self_ms=own_ms,
        total_ms=own_ms,
        calls=10,
        bottleneck=[False] * (len(chain) - 1) + [True],
        note="",
        blocking=True,
    )
    slowest = {
        "host": "h",
        "pipeline": "Host:0",
        "bottleneck": chain[-1],
        "advice": "Read in **parallel**.",
        "fix": "+ds = ds",
        "max_us": 9e3,
    }
    return {
        "parts": {"input": input_ms},
        "nodes": nodes,
        "pipelines": pd.DataFrame([slowest]),
        **more,
    }


def epochs(
    *calls,
    turns=True,
    kind="ParallelMapV2",
    shapes="[64,64,3] []",
    types="float int64",
    ran=("DecodeJpeg",),
    below="",
    **more,
):
    """Steps that wait for a pipeline whose epochs asked their bottleneck so often."""
    top = ["Iterator::Root", "Iterator::Root::Repeat"] if turns else ["Iterator::Root"]
    chains = [[*top, f"{top[-1]}{f'[{n}]' if turns else ''}::{kind}"] for n in range(len(calls))]
    rows = [
        {
            "host": "h", "pipeline": "Host:0" if turns else f"Host:{n}", "iterator": name.rpartition("::")[2], "long_name": name,
            "id": str(10 * n + index if index == len(chain) - 1 or not turns else index), "parent": None if not index else chain[index - 1],
            "self_ms": 50.0, "total_ms": 50.0, "calls": count, "bottleneck": n == 0 and index == len(chain) - 1, "note": "", "blocking": True,
        }
        for n, (chain, count) in enumerate(zip(chains, calls, strict=True))
        for index, name in enumerate(chain)
        if not turns or n == 0 or index == len(chain) - 1
    ]  # fmt: skip
    if below:
        (slow,) = (row for row in rows if row["bottleneck"])
        source = {
            "iterator": below,
            "long_name": f"{slow['long_name']}::{below}",
            "parent": slow["id"],
            "bottleneck": False,
        }
        rows.append({**slow, **source})
    versions = {
        int(row["id"]): {"shapes": shapes, "types": types, "ram_budget_megabytes": 1000}
        for row in rows
    }
    asked = pipeline("Root", kind)
    slowest = pd.concat(
        [
            asked["pipelines"].assign(pipeline=name)
            for name in dict.fromkeys(row["pipeline"] for row in rows)
        ]
    )
    evidence = Evidence(iterators=versions, iterator_functions=dict.fromkeys(ran, 9.0))
    return {
        **asked,
        "nodes": pd.DataFrame(rows),
        "pipelines": slowest,
        "evidence": evidence,
        **more,
    }


def mapped(*chain, own_ms, ran=0.01, batch=None, input_ms=5.0):
    """Steps that wait for the last of these iterators, which took so many ms of 10 calls, and the
    ops of its function so many.
    """
    asked = pipeline("Root", *chain, own_ms=own_ms, input_ms=input_ms)
    nodes = asked["nodes"].assign(id=[str(index) for index in range(len(chain) + 1)])
    # The iterators above took the rest of what the steps wait for, ahead of them.
    nodes.loc[~nodes["bottleneck"], ["self_ms", "total_ms"]] = 50.0
    nodes["blocking"] = nodes["bottleneck"]
    last = {} if batch is None else {len(chain): {"batch_size": batch}}
    return {
        **asked,
        "nodes": nodes,
        "evidence": Evidence(
            iterators=last, iterator_functions={} if ran is None else {"Cast": ran}
        ),
    }


def eligible(share):
    row = {"op_tensor_core_eligible": True, "uses_tensor_core": False, "total_us": share}
    return kernels(row, {"total_us": 100.0 - share})


def loader(kind, ms=1.0, input_ms=5.0):
    return torch(
        {"input": input_ms},
        loader=f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__",
        loader_ms=ms,
    )


SLOW_ITEMS = SlowItems(40, "1312", 310.0, 5.0, 25.0)


def in_loop(parts=None, **more):
    """A step of 100 ms whose loop waits for these, with 3 workers."""
    asked = torch(parts or {"input": 30.0})
    return {**asked, "evidence": Evidence(loop=LoopWaits(workers=3, **more))}


def traced(percent, ms):
    return {"functions": OWN_LOOP.assign(expensive_percent=percent, expensive_ms_per_step=ms)}


def called(kind, ms, parts=None, **more):
    return {**torch(parts, calls={kind: Calls(9, ms, "cudaCall")}), **more}


def host_ops(share=15.0, eager=50.0, idle=15.0, **more):
    return {
        **torch({"host_compute": share, "device_compute": 100.0 - share}, **more),
        "device_idle_percent": idle,
        "eager_host_percent": eager,
    }


def rhythm(
    per_step,
    name="aten::linear",
    what_ms=15.0,
    category="host_compute",
    category_ms=30.0,
    chance=0.01,
    validated=0.0,
):
    """Every tenth step is 30 ms longer where `per_step` is 3."""
    times = {"extra_ms": 10 * per_step, "category_ms": category_ms, "what_ms": what_ms}
    rhythm = Periodic(
        every=10,
        slow=4,
        steps=40,
        chance=chance,
        category=category,
        what=name,
        more=6.0,
        fewer=3.0,
        **times,
    )
    step = StepCode(ungraded=Part(0.1, validated)) if validated else StepCode()
    return torch() | {"evidence": Evidence(periodic=rhythm, code=step)}


def growing(steps=10, rising=0.9, each=1000.0, **more):
    growth = Growth(
        "GPU:0", steps, rising, each, grown=10_000, peak=1_000_000, capacity=2_000_000, **more
    )
    return torch() | {"evidence": Evidence(growth=growth)}


def host_growing(each=2e6, steps=400, rising=0.95, jump=0.1, **more):
    """A process of 10 GB that keeps so much of each step."""
    growth = HostGrowth(steps, each, rising, jump, resident=10_000_000_000, capacity=0)
    return {"evidence": Evidence(host_growth=replace(growth, **more))}


def buffer(*chain, held=4e9, resident=10_000_000_000):
    """A pipeline whose first iterator below the root holds so many bytes in 1,000 elements."""
    asked = pipeline("Root", *chain)
    held_by = [None, held, *[None] * (len(chain) - 1)]
    nodes = asked["nodes"].assign(buffered_bytes=pd.array(held_by, "Int64"), buffered_elements=1000)
    return {**asked, "nodes": nodes, "evidence": Evidence(host_peak_bytes=resident)}


def slow_unrecorded(share=0.03, chance=0.01, **more):
    """Every 500th step is slow, of steps that no profiler recorded."""
    slow = Slow(
        every=500,
        numbers=np.array([999, 1499, 1999]),
        steps=1500,
        chance=chance,
        extra_ms=100.0,
        share=share,
        recorded=np.zeros(0, np.int64),
        **{"between": False, "of_others_ms": 0.0, "example": (997, 999), **more},
    )
    return {"evidence": Evidence(slow_unrecorded=slow)}


def slowing(last_ms):
    return {"evidence": Evidence(slowing=Slowing(500, 10.0, last_ms))}


def written(**values):
    return {"evidence": Evidence(code=StepCode(**values))}


def on_cpu(**more):
    """Steps of 100 ms without a device, with an optimizer that calls op after op."""
    figures = {
        "optimizer": "Optimizer.step#Adam.step",
        "optimizer_ms": 15.0,
        "optimizer_ops": 50.0,
        "optimizer_op_us": 10.0,
    }
    return torch({"host_compute": 100.0}, **{**figures, **more})


SMALL, WIDE = {"own": 50.0}, {"own": 50.0, "bandwidth_fraction": 0.6}
RULES = {
    "input_ahead": [
        ({"parts": {"input": 5.0}, "framework": "JAX", "evidence": Evidence(copied_ms=2.5)}, False),
        ({"parts": {"input": 5.0}, "framework": "JAX"}, True),
        ({"parts": {"input": 4.99}, "framework": "JAX"}, False),
        ({"parts": {"input": 5.0}}, False),
        ({"parts": {"input": 9.0}, "framework": "JAX", "evidence": Evidence(later_input_percent=5.0)}, True),
        ({"parts": {"input": 9.0}, "framework": "JAX", "evidence": Evidence(later_input_percent=4.99)}, False),
    ],
    "arrays_copied": [
        ({"parts": {"input": 5.0}, "framework": "JAX", "evidence": Evidence(copied_ms=2.5)}, True),
        ({"parts": {"input": 5.0}, "framework": "JAX", "evidence": Evidence(copied_ms=2.49)}, False),
        ({"parts": {"input": 4.99}, "framework": "JAX", "evidence": Evidence(copied_ms=4.0)}, False),
        ({"parts": {"input": 5.0}, "framework": "JAX"}, False),
        ({"parts": {"input": 5.0}, "evidence": Evidence(copied_ms=5.0, copied_bytes=2.0**25)}, True),
        (pipeline("Root", "Prefetch", evidence=Evidence(copied_ms=50.0)), False),
    ],
    "input_outside_tf_data": [
        ({"parts": {"input": 5.0}, "evidence": Evidence(copied_ms=2.5)}, False),
        ({"parts": {"input": 5.0}}, True),
        ({"parts": {"input": 4.99}}, False),
        ({"parts": {"input": 5.0}, "framework": "JAX"}, False),
        (pipeline("Root", "ParallelMapV2", "Zip[0]", "FlatMap"), True),
    ],
    "input_copies": [
        (pipeline("Root", "Prefetch", own_ms=49.9), True),
        (pipeline("Root", "Prefetch", own_ms=50.0), False),
        (pipeline("Root", "Prefetch", own_ms=49.9, devices=0), False),
    ],
    "cache_missing": [
        (epochs(513, 513, 40), True),
        (epochs(513, 40), False),
        (epochs(513, 512, 40), False),
        (epochs(513, 513, 40, parts={"input": 4.99}), False),
        (epochs(513, 513, 40, ran=()), False),
        (epochs(513, 513, 40, ran=("DecodeJpeg", "StatelessRandomUniformV2")), False),
        (epochs(513, 513, 40, ran=("EagerPyFunc",)), False),
        (epochs(513, 513, 40, ran=("PyFuncStateless",)), True),
        (epochs(513, 513, 40, kind="TFRecord", ran=(), shapes="[10]"), False),
        (epochs(513, 513, 40, kind="TFRecord", ran=(), shapes="[]", types="float"), True),
        (epochs(513, 513, 40, kind="TensorSlice"), False),
        (epochs(513, 513, 40, kind="MemoryCacheImpl::ParallelMapV2"), False),
        (epochs(513, 513, 40, kind="Generator"), False),
        (epochs(40, 513, 513, below="TensorSlice"), True),
        (epochs(40, 513, 513, below="Generator"), False),
        (epochs(513, 513, 40, shapes="[?,64,3] []"), False),
        (epochs(513, 513, 40, types="string int64"), False),
        # An element is 49,160 bytes.
        (epochs(20_342, 20_342), False),
        (epochs(20_341, 20_341), True),
        (epochs(16, 16, 16, turns=False), True),
        (epochs(16, 16, turns=False), False),
    ],
    "map_of_items": [
        (mapped("BatchV2", "ParallelMapV2", own_ms=1.0, ran=0.19), True),
        (mapped("BatchV2", "ParallelMapV2", own_ms=1.0, ran=0.2), False),
        (mapped("BatchV2", "ParallelMapV2", own_ms=1.0, ran=None), False),
        (mapped("PaddedBatch", "Map", own_ms=2.0), True),
        (mapped("PaddedBatch", "Map", own_ms=2.01), False),
        (mapped("Prefetch", "ParallelMapV2", own_ms=1.0), False),
        (mapped("BatchV2", "TFRecord", own_ms=1.0), False),
        (mapped("Prefetch", "MapAndBatch", own_ms=50.0, batch=100), True),
        (mapped("Prefetch", "MapAndBatch", own_ms=50.0, batch=10), False),
        (mapped("Prefetch", "MapAndBatch", own_ms=50.0), False),
        (mapped("BatchV2", "ParallelMapV2", own_ms=1.0, input_ms=4.99), False),
    ],
    "map_serial": [
        (pipeline("Root", "Map"), True),
        (pipeline("Root", "ParallelMapV2"), False),
        (pipeline("Root", "Map", input_ms=4.99), False),
        (pipeline("Root", "Map", own_ms=49.9), False),
        (pipeline("Root", "MemoryCacheImpl", "Map"), False),
        (pipeline("Root", "Map", evidence=Evidence(later_input_percent=4.99)), False),
        # Without its first call, in which it starts, each of the other nine steps waits for 5 ms,
        # or for less.
        (pipeline("Root", "Map", evidence=Evidence(first_calls={("h", "Host:0"): 5.0})), True),
        (pipeline("Root", "Map", evidence=Evidence(first_calls={("h", "Host:0"): 5.1})), False),
    ],
    "input_bottleneck": [(pipeline("Root", "TFRecord"), True), (pipeline("Root", "Map"), False), (pipeline("Root", "TFRecord", own_ms=49.9), False)],
    "prefetch_missing": [(pipeline("Root", "Map"), True), (pipeline("Root", "Prefetch", "Map"), False)],
    "loader_none": [
        (torch({"input": 5.0}, iterator_ms=1.0), True),
        (torch({"input": 5.0}, iterator_ms=0.99), False),
        (torch({"input": 4.99}, iterator_ms=4.0), False),
    ],
    "loader_in_process": [
        (loader("SingleProcess"), True),
        (loader("SingleProcess", 0.99), False),
        (loader("SingleProcess", 4.0, 4.99), False),
        (loader("MultiProcessing"), False),
    ],
    "loader_workers": [
        (loader("MultiProcessing"), True),
        ({**loader("MultiProcessing"), "evidence": Evidence(later_input_percent=4.99)}, False), (loader("MultiProcessing", 0.99), False), (loader("SingleProcess"), False)],
    "loader_slow_items": [
        (in_loop(held=Held(SLOW_ITEMS, 5.0)), True),
        (in_loop(held=Held(SLOW_ITEMS, 4.99)), False),
        (in_loop({"input": 4.99}, held=Held(SLOW_ITEMS, 5.0)), False),
        (in_loop(), False),
    ],
    "loader_restarts": [
        (in_loop(restarts=Restarts(2, 1900.0, 5.0)), True),
        (in_loop(restarts=Restarts(2, 1900.0, 4.99)), False),
        (in_loop({"input": 4.99}, restarts=Restarts(2, 1900.0, 5.0)), False),
        (in_loop(), False),
    ],
    "loader_pickle": [
        (in_loop(received=Received(1e6, 5.0)), True),
        (in_loop(received=Received(0.99e6, 5.0)), False),
        (in_loop(received=Received(1e6, 4.99)), False),
        (in_loop(), False),
    ],
    "pinned_memory": [
        (torch({"input": 5.0}, pageable_bytes=2.0**20, calls={"copy H2D": Calls(1, 1.0, "cudaMemcpyAsync")}), True),
        (torch({"input": 5.0}, pageable_bytes=2.0**20, calls={"copy H2D": Calls(1, 0.99, "cudaMemcpyAsync")}), False),
        (torch({"input": 5.0}, calls={"copy H2D": Calls(1, 1.0, "cudaMemcpyAsync")}), False),
        (torch({"input": 4.99}, pageable_bytes=2.0**20, calls={"copy H2D": Calls(1, 1.0, "cudaMemcpyAsync")}), False),
    ],
    "kernel_launch": [
        ({"parts": {"kernel_launch": 3.0}}, True),
        ({"parts": {"kernel_launch": 2.99}}, False),
        (jax(evidence=Evidence(programs_per_step=2.0)) | {"parts": {"kernel_launch": 3.0}}, True),
        (jax(evidence=Evidence(programs_per_step=1.9)) | {"parts": {"kernel_launch": 3.0}}, False),
        (jax(evidence=Evidence(programs_per_step=1.0, device_loop=DeviceLoop(10.0, 30.0, 0.5))) | {"parts": {"kernel_launch": 3.0}}, True),
        (jax(evidence=Evidence(programs_per_step=1.0, device_loop=DeviceLoop(9.9, 30.0, 0.5))) | {"parts": {"kernel_launch": 3.0}}, False),
        (jax(evidence=Evidence(programs_per_step=1.0, device_loop=DeviceLoop(99.0, 30.0, 0.49))) | {"parts": {"kernel_launch": 3.0}}, False),
        (torch({"kernel_launch": 3.0}), True),
        (torch({"kernel_launch": 2.99}), False),
        (torch({"kernel_launch": 3.0}, calls={"launch": Calls(9, 1.5, "cudaLaunchKernel"), "graph": Calls(1, 1.5, "cudaGraphLaunch")}), True),
        (torch({"kernel_launch": 3.0}, calls={"launch": Calls(9, 1.5, "cudaLaunchKernel"), "graph": Calls(1, 1.6, "cudaGraphLaunch")}), False),
    ],
    "allocator": [(called("allocate", 3.0), True), (called("allocate", 2.99), False)],
    "host_ops": [
        (host_ops(), True),
        (host_ops(14.9), False),
        (host_ops(eager=49.9), False),
        (host_ops(idle=None), False),
        (host_ops(calls={"allocate": Calls(9, 12.1, "cudaFree")}), False),
    ],
    "mixed_precision": [
        (gpu(compute_16bit_percent=9.9), True),
        (gpu(compute_16bit_percent=10.0), False),
        (gpu(compute_16bit_percent=0.0, environment={"devices": [{**GPU, "compute_capability": "6.1"}]}), False),
        ({**torch(), "compute_16bit_percent": 9.9}, True),
        ({**torch(), "compute_16bit_percent": 10.0}, False),
        ({**torch(capability=(6, 1)), "compute_16bit_percent": 0.0}, False),
    ],
    "tensor_cores": [
        (gpu(kernels=eligible(10.0)), True),
        (gpu(kernels=eligible(9.9)), False),
        ({**torch(capability=(8, 0)), "kernels": eligible(10.0)}, True),
        ({**torch(capability=(8, 0)), "kernels": eligible(9.9)}, False),
        ({**torch(capability=(6, 1)), "kernels": eligible(90.0)}, False),
    ],
    "eager": [({"eager_host_percent": 10.1}, True), ({"eager_host_percent": 10.0}, False), ({**torch(), "eager_host_percent": 90.0}, False)],
    "tf_function": [(traced(20.0, 3.0), True), (traced(19.9, 3.0), False), (traced(20.0, 2.99), False)],
    "outside_compilation": [(jax(outside_compilation_percent=5.1), True), (jax(outside_compilation_percent=5.0), False)],
    "collectives": [
        ({"parts": {"device_collectives": 3.0}}, True),
        ({"parts": {"device_collectives": 2.99}}, False),
        (torch({"device_collectives": 3.0}), True),
        (torch({"device_collectives": 2.99}), False),
    ],
    "output": [
        ({"parts": {"output": 5.0}}, True),
        ({"parts": {"output": 4.99}}, False),
        (torch({"output": 5.0}), True),
        ({"parts": {"output": 9.0}, "host_transfer_percent": 5.0}, False),
    ],
    "host_memory": [
        ({"parts": {"input": 5.0, "output": 4.0}, "framework": "JAX", "host_transfer_percent": 5.0}, True),
        ({"parts": {"input": 5.0, "output": 4.0}, "framework": "JAX", "host_transfer_percent": 4.99}, False),
        ({"parts": {"input": 6.0, "output": 4.0}, "framework": "JAX", "host_transfer_percent": 5.0}, False),
    ],
    "waits": [
        (called("sync", 3.0, device_idle_percent=10.0), True),
        (called("sync", 2.99, device_idle_percent=10.0), False),
        (called("sync", 3.0, device_idle_percent=9.9), False),
        (called("copy D2H", 3.0, device_idle_percent=10.0), True),
    ],
    "other": [
        ({"parts": {"other": 15.0}}, True),
        ({"parts": {"other": 14.99}}, False),
        (torch({"other": 25.0}), True),
        (torch({"other": 24.99}), False),
        (jax(parts={"other": 15.0}, evidence=Evidence(programs_per_step=9.9)), True),
        (jax(parts={"other": 15.0}, evidence=Evidence(programs_per_step=10.0)), False),
        ({"parts": {"other": 50.0}, "eager_host_percent": 10.1}, False),
    ],
    "jit": [
        (jax(parts={"other": 60.0}, evidence=programs_between(10, waiting=0.74)), True),
        (jax(parts={"other": 60.0}, evidence=programs_between(10, waiting=0.76)), False),
        (jax(parts={"other": 60.0}, evidence=programs_between(10, library=0.76, named=0.76)), False),
        (jax(parts={"other": 15.0}, evidence=Evidence(programs_per_step=10.0)), True),
        (jax(parts={"other": 15.0}, evidence=Evidence(programs_per_step=9.9)), False),
        (jax(parts={"other": 14.9}, evidence=Evidence(programs_per_step=60.0)), False),
        ({"parts": {"other": 15.0}, "evidence": Evidence(programs_per_step=60.0)}, False),
    ],
    "batch_per_core": [
        (jax(evidence=work({"own": 10.0}, rest=90.0, products=[product(9, 512, 512, 9)])), True),
        (jax(evidence=work({"own": 9.9}, rest=90.1, products=[product(9, 512, 512, 9)])), False),
        (jax(evidence=work({"own": 50.0}, rest=50.0, products=[product(104, 512, 512, 104)])), False),
        (jax(evidence=work({"own": 50.0}, rest=50.0, products=[product(100, 512, 512, 100)], unit=0)), False),
    ],
    "slow_versions": [
        (slow_conv3d(3.0), True),
        (slow_conv3d(2.9), False),
        (slow_conv3d(50.0, "2.9.0", cudnn=""), True),
        (slow_conv3d(50.0, "2.9.0", cudnn="9.16.0"), True),
        (slow_conv3d(50.0, "2.8.0"), False),
        (slow_conv3d(50.0, "2.10.0"), False),
        (slow_conv3d(50.0, cudnn="9.15.0"), False),
        (slow_conv3d(50.0, cudnn=""), False),
        (slow_conv3d(50.0, torch_version=""), False),
        (slow_conv3d(50.0, op="aten::cudnn_convolution"), False),
    ],
    "layout_pairs": [
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 24, 24, 64)])), True),
        # 512 x 24 in tiles is 512 x 24 with the batch along the columns; 64 x 24 is 64 x 128 or 128
        # x 24.
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 1024, 24, 64)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(512, 24, 24, 512)])), False),
        (jax(evidence=work({**WIDE, "own": 11.0}, rest=89.0, products=[product(64, 24, 24, 64)])), True),
        (jax(evidence=work({**WIDE, "own": 10.9}, rest=89.1, products=[product(64, 24, 24, 64)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 128, 128, 64)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 24, 24)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(60, 24, 24, 60)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 24, 24, 64, spatial=True)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(64, 24, 24, 64)], unit=0)), False),
        (jax(evidence=work({**WIDE, "bandwidth_fraction": 0.59}, rest=50.0, products=[product(64, 24, 24, 64)])), False),
        (jax(evidence=work(SMALL, rest=50.0, products=[product(64, 24, 24, 64)])), False),
    ],
    "mxu_size": [
        # A quarter of a unit of 128 is empty: 96 of 128.
        (jax(evidence=work({"own": 20.1}, rest=79.9, products=[product(512, 96, 512)])), True),
        (jax(evidence=work({"own": 19.9}, rest=80.1, products=[product(512, 96, 512)])), False),
        (jax(evidence=work(WIDE, rest=50.0, products=[product(512, 96, 512)])), False),
        (jax(evidence=work(SMALL, rest=50.0, products=[product(512, 512, 96)])), False),
        (jax(evidence=work(SMALL, rest=50.0, products=[product(64, 512, 96)])), True),
    ],
    "mxu_alignment": [
        (jax(evidence=work({"own": 20.1}, rest=79.9, products=[product(512, 192, 512)])), True),
        (jax(evidence=work({"own": 19.9}, rest=80.1, products=[product(512, 192, 512)])), False),
        (jax(evidence=work(SMALL, rest=50.0, products=[product(512, 256, 512)])), False),
        (jax(evidence=work(SMALL, rest=50.0, products=[product(512, 128, 512)], unit=256)), False),
    ],
    "tile_padding": [
        (jax(evidence=Evidence(padding=Padding("jit_f(1)", 111 * GIB, 100 * GIB, "x.1", "f32[8,3]", GIB, GIB // 40))), True),
        (jax(evidence=Evidence(padding=Padding("jit_f(1)", 111 * GIB, 100 * GIB), device_bytes=120 * GIB)), True),
        (jax(evidence=Evidence(padding=Padding("jit_f(1)", 2**26 - 1, 2**25))), False),
        (jax(evidence=Evidence(padding=Padding("jit_f(1)", 110 * GIB, 100 * GIB, "x.1", "f32[8,3]", GIB, GIB // 40))), False),
    ],
    "single_ops": [
        (jax(evidence=work({"own": 20.0}, rest=80.0, lonely=alone(20.0))), True),
        (jax(evidence=work({"own": 20.0}, rest=80.0, lonely=alone(19.9))), False),
        ({**jax(evidence=work({"own": 20.0}, rest=80.0, lonely=alone(20.0))), "framework": "TensorFlow"}, False),
    ],
    "unfused": [
        (jax(evidence=work({"own": 20.0, "category": "non-fusion elementwise"}, rest=80.0)), True),
        (jax(evidence=work({"own": 19.9, "category": "non-fusion elementwise"}, rest=80.1)), False),
    ],
    "missed_fusion": [
        (jax(evidence=work({"own": 20.0}, rest=80.0, chained=5.0 * MS, chain="op.0", chains=1)), True),
        (jax(evidence=work({"own": 20.0}, rest=80.0, chained=4.9 * MS, chain="op.0", chains=1)), False),
    ],
    "broadcast": [
        (jax(evidence=work({"own": 2.0, "spreads": True}, rest=98.0)), True),
        (jax(evidence=work({"own": 1.9, "spreads": True}, rest=98.1)), False),
    ],
    "layout": [
        (jax(evidence=work({"own": 5.0, "moves": True}, rest=95.0)), True),
        (jax(evidence=work({"own": 4.9, "moves": True}, rest=95.1)), False),
        (gpu(kernels=kernels({"kernel": "nchwToNhwcKernel", "total_us": 5.0}, {"total_us": 95.0})), True),
        (gpu(kernels=kernels({"kernel": "nchwToNhwcKernel", "total_us": 4.9}, {"total_us": 95.1})), False),
        (gpu(kernels=kernels({"kernel": "scal_kernel(cublasTransposeParams<float>)", "total_us": 50.0}, {"total_us": 50.0})), False),
    ],
    "utilisation": [
        (jax(evidence=work({"own": 100.0, "compute_fraction": 0.49})), True),
        (jax(evidence=work({"own": 100.0, "compute_fraction": 0.5})), False),
        (jax(evidence=work({"own": 100.0, "compute_fraction": 0.1, "bandwidth_fraction": 0.5})), False),
        (jax(evidence=work({"own": 79.0, "compute_fraction": 0.1}, {"own": 21.0, "known": False})), False),
        ({**jax(evidence=work({"own": 100.0, "compute_fraction": 0.49})), "parts": {"device_compute": 49.0}}, False),
    ],
    "gemm_alignment": [
        (gpu(kernels=kernels({"kernel": "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2", "total_us": 5.0}, {"total_us": 95.0})), True),
        (gpu(kernels=kernels({"kernel": "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2", "total_us": 4.9}, {"total_us": 95.1})), False),
        (gpu(kernels=kernels({"kernel": "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align8", "total_us": 50.0})), False),
        (gpu(kernels=kernels({"kernel": "cutlass_80_tensorop_i16832gemm_s8_128x128_64x3_tn_align8", "total_us": 50.0})), True),
        (gpu(kernels=kernels({"kernel": "cutlass_80_tensorop_i16832gemm_s8_128x128_64x3_tn_align16", "total_us": 50.0})), False),
    ],
    "small_kernels": [
        (gpu(kernels=short(1000, 9.9)), True),
        (gpu(kernels=short(999, 9.9)), False),
        (gpu(kernels=short(1000, 10.0)), False),
        ({**gpu(kernels=short(1000, 9.9)), "parts": {"device_compute": 90.0, "kernel_launch": 3.0}}, False),
    ],
    "elementwise_kernels": [
        (gpu(kernels=kernels({"kernel": "Relu_GPU_DT_HALF_DT_HALF_kernel", "total_us": 20.0}, {"total_us": 80.0})), True),
        (gpu(kernels=kernels({"kernel": "Relu_GPU_DT_HALF_DT_HALF_kernel", "total_us": 19.9}, {"total_us": 80.1})), False),
        ({**torch(), "kernels": kernels({"kernel": "void at::native::vectorized_elementwise_kernel<4>", "total_us": 20.0}, {"total_us": 80.0})}, True),
        ({**torch(), "kernels": kernels({"kernel": "triton_poi_fused_add_relu_0", "total_us": 50.0}, {"total_us": 50.0})}, False),
        ({**torch({"device_compute": 90.0, "kernel_launch": 3.0}), "kernels": kernels({"kernel": "elementwise_kernel", "total_us": 50.0})}, False),
    ],
    "small_batch": [
        (gpu(kernels=short(100, 9.9), device_busy_percent=24.9), True),
        (gpu(kernels=short(100, 9.9), device_busy_percent=29.9), True),
        (gpu(kernels=short(100, 9.9), device_busy_percent=30.0), False),
        (gpu(kernels=short(100, 10.0), device_busy_percent=29.9), False),
        (gpu(kernels=short(100, 9.9), device_busy_percent=29.9, peak_memory_bytes=5 * GIB, memory_capacity_bytes=10 * GIB), False),
        ({**gpu(kernels=short(100, 9.9), device_busy_percent=29.9), "parts": {"input": 20.0}}, False),
        ({**torch(), "kernels": short(100, 9.9), "device_busy_percent": 49.9}, True),
        ({**torch(), "kernels": short(100, 9.9), "device_busy_percent": 50.0}, False),
        ({**torch(calls={"allocate": Calls(9, 16.0, "cudaFree")}), "kernels": short(100, 9.9), "device_busy_percent": 49.9}, False),
    ],
    "few_blocks": [
        (gpu(kernels=kernels({"grid": "79,1,1", "total_us": 100.0})), True),
        (gpu(kernels=kernels({"grid": "27,3,1", "total_us": 100.0})), False),
        (gpu(kernels=kernels({"grid": "1,1,1", "total_us": 100.0, "kernel": "ncclDevKernel_AllReduce"}, {"total_us": 1.0})), False),
        ({**gpu(kernels=kernels({"grid": "1,1,1", "total_us": 100.0})), "environment": {"devices": [{**GPU, "architecture": None}]}}, False),
    ],
    "placement": [
        ({"parts": {"host_compute": 50.0}, "evidence": Evidence(host_products=HostProducts(10.0, 9.0, "conv/Conv2D", 100.0))}, True),
        ({"parts": {"host_compute": 50.0}, "evidence": Evidence(host_products=HostProducts(9.9, 9.0, "conv/Conv2D", 100.0))}, False),
        ({"parts": {"host_compute": 50.0}, "evidence": Evidence(host_products=HostProducts(10.0, 9.0, "conv/Conv2D", 99.0))}, False),
    ],
    "host_bound": [
        ({"parts": {"host_compute": 15.0, "device_compute": 85.0}, "device_idle_percent": 10.0}, True),
        ({"parts": {"host_compute": 14.9, "device_compute": 85.1}, "device_idle_percent": 10.0}, False),
        ({"parts": {"host_compute": 15.0, "device_compute": 85.0}, "device_idle_percent": 9.9}, False),
        ({"parts": {"host_compute": 15.0, "device_compute": 85.0}, "device_idle_percent": None}, False),
        ({**torch({"host_compute": 50.0}), "device_idle_percent": 50.0}, False),
    ],
    "compile": [
        ({"parts": {"compile": 3.0}}, True),
        ({"parts": {"compile": 2.99}}, False),
        ({"parts": {"compile": 3.0}, "evidence": Evidence(compiling=2)}, True),
        ({"parts": {"compile": 90.0}, "evidence": Evidence(compiling=1)}, False),
        ({"evidence": Evidence(compiled_again=compiled_again(3.0))}, True),
        ({"evidence": Evidence(compiled_again=compiled_again(2.99))}, False),
    ],
    "memory_full": [
        (gpu(peak_memory_bytes=9 * GIB, memory_capacity_bytes=10 * GIB), True),
        (gpu(peak_memory_bytes=9 * GIB - 1, memory_capacity_bytes=10 * GIB), False),
        ({**torch(), "peak_memory_bytes": 9 * GIB, "memory_capacity_bytes": 10 * GIB}, True),
        ({**torch(), "peak_memory_bytes": 9 * GIB - 1, "memory_capacity_bytes": 10 * GIB}, False),
    ],
    "fragmentation": [
        (gpu(peak_memory_bytes=8 * GIB, memory_capacity_bytes=10 * GIB, evidence=Evidence(fragmentation=0.31)), True),
        (gpu(peak_memory_bytes=8 * GIB, memory_capacity_bytes=10 * GIB, evidence=Evidence(fragmentation=0.3)), False),
        (gpu(peak_memory_bytes=8 * GIB - 1, memory_capacity_bytes=10 * GIB, evidence=Evidence(fragmentation=0.31)), False),
        (
            {**torch(), "peak_memory_bytes": GIB, "memory_capacity_bytes": 10 * GIB, "evidence": Evidence(fragmentation=0.4, reserved_bytes=8 * GIB)},
            True,
        ),
        (
            {**torch(), "peak_memory_bytes": GIB, "memory_capacity_bytes": 10 * GIB, "evidence": Evidence(fragmentation=0.4, reserved_bytes=7 * GIB)},
            False,
        ),
    ],
    "straggler": [
        ({"evidence": Evidence(straggler=Straggler("rank 3", 1.0, 9, 10, ""))}, True),
        ({"evidence": Evidence(straggler=Straggler("rank 3", 0.9, 9, 10, ""))}, False),
        ({"evidence": Evidence(straggler=Straggler("rank 3", 1.0, 9, 10, "", waited_for=False))}, True),
    ],
    "uneven_workers": [
        ({"parts": {"device_compute": 60.0, "device_collectives": 9.0}, "evidence": Evidence(spread=Spread("host-a:1", 63.1, 60.0, 8))}, True),
        ({"parts": {"device_compute": 60.0, "device_collectives": 9.0}, "evidence": Evidence(spread=Spread("host-a:1", 63.0, 60.0, 8))}, False),
        ({"parts": {"device_compute": 60.0, "device_collectives": 2.9}, "evidence": Evidence(spread=Spread("host-a:1", 70.0, 60.0, 8))}, False),
    ],
    "between_steps": [
        ({"evidence": Evidence(between_ms=11.2)}, True),
        ({"evidence": Evidence(between_ms=11.1)}, False),
        ({"evidence": Evidence(between_ms=11.2, between_input_ms=5.6)}, False),
    ],
    "input_outside_steps": [
        ({"evidence": Evidence(between_ms=11.2, between_input_ms=5.6)}, True),
        ({"evidence": Evidence(between_ms=11.2, between_input_ms=5.5)}, False),
        ({"evidence": Evidence(between_ms=11.2)}, False),
        (jax(evidence=Evidence(between_ms=100.0, between_input_ms=90.0)), True),
    ],
    "copies_exposed": [
        (torch({"input": 15.0}, pinned_ms=10.0), True),
        (torch({"input": 15.0}, pinned_ms=9.9), False),
        (torch({"input": 15.0}, pinned_ms=10.0, pageable_bytes=1.0), False),
        (torch({"input": 15.0}, pinned_ms=10.0, loader_ms=11.0, loader="x"), False),
    ],
    "float64": [
        (written(float64_percent=10.0, float64_op="aten::mm"), True),
        (written(float64_percent=9.9), False),
        ({**jax(), **written(float64_percent=10.0, float64_op="dot.1")}, True),
        ({**torch(), **written(float64_percent=10.0)}, True),
        (gpu(kernels=kernels({"kernel": "volta_dgemm_64x64_nn", "total_us": 10.0}, {"total_us": 90.0})), True),
        (gpu(kernels=kernels({"kernel": "volta_dgemm_64x64_nn", "total_us": 9.9}, {"total_us": 90.1})), False),
        # That no tensor is of 64 bits is known.
        ({**gpu(kernels=kernels({"kernel": "volta_dgemm_64x64_nn", "total_us": 10.0})), **written(float64_percent=0.0)}, False),
    ],
    "host_callback": [
        (written(callbacks=Callbacks(1.0, 3.0, "PyFunc", alone_ms=3.0)), True),
        (written(callbacks=Callbacks(1.0, 2.99, "PyFunc", alone_ms=2.99)), False),
        # Other ops of the step run meanwhile.
        (written(callbacks=Callbacks(1.0, 30.0, "PyFunc", alone_ms=2.99)), False),
        ({**jax(), **written(callbacks=Callbacks(2.0, 15.0, "pure_callback.1", alone_ms=4.0))}, True),
    ],
    "time_loop": [
        ({**torch({"host_compute": 100.0}), **written(cells=Part(8.0, 15.0, "aten::lstm_cell", 99.0))}, True),
        ({**torch({"host_compute": 100.0}), **written(cells=Part(7.9, 15.0, "aten::lstm_cell", 99.0))}, False),
        ({**torch({"host_compute": 100.0}), **written(cells=Part(8.0, 14.9, "aten::lstm_cell", 99.0))}, False),
        ({**torch(), **written(cells=Part(8.0, 15.0, "aten::gru_cell", 99.0)), "device_idle_percent": 10.0}, True),
        ({**torch(), **written(cells=Part(8.0, 15.0, "aten::gru_cell", 99.0)), "device_idle_percent": 9.9}, False),
    ],
    "attention": [
        ({**torch(), **written(attention=Part(1.0, 10.0))}, True),
        ({**torch(), **written(attention=Part(1.0, 9.9))}, False),
    ],
    "validation": [
        ({**torch(), **written(ungraded=Part(0.5, 15.0))}, True),
        ({**torch(), **written(ungraded=Part(0.5, 14.9))}, False),
    ],
    "tiny_batch": [
        ({**torch({"host_compute": 100.0}), **written(most_rows=7)}, True),
        ({**torch({"host_compute": 100.0}), **written(most_rows=8)}, False),
        ({**torch(), **written(most_rows=1)}, False),
        ({"framework": "JAX", **written(most_rows=7)}, True),
        ({"framework": "JAX", **written(most_rows=8)}, False),
    ],
    "unrolled": [
        (chained(16), True),
        (chained(15), False),
        (jax(), False),
    ],
    "optimizer_loop": [
        (on_cpu(), True),
        (on_cpu(optimizer_ms=14.9), False),
        (on_cpu(optimizer_ops=49.9), False),
        (on_cpu(optimizer_op_us=10.1), False),
        (on_cpu(optimizer="Optimizer.step#RMSprop.step"), False),
        (optimizer(3.0), True),
        (optimizer(2.99), False),
        (optimizer(3.0, 49.9), False),
        (optimizer(3.0, name="Shampoo"), False),
        (optimizer(3.0, name="RMSprop"), True),
    ],
    "periodic": [
        (rhythm(3.0), True),
        (rhythm(2.99), False),
        (rhythm(3.0, chance=0.011), False),
        (rhythm(3.0, what_ms=14.9), False),
        (rhythm(3.0, name=""), False),
        (rhythm(3.0, name="", what_ms=0.0, category="other", category_ms=15.0), True),
        (rhythm(3.0, name="", what_ms=0.0, category="other", category_ms=14.9), False),
        (rhythm(3.0, category="input"), False),
        (rhythm(3.0, name="Optimizer.step#AdamW.step"), False),
        # The rhythm of a validation that has its own finding; 15 of 32 ms are less than half.
        (rhythm(30.0, what_ms=300.0, validated=15.0), False),
        (rhythm(32.0, what_ms=320.0, validated=15.0), True),
        (torch(), False),
    ],
    "slow_unrecorded": [
        (slow_unrecorded(), True),
        (slow_unrecorded(share=0.0299), False),
        (slow_unrecorded(chance=0.011), False),
        (torch(), False),
    ],
    "slowing": [(slowing(12.0), True), (slowing(11.99), False), (torch(), False)],
    "graph_breaks": [
        (broken(3.0), True),
        (broken(3.0, kernels=7.0, lines=3, reason="No *print*."), True),
        (broken(2.99), False),
        (torch(), False),
    ],
    "host_memory_growth": [
        (host_growing(), True),
        (host_growing(capacity=12_000_000_000), True),
        (host_growing(steps=19, each=1e8), False),
        (host_growing(rising=0.89), False),
        (host_growing(jump=0.31), False),
        (host_growing(each=4e5), False),
        (host_growing(each=8e4, resident=1_000_000_000), False),
        (torch(), False),
    ],
    "large_buffer": [
        (buffer("Shuffle", "Map"), True),
        (buffer("Shuffle", "TFRecord"), True),
        (buffer("MemoryCacheImpl", "ParallelMapV2"), True),
        (buffer("MemoryCacheImpl", "TFRecord", held=6e9), True),
        (buffer("Prefetch", "BatchV2"), True),
        (buffer("ParallelInterleaveV4", "TFRecord"), True),
        (buffer("Prefetch", "BatchV2", held=2.4e9), False),
        (buffer("Shuffle", "Map", held=2e8, resident=4e8), False),
        (buffer("Shuffle", "Map", held=11e9), False),
        (buffer("Shuffle", "Map", resident=None), False),
        (buffer("Root", "Map"), False),
        (torch(), False),
    ],
    "memory_growth": [
        (growing(), True),
        (growing(steps=9), False),
        (growing(rising=0.89), False),
        (growing(each=999.0), False),
        (growing(op="aten::addmm", shape="[8, 8]"), True),
        (torch(), False),
    ],
    "gloo": [(torch(gloo=1), True), (torch(), False), (torch(gloo=1, amd=True), False)],
    "data_parallel": [({**torch(data_parallel=True), "devices": 2}, True), ({**torch(data_parallel=True), "devices": 1}, False)],
    "out_of_memory": [(torch(out_of_memory=1), True), (torch(), False)],
    "python_code": [
        ({"evidence": host({"python": 15.0})}, True),
        ({"evidence": host({"python": 14.99})}, False),
        ({"evidence": host({"python": 20.0}).with_values(periodic=of_some(5.1))}, False),
        (torch(), False),
    ],
    "library_code": [
        ({"evidence": libraries(15.0)}, True),
        ({"evidence": libraries(14.99)}, False),
        ({"evidence": libraries(20.0, periodic=of_some(5.1))}, False),
        ({"evidence": libraries(60.0, samples=9)}, False),
        # A program of NumPy alone.
        ({"evidence": libraries(60.0), "parts": {"other": 100.0}}, False),
        (torch(), False),
    ],
    "result_waits": [
        (waiting(15.0), True),
        (waiting(14.99), False),
        # The device is busy meanwhile, and there is none.
        (waiting(80.0, busy=85.0), True),
        (waiting(80.0, busy=85.1), False),
        (waiting(80.0, busy=None), False),
        ({**waiting(80.0), "framework": "PyTorch", "runtime": Runtime()}, False),
        (jax(), False),
    ],
    "host_waits": [
        ({"evidence": host({"waiting": 15.0})}, True),
        ({"evidence": host({"waiting": 14.99})}, False),
        ({"evidence": host({"waiting": 40.0}, pool=pool(30.0))}, False),
        ({"evidence": host({"waiting": 40.0}, pool=pool(20.0))}, True),
        ({"evidence": host({"waiting": 20.0}).with_values(periodic=of_some(5.1))}, False),
    ],
    "pool_waits": [
        ({"evidence": host({"waiting": 15.0}, pool=pool(15.0))}, True),
        ({"evidence": host({"waiting": 15.0}, pool=pool(14.99))}, False),
        ({"evidence": host({"waiting": 60.0})}, False),
    ],
    "tiny_ops": [
        ({**torch(), "evidence": host({"overhead": 35.0})}, True),
        ({**torch(), "evidence": host({"overhead": 34.99})}, False),
        ({**torch(), "evidence": host({"overhead": 50.0}, cpu=None)}, False),
    ],
    "tiny_eager_ops": [
        ({"evidence": eager_host({"overhead": 35.0}), "eager_host_percent": 50.0}, True),
        ({"evidence": eager_host({"overhead": 34.99}), "eager_host_percent": 50.0}, False),
        ({"evidence": eager_host({"overhead": 50.0}), "eager_host_percent": 49.9}, False),
        ({"evidence": eager_host({"overhead": 50.0}), "framework": "JAX"}, True),
        ({"evidence": eager_host({"overhead": 50.0}, programs=1.9), "framework": "JAX"}, False),
    ],
    "idle_cores": [
        ({**torch(), "evidence": host({"compute": 50.0}, used=4.8, products=Products(30.0, 1e9))}, True),
        ({**torch(), "evidence": host({"compute": 50.0}, used=4.9, products=Products(30.0, 1e9))}, False),
        ({**torch(), "evidence": host({"compute": 49.9}, used=1.0, products=Products(30.0, 1e9))}, False),
        ({**torch(), "evidence": host({"compute": 90.0}, used=1.0, products=Products(30.0, 0.9e9))}, False),
    ],
    "cpu_bf16": [
        ({**torch(), "evidence": host({}, products=Products(40.0, 1e9), bf16="amx_bf16")}, True),
        ({**torch(), "evidence": host({}, products=Products(39.99, 9e9), bf16="amx_bf16")}, False),
        ({**torch(), "evidence": host({}, products=Products(90.0, 0.99e9), bf16="amx_bf16")}, False),
        ({**torch(), "evidence": host({}, products=Products(90.0, 9e9))}, False),
    ],
    "premapped_small": [
        ({"evidence": Evidence(texts=("premapped region: RESOURCE_EXHAUSTED: Attempting to allocate 6.00G.",))}, True),
        ({"evidence": Evidence(texts=("using TPU host premapped buffer of size 4294967296",))}, False),
    ],
    "premapped_large": [
        ({"evidence": Evidence(texts=("premapped buffer of size 68719476736", "CreateTpuSystemState: took 15.01s"))}, True),
        ({"evidence": Evidence(texts=("premapped buffer of size 68719476736", "CreateTpuSystemState: took 15.0s"))}, False),
        ({"evidence": Evidence(texts=("premapped buffer of size 64GiB",), tpu_start_s=16.0)}, True),
        ({"evidence": Evidence(texts=("CreateTpuSystemState: took 90s",))}, False),
    ],
    "idle_devices": [
        ({"evidence": Evidence(idle_devices=Idle("GPU", 8, 6))}, True),
        ({"evidence": Evidence()}, False),
    ],
    "copied_in_turn": [
        ({"parts": {"input": 20.0}, "evidence": Evidence(copies_in_turn=InTurn(2, 10.0, 0.1))}, True),
        ({"parts": {"input": 20.0}, "evidence": Evidence(copies_in_turn=InTurn(2, 10.0, 0.11))}, False),
        ({"parts": {"input": 20.0}, "evidence": Evidence(copies_in_turn=InTurn(2, 9.9, 0.0))}, False),
        ({"parts": {"input": 4.9}, "evidence": Evidence(copies_in_turn=InTurn(2, 90.0, 0.0))}, False),
    ],
    "tpu_start": [
        ({"evidence": Evidence(texts=("CreateTpuSystemState: took 15.01s",))}, True),
        ({"evidence": Evidence(tpu_start_s=90.0)}, True),
        ({"evidence": Evidence(texts=("CreateTpuSystemState: took 15.0s",))}, False),
        ({"evidence": Evidence(texts=("premapped buffer of size 64GiB", "CreateTpuSystemState: took 90s"))}, False),
    ],
}  # fmt: skip


def test_every_rule_has_a_case_in_which_it_speaks_and_one_in_which_it_is_silent():
    names = [rule.name for rule in every()]
    assert len(names) == len(set(names))
    assert set(RULES) == set(names)
    assert all(
        rule.refuted_by and rule.certainty in ("measured", "estimated", "inferred")
        for rule in every()
    )
    assert {rule.gain_is for rule in every()} == {"up to", "about", "at least", ""}
    for rule, cases in RULES.items():
        assert {speaks for _, speaks in cases} == {True, False}, rule


CASES = [
    pytest.param(rule, asked, speaks, id=f"{rule}-{i}")
    for rule, cases in RULES.items()
    for i, (asked, speaks) in enumerate(cases)
]


@pytest.mark.parametrize(("rule", "asked", "speaks"), CASES)
def test_a_rule_speaks_from_its_threshold_on(rule, asked, speaks):
    findings = found(**{"functions": OWN_LOOP, **asked})
    assert (rule in findings.index) is speaks
    if not speaks:
        return
    row = findings.loc[rule]
    assert row["evidence"].count("**") >= 2
    assert row["evidence"].count("**") % 2 == 0
    assert row["view"] in (
        "input",
        "ops",
        "op_profile",
        "hlo",
        "kernels",
        "memory",
        "memory_viewer",
        "pods",
        "trace",
    )
    assert code(row["fix"]).body or rule in ("other", "slow_unrecorded"), (
        "the first line of the cell alone"
    )
    gain = row["gain_ms_per_step"]
    assert np.isnan(gain) or (WORTH_PERCENT <= gain <= 100.0 and row["gain_is"])
    text = " ".join(row[["title", "evidence", "fix"]])
    foreign = {
        "JAX": ("tf.", "torch", "Keras", "layers."),
        "PyTorch": ("tf.", "TensorFlow", "jax", "jnp.", "Keras"),
        "TensorFlow": ("torch", "jax.", "jnp."),
    }
    if not rule.startswith("premapped"):
        for word in foreign[asked.get("framework", "TensorFlow")]:
            assert word not in text, word


SLOW_HOST = {"kernel_launch": 20.0, "host_compute": 40.0, "other": 5.0, "device_compute": 35.0}
BY_HOST = ("kernel_launch", "host_bound", "host_ops")


@pytest.mark.parametrize(
    ("framework", "busy", "expected"),
    [("PyTorch", 39.9, True), ("PyTorch", 40.0, False), ("JAX", 24.9, True), ("JAX", 25.0, False)],
)
def test_a_host_that_recording_slows_is_blamed_where_it_is_slower_for_certain(
    framework, busy, expected
):
    """Its time in the recording bounds what the loop could gain; without the recording, it might
    keep the device busy throughout.
    """
    asked = (
        torch(SLOW_HOST) if framework == "PyTorch" else {"parts": SLOW_HOST, "framework": framework}
    )
    asked = {
        **asked,
        "environment": {"devices": [GPU]},
        "device_idle_percent": 100 - busy,
        "eager_host_percent": 100.0,
    }
    there = found(**asked, device_busy_percent=busy)
    blamed = there[there.index.isin(BY_HOST)]
    assert len(blamed) == (2 if expected else 0)
    assert (blamed["gain_is"] == "up to").all()
    on_cpu = found(
        **{**asked, "environment": {"devices": [{**GPU, "kind": "CPU"}]}}, device_busy_percent=busy
    )
    assert on_cpu.loc[on_cpu.index.isin(BY_HOST), "gain_is"].tolist() == ["about"] * 2, (
        "nothing but the GPU's recording was measured"
    )


@pytest.mark.parametrize(
    ("busy", "slowdown", "expected"),
    [(60.0, 1.5, True), (60.0, 1.7, False), (30.0, 3.5, False)],
)
def test_a_measured_slowdown_decides_which_of_host_and_device_is_slower(busy, slowdown, expected):
    asked = {
        **torch(SLOW_HOST),
        "environment": {"devices": [GPU]},
        "device_idle_percent": 100 - busy,
        "eager_host_percent": 100.0,
    }
    there = found(**asked, device_busy_percent=busy, evidence=Evidence(slowdown=slowdown))
    assert there.index.isin(BY_HOST).any() == expected


@pytest.mark.parametrize(("host", "gain_is"), [(20.0, "about"), (20.1, "up to")])
def test_time_outside_of_ops_is_a_bound_where_it_lies_among_many(host, gain_is):
    asked = {
        **torch({"other": 40.0, "host_compute": host, "device_compute": 60.0 - host}),
        "environment": {"devices": [GPU]},
    }
    assert (
        found(**asked, device_busy_percent=10.0, evidence=Evidence(python_calls=True)).loc[
            "other", "gain_is"
        ]
        == gain_is
    )


@pytest.mark.parametrize(
    ("compute", "busy", "expected"),
    [(35.0, 40.0, ("up to", "high")), (35.0, 39.9, ("up to", "low")), (5.9, 39.9, None)],
)
def test_a_device_that_is_not_the_slower_side_gains_little(compute, busy, expected):
    parts = {"kernel_launch": 20.0, "device_compute": compute, "host_compute": 80.0 - compute}
    asked = {
        **torch(parts, capability=(9, 0)),
        "environment": {"devices": [GPU]},
        "compute_16bit_percent": 0.0,
        "kernels": kernels({"total_us": 1.0, "op_tensor_core_eligible": True}),
    }
    there = found(**asked, device_busy_percent=busy)
    if expected is None:
        assert "mixed_precision" not in there.index
    else:
        # Half of the compute: 17.5 % of the step.
        assert tuple(there.loc["mixed_precision", ["gain_is", "severity"]]) == (
            expected[0],
            "medium" if expected[1] == "high" else expected[1],
        )


@pytest.mark.parametrize(("compute", "expected"), [(20.0, True), (14.0, False)])
def test_without_recording_the_host_bounds_a_step_that_a_device_shortens_little(compute, expected):
    recorded = {"kernel_launch": 20.0, "device_compute": compute, "host_compute": 80.0 - compute}
    recorded = {**dict.fromkeys(CATEGORIES, 0.0), **recorded}
    bare = {**recorded, "kernel_launch": 10.0, "host_compute": 50.0 - compute}
    asked = {
        **torch({name: ms for name, ms in recorded.items() if ms}, capability=(9, 0)),
        "environment": {"devices": [GPU]},
        "compute_16bit_percent": 0.0,
        "kernels": kernels({"total_us": 1.0, "op_tensor_core_eligible": True}),
    }
    parts = BareParts(recorded, bare, device=True)
    there = found(
        **asked, device_busy_percent=compute, evidence=Evidence(slowdown=1.67, bare=parts)
    )
    # Half of the compute, of the 60 ms of a bare step.
    assert ("mixed_precision" in there.index) == expected
    if expected:
        row = there.loc["mixed_precision"]
        assert (row["gain_ms_per_step"], row["gain_of_ms"]) == (compute / 2, 60.0)
        assert (row["gain_is"], row["severity"]) == ("up to", "low")


@pytest.mark.parametrize("framework", ["TensorFlow", "JAX"])
@pytest.mark.parametrize(
    "rule",
    [
        rule.name
        for rule in every()
        if rule.applies not in (TENSORFLOW, JAX, PYTORCH) and rule.name != "host_memory"
    ],
)
def test_the_code_is_of_the_framework(rule, framework):
    asked = {**RULES[rule][0][0], "framework": framework, "functions": OWN_LOOP}
    row = found(**asked).loc[rule]
    assert code(row["fix"]).body or rule in ("other", "slow_unrecorded"), (
        "the first line of the cell alone"
    )
    words = ("jax", "jnp.") if framework == "TensorFlow" else ("tf.", "layers.", "TF_GPU")
    for word in words if not rule.startswith("premapped") else ():
        assert word not in row["fix"], word


def test_kernels_that_change_layouts_are_no_bound_of_what_another_layout_gains():
    converted = kernels({"kernel": "nchwToNhwcKernel", "total_us": 5.0}, {"total_us": 95.0})
    asked = {**torch(), "kernels": converted, "environment": {"devices": [GPU]}}
    assert found(**asked, device_busy_percent=100.0).loc["layout", "gain_is"] == "about"


def test_gains_are_of_the_compute_in_a_step():
    """Of 90 ms a step compute, 10 of 100 ms of ops: 9 ms; of products only what the matrix unit
    leaves empty.
    """
    findings = found(**jax(evidence=work({"own": 10.0, "moves": True}, rest=90.0)))
    assert findings.loc["layout", "gain_ms_per_step"] == pytest.approx(9.0)
    findings = found(
        **jax(evidence=work({"own": 40.0}, rest=60.0, products=[product(512, 96, 512)]))
    )
    assert findings.loc["mxu_size", "gain_ms_per_step"] == pytest.approx(90.0 * 0.4 / 4)
    assert (
        "**512 × 96** by **96 × 512**, which fills **75%**" in findings.loc["mxu_size", "evidence"]
    )
    findings = found(
        **jax(evidence=work({"own": 40.0}, rest=60.0, products=[product(100, 512, 512, 100)]))
    )
    assert findings.loc["batch_per_core", "gain_ms_per_step"] == pytest.approx(90.0 * 0.4 * 4 / 104)


@pytest.mark.parametrize(
    ("peak", "room", "severity"),
    [
        (111, None, "medium"),
        (150, None, "medium"),
        (151, None, "high"),
        (111, 120, "high"),
        (111, 124, "medium"),
    ],
)
def test_padding_is_urgent_where_it_is_much_or_memory_is_nearly_full(peak, room, severity):
    padded = Evidence(
        padding=Padding("jit_f(1)", peak * GIB, 100 * GIB), device_bytes=room and room * GIB
    )
    assert found(**jax(evidence=padded)).loc["tile_padding", "severity"] == severity


def test_what_saves_next_to_nothing_is_no_finding():
    parts = {"device_compute": 10.0}
    assert (
        "layout"
        in found(
            **{**jax(evidence=work({"own": 10.0, "moves": True}, rest=90.0)), "parts": parts}
        ).index
    )
    assert (
        "layout"
        not in found(
            **{**jax(evidence=work({"own": 9.9, "moves": True}, rest=90.1)), "parts": parts}
        ).index
    )


def test_programs_tell_the_width_of_numbers_where_names_of_kernels_do_not():
    asked = jax(compute_16bit_percent=0.0, environment={"devices": [GPU]})
    assert "mixed_precision" in found(**asked).index
    assert (
        "mixed_precision"
        in found(**asked, evidence=work({"own": 91.0, "narrow": False}, {"own": 9.0})).index
    )
    assert (
        "mixed_precision"
        not in found(**asked, evidence=work({"own": 90.0, "narrow": False}, {"own": 10.0})).index
    )


def test_transposes_of_an_op_do_not_make_it_miss_tensor_cores():
    rows = [
        {
            "kernel": name,
            "total_us": 50.0,
            "op_tensor_core_eligible": True,
            "uses_tensor_core": False,
        }
        for name in ("sgemm", "wrapped_transpose")
    ]
    assert (
        "**50%** of kernel time"
        in found(**gpu(kernels=kernels(*rows))).loc["tensor_cores", "evidence"]
    )
    assert (
        "tensor_cores"
        not in found(
            **gpu(kernels=kernels({**rows[1], "kernel": "batched_transpose_32x32_half"}))
        ).index
    )


@pytest.mark.parametrize(
    ("op", "layer"),
    [("conv2d/Conv2D/Conv2DBackpropFilter", "Conv2D(32, 3)"), ("dense/MatMul", "Dense(104)")],
)
def test_sizes_that_let_ops_use_tensor_cores_are_those_of_the_op(op, layer):
    row = {
        "kernel": "sgemm",
        "op": op,
        "total_us": 50.0,
        "op_tensor_core_eligible": True,
        "uses_tensor_core": False,
    }
    assert layer in found(**gpu(kernels=kernels(row))).loc["tensor_cores", "fix"]


def test_short_ops_and_lost_time_have_causes_of_their_own():
    findings = found(**jax(evidence=work({"own": 100.0, "compute_fraction": 0.2, "runs": 2e4})))
    assert findings.loc["utilisation", "title"] == "Make ops larger"
    findings = found(
        **jax(
            evidence=work(
                {"own": 70.0, "compute_fraction": 0.1, "category": "gather"},
                {"own": 30.0, "compute_fraction": 0.5},
            )
        )
    )
    assert findings.loc["utilisation", "title"] == "Speed up gather ops"
    assert "take" not in findings.loc["utilisation", "fix"]
    assert findings.loc["utilisation", "gain_ms_per_step"] == pytest.approx(
        0.9 * (70 * 0.9 + 30 * 0.5)
    )


@pytest.mark.parametrize(
    ("framework", "how"),
    [("JAX", "JAX_PLATFORMS=cpu"), ("TensorFlow", "tf.config.set_visible_devices([], 'GPU')")],
)
def test_the_cpu_is_named_where_the_device_does_next_to_nothing(framework, how):
    def evidence(busy):
        return found(
            **gpu(kernels=short(100, 9.9), device_busy_percent=busy), framework=framework
        ).loc["small_batch", "evidence"]

    assert how in evidence(1.9)
    assert "CPU" not in evidence(2.0)


@pytest.mark.parametrize(
    ("framework", "packages"), [("JAX", "jax[cuda13]"), ("TensorFlow", "tensorflow[and-cuda]")]
)
def test_convolutions_without_tensor_cores_may_need_the_newest_cudnn(framework, packages):
    def evidence(op):
        unused = {
            "op": op,
            "op_tensor_core_eligible": True,
            "uses_tensor_core": False,
            "total_us": 100.0,
        }
        return found(**gpu(kernels=kernels(unused)), framework=framework).loc[
            "tensor_cores", "evidence"
        ]

    assert packages in evidence("model/conv2d/Conv2D")
    assert "cuDNN" not in evidence("model/dense/MatMul")


@pytest.mark.parametrize(("framework", "dtype"), [("JAX", "jnp.int8"), ("TensorFlow", "")])
def test_8_bit_products_want_multiples_of_16(framework, dtype):
    unaligned = {
        "kernel": "cutlass_80_tensorop_s8_i16832gemm_s8_128x128_64x3_tn_align4",
        "total_us": 60.0,
    }
    half = {
        "kernel": "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2",
        "total_us": 40.0,
    }
    finding = found(**gpu(kernels=kernels(unaligned, half)), framework=framework).loc[
        "gemm_alignment"
    ]
    assert finding["title"] == "Round sizes up to multiples of 16"
    assert "**100%** of kernel time" in finding["evidence"]
    assert "a multiple of 16, or of 64" in finding["fix"]
    assert dtype in finding["fix"]
    half["total_us"] = 80.0
    assert (
        found(**gpu(kernels=kernels(unaligned, half)), framework=framework)
        .loc["gemm_alignment", "title"]
        .endswith("of 8")
    )


def said(*texts):
    return without_steps(Evidence(texts=texts))


def test_the_premapped_buffer_grows_to_what_is_asked_for_in_whole_pages():
    (finding,) = said("premapped RESOURCE_EXHAUSTED: Attempting to allocate 6,442,450,945 bytes")
    assert "**6.00 GiB**" in finding.evidence
    assert "'12884905984'" in finding.fix
    assert 12884905984 % 4096 == 0
    (finding,) = said(
        "using TPU host premapped buffer of size 17179869184", "premapped: RESOURCE_EXHAUSTED"
    )
    assert "**16.00 GiB**" in finding.evidence
    assert "'34359738368'" in finding.fix
    assert "uses that much more host memory" in finding.evidence
    assert not said("RESOURCE_EXHAUSTED: Attempting to allocate 6.00G in HBM")


def test_a_slow_start_of_unknown_cause_names_the_log():
    (finding,) = said("CreateTpuSystemState: took 90s")
    assert "/tmp/tpu_logs/tpu_driver.INFO" in finding.evidence
    assert "TPU_STDERR_LOG_LEVEL" in finding.fix


NPU = {
    "name": "Ascend NPU",
    "kind": "NPU",
    "compute_capability": None,
    "architecture": None,
    "count": 1,
}


def npu_rules(**more):
    row = {
        "rule": "input", "about": "Iterations", "title": "Feed the device faster", "state": "found", "severity": "High", "share": 0.5,
        "evidence": "50.0% of an iteration (17.01 ms) is before FP Start.", "fix": "Prefetch.",
    }  # fmt: skip
    return Evidence(npu_rules=pd.DataFrame([{**row, **more}]))


def test_on_an_npu_the_rules_of_its_own_tools_are_told():
    asked = {
        "parts": {"input": 50.0, "device_compute": 40.0},
        "environment": {"devices": [NPU]},
        "framework": "MindSpore",
    }
    findings = found(**asked, evidence=npu_rules())
    assert findings.index.tolist() == ["npu_input"], "not that its input should come from tf.data"
    row = findings.iloc[0]
    assert (
        row["evidence"] == "**50.0%** of an iteration (**17.01 ms**) is before FP Start. Prefetch."
    )
    assert (row["severity"], row["gain_ms_per_step"], row["view"]) == ("high", 50.0, "ascend")
    assert (
        found(**asked, evidence=npu_rules(about="Ops")).loc["npu_input", "gain_ms_per_step"] == 20.0
    )
    for more in ({"severity": "Low"}, {"state": "not found", "severity": ""}, {"rule": "one_type"}):
        assert found(**asked, evidence=npu_rules(**more)).empty


def test_pytorch_on_an_npu_is_told_in_the_words_of_torch_npu():
    calls = {"allocate": Calls(9, 30.0, "aclrtFree"), "launch": Calls(900, 20.0, "launch")}
    asked = {
        **torch({"kernel_launch": 30.0, "host_compute": 40.0, "device_compute": 20.0}, calls=calls),
        "compute_16bit_percent": 0.0,
    }
    here = found(**asked, environment={"devices": [NPU]})
    there = found(**asked, environment={"devices": [GPU]})
    assert here.index.tolist() == ["allocator"]
    assert "PYTORCH_NPU_ALLOC_CONF" in here.loc["allocator", "fix"]
    assert "torch.npu.empty_cache()" in here.loc["allocator", "fix"]
    assert {"allocator", "kernel_launch", "mixed_precision"} <= set(there.index)
    assert "PYTORCH_CUDA_ALLOC_CONF" in there.loc["allocator", "fix"]


def test_without_steps_only_what_the_runtime_reported_is_told():
    findings = found(
        step_time_ms=None,
        evidence=Evidence(texts=("premapped region RESOURCE_EXHAUSTED",), between_ms=99.0),
    )
    assert findings.index.tolist() == ["premapped_small"]
    assert found(step_time_ms=None, evidence=Evidence(between_ms=99.0)).empty


def test_the_numbers_of_a_threshold_are_those_that_the_check_compares_with(monkeypatch):
    """The page of rules states what a threshold has: the check goes by the same numbers."""
    read = advice_page.numbers_read(monkeypatch)
    for cases in RULES.values():
        for asked, _ in cases:
            found(**{"functions": OWN_LOOP, **asked})
    assert {rule.name: read[rule.name] for rule in every()} == {
        rule.name: set(rule.threshold.numbers) for rule in every()
    }


def test_another_threshold_is_another_answer(monkeypatch):
    (rule,) = (rule for rule in advice_step.RULES if rule.name == "eager")
    asked = {"eager_host_percent": 20.0, "functions": OWN_LOOP}
    assert "eager" in found(**asked).index
    monkeypatch.setitem(rule.threshold.numbers, "over", 20.0)
    assert "eager" not in found(**asked).index
    assert "> 20 % of op time" in advice_page.page()


def test_units_for_matrices_do_not_save_the_whole_time_of_what_they_compute():
    """The H200 computes 67 TFLOP/s in float32 and 989 on its units for matrices."""
    asked = {**torch({"device_compute": 80.0}, capability=(9, 0)), "kernels": eligible(100.0)}
    gain = found(**asked, device_kind="NVIDIA H200").loc["tensor_cores", "gain_ms_per_step"]
    assert gain == pytest.approx(80.0 * (1 - 67 / 989.4), rel=0.01)
    unknown = found(**asked, device_kind="NVIDIA Next").loc["tensor_cores", "gain_ms_per_step"]
    assert unknown == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("count", "said"),
    [(1.0, "**1** call per step allocates or frees"), (3.0, "**3** calls per step allocate or")],
)
def test_calls_of_the_allocator_are_counted_in_words_that_agree(count, said):
    asked = torch(calls={"allocate": Calls(count, 30.0, "cudaMalloc")})
    evidence = found(**asked).loc["allocator", "evidence"]
    assert said in evidence
    assert "keeps more tensors each time" in evidence


def test_a_rule_is_added_in_one_module(monkeypatch):
    """It is asked, and stands on the page of rules, with nothing else touched."""

    def check(facts, limit):
        share = facts.percent["host_compute"]
        return (
            Found(f"**{share:.0f}%** of a step.", limit.severity(share), facts.mean["host_compute"])
            if share >= limit["moderate"]
            else None
        )

    limit = Threshold(
        "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=31.0, high=47.0
    )
    rule = Rule(
        "made_up",
        check,
        limit,
        OURS,
        Target("ops", "Ops"),
        ALL,
        "What was made up",
        "Make up less",
        "-a()\n+b()",
    )
    monkeypatch.setattr(advice_step, "RULES", (*advice_step.RULES, rule))
    findings = found({"host_compute": 40.0, "device_compute": 60.0}, OWN_LOOP).loc["made_up"]
    assert findings.drop("gain_of_ms").to_dict() == {
        "severity": "medium", "title": "Make up less", "evidence": "**40%** of a step.", "gain_ms_per_step": 40.0, "gain_is": "up to",
        "fix": "-a()\n+b()", "view": "ops", "link": "Ops", "certainty": "measured", "refuted_by": "",
    }  # fmt: skip
    assert "made_up" not in found({"host_compute": 30.9, "device_compute": 69.1}, OWN_LOOP).index
    assert (
        "| `made_up` | all | What was made up | ≥ 31 % of step time (high from 47 %) | nbprof |"
        in advice_page.page()
    )


@pytest.mark.parametrize(("wait_ms", "waits"), [(0.050, False), (0.051, True)])
def test_to_ask_for_a_batch_that_is_there_is_no_wait(wait_ms, waits):
    """TensorFlow Profiler calls up to 50 µs no bottleneck; of a step of 0.2 ms they are a
    quarter.
    """
    nothing = pd.DataFrame()
    facts = Facts({}, {"input": wait_ms}, {"input": 25.0}, nothing, nothing, nothing)
    assert facts.waits_for_input(INPUT_SHARE) is waits
