"""Memory before and after: by role, and by the stack that allocated it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.analysis.compare.compare import PEAK, PLAN, SNAPSHOT, SideMemory, joined
from nbprof.core.memory_roles import IN_USE, OF_PROGRAMS, RESERVED
from nbprof.schema import frames

_NOT_STATED = "its allocator does not state it"
_CELL = re.compile(r"^\d+\.py(?=:\d+ )", re.MULTILINE)
_LINE_NUMBER = re.compile(r"^(.*?):\d+ ", re.MULTILINE)
_SIDES = ("before", "after")
_NAMES = {PEAK: (*IN_USE, RESERVED), SNAPSHOT: (*IN_USE, RESERVED), PLAN: OF_PROGRAMS}
"""Roles by moment."""


def roles(before: SideMemory, after: SideMemory) -> pd.DataFrame:
    """Bytes of each role, the largest change first: the columns of `c.memory`.

    They are those at the peak, or at snapshots of PyTorch's allocator or in the plan of a compiled
    program if more of the runs have these. Of a run without roles all bytes are missing, and the
    reason says why.
    """
    moment = _moment(before, after)
    if not any(len(side.roles(moment)) for side in (before, after)):
        return frames.empty("comparison.memory")
    names = pd.Index(_NAMES[moment])
    columns, reasons = {}, []
    for name, side in zip(_SIDES, (before, after), strict=True):
        sizes = _sizes(side, moment, names)
        columns[f"{name}_bytes"] = sizes
        reason = f"{name}: {side.reason(moment) or _NOT_STATED}"
        reasons.append(pd.Series(reason, names).where(sizes.isna(), ""))
    table = pd.DataFrame(columns)
    table["change_bytes"] = table["after_bytes"] - table["before_bytes"]
    table["moment"] = moment
    table["reason"] = ["; ".join(filter(None, pair)) for pair in zip(*reasons, strict=True)]
    table = table.rename_axis("role").reset_index()
    largest = table[["before_bytes", "after_bytes"]].max(axis=1).fillna(0)
    table, largest = table[largest > 0], largest[largest > 0]
    change = table["change_bytes"].abs().fillna(0)
    order = np.lexsort((-largest.to_numpy(np.int64), -change.to_numpy(np.int64)))
    return frames.typed("comparison.memory", table.iloc[order].reset_index(drop=True))


def _moment(before: SideMemory, after: SideMemory) -> str:
    """The moment of which the roles of more runs are known, the first of equal ones."""
    return max(
        _NAMES, key=lambda moment: sum(len(side.roles(moment)) > 0 for side in (before, after))
    )


def _sizes(side: SideMemory, moment: str, names: pd.Index) -> pd.Series:
    """Bytes by role, Int64; missing where they are unknown."""
    rows = side.roles(moment)
    sizes = rows.set_index("role")["bytes"].reindex(names).astype("Int64")
    if not len(rows):
        return sizes
    # A role without a row has no memory; what is reserved may be unknown at the peak.
    none = sizes.isna().to_numpy(np.bool_) & ((names != RESERVED) | (moment != PEAK))
    return sizes.mask(none, 0)


def missing(before: SideMemory, after: SideMemory) -> str:
    """Sentences on the run of which `roles` has no bytes; empty if it has those of both or none."""
    moment = _moment(before, after)
    is_known = any(len(side.roles(moment)) for side in (before, after))
    sentences = []
    for name, side in zip(_SIDES, (before, after), strict=True):
        reason = side.reason(moment)
        if reason and (is_known or side.failure):
            sentences.append(_sentence(name, reason))
    return " ".join(sentences)


def missing_snapshot(before: SideMemory, after: SideMemory) -> str:
    """A sentence on the run that has no snapshot where the other has one; else empty."""
    without = [
        _sentence(name, side.reason(SNAPSHOT))
        for name, side in zip(_SIDES, (before, after), strict=True)
        if not len(side.snapshot)
    ]
    if len(without) != 1:
        return ""
    return without[0]


def _sentence(name: str, reason: str) -> str:
    return f"{name.capitalize()}: {reason.rstrip('.')}."


def stacks(before: SideMemory, after: SideMemory) -> pd.DataFrame:
    """Bytes in use at the snapshots by the stack that allocated them, the largest change first: the
    columns of `c.allocator`.

    Stacks are equal if device and all frames are. A stack whose lines have other numbers is `moved`
    if one is left on each side. Empty unless both runs have a snapshot.
    """
    if not len(before.snapshot) or not len(after.snapshot):
        return frames.empty("comparison.allocator")
    table = joined(before.stacks, after.stacks, ["device", "stack"], "stack", _without_lines)
    table["state"] = table["state"].replace("renamed", "moved")
    table["location"] = table["location_b"].fillna(table["location_a"])
    for name, suffix in zip(_SIDES, ("_a", "_b"), strict=True):
        for figure in ("bytes", "blocks"):
            # None of its blocks was in use.
            table[f"{name}_{figure}"] = table[f"{figure}{suffix}"].fillna(0).astype(np.int64)
    table["change_bytes"] = table["after_bytes"] - table["before_bytes"]
    largest = table[["before_bytes", "after_bytes"]].max(axis=1).to_numpy(np.int64)
    location = table["location"].astype(str).to_numpy(object)
    order = np.lexsort((location, -largest, -table["change_bytes"].abs().to_numpy(np.int64)))
    names = frames.names("comparison.allocator")
    return frames.typed("comparison.allocator", table.iloc[order][names].reset_index(drop=True))


def _without_lines(stack: str) -> str:
    """A stack without the numbers of lines and of the files that stand for cells, which change with
    their text.
    """
    return _LINE_NUMBER.sub(r"\1 ", _CELL.sub("cell", stack))
