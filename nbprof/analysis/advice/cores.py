"""Advice that a recording which kept all cores busy refutes: who has no core left has none for more workers.

How busy the cores were is a fact of the recording, which is in no file of the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis import contention

_TITLE = "Make items cheaper: no core is free for more workers"
_FIX = (
    " class Items(Dataset):\n     def __getitem__(self, i):\n-        return decode(self.paths[i])\n"
    "+        return self.decoded[i]  # decoded once, before training: np.load(path, mmap_mode='r')"
)
_REFUTED = "{the} waits less with more workers"


def taken(found: pd.DataFrame, measured: Mapping[str, float], unit: Unit = MARKED) -> pd.DataFrame:
    """The findings, with cheaper items in place of more workers where that process and its workers kept the cores busy.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    measured : mapping
        What `nbprof.capture.contention.Contention.measured` gave.
    unit : Unit
        What the figures are given per.
    """
    more = (found["rule"] == "loader_workers").to_numpy()
    if not more.any() or not contention.full(measured):
        return found
    cores, own = measured["cores"], measured["own_cores"]
    of = f"**{own:.1f}** of the **{cores:.0f}** cores" if cores > 1 else f"**{100 * own:.0f}%** of the core"
    out = found.copy()
    out.loc[more, "evidence"] += f" They and the training process kept {of} busy: more workers would have no free core."
    out.loc[more, ["title", "fix", "refuted_by"]] = [_TITLE, _FIX, unit.fill(_REFUTED)]
    return out
