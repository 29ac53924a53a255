"""Every rule of advice: what it looks at, from which value on it speaks, and its source. docs/advice.md is made of this table."""

from __future__ import annotations

from typing import NamedTuple

from nbprof.analysis.advice import advice, checks
from nbprof.analysis.advice import device as advice_device
from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.analysis.advice import hlo as advice_hlo
from nbprof.analysis.advice import host_buffer as advice_host_buffer
from nbprof.analysis.advice import torch as advice_torch


class Rule(NamedTuple):
    """One rule: its name in `p.advice`, where it applies, what it looks at, its threshold, and the source of both."""

    rule: str
    applies: str
    looks_at: str
    threshold: str
    source: str


XPROF = "TensorFlow Profiler (XProf 2.24)"
TPU_GUIDE = "Cloud TPU performance guide"
TPU_GUIDE_CHOICE = "Cloud TPU performance guide; threshold of nbprof"
GPU_GUIDE = "TensorFlow GPU performance guide"
GPU_GUIDE_CHOICE = "TensorFlow GPU performance guide; threshold of nbprof"
TORCH_TB = "torch_tb_profiler"
TORCH_GUIDE = "PyTorch performance tuning guide; threshold of nbprof"
OURS = "nbprof"

_TF, _JAX, _TORCH, _XLA, _TPU, _ALL = "TensorFlow", "JAX", "PyTorch", "XLA", "TPU", "all"
_INPUT = f"input ≥ {checks.INPUT_MODERATE:g} % of step time (high from {checks.INPUT_HIGH:g} %)"
_PART = f"≥ {checks.PART_MODERATE:g} % of step time (high from {checks.PART_HIGH:g} %)"
_COPIES = f"≥ {checks.INPUT_MODERATE:g} % of step time (high from {checks.INPUT_HIGH:g} %)"
_WAIT = f"{_INPUT}, of it ≥ {100 * advice_torch.CAUSE:g} % there"

