"""The rank of this process in a job, by what its launcher put into the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

_VARIABLES = (
    # torchrun, `accelerate launch`, `torch.distributed.run`
    ("RANK", "WORLD_SIZE"),
    # Open MPI, MVAPICH, MPICH and Intel MPI
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    # A batch script without `srun` has a rank, but not this number of tasks.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


class Position(NamedTuple):
    """The rank of a process, the number of ranks, and the variable that states the rank."""

    rank: int
    size: int
    variable: str


def position(environment: Mapping[str, str] = os.environ) -> Position | None:
    """The position of a process; None without a launcher. Invalid values count as none."""
    for variable, of_size in _VARIABLES:
        try:
            rank, size = int(environment[variable]), int(environment[of_size])
        except (KeyError, ValueError):
            continue
        if 0 <= rank < size:
            return Position(rank, size, variable)
    return None
