"""Advice rules about the training loop: activation memory, the optimizer, several devices and their
processes.

Sources: torch_tb_profiler, PyTorch's performance tuning guide.
"""

from __future__ import annotations

from nbprof.analysis.advice.checks import PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.facts import MEMORY, TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    ANY,
    HOST_TIME,
    INFERRED,
    PYTORCH,
    TORCH_GUIDE,
    TORCH_TB,
    Found,
    Rule,
    Shown,
    Threshold,
)
from nbprof.display import wording

# Classes of torch.optim: those that can update all parameters in one kernel, and those that can at
# least do many in one.
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
_FOREACH = ("ASGD", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")


_LEFT_BY_FUSED = 0.35
"""Time of a fused update on the CPU as a share of that of a loop over the parameters: 0.2 to 0.4
for AdamW, Adam and SGD with parameters of 64² to 512² numbers.
"""

_TORCH_CHECKPOINT = (
    "-y = block(x)\n+y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
)


def _full(facts: Facts, limit: Threshold) -> Found | None:
    """G16: a peak near the end of the memory."""
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if not peak or not capacity or peak < limit["part"] * capacity:
        return None
    memory = "device memory" if facts.torch else "what the allocator may use"
    text = (
        f"The peak of **{wording.size(peak)}** is **{100 * peak / capacity:.0f}%** of {memory}: a"
        " little more and allocation fails."
    )
    if facts.jax:
        fix = "-y = block(x)\n+y = jax.checkpoint(block)(x)"
    elif not facts.torch:
        fix = "-y = block(x)\n+y = tf.recompute_grad(block)(x)"
    elif facts.evidence.in_use.backward:
        text += (
            " Checkpointing recomputes activations instead of storing them; mixed precision halves"
            " their size."
        )
        return Found(text, fix=_TORCH_CHECKPOINT)
    else:
        text += (
            " Nothing is kept for a backward pass: a smaller batch, or weights in fewer bits, need"
            " less."
        )
        fix = "-model = model.to(device)\n+model = model.to(device, torch.bfloat16)"
        return Found(text, fix=fix, title="Use less memory")
    text += " Recomputing activations instead of storing them frees memory."
    return Found(text, fix=fix)


def _data_parallel(facts: Facts, _: Threshold) -> Found | None:
    if not facts.torch_runtime.data_parallel or facts.overview["devices"] < 2:
        return None
    return Found(
        f"torch.nn.DataParallel drives **{facts.overview['devices']}** devices from one process: it"
        " copies the model at every step, and one Python process feeds them all."
        " DistributedDataParallel runs one process per device."
    )


def _optimizer(facts: Facts, limit: Threshold) -> Found | None:
    """An optimizer that updates parameters one by one; one that updates all of them together
    launches a few kernels.
    """
    runtime = facts.torch_runtime
    name = runtime.optimizer.rpartition("#")[2].removesuffix(".step")
    if not facts.compute_ms:
        return _on_cpu(facts, limit, name)
    if name not in FUSED + _FOREACH or runtime.optimizer_launches < limit["kernels"]:
        return None
    # While the device still works on earlier launches, the host's time costs nothing.
    gain = min(runtime.optimizer_ms, runtime.optimizer_idle_ms)
    share = facts.percent_of_step(gain)
    if share < limit["moderate"]:
        return None
    option, kernels = "foreach=True", "A few kernels"
    if name in FUSED:
        option, kernels = "fused=True", "One kernel"
    text = (
        f"{name}.step takes **{wording.millis(runtime.optimizer_ms)}** {facts.unit.per} on the host"
        f" and launches **{runtime.optimizer_launches:,.0f}** kernels, a few per parameter; the"
        f" device is idle for **{wording.millis(gain)}** of that. {kernels} can update all of them."
    )
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=gain,
        fix=_optimizer_with(name, option),
        recording_cost=runtime.optimizer_cost,
    )


def _optimizer_with(name: str, argument: str) -> str:
    return (
        f"-optimizer = torch.optim.{name}(params, lr)\n"
        f"+optimizer = torch.optim.{name}(params, lr, {argument})"
    )


def _on_cpu(facts: Facts, limit: Threshold, name: str) -> Found | None:
    """The same on the CPU: there only one op for all parameters saves time, and only if calling ops
    takes it, not their work.
    """
    runtime = facts.torch_runtime
    share = facts.percent_of_step(runtime.optimizer_ms)
    if name not in FUSED or runtime.optimizer_ops < limit["kernels"] or share < limit["high"]:
        return None
    if runtime.optimizer_op_us > limit["op_us"]:
        return None
    text = (
        f"{name}.step takes **{wording.millis(runtime.optimizer_ms)}** {facts.unit.per}"
        f" (**{share:.0f}%**) and calls **{runtime.optimizer_ops:,.0f}** ops, a few per parameter,"
        f" half of which last at most **{wording.micros(runtime.optimizer_op_us)}**. One op can"
        " update all of them, in about a third of that time."
    )
    return Found(
        text,
        severity="medium",
        gain_ms=runtime.optimizer_ms * (1 - _LEFT_BY_FUSED),
        recording_cost=runtime.optimizer_cost * (1 - _LEFT_BY_FUSED),
        fix=_optimizer_with(name, "fused=True"),
        title="Use a fused optimizer",
    )


