"""The rules of advice for PyTorch: what to change in the training loop, with the evidence and the code.

Sources of the remedies: PyTorch's performance tuning guide and the notes of its CUDA allocator, DataLoader and autocast.
"""

from __future__ import annotations

from collections.abc import Callable

from nbprof.analysis.advice.facts import (
    INPUT_HIGH,
    INPUT_MODERATE,
    PART_HIGH,
    PART_MODERATE,
    Facts,
    Finding,
    only,
    part,
    severity,
    unused_tensor_cores,
)
from nbprof.analysis.ops.torch_runtime import Runtime

# A cause counts where it makes up at least this part of the cost that it explains.
CAUSE = 0.2
# Waiting for the device only costs where the device then runs dry.
IDLE_PERCENT = 10.0
FULL_MEMORY = 0.9
EXPOSED_COPIES = 10.0
MANY_LAUNCHES = 50
"""Kernels that an optimizer launches in a step; one that takes all parameters together launches a few."""


def _runtime(facts: Facts) -> Runtime:
    return facts.runtime if facts.runtime is not None else Runtime()


def _loading(facts: Facts) -> list[Finding]:
    share, wait, runtime = facts.percent["input"], facts.mean["input"], _runtime(facts)
    if share < INPUT_MODERATE or max(runtime.loader_ms, runtime.iterator_ms) < CAUSE * wait:
        return []
    waits = f"The step waits **{wait:.2f} ms** of **{facts.mean['step_time']:.2f} ms** for input (**{share:.0f}%**); "
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    link = "Steps & input"
    if runtime.loader_ms < CAUSE * wait:
        fix = (
            "+loader = DataLoader(dataset, batch_size=n, num_workers=4,\n+                    pin_memory=True, persistent_workers=True)\n"
            "-for batch in nbprof.steps(batches):\n+for batch in nbprof.steps(loader):"
        )
        text = f"{waits}**{runtime.iterator_ms:.2f} ms** a step are in the iterator of the loop, which is no DataLoader."
        gain = min(wait, runtime.iterator_ms)
        return [Finding("loader_none", level, "Load batches ahead, with a DataLoader", text, gain, fix, "input", link)]
    gain = min(wait, runtime.loader_ms)
    text = f"{waits}**{runtime.loader_ms:.2f} ms** a step are in the DataLoader"
    if "MultiProcessing" in runtime.loader:
        fix = (
            "-loader = DataLoader(dataset, batch_size=n, num_workers=k)\n+loader = DataLoader(dataset, batch_size=n, num_workers=2 * k,\n"
            "+                    prefetch_factor=4, persistent_workers=True)"
        )
        title = "Give the DataLoader more workers"
        return [Finding("loader_workers", level, title, f"{text}, whose workers do not keep up.", gain, fix, "input", link)]
    fix = (
        "-loader = DataLoader(dataset, batch_size=n)\n+loader = DataLoader(dataset, batch_size=n, num_workers=4,\n"
        "+                    pin_memory=True, persistent_workers=True)"
    )
    text += ", which loads in the training process: **num_workers is 0**, so nothing is made ahead."
    return [Finding("loader_in_process", level, "Load batches in worker processes", text, gain, fix, "input", link)]


def _copies(facts: Facts) -> list[Finding]:
    share, wait, runtime = facts.percent["input"], facts.mean["input"], _runtime(facts)
    copies = runtime.of("copy H2D")
    if share < INPUT_MODERATE or not runtime.pageable_bytes or copies.ms < CAUSE * wait:
        return []
    text = (
        f"**{runtime.pageable_bytes / 2**20:,.1f} MiB** a step are copied to the device from pageable memory; "
        f"{copies.name} holds the host for **{copies.ms:.2f} ms** a step. Pinned memory is copied faster, and while the host goes on."
    )
    fix = (
        "-loader = DataLoader(dataset, batch_size=n)\n+loader = DataLoader(dataset, batch_size=n, pin_memory=True)\n"
        "-x = x.to(device)\n+x = x.to(device, non_blocking=True)"
    )
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    return [Finding("pinned_memory", level, "Copy batches from pinned memory", text, min(wait, copies.ms), fix, "trace", "Trace: copies")]


