"""Roles of the blocks of PyTorch's caching allocator, by the stacks that allocated them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.allocator.state import Replay
from nbprof.core.memory_roles import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    RESERVED,
    TEMPORARIES,
    UNKNOWN,
)
from nbprof.formats.torch_snapshot.snapshot import ALLOC, ALLOCATED, Snapshot
from nbprof.schema import frames

_OF_CATEGORY = {
    "parameter": PARAMETERS,
    "gradient": GRADIENTS,
    "optimizer_state": OPTIMIZER_STATE,
    "activation": ACTIVATIONS,
    "input": INPUTS,
    "temporary": TEMPORARIES,
}
"""Roles by the categories of `torch.profiler._memory_profiler.Category`."""
_OPTIMIZER = re.compile(r"(?:^|[/\\])torch[/\\]optim[/\\](?!lr_scheduler)\w+\.py$")
_MODULES = re.compile(r"(?:^|[/\\])torch[/\\]nn[/\\]modules[/\\]\w+\.py$")
_NO_ROLE, _STATE, _STEP, _PARAMETER, _GRADIENT = range(5)
"""What a stack says: nothing, an optimizer's state is made, an optimizer's step runs, a module is
made or moved, a gradient is accumulated.
"""


def roles(snapshot: Snapshot, replays: Sequence[Replay]) -> pd.DataFrame:
    """Bytes by role at the snapshot, of each device: the columns of `p.allocator.roles`.

    With what is reserved and not allocated they add up to the reserved bytes.
    """
    meanings = _meanings(snapshot)
    parts = [frames.empty("allocator.roles")]
    for replay in replays:
        state = replay.end()
        blocks = state.blocks[state.blocks["state"].to_numpy(np.int64) == ALLOCATED]
        role = _roles_of(blocks, meanings, _stepped_over(replay, meanings), snapshot.categories)
        by_role = (
            pd.DataFrame({"role": role, "size": blocks["size"].to_numpy(np.int64)})
            .groupby("role")["size"]
            .agg(bytes="sum", blocks="size")
        )
        reserved = int(state.segments["size"].sum())
        rows = by_role.reset_index()
        rows = rows.sort_values(["bytes", "role"], ascending=[False, True], kind="stable")
        rows = pd.concat([rows[rows["role"] != UNKNOWN], rows[rows["role"] == UNKNOWN]])
        rest = reserved - int(rows["bytes"].sum())
        if rest:
            free = pd.DataFrame({"role": [RESERVED], "bytes": [rest]})
            rows = pd.concat([rows, free])
        rows["device"] = replay.device
        rows["percent"] = 100 * rows["bytes"].astype(np.float64) / max(reserved, 1)
        parts.append(frames.typed("allocator.roles", rows[frames.names("allocator.roles")]))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _meanings(snapshot: Snapshot) -> npt.NDArray[np.int8]:
    """By stack, one of the numbers above."""
    of_frame = [_of_frame(name, file) for name, file, _ in snapshot.frames]
    of_stack = [
        # The innermost frame that says something.
        next((of_frame[frame] for frame in stack if of_frame[frame]), _NO_ROLE)
        for stack in snapshot.stacks
    ]
    return np.array(of_stack, np.int8)


def _of_frame(name: str, file: str) -> int:
    if "torch::autograd::AccumulateGrad" in name:
        return _GRADIENT
    if _OPTIMIZER.search(file):
        return _STATE if name == "_init_group" else _STEP
    # `to`, `cuda` and their like move parameters and buffers by `_apply`; modules that are given a
    # device make them there.
    if _MODULES.search(file) and name in ("_apply", "__init__"):
        return _PARAMETER
    return _NO_ROLE


def _stepped_over(replay: Replay, meanings: npt.NDArray[np.int8]) -> set[int]:
    """Addresses of blocks that were allocated in a step of an optimizer, and after which others
    were allocated outside of it: they outlived the step.
    """
    entries = replay.entries
    allocations = np.flatnonzero(entries["action"] == ALLOC)
    kind = meanings[entries["stack"][allocations]]
    within = (kind == _STEP) | (kind == _STATE)
    outside = allocations[~within & (entries["stack"][allocations] > 0)]
    if not len(outside):
        return set()
    steps = allocations[within]
    return set(entries["address"][steps[steps < outside[-1]]].tolist())


def _roles_of(
    blocks: pd.DataFrame,
    meanings: npt.NDArray[np.int8],
    stepped_over: set[int],
    categories: Sequence[str],
) -> npt.NDArray[np.object_]:
    """The role of each block in use."""
    role = np.full(len(blocks), UNKNOWN, object)
    kind = meanings[blocks["stack"].to_numpy(np.int64)]
    outlived = np.isin(blocks["address"].to_numpy(np.int64), list(stepped_over))
    role[(kind == _STATE) | ((kind == _STEP) & outlived)] = OPTIMIZER_STATE
    role[kind == _PARAMETER] = PARAMETERS
    role[kind == _GRADIENT] = GRADIENTS
    roles_by_code = [_OF_CATEGORY.get(name.lower()) for name in categories]
    for code, of_category in enumerate(roles_by_code):
        if of_category is not None:
            role[blocks["category"].to_numpy(np.int64) == code] = of_category
    return role
