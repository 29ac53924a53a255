"""A snapshot of PyTorch's allocator as columns, and the codes in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.core.receipt import Note

Int64s = npt.NDArray[np.int64]
ACTIONS = (
    "other",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
(
    OTHER,
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    OOM,
    SNAPSHOT,
) = range(len(ACTIONS))
STATES = ("inactive", "active_allocated", "active_pending_free")
INACTIVE, ALLOCATED, PENDING = range(len(STATES))
UNKNOWN = -1


class Backend(NamedTuple):
    """The names of a backend of PyTorch: of its devices, its module and the settings of its
    allocator.
    """

    chip: str
    module: str
    settings: str


CUDA = Backend("GPU", "torch.cuda", "PYTORCH_CUDA_ALLOC_CONF")
NPU = Backend("NPU", "torch.npu", "PYTORCH_NPU_ALLOC_CONF")


@dataclass
class Snapshot:
    """One snapshot as columns.

    Attributes
    ----------
    segments : dict of str to int64[n]
        `device address size allocated active requested stream large pool pool_b expandable stack
        first blocks`: `first` and `blocks` are the rows of its blocks. `large` is 0, 1, or -1 where
        the file does not say.
    blocks : dict of str to int64[n]
        `address size requested state category stack`, by segment, in the order of their addresses.
    entries : dict of str to int64[n]
        `device action address size stream time_us device_free pool pool_b category stack`, by
        device, oldest first.
    frames : list of (str, str, int)
        Function, file and line.
    stacks : list of tuple of int
        Frames of each stack, innermost first.
    categories : list of str
    settings : dict
        `allocator_settings` of the file.
    annotations : list of (str, str, int, int)
        Name, START or END, device, time in us.
    traced : bool
        Whether the file has a history, if only an empty one.
    notes : list of Note
    cut : bool
        Whether the file ends in the middle.
    """

    segments: dict[str, Int64s]
    blocks: dict[str, Int64s]
    entries: dict[str, Int64s]
    frames: list[tuple[str, str, int]]
    stacks: list[tuple[int, ...]]
    categories: list[str]
    settings: dict[str, Any]
    annotations: list[tuple[str, str, int, int]]
    traced: bool = False
    cut: bool = False
    notes: list[Note] = field(default_factory=list)

    @cached_property
    def backend(self) -> Backend:
        """The backend whose allocator this is, by the files of the stacks."""
        if any("torch_npu" in file for _, file, _ in self.frames):
            return NPU
        return CUDA
