"""Memory by role at the peak, before and after."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.core.memory_roles import IN_USE, RESERVED
from nbprof.schema import frames


def roles(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Bytes of each role at the peak, the largest change first: the columns of `c.memory`.

    Parameters
    ----------
    before, after : DataFrame
        The rows of `p.memory.roles` of one allocator of each run; without rows where nothing is
        known of a run, and then there are no roles to compare.
    """
    if not len(before) or not len(after):
        return frames.empty("comparison.memory")
    names = pd.Index([*IN_USE, RESERVED])
    columns = {}
    for column, rows in (("before_bytes", before), ("after_bytes", after)):
        sizes = rows.set_index("role")["bytes"].reindex(names)
        # A role without a row has no memory; what is reserved may be unknown.
        is_used = sizes.index != RESERVED
        columns[column] = sizes.mask(is_used & sizes.isna().to_numpy(), 0).astype("Int64")
    table = pd.DataFrame(columns).rename_axis("role").reset_index()
    table["change_bytes"] = table["after_bytes"] - table["before_bytes"]
    largest = table[["before_bytes", "after_bytes"]].max(axis=1).fillna(0)
    table = table[(largest > 0).to_numpy(np.bool_)]
    order = table["change_bytes"].abs().fillna(0).sort_values(ascending=False, kind="stable").index
    return frames.typed("comparison.memory", table.loc[order].reset_index(drop=True))