def _launch(facts: Facts) -> list[Finding]:
    share, time = facts.percent["kernel_launch"], facts.mean["kernel_launch"]
    if share < PART_MODERATE:
        return []
    launches = _runtime(facts).of("launch", "graph").count
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) launches kernels while the device idles, **{launches:,.0f}** launches a step."
    fix = '-model = Model().to(device)\n+model = torch.compile(Model().to(device), mode="reduce-overhead")  # CUDA graphs'
    level = severity(share, PART_MODERATE, PART_HIGH)
    return [Finding("kernel_launch", level, "Launch whole graphs, not single kernels", text, time, fix, "kernels", "GPU kernels")]


def _allocator(facts: Facts) -> list[Finding]:
    calls, step = _runtime(facts).of("allocate"), facts.mean["step_time"]
    share = 100 * calls.ms / step if step else 0.0
    if share < PART_MODERATE:
        return []
    text = (
        f"**{calls.count:,.0f}** calls a step ask the driver for memory or give it back, most of all {calls.name}: **{calls.ms:.2f} ms** "
        f"(**{share:.0f}%** of a step). Each may wait for the whole device. PyTorch's caching allocator makes none in a steady loop, "
        "unless PYTORCH_NO_CUDA_MEMORY_CACHING is set, the loop empties the cache, or memory is so full that blocks are given back."
    )
    family = "HIP" if _runtime(facts).amd else "CUDA"
    fix = (
        "-    torch.cuda.empty_cache()\n+import os\n"
        f'+os.environ["PYTORCH_{family}_ALLOC_CONF"] = "expandable_segments:True"  # before the first use'
    )
    gain = min(calls.ms, facts.mean["host_compute"] or calls.ms)
    level = severity(share, PART_MODERATE, PART_HIGH)
    return [Finding("allocator", level, "Keep memory in PyTorch's allocator", text, gain, fix, "memory", "Memory")]


def _host(facts: Facts) -> list[Finding]:
    idle, share = facts.overview["device_idle_percent"], facts.percent["host_compute"]
    eager = facts.overview["eager_host_percent"] or 0.0
    # What the driver's allocator costs is a finding of its own.
    time = facts.mean["host_compute"] - _runtime(facts).of("allocate").ms
    if idle is None or share < PART_HIGH or eager < 50.0 or time < CAUSE * facts.mean["host_compute"]:
        return []
    text = (
        f"The device is idle **{idle:.0f}%** of a step, and for **{time:.2f} ms** of that the host works on ops, **{eager:.0f}%** of them "
        "eager, one by one. Compiled, many become one."
    )
    fix = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))\n+optimizer = torch.optim.AdamW(..., fused=True)"
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    return [Finding("host_ops", level, "Compile the model", text, time, fix, "ops", "Ops")]


def _precision(facts: Facts) -> list[Finding]:
    half, compute, runtime = facts.overview["compute_16bit_percent"], facts.mean["device_compute"], _runtime(facts)
    if half is None or half >= 10.0 or not compute or (runtime.capability is not None and runtime.capability < (7, 0)):
        return []
    gain = compute / 2
    old = runtime.capability is not None and runtime.capability < (8, 0)
    cores = "matrix cores" if runtime.amd else "TensorCores"
    text = f"{only(half)} of device compute is 16 bit. Where accuracy permits, 16-bit ops run up to twice as fast and can use {cores}."
    fix = (
        '+scaler = torch.amp.GradScaler("cuda")\n+with torch.autocast("cuda", dtype=torch.float16):\n     loss = loss_fn(model(x), y)\n'
        "-loss.backward()\n-optimizer.step()\n+scaler.scale(loss).backward()\n+scaler.step(optimizer)\n+scaler.update()"
        if old
        else '+with torch.autocast("cuda", dtype=torch.bfloat16):\n     loss = loss_fn(model(x), y)'
    )
    level = severity(100 * gain / facts.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)
    return [Finding("mixed_precision", level, "Use mixed precision", text, gain, fix, "kernels", "GPU kernels")]


