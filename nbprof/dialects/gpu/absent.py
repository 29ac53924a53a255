"""Sentences on why a recording has no kernels, ops, allocations or batches.

A file without kernels is one of five: launches were recorded, so the kernels were lost; calls into
the runtime were recorded, but none of them launches anything; the program shows that it used a GPU,
which was not recorded; the machine has a GPU and no call was recorded, so whether it was used is
unknown; the profiler found no GPU.
"""

from __future__ import annotations

import re

import numpy as np

from nbprof.activity import activity as act
from nbprof.core.receipt import Note
from nbprof.dialects import notes, torchnames
from nbprof.dialects.gpu import notes as gpu_notes
from nbprof.dialects.gpu.hosts import Hosts
from nbprof.dialects.gpu.lanes import ANNOTATION, KERNEL, MEMORY, OP, PYTHON
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.notes import ACTIVITIES
from nbprof.dialects.gpu.step_work import call_kinds
from nbprof.display import wording

_HOST_MEMORY = (0, 2)
"""Device types of PyTorch: CPU and MKLDNN."""
_GPU_OPS = re.compile(
    r"^(?:nccl:|aten::_?(?:cudnn|miopen)_(?!is_acceptable)|aten::_scaled_dot_product_(?:flash|"
    r"efficient|cudnn)_attention(?!_for_cpu))"
)
"""Ops that run on a GPU alone."""
_WAIT_PS = 50_000_000
"""A wait for a device that does nothing takes some µs."""
_LAUNCHES = list(map(torchnames.CALL_KINDS.index, (torchnames.LAUNCH, torchnames.GRAPH)))
_COPIES = list(map(torchnames.CALL_KINDS.index, (torchnames.COPY, torchnames.FILL)))
LOST = (
    "the kernels were lost. Record fewer steps, in a fresh process and with no other profiler"
    " running. If that does not help, the process may lack the permission to trace the GPU (CUPTI"
    " on NVIDIA GPUs)."
)
"""Why kernels are lost, and what helps; other recorders have sentences of their own."""


def launches(links: Links) -> int:
    """Number of calls that launch a kernel or a graph, without captured ones."""
    return int(np.isin(call_kinds(links), _LAUNCHES).sum())


def lost_kernels(links: Links) -> int:
    """Number of launches if no kernel was recorded; 0 if any was."""
    if len(links.rows(KERNEL)) or links.unusable_kernels:
        return 0
    return launches(links)


def without_times(links: Links) -> bool:
    """True if kernels were recorded, and none of them has a time that can be."""
    return links.unusable_kernels > 0 and not len(links.rows(KERNEL))


def lost_note(links: Links, reason: str) -> list[Note]:
    """The warning that all kernels were lost; `reason` says why, and what helps."""
    count = lost_kernels(links)
    # The receipt has a note on the truncated file.
    if not count or links.trace.receipt.read_in_part:
        return []
    return [notes.lost_kernels(count, reason)]


def unseen_note(links: Links, hosts: Hosts) -> list[Note]:
    """The note that a GPU may have worked unseen."""
    if without_times(links) or links.trace.receipt.read_in_part:
        return []
    if proof := _unseen_proof(links, hosts):
        return [gpu_notes.unrecorded_gpu(proof, _unseen(links, "what it did is unknown"))]
    count = _unseen_gpus(links, hosts)
    return [gpu_notes.unknown_gpu_use(count)] if count else []


