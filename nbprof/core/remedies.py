"""Messages about obstacles to a recording, each with its remedy.

If a GPU cannot be recorded, the host still is, and every message says so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

HOST_ONLY = "the host is still recorded"

PRIVILEGES = (
    "the GPU is not recorded: its driver lets only administrators read performance counters"
    " (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES). The line 'options nvidia"
    " NVreg_RestrictProfilingToAdminUsers=0' in a file of /etc/modprobe.d and a reboot allow it"
    f" for all users; a container needs --cap-add=SYS_ADMIN; {HOST_ONLY}"
)
NO_CUPTI = (
    "the GPU is not recorded: CUPTI, NVIDIA's tracing library, could not be loaded or started. It"
    " comes with the framework's CUDA packages (pip install nvidia-cuda-cupti-cu12, or -cu13), or"
    " with a CUDA toolkit, whose folder extras/CUPTI/lib64 must be in LD_LIBRARY_PATH before"
    f" Jupyter starts, and must be as new as the driver expects; {HOST_ONLY}"
)
TAKEN = (
    "the GPU is not recorded: another tool is using its tracing interface (CUPTI allows only one:"
    " nsys, ncu, DCGM and other profilers use it). Stop that tool, restart the kernel and record"
    f" again; {HOST_ONLY}"
)
NO_GPU_SEEN = (
    "PyTorch sees no GPU here (torch.cuda.is_available() is False), so only the host is recorded:"
    " check with nvidia-smi whether the driver works"
)
HIDDEN = (
    "PyTorch sees no GPU here because CUDA_VISIBLE_DEVICES is {value!r}: only the host is recorded"
)
CPU_BUILD = (
    "PyTorch {version} is built without CUDA although there is an NVIDIA GPU: only the host is"
    " recorded. https://pytorch.org/get-started has the command that installs the build with CUDA"
)
OWN_PROFILER = (
    "PyTorch's profiler is already running: stop it first with its stop(), or leave its 'with"
    " torch.profiler.profile(...)' block"
)
OTHER_THREAD = (
    "the optimizer runs on another thread than the one nbprof started on, and with allocations"
    " PyTorch records only one thread; without them (--no-memory, memory=False) it records all"
    " threads"
)
UNRECORDED_THREADS = (
    "{threads} ran PyTorch and {was} not recorded: with allocations PyTorch records only the thread"
    " that nbprof started on; without them (--no-memory, memory=False) it records all threads"
)
ALL_THREADS = (
    "the cell starts threads, so the ops of all threads were recorded, without allocations: PyTorch"
    " records only one of the two"
)
WRONG_THREAD = (
    "PyTorch's recording was stopped on another thread than it was started on, and with allocations"
    " it must be the same one; without them (--no-memory, memory=False) any thread may stop it"
)
STOP_THERE = (
    "the recording goes on: with allocations PyTorch can only be stopped on the thread that called"
    " nbprof.start(), and no step ended there. Call nbprof.stop() on that thread; without"
    " allocations (nbprof.start(memory=False)) any thread may stop it"
)
STOPS_HERE = (
    "with allocations PyTorch can only be stopped on the thread that started it: call nbprof.stop()"
    " on this one before it ends; without allocations (nbprof.start(memory=False)) any thread may"
    " stop it"
)
NO_STEPS = "no optimizer of torch.optim made a step"

NPU_NOT_IN_USE = (
    "the NPU was not in use when the recording began, so the first NPU, or the one selected by"
    " then, is recorded: select it with torch.npu.set_device in an earlier cell"
)
NPU_OTHER_THREAD = (
    "the optimizer runs on another thread than the one nbprof started on, and torch_npu's profiler"
    " only records PyTorch ops of that thread; the work of the NPU is still recorded"
)
NPU_ONE_THREAD = (
    "torch_npu's profiler records the PyTorch ops of one thread with or without allocations, so"
    " --no-memory adds no threads"
)
NPU_LATE = (
    "torch_npu was imported after step {step} of the recording, which therefore has nothing from"
    " the NPU: import it in an earlier cell"
)
NPU_WRONG_THREAD = (
    "torch_npu's recording was stopped on another thread than it was started on; it must be the"
    " same one"
)
NPU_NOT_ANALYSED = (
    "torch_npu did not analyse its recording: run torch_npu.profiler.profiler.analyse(FOLDER) with"
    " the folder {folder} of the run"
)
NPU_OPEN = (
    "the NPU is not recorded: npu_device was opened earlier, and the option that turns on its"
    " profiler is only read when it is opened. Restart the kernel and call npu_device.open() in the"
    " recorded cell; the host is still recorded"
)
ADAPTER_PROFILER = (
    "the NPU is recorded by npu_bridge's profiler, which supports none of --memory, --shapes,"
    " --stacks and --python and does not record the host; steps are the iterations of the graph"
)
ADAPTER_LATE = (
    "npu_bridge was imported after the first step of the recording, which therefore has nothing"
    " from the NPU: import it in an earlier cell"
)
ADAPTER_KEEPS = (
    "the NPU is not recorded: its data must be stored until the device is closed, and --no-save"
    " keeps nothing; use --logdir DIR"
)
ADAPTER_WHOLE = (
    "the NPU is recorded from beginning to end: --steps and --seconds only apply to TensorFlow's"
    " own profile"
)
ADAPTER_DEVICE = (
    "the NPU records into {output}, which is complete once the device is closed"
    " (npu_device.close(), or the end of the kernel). Then open that folder with nbprof.load"
)
ADAPTER_SESSION = (
    "the NPU records the session into {output}, which is complete once the session is closed. Then"
    " open that folder with nbprof.load"
)
OF_TORCH_NPU = "torch_npu's profiler said: {}"

TPU_LOG = "/tmp/tpu_logs/tpu_driver.INFO"  # noqa: S108
"""Where the runtime of a TPU logs what it does."""

TF_UNSEEN = (
    "TensorFlow sees no GPU although the machine has one, so only the host is recorded: pip install"
    " 'tensorflow[and-cuda]' installs the CUDA libraries, nvidia-smi shows whether the driver works"
)
TF_HIDDEN = (
    "TensorFlow sees no GPU here because CUDA_VISIBLE_DEVICES is {value!r}: only the host is"
    " recorded"
)

JAX_UNSEEN = (
    "JAX sees no GPU although the machine has one, so only the host is recorded: pip install"
    " 'jax[cuda13]' (or jax[cuda12]) brings its plugin for NVIDIA GPUs, nvidia-smi shows whether"
    " the driver works"
)
JAX_HIDDEN = "JAX sees no GPU here because {name} is {value!r}: only the host is recorded"
JAX_NO_DEVICE = (
    "JAX could not start its devices{asked}{why}, so nothing ran and nothing was recorded."
    " JAX_PLATFORMS must name an available platform (cpu, cuda, rocm, tpu); pip install"
    " 'jax[cuda13]' installs the plugin for NVIDIA GPUs, nvidia-smi shows whether the driver works"
)

# Messages of the recorders, on stderr or in their files, when the device cannot be traced; the most
# specific ones come first.
_LOGGED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM|Insufficient privilege to run libcupti"
        ),
        PRIVILEGES,
    ),
    (re.compile(r"MULTIPLE_SUBSCRIBERS|CUPTI_ERROR_(?:DISABLED|BUSY)|already subscribed"), TAKEN),
    (
        re.compile(
            r"CUPTI initialization"
            r" failed|CUPTI_ERROR_NOT_(?:INITIALIZED|COMPATIBLE|SUPPORTED)|libcupti",
            re.IGNORECASE,
        ),
        NO_CUPTI,
    ),
)


def logged_remedy(lines: list[str]) -> list[str]:
    """The message for lines that a recorder logged; none for unknown lines."""
    text = "\n".join(lines)
    # The first cause explains those that follow from it.
    for pattern, message in _LOGGED:
        if pattern.search(text):
            return [message]
    return []


def disk_remedy(text: str) -> str:
    """The remedy for an error about a full disk or too many open files; else empty."""
    if re.search(r"Too many open files|EMFILE|ENFILE", text):
        return (
            "; close files that are no longer needed, or raise the limit (ulimit -n) before Jupyter"
            " starts"
        )
    if re.search(r"No space left|File too large|[Qq]uota exceeded|ENOSPC|disk is full", text):
        return "; the disk is full, or limited: choose another location with --logdir DIR (logdir=)"
    return ""


def unseen_gpu(version: str, *, built_for_cuda: bool) -> list[str]:
    """The reason why PyTorch sees no NVIDIA GPU, if it is built for one or the machine has one."""
    if built_for_cuda:
        hidden = _hidden_devices()
        return [NO_GPU_SEEN if hidden is None else HIDDEN.format(value=hidden)]
    return [CPU_BUILD.format(version=version)] if nvidia_gpu() else []


def _hidden_devices() -> str | None:
    """The value of CUDA_VISIBLE_DEVICES if it hides all GPUs."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return value if value is not None and value.strip() in ("", "-1") else None


