"""Why a recording has no kernels, ops, allocations or batches, in sentences that hold for what the file shows.

A file without kernels is one of four: launches were recorded, so the kernels were lost; calls into the runtime were recorded, but none of
them launches anything; no call was recorded on a machine that has a GPU; the profiler found no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nbprof.activity import activity as act
from nbprof.core.trace import Note
from nbprof.dialects import torchnames
from nbprof.dialects.kineto import steps
from nbprof.dialects.kineto.hosts import Hosts
from nbprof.dialects.kineto.lanes import ANNOTATION, KERNEL, MEMORY, OP, PYTHON
from nbprof.dialects.kineto.links import Links

ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_HOST_MEMORY = (0, 2)
"""Device types of PyTorch: CPU and MKLDNN."""
_LAUNCHES = [torchnames.CALL_KINDS.index(kind) for kind in (torchnames.LAUNCH, torchnames.GRAPH)]
LOST = (
    "the kernels were lost. Record fewer steps, in a fresh process and with no other profiler running. If that does not help, the "
    "process may lack the permission to trace the GPU (CUPTI on NVIDIA GPUs)."
)
"""Why kernels are lost, and what helps; other recorders have sentences of their own."""


def launches(links: Links) -> int:
    """How many calls launch a kernel or a graph. What was captured into a graph launches nothing."""
    return int(np.isin(steps.call_kinds(links), _LAUNCHES).sum())


def lost_kernels(links: Links) -> int:
    """How many launches there are if no kernel was recorded; 0 if any was."""
    return 0 if len(links.rows(KERNEL)) else launches(links)


def lost_note(links: Links, reason: str) -> list[Note]:
    """The warning that all kernels were lost; `reason` says why, and what helps."""
    if not (count := lost_kernels(links)):
        return []
    launched = f"{count:,} {'launch was' if count == 1 else 'launches were'} recorded, but no kernel"
    return [Note("warning", f"{launched}, so what the device did is unknown: {reason}")]


def unseen_note(links: Links, hosts: Hosts) -> list[Note]:
    """The note that a GPU may have worked unseen."""
    if len(links.work) or len(links.calls):
        return []
    if proof := _used_gpu(links, hosts):
        text = f"The program {proof}, but the GPU was not recorded: what it did is unknown. Record with {ACTIVITIES}."
        return [Note("warning", text)]
    if not (count := sum(map(len, hosts.device_properties))):
        return []
    text = (
        f"The machine has {'a GPU' if count == 1 else f'{count:,} GPUs'}, but no call into the runtime was recorded: if the program used "
        f"{'it' if count == 1 else 'them'}, record with {ACTIVITIES}."
    )
    return [Note("info", text)]


def kernels(links: Links, hosts: Hosts) -> str:
    """Why a profile of PyTorch has no kernels."""
    if found := without_kernels(links, "This profile", LOST):
        return found
    if proof := _used_gpu(links, hosts):
        return f"This profile has no GPU kernels, although the program {proof}: the GPU was not recorded. Record with {ACTIVITIES}."
    stated = all(isinstance(facts.get("deviceProperties"), list) for facts in hosts.facts)
    if stated and not any(hosts.device_properties):
        return "This profile has no GPU kernels: the profiler found no GPU, and the run used only the CPU."
    return (
        "This profile has no GPU kernels and no calls into the GPU's runtime: the run used only the CPU, or was recorded without "
        f"ProfilerActivity.CUDA ({ACTIVITIES})."
    )


def without_kernels(links: Links, recording: str, lost: str) -> str:
    """Why there are no kernels, as far as other work and calls show it; '' if there is neither.

    Parameters
    ----------
    links : Links
    recording : str
        ``This profile``
    lost : str
        Why kernels are lost, and what helps.
    """
    if count := lost_kernels(links):
        launched = f"{count:,} {'launch was' if count == 1 else 'launches were'}"
        return f"{recording} has no GPU kernels, although {launched} recorded: {lost}"
    if len(links.work):
        return f"{recording} has device copies, but no kernels."
    if count := len(links.calls):
        calls = "1 call" if count == 1 else f"{count:,} calls"
        return f"{recording} has no GPU kernels: it has {calls} into the GPU's runtime, and none of them launches a kernel."
    return ""


def ops(links: Links) -> str:
    """Why a profile of PyTorch has no ops."""
    if host_recorded(links):
        return "No PyTorch op ran during the recording."
    return (
        "This profile has calls or work of a device, but no ops: they ran on other threads than the recorded one, or were recorded "
        "without ProfilerActivity.CPU."
    )


def host_recorded(links: Links) -> bool:
    """Whether the file shows that the CPU was recorded, or shows nothing that could have been recorded without it.

    Annotations, Python calls and allocations are recorded with the CPU alone. A recording of CUDA alone has calls or work of a device:
    at least that in which the profiler waits for the device at the end.
    """
    return bool(np.isin(links.kind, (OP, ANNOTATION, PYTHON, MEMORY)).any()) or not (len(links.work) or len(links.calls))


def allocations(hosts: Hosts) -> str:
    """Why a profile of PyTorch has no events of the allocator."""
    if any(facts.get("profile_memory") for facts in hosts.facts):
        return "This profile has no allocator events: PyTorch allocated nothing during the recording."
    return "This profile has no allocator events: record with profile_memory=True."


def batches(links: Links) -> str:
    """Why a profile of PyTorch has no batches of a DataLoader."""
    if not host_recorded(links):
        return "This profile has no DataLoader: its batches are recorded with ProfilerActivity.CPU."
    return (
        "This profile has no DataLoader: the program loads its data by other means than torch.utils.data.DataLoader, or loaded it "
        "before the recording started."
    )


def traits(links: Links, hosts: Hosts) -> set[str]:
    """What the lack of kernels means for the verdict."""
    if lost_kernels(links):
        return {act.LOST_KERNELS}
    if not (len(links.work) or len(links.calls)) and _used_gpu(links, hosts):
        return {act.LOST_KERNELS}
    return set()


def _used_gpu(links: Links, hosts: Hosts) -> str:
    """What the program did that needs a GPU, as the end of a sentence; '' if nothing shows it."""
    allocated = links.trace.arg("Device Type", 0)[links.rows(MEMORY)]
    if not np.isin(allocated, _HOST_MEMORY).all():
        return "allocated memory of a device"
    backends: list[Any] = [facts.get("distributedInfo") for facts in hosts.facts]
    if any(isinstance(info, dict) and info.get("backend") == "nccl" for info in backends):
        return "communicates by NCCL"
    if any("_mps_" in str(name) for name in links.trace.names):
        return "ran ops on MPS"
    return ""