def kernels(links: Links, hosts: Hosts) -> str:
    """Why a profile of PyTorch has no kernels."""
    if without_times(links):
        return notes.UNUSABLE_TIMES
    if links.trace.receipt.read_in_part and traits(links, hosts):
        return notes.CUT_OFF
    if proof := _unseen_proof(links, hosts):
        return f"This profile has no GPU kernels, although the program {proof}: {_unseen(links)}"
    if message := without_kernels(links, "This profile", LOST):
        return message
    if _only_host_memory(links):
        return (
            "This profile has no GPU kernels: it has no call into the GPU's runtime and no"
            " allocation on a GPU, so the run used only the CPU."
        )
    if count := _unseen_gpus(links, hosts):
        gpus, used = f"{count:,} GPUs", "they were"
        if count == 1:
            gpus, used = "a GPU", "it was"
        return (
            "This profile has no GPU kernels and no calls into the GPU's runtime, on a machine"
            f" with {gpus}: whether {used} used is unknown. Record with {ACTIVITIES}."
        )
    listed = all(isinstance(facts.get("deviceProperties"), list) for facts in hosts.facts)
    if listed and not any(hosts.device_properties):
        return (
            "This profile has no GPU kernels: the profiler found no GPU, and the run used only the"
            " CPU."
        )
    return (
        "This profile has no GPU kernels and no calls into the GPU's runtime: the run used only"
        f" the CPU, or was recorded without ProfilerActivity.CUDA ({ACTIVITIES})."
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
    if without_times(links):
        return notes.UNUSABLE_TIMES
    if lost_kernels(links) and links.trace.receipt.read_in_part:
        return notes.CUT_OFF
    if count := lost_kernels(links):
        launched = wording.plural(count, "launch was", "launches were")
        return f"{recording} has no GPU kernels, although {launched} recorded: {lost}"
    if len(links.work):
        return f"{recording} has device copies, but no kernels."
    if len(links.calls):
        calls = wording.plural(len(links.calls), "call")
        return (
            f"{recording} has no GPU kernels: it has {calls} into the GPU's runtime, and none of"
            " them launches a kernel."
        )
    return ""


def ops(links: Links) -> str:
    """Why a profile of PyTorch has no ops."""
    if host_recorded(links):
        return "No PyTorch op ran during the recording."
    return (
        "This profile has device calls or device work, but no ops: they ran on other threads than"
        " the recorded one, or were recorded without ProfilerActivity.CPU."
    )


def host_recorded(links: Links) -> bool:
    """True if the CPU was recorded, or if nothing in the file would show it.

    Annotations, Python calls and allocations are recorded with the CPU alone. A recording of CUDA
    alone has calls or work of a device: at least that in which the profiler waits for the device at
    the end.
    """
    if np.isin(links.kind, (OP, ANNOTATION, PYTHON, MEMORY)).any():
        return True
    return not len(links.work) and not len(links.calls)


def allocations(hosts: Hosts) -> str:
    """Why a profile of PyTorch has no events of the allocator."""
    if any(facts.get("profile_memory") for facts in hosts.facts):
        return (
            "This profile has no allocator events: PyTorch allocated nothing during the recording."
        )
    return "This profile has no allocator events: record with profile_memory=True."


def batches(links: Links) -> str:
    """Why a profile of PyTorch has no batches of a DataLoader."""
    if not host_recorded(links):
        return "This profile has no DataLoader: its batches are recorded with ProfilerActivity.CPU."
    return (
        "This profile has no DataLoader: the program loads its data by other means than"
        " torch.utils.data.DataLoader, or loaded it before the recording started."
    )


def traits(links: Links, hosts: Hosts) -> set[str]:
    """Traits of a recording that lacks kernels, for the verdict."""
    if without_times(links):
        return {act.LOST_KERNELS, act.UNUSABLE_TIMES}
    if lost_kernels(links) or _unseen_proof(links, hosts) or _unseen_gpus(links, hosts):
        return {act.LOST_KERNELS}
    return set()


def _unseen_gpus(links: Links, hosts: Hosts) -> int:
    """Number of the machine's GPUs that may have been used but were not recorded.

    A recording of CUDA has calls, at least that in which the profiler waits for the device at the
    end.
    """
    if len(links.work) or len(links.calls) or _only_host_memory(links):
        return 0
    return sum(map(len, hosts.device_properties))


def _only_host_memory(links: Links) -> bool:
    """True if there are allocations, all of the host: ops on a device allocate there."""
    if len(links.work) or len(links.calls):
        return False
    device_types = links.trace.arg("Device Type", 0)[links.rows(MEMORY)]
    return len(device_types) > 0 and bool(np.isin(device_types, _HOST_MEMORY).all())


def _unseen_proof(links: Links, hosts: Hosts) -> str:
    """Evidence of a used but unrecorded GPU, as the end of a sentence; '' for none."""
    if len(links.work) or launches(links):
        return ""
    return _called_for_work(links) or _used_gpu(links, hosts)


def _unseen(links: Links, subject: str = "") -> str:
    """Reason and remedy for missing work of a used GPU, as the rest of a sentence."""
    if len(links.calls):
        so = f", so {subject}" if subject else ""
        return (
            f"no work of the GPU was recorded{so}. It was started before the recording, or {LOST}"
        )
    so = f": {subject}" if subject else ""
    return f"the GPU was not recorded{so}. Record with {ACTIVITIES}."


def _called_for_work(links: Links) -> str:
    """Calls that copy or wait for a busy device, as the end of a sentence; '' for none.

    The longest wait does not count: a first call initializes the device, which takes long.
    """
    kinds = call_kinds(links)
    copies = int(np.isin(kinds, _COPIES).sum())
    if copies:
        return f"called for {wording.plural(copies, 'copy', 'copies')}"
    syncs = links.calls[kinds == torchnames.CALL_KINDS.index(torchnames.SYNC)]
    waits = np.sort(links.trace.events.duration[syncs])[:-1]
    waits = waits[waits > _WAIT_PS]
    if not len(waits):
        return ""
    return f"waited for the device for {wording.millis(waits.sum() / 1e9)}"


def _used_gpu(links: Links, hosts: Hosts) -> str:
    """Evidence that the program needs a GPU, as the end of a sentence; '' for none."""
    allocated = links.trace.arg("Device Type", 0)[links.rows(MEMORY)]
    if not np.isin(allocated, _HOST_MEMORY).all():
        return "allocated memory of a device"
    for facts in hosts.facts:
        info = facts.get("distributedInfo")
        if isinstance(info, dict) and info.get("backend") == "nccl":
            return "communicates by NCCL"
    names = list(map(str, links.trace.names))
    if any("_mps_" in name for name in names):
        return "ran ops on MPS"
    for name in filter(_GPU_OPS.match, names):
        return f"ran {name}, which runs on GPUs only"
    return ""