def unseen_by_tensorflow(tf: Any) -> list[str]:
    """The reason why TensorFlow sees no NVIDIA GPU although the machine has one.

    Without one TensorFlow is not asked, because the question starts its GPU runtime.
    """
    if not nvidia_gpu() or tf.config.list_physical_devices("GPU"):
        return []
    hidden = _hidden_devices()
    return [TF_UNSEEN if hidden is None else TF_HIDDEN.format(value=hidden)]


def unseen_by_jax(jax: Any) -> list[str]:
    """The reason why JAX uses the CPU although the machine has an NVIDIA GPU.

    JAX must have started its devices already: the question would start them.
    """
    if not nvidia_gpu() or not hasattr(jax, "default_backend") or jax.default_backend() != "cpu":
        return []
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        value = os.environ.get(name, "gpu")
        if value.strip().lower() in ("", "-1", "cpu") and not (
            name == "JAX_PLATFORMS" and not value.strip()
        ):
            return [JAX_HIDDEN.format(name=name, value=value)]
    return [JAX_UNSEEN]


def no_jax_device(error: BaseException) -> str:
    """The message for an error of JAX while starting its devices."""
    asked = os.environ.get("JAX_PLATFORMS")
    lines = str(error).strip().splitlines()
    return JAX_NO_DEVICE.format(
        asked=f" (JAX_PLATFORMS is {asked!r})" if asked else "",
        why=f": {lines[0][:300]}" if lines else "",
    )


def nvidia_gpu() -> bool:
    """True if the machine has an NVIDIA GPU with a driver; always False except on Linux."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def without_npu(options: list[str]) -> list[str]:
    """The note on options that only apply to an NPU."""
    if not options:
        return []
    verb = "has" if len(options) == 1 else "have"
    return [f"without an NPU, {', '.join(options)} {verb} no effect"]