def _gloo(facts: Facts, _: Threshold) -> Found | None:
    runtime, devices = facts.torch_runtime, facts.overview["devices"]
    if not runtime.gloo or not devices or facts.other_devices or runtime.amd:
        return None
    if runtime.capability is not None and runtime.capability < (3, 5):
        return None
    text = (
        f"**{runtime.gloo:,}** Gloo calls were recorded on a machine with **{devices}**"
        f" GPU{'s' if devices > 1 else ''}: Gloo moves data through host memory, NCCL directly"
        " between devices."
    )
    return Found(text, gain_ms=facts.mean["device_collectives"] or float("nan"))


def _out_of_memory(facts: Facts, _: Threshold) -> Found | None:
    count = facts.torch_runtime.out_of_memory
    if not count:
        return None
    text = f"The allocator ran out of memory **{count:,}** time{'s' if count > 1 else ''}"
    peak = facts.overview["peak_memory_bytes"]
    if peak:
        text += f"; its peak was **{wording.size(peak)}**"
    text += ". It then frees its cached blocks and retries, which synchronizes the device."
    fix = "+batch_size //= 2"
    if facts.evidence.in_use.backward and not facts.evidence.in_use.checkpoints:
        fix = f"{_TORCH_CHECKPOINT}\n{fix}"
    return Found(text, severity="high", fix=fix)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "memory_full",
        _full,
        threshold=Threshold("≥ {part:percent} of memory", part=0.9),
        source=TORCH_TB,
        target=MEMORY,
        applies=ALL,
        looks_at="Peak memory of the allocator",
        title="Store fewer activations",
        on_npu=True,
        refuted_by="the peak is lower in another recording of the same loop",
        gain_is="",
        done=Shown(
            "Activations are computed again", lambda facts: facts.evidence.in_use.checkpoints
        ),
    ),
    Rule(
        "data_parallel",
        _data_parallel,
        threshold=ANY,
        source=TORCH_TB,
        target=TRACE,
        applies=PYTORCH,
        looks_at="torch.nn.DataParallel with several devices",
        title="Use one process per device",
        fix=(
            "-model = torch.nn.DataParallel(model)\n"
            "+model = torch.nn.parallel.DistributedDataParallel(model)"
        ),
        on_npu=True,
        certainty=INFERRED,
        refuted_by="DistributedDataParallel takes as long {per}",
        gain_is="",
        done=Shown("DistributedDataParallel"),
    ),
    Rule(
        "optimizer_loop",
        _optimizer,
        threshold=Threshold(
            (
                "≥ {kernels:g} kernels per step, idle ≥ {moderate:g} % of step time (high"
                " from {high:g} %); on the CPU as many ops with a median ≤ {op_us:g} µs, ≥"
                " {high:g} % of step time"
            ),
            kernels=50,
            moderate=PART_MODERATE,
            high=PART_HIGH,
            op_us=10.0,
        ),
        source=TORCH_GUIDE,
        target=TRACE,
        applies=PYTORCH,
        looks_at=(
            "Kernels launched by the optimizer, and device idle time meanwhile; its ops on the CPU"
        ),
        title="Use a fused or foreach optimizer",
        on_npu=True,
        refuted_by="{the} takes as long with a fused optimizer",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        needs_units=True,
        requires=Shown(
            "An update of parameters", lambda facts: bool(facts.torch_runtime.optimizer)
        ),
        done=Shown("A fused optimizer", lambda facts: facts.evidence.in_use.fused_optimizer),
    ),
    Rule(
        "gloo",
        _gloo,
        threshold=ANY,
        source=TORCH_TB,
        target=TRACE,
        applies=PYTORCH,
        looks_at="Gloo calls on a machine with NVIDIA GPUs",
        title="Use the NCCL backend",
        fix=(
            '-torch.distributed.init_process_group("gloo")\n'
            '+torch.distributed.init_process_group("nccl")'
        ),
        refuted_by="the collectives take as long with NCCL",
        saves=("device_collectives",),
        done=Shown("NCCL moves data as well", lambda facts: facts.evidence.in_use.nccl),
    ),
    Rule(
        "out_of_memory",
        _out_of_memory,
        threshold=ANY,
        source=TORCH_GUIDE,
        target=MEMORY,
        applies=PYTORCH,
        looks_at="Out-of-memory errors of the allocator",
        title="Free up memory",
        on_npu=True,
        refuted_by="the same cell runs without such an error when nothing else uses the device",
        gain_is="",
        done=Shown("No such error; with checkpoints, only a smaller batch is advised"),
    ),
)