RULES: tuple[Rule, ...] = (
    Rule("input_ahead", _JAX, "Steps that wait for input that no recorded pipeline made", _INPUT, XPROF),
    Rule(
        "input_outside_tf_data", _TF,
        "Steps that wait for input without tf.data, or with a pipeline that Keras made of arrays", _INPUT, XPROF,
    ),
    Rule(
        "input_copies", _TF, "Steps that wait for input while the tf.data pipeline hardly works: copies to the device",
        f"{_INPUT}; work of the pipeline < {100 * advice.PIPELINE_PART_OF_WAIT:g} % of the wait", XPROF,
    ),
    Rule("map_serial", _TF, "A pipeline whose bottleneck is a map or interleave on one thread", _INPUT, f"{XPROF}; {GPU_GUIDE}"),
    Rule("input_bottleneck", _TF, "The iterator of the pipeline with the most self time on its critical path", _INPUT, XPROF),
    Rule("prefetch_missing", _TF, "A pipeline that no Prefetch, nor another iterator that runs ahead, ends", _INPUT, GPU_GUIDE),
    Rule("kernel_launch", _ALL, "Time in which the host prepares and launches kernels while the device waits", _PART, XPROF),
    Rule(
        "mixed_precision", _ALL, "Device compute in 16 bits: by the names of kernels, and by the element types of compiled programs",
        f"< {checks.LITTLE_16_BIT:g} % of device compute", XPROF,
    ),
    Rule(
        "tensor_cores", _ALL, "Kernels whose op could use TensorCores and that do not; transposes left out",
        "≥ 10 % of kernel time", GPU_GUIDE_CHOICE,
    ),
    Rule("eager", "TensorFlow, JAX", "Ops that ran eagerly, one by one", f"> {checks.MUCH_EAGER:g} % of op time of a side", XPROF),
    Rule(
        "tf_function", _TF, "tf.functions that are traced or run eagerly in steps that averages use",
        f"≥ {checks.EXPENSIVE_FUNCTION:g} % of a function's time and ≥ {checks.PART_MODERATE:g} % of step time", XPROF,
    ),
    Rule(
        "outside_compilation", _TPU, "Ops that a compiled program waits for on the host",
        f"> {checks.OUTSIDE_COMPILATION:g} % of op time", XPROF,
    ),
    Rule("collectives", _ALL, "Communication between devices that no compute hides", _PART, XPROF),
    Rule("output", _ALL, "Copies from the device to the host that no compute hides", _COPIES, XPROF),
    Rule(
        "host_memory", _TPU, "Arrays that a program moves between the device and the memory of the host",
        f"≥ {checks.INPUT_MODERATE:g} % of step time", OURS,
    ),
    Rule("other", _ALL, "Time in no recorded op, launch or copy", f"≥ {checks.PART_HIGH:g} % of step time", XPROF),
    Rule(
        "between_steps", _ALL, "Time between one step and the next: callbacks, logging, checkpoints",
        f"> {advice_device.BETWEEN_PERCENT:g} % of the time of the loop", GPU_GUIDE_CHOICE,
    ),
    Rule(
        "batch_per_core", _TPU, "The batch of convolutions and the rows of forward products on a core",
        f"no multiple of {advice_hlo.SUBLANES}, in ≥ {advice_hlo.OFTEN:g} % of compute time", TPU_GUIDE_CHOICE,
    ),
    Rule(
        "mxu_size", _TPU, "Matrix products with a size below the matrix unit's (128, 256 from v6e on), not bound by memory",
        f"≥ {advice_hlo.LOST_PERCENT:g} % of compute time lost to it", TPU_GUIDE_CHOICE,
    ),
    Rule(
        "mxu_alignment", _TPU, "Matrix products whose sizes are no multiples of the matrix unit's, not bound by memory",
        f"≥ {advice_hlo.LOST_PERCENT:g} % of compute time lost to it", TPU_GUIDE_CHOICE,
    ),
    Rule(
        "tile_padding", _TPU, "Memory at the peak of a program, with and without padding to tiles",
        f"> {advice_hlo.PADDED:g}× and ≥ {advice_evidence.MUCH_PADDING // 2**20} MiB (high from {advice_hlo.PADDED_MUCH:g}×, or where "
        f"the peak is over {100 * advice_hlo.NEARLY_FULL:g} % of the memory)", TPU_GUIDE_CHOICE,
    ),
    Rule(
        "single_ops", _JAX, "Programs of one elementwise op each",
        f"≥ {advice_hlo.UNFUSED_PERCENT:g} % of compute time in several", TPU_GUIDE_CHOICE,
    ),
    Rule("unfused", _XLA, "Elementwise ops that are in no fusion", f"≥ {advice_hlo.UNFUSED_PERCENT:g} % of compute time", TPU_GUIDE_CHOICE),
    Rule(
        "missed_fusion", _XLA, "Elementwise ops bound by memory that alone read what another such op wrote",
        f"up to ≥ {advice_hlo.LOST_PERCENT:g} % of compute time saved", TPU_GUIDE_CHOICE,
    ),
    Rule("broadcast", _XLA, "Ops that only broadcast", f"≥ {advice_hlo.BROADCAST_PERCENT:g} % of compute time", TPU_GUIDE_CHOICE),
    Rule(
        "layout", _ALL, "Ops of programs, and kernels, that only move values to another layout",
        f"≥ {advice_hlo.LAYOUT_PERCENT:g} % of compute time", GPU_GUIDE_CHOICE,
    ),
    Rule(
        "utilisation", _XLA, "FLOP/s and memory bandwidth of ops by the device's peaks, where the device is the limit",
        f"both < {100 * advice_hlo.LITTLE_USED:g} %, device compute ≥ {advice_hlo.BUSY_PERCENT:g} % of step time",
        "XProf's smart suggestions; share of step time of nbprof",
    ),
    Rule(
        "gemm_alignment", _ALL, "16-bit and TF32 matrix products whose kernels load one or two values at a time",
        f"≥ {advice_device.UNALIGNED_PERCENT:g} % of kernel time", "NVIDIA matrix multiplication guide; threshold of nbprof",
    ),
    Rule(
        "small_kernels", _ALL, "Kernels a step, and how long they take on average",
        f"≥ {advice_device.MANY_KERNELS:,} of < {advice_device.SHORT_KERNEL_US:g} µs", GPU_GUIDE_CHOICE,
    ),
    Rule(
        "elementwise_kernels", _ALL, "Kernels of one elementwise op each, where the host keeps up with launching",
        f"≥ {advice_device.ELEMENTWISE_PERCENT:g} % of kernel time", GPU_GUIDE_CHOICE,
    ),
    Rule(
        "small_batch", _ALL, "How busy the device is, with short kernels, little input and room in memory",
        f"busy < {advice_device.BUSY_LITTLE:g} % (PyTorch {advice_device.BUSY_LITTLE_TORCH:g} %), "
        f"kernels < {advice_device.SHORT_KERNEL_US:g} µs, peak < {100 * advice_device.ROOM:g} % of memory",
        f"{TORCH_TB}; {GPU_GUIDE_CHOICE}",
    ),
    Rule(
        "few_blocks", _ALL,
        "Kernels with fewer blocks than a GPU of NVIDIA has multiprocessors (estimated SM efficiency); with `small_batch` part of that",
        f"≥ {advice_device.EMPTY_PERCENT:g} % of the device idle during kernels", f"{TORCH_TB}; threshold of nbprof",
    ),
    Rule(
        "placement", _TF, "Matrix products that ran on the host beside a GPU",
        f"≥ {advice_device.ON_HOST_PERCENT:g} % of host op time, ≥ {advice_device.LONG_CALL_US:g} µs a call", GPU_GUIDE_CHOICE,
    ),
    Rule(
        "host_bound", "TensorFlow, JAX", "Work of the host on ops, or on the next run of a program, while the device is idle",
        f"≥ {checks.PART_HIGH:g} % of step time, device idle ≥ {advice_torch.IDLE_PERCENT:g} %", TPU_GUIDE_CHOICE,
    ),
    Rule("compile", _ALL, "Programs compiled in steps that averages use", _PART, OURS),
    Rule("memory_full", _ALL, "Peak of the allocator", f"≥ {100 * advice_torch.FULL_MEMORY:g} % of its memory", TORCH_TB),
    Rule(
        "fragmentation", _ALL, "Free memory in pieces at the peak; of PyTorch what is reserved and not allocated",
        f"> {100 * advice_device.FRAGMENTED:g} % of it, at ≥ {100 * advice_device.FRAGMENTED_FROM:g} % of the memory", OURS,
    ),
    Rule(
        "uneven_workers", _ALL, "Device compute of the slowest worker by the mean of all, where they communicate",
        f"> {advice_device.UNEVEN_PERCENT:g} % more, ≥ {checks.PART_MODERATE:g} % of step time", "msprof-analyze (slow rank)",
    ),
    Rule(
        "premapped_small", _TPU, "Messages that the premapped buffer is exhausted (RESOURCE_EXHAUSTED)", "any",
        "Cloud TPU troubleshooting",
    ),
    Rule(
        "premapped_large", _TPU, "How long the TPU system takes to start, where the size of the premapped buffer is known",
        f"> {advice_host_buffer.SLOW_START_S:g} s", TPU_GUIDE_CHOICE,
    ),
    Rule("loader_none", _TORCH, "Steps that wait for an iterator that is no DataLoader", _WAIT, TORCH_TB),
    Rule("loader_in_process", _TORCH, "Steps that wait for a DataLoader without workers", _WAIT, TORCH_TB),
    Rule("loader_workers", _TORCH, "Steps that wait for the workers of a DataLoader", _WAIT, TORCH_TB),
    Rule("pinned_memory", _TORCH, "Copies to the device from pageable memory that hold the host", _WAIT, TORCH_GUIDE),
    Rule(
        "copies_exposed", _TORCH, "Copies to the device from pinned memory that no compute hides",
        f"≥ {advice_torch.EXPOSED_COPIES:g} % of step time", TORCH_GUIDE,
    ),
    Rule("allocator", _TORCH, "Calls that ask the driver for memory or give it back", _PART, TORCH_GUIDE),
    Rule(
        "host_ops", _TORCH, "Ops of the host, most of them eager, while the device is idle",
        f"≥ {checks.PART_HIGH:g} % of step time, ≥ 50 % of op time eager", TORCH_GUIDE,
    ),
    Rule(
        "waits", _TORCH, "Calls that wait for the device, which then runs dry",
        f"≥ {checks.PART_MODERATE:g} % of step time, device idle ≥ {advice_torch.IDLE_PERCENT:g} %", TORCH_GUIDE,
    ),
    Rule(
        "optimizer_loop", _TORCH, "Kernels that an optimizer launches, and how long the device is idle meanwhile",
        f"≥ {advice_torch.MANY_LAUNCHES} kernels a step, idle ≥ {checks.PART_MODERATE:g} % of step time", TORCH_GUIDE,
    ),
    Rule("data_parallel", _TORCH, "torch.nn.DataParallel with several devices", "any", TORCH_TB),
    Rule("gloo", _TORCH, "Calls of Gloo beside GPUs of NVIDIA", "any", TORCH_TB),
    Rule("out_of_memory", _TORCH, "Failures of the allocator", "any", TORCH_GUIDE),
)  # fmt: skip
"""All of them; a rule that has no evidence is silent."""