def _tensor_cores(facts: Facts) -> list[Finding]:
    found = unused_tensor_cores(facts)
    if found is None:
        return []
    share, worst = found
    op, runtime = str(worst["op"]), _runtime(facts)
    if runtime.capability is not None and runtime.capability < (7, 0):
        return []
    cores = "matrix cores" if runtime.amd else "TensorCores"
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on {cores} but does not; the largest is "
        f"{op} with **{worst['total_us'] / 1000:.2f} ms**. "
    )
    if "conv" in op:
        text += "Convolutions use them with 16-bit inputs in channels-last layout and channels that are multiples of 8."
        fix = (
            " model = model.to(device)\n+model = model.to(memory_format=torch.channels_last)\n+x = x.to(memory_format=torch.channels_last)"
        )
    elif not runtime.amd and runtime.capability is not None and runtime.capability >= (8, 0):
        text += "TF32 lets 32-bit matrix products use them; sizes as multiples of 8 let 16-bit ones."
        fix = '+torch.set_float32_matmul_precision("high")'
    else:
        text += "16-bit inputs, and sizes as multiples of 8, allow it."
        fix = ""
    gain = facts.mean["device_compute"] * share / 100
    link = "GPU kernels: eligible, not used"
    return [Finding("tensor_cores", severity(share, 10, 30), f"Let eligible ops use {cores}", text, gain, fix, "kernels", link)]


def _waits(facts: Facts) -> list[Finding]:
    waits, idle = _runtime(facts).of("sync", "copy D2H"), facts.overview["device_idle_percent"]
    share = 100 * waits.ms / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    if idle is None or idle < IDLE_PERCENT or waits.count < 1 or share < PART_MODERATE:
        return []
    text = (
        f"The host waits for the device **{waits.count:,.0f}** times a step, **{waits.ms:.2f} ms** in all ({waits.name}), and can launch "
        f"nothing ahead meanwhile; the device is idle **{idle:.0f}%** of a step. .item(), .cpu(), print(loss), and if on a tensor do that."
    )
    fix = "-total += loss.item()\n+total += loss.detach()  # and .item() once, after the loop"
    return [Finding("waits", "medium", "Let the host run ahead of the device", text, float("nan"), fix, "trace", "Trace")]


def _other(facts: Facts) -> list[Finding]:
    share, time = facts.percent["other"], facts.mean["other"]
    if share < PART_HIGH:
        return []
    text = (
        f"**{share:.0f}%** of a step (**{time:.2f} ms**) is in no recorded op, launch or copy: Python between ops, logging or I/O. "
        "with_stack=True makes Python itself slower."
    )
    fix = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
    return [Finding("other", "medium", "Spend less of the step in Python", text, time, fix, "trace", "Trace")]


def _full(facts: Facts) -> list[Finding]:
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if not peak or not capacity or peak < FULL_MEMORY * capacity:
        return []
    text = (
        f"The peak of **{peak / 2**30:.2f} GiB** is **{100 * peak / capacity:.0f}%** of the device's memory: a little more, and it fails. "
        "Checkpointing computes activations again instead of keeping them; mixed precision halves them."
    )
    fix = "-y = block(x)\n+y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
    return [Finding("memory_full", "medium", "Keep fewer activations", text, float("nan"), fix, "memory", "Memory")]


def _data_parallel(facts: Facts) -> list[Finding]:
    if not _runtime(facts).data_parallel or facts.overview["devices"] < 2:
        return []
    text = (
        f"torch.nn.DataParallel drives **{facts.overview['devices']}** devices from one process: it copies the model in every step, "
        "and one Python feeds them all. DistributedDataParallel has a process for each."
    )
    fix = "-model = torch.nn.DataParallel(model)\n+model = torch.nn.parallel.DistributedDataParallel(model)"
    return [Finding("data_parallel", "medium", "One process for each device", text, float("nan"), fix, "trace", "Trace")]


def _pinned_copies(facts: Facts) -> list[Finding]:
    """G13: copies to the device that nothing runs beside, though their memory is pinned."""
    runtime, share, wait = _runtime(facts), facts.percent["input"], facts.mean["input"]
    time = min(runtime.pinned_ms, wait)
    part_of_step = 100 * time / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    if (
        part_of_step < EXPOSED_COPIES
        or runtime.pageable_bytes
        or max(runtime.loader_ms, runtime.iterator_ms) > time
        or share < EXPOSED_COPIES
    ):
        return []
    text = (
        f"**{part_of_step:.0f}%** of a step (**{time:.2f} ms**) copies batches to the device from pinned memory while nothing computes: "
        "on a stream of its own the next batch is copied during the step."
    )
    fix = (
        "+side = torch.cuda.Stream()\n+with torch.cuda.stream(side):  # while the step before computes\n"
        "+    following = following.to(device, non_blocking=True)\n+torch.cuda.current_stream().wait_stream(side)"
    )
    level = severity(part_of_step, INPUT_MODERATE, INPUT_HIGH)
    return [Finding("copies_exposed", level, "Copy the next batch during the step", text, time, fix, "trace", "Trace: copies")]


