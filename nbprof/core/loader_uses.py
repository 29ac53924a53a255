"""Data loaders that a recorded program used: their arguments, and the cores used meanwhile.

A recording stores them next to the trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

VERSION = 1
MOST = 20
"""Loaders that a recording stores at most."""
DATA_LOADER = "torch.utils.data.DataLoader"
PY_DATASET = "keras.utils.PyDataset"
TF_DATA = "tf.data.Dataset"
GRAIN_LOADER = "grain.DataLoader"
GRAIN_DATASET = "grain.IterDataset"
ITERABLE = "nbprof.steps"
"""Any other iterable that `nbprof.steps` runs over."""
_LONGEST = 100


@dataclass(frozen=True)
class LoaderUse:
    """One loader, or several with the same arguments.

    Parameters
    ----------
    kind : str
        `DATA_LOADER`, `PY_DATASET`, `TF_DATA`, `GRAIN_LOADER`, `GRAIN_DATASET` or `ITERABLE`.
    dataset : str
        The class of what it reads.
    workers : int or None
        Processes or threads that prepare items; 0 for the training process. None if unknown, as for
        the other fields.
    prefetch : int or None
        ``prefetch_factor``, or ``max_queue_size`` of Keras.
    pin_memory, persistent_workers, processes : bool or None
        `processes` is ``use_multiprocessing`` of Keras.
    batch_size : int or None
    shuffle : bool or None
    iterations : int
        Number of iterations over it.
    batches : int
        Batches requested from it, without the first one of each iteration, with which it starts.
    wait_s, wait_cpu_s : float
        Time that the loop waited for these, and the core seconds of the process meanwhile.
    rest_s, rest_cpu_s : float
        The same between one batch and the request for the next.
    """

    kind: str
    dataset: str = ""
    workers: int | None = None
    prefetch: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    processes: bool | None = None
    batch_size: int | None = None
    shuffle: bool | None = None
    iterations: int = 0
    batches: int = 0
    wait_s: float = 0.0
    wait_cpu_s: float = 0.0
    rest_s: float = 0.0
    rest_cpu_s: float = 0.0

    @property
    def loads_ahead(self) -> bool:
        """True of a dataset of Keras that threads or processes load."""
        return bool(self.workers) and (bool(self.processes) or (self.workers or 0) > 1)

    @property
    def wait_cores(self) -> float | None:
        """Cores that the process used while the loop waited; None if unknown."""
        return self.wait_cpu_s / self.wait_s if self.wait_s > 0 else None

    @property
    def rest_cores(self) -> float | None:
        """The same for the rest of the loop."""
        return self.rest_cpu_s / self.rest_s if self.rest_s > 0 else None


def packed(uses: Iterable[LoaderUse]) -> dict[str, Any]:
    """As plain values for JSON; empty without loaders."""
    rows = [asdict(use) for use in uses][:MOST]
    return {"version": VERSION, "loaders": rows} if rows else {}


def unpacked(values: object) -> tuple[LoaderUse, ...]:
    """The loaders that `packed` described; none of another version, and no damaged rows."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return ()
    rows = values.get("loaders")
    if not isinstance(rows, list):
        return ()
    return tuple(filter(None, map(_row, rows[:MOST])))


def _row(values: object) -> LoaderUse | None:
    if not isinstance(values, dict) or values.keys() != {field.name for field in fields(LoaderUse)}:
        return None
    for name, value in values.items():
        unknown = value is None and name in _MAY_BE_UNKNOWN
        if not unknown and not _CHECKS[name](value):
            return None
    return LoaderUse(**values)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_time(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


_CHECKS = {
    **dict.fromkeys(("kind", "dataset"), _is_text),
    **dict.fromkeys(("workers", "prefetch", "batch_size", "iterations", "batches"), _is_count),
    **dict.fromkeys(("pin_memory", "persistent_workers", "processes", "shuffle"), _is_flag),
    **dict.fromkeys(("wait_s", "wait_cpu_s", "rest_s", "rest_cpu_s"), _is_time),
}
_MAY_BE_UNKNOWN = {field.name for field in fields(LoaderUse) if field.default is None}


def short(name: str) -> str:
    """The name of a class, truncated as in a row."""
    return name[:_LONGEST]