# Classes of torch.optim: those that can update all parameters in one kernel, and those that can at least do many in one.
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_FOREACH = ("ASGD", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")


def _optimizer(facts: Facts) -> list[Finding]:
    """An optimizer that goes through the parameters one by one."""
    runtime = _runtime(facts)
    name = runtime.optimizer.rpartition("#")[2].removesuffix(".step")
    if name not in _FUSED + _FOREACH or runtime.optimizer_launches < MANY_LAUNCHES:
        return []
    # While the device still works off what was launched before, the host's time costs nothing.
    gain = min(runtime.optimizer_ms, runtime.optimizer_idle_ms)
    share = 100 * gain / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    if share < PART_MODERATE:
        return []
    text = (
        f"{name}.step takes the host **{runtime.optimizer_ms:.2f} ms** a step and launches **{runtime.optimizer_launches:,.0f}** kernels, "
        f"a few for each parameter, and the device stands idle for **{gain:.2f} ms** of that."
    )
    how = "fused=True" if name in _FUSED else "foreach=True"
    text += " One kernel can update all of them." if name in _FUSED else " A few kernels can update all of them."
    fix = f"-optimizer = torch.optim.{name}(params, lr)\n+optimizer = torch.optim.{name}(params, lr, {how})"
    level = severity(share, PART_MODERATE, PART_HIGH)
    return [Finding("optimizer_loop", level, "Update all parameters at once", text, gain, fix, "trace", "Trace")]


def _gloo(facts: Facts) -> list[Finding]:
    runtime = _runtime(facts)
    old = runtime.capability is not None and runtime.capability < (3, 5)
    if not runtime.gloo or not facts.overview["devices"] or runtime.amd or old:
        return []
    text = (
        f"**{runtime.gloo:,}** calls of Gloo were recorded, on a machine with **{facts.overview['devices']}** GPU"
        f"{'s' if facts.overview['devices'] > 1 else ''}: Gloo moves data through the memory of the host, NCCL from device to device."
    )
    fix = '-torch.distributed.init_process_group("gloo")\n+torch.distributed.init_process_group("nccl")'
    gain = facts.mean["device_collectives"] or float("nan")
    return [Finding("gloo", "medium", "Communicate with NCCL", text, gain, fix, "trace", "Trace")]


def _out_of_memory(facts: Facts) -> list[Finding]:
    count = _runtime(facts).out_of_memory
    if not count:
        return []
    peak = facts.overview["peak_memory_bytes"]
    text = f"The allocator ran out of memory **{count:,}** time{'s' if count > 1 else ''}"
    text += f"; the peak that it reached is **{peak / 2**30:.2f} GiB**. " if peak else ". "
    text += "It then gives back what it kept and tries again, which waits for the whole device."
    fix = "-y = block(x)\n+y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)\n-batch_size = 64\n+batch_size = 48"
    return [Finding("out_of_memory", "high", "Make room in memory", text, float("nan"), fix, "memory", "Memory")]


_FETCH = "-print(loss.item())\n+losses.append(loss.detach())  # and look at them every 100 steps"
_OVERLAP = (
    " for i, batch in enumerate(loader):\n+    with model.no_sync() if (i + 1) % 4 else contextlib.nullcontext():\n"
    "         loss_fn(model(batch)).backward()"
)

RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    _loading,
    _copies,
    _launch,
    _allocator,
    _host,
    _precision,
    _tensor_cores,
    part("collectives", "device_collectives", "Communicate less often, or behind compute", "communication between devices", _OVERLAP),
    part("output", "output", "Fetch results less often", "copies from the device to the host", _FETCH, (INPUT_MODERATE, INPUT_HIGH)),
    _waits,
    _other,
    _full,
    _data_parallel,
    _pinned_copies,
    _optimizer,
    _gloo,
    _out_of_memory,
)
