"""The table of what keeps arrays alive: `p.memory.variables` and ``%nbprof memory``."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pandas as pd

import __main__
from nbprof.capture.variables.arrays import HOST, Block, reader_of, tensors
from nbprof.capture.variables.holders import TRACEBACK, Holder, holders
from nbprof.capture.variables.search import Reach, Search, namespaces
from nbprof.core.garbage import collection_paused
from nbprof.schema import frames

FRAME = "memory.variables"
LIMIT_S = 5.0
"""Seconds that a search may take."""
_NAMED = 3
"""Other holders of the same array that are named."""
_CHAINS = 30
"""Arrays of a holder, the largest ones, whose references are followed back to see what holds them.
"""
_HOOKS = "_hooks"
NOWHERE = "other"
_GARBAGE = "import gc; gc.collect()"


@collection_paused()
def variables(namespace: Mapping[str, Any] | None = None, limit_s: float = LIMIT_S) -> pd.DataFrame:
    """A row per holder and device for what keeps arrays alive now, most memory first.

    Nothing is kept alive by it, and no property or method of an object of the person is called. Of
    a graph of autograd, what it saved for the backward pass has an unknown size: its arrays may be
    packed by hooks, which would run.

    Parameters
    ----------
    namespace : mapping, optional
        Variables of the notebook; by default those of the main module.
    limit_s : float
        Seconds after which holders are not looked into any more; `.attrs["complete"]` says so.
    """
    search = Search(namespaces() | {id(namespace)}, limit_s)
    reached: list[tuple[Holder, Reach]] = []
    if namespace is None:
        namespace = vars(__main__)
    for holder in holders(namespace):
        reach = search.reach(holder.value)
        if reach.blocks or reach.graphs:
            reached.append((holder, reach))
    by_block: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, (_, reach) in enumerate(reached):
        for key in reach.blocks:
            by_block[key].append(index)
    rows = []
    for index, (holder, reach) in enumerate(reached):
        rows += _rows(index, holder, reach, by_block, [each.name for each, _ in reached])
    rows += _elsewhere(set(by_block))
    table = pd.DataFrame(rows, columns=[column.name for column in frames.SCHEMA[FRAME]])
    table = table.astype(frames.dtypes(FRAME)).sort_values(
        ["freed_bytes", "bytes"], ascending=False, kind="stable", ignore_index=True
    )
    table.attrs["complete"] = search.complete
    return table


def _rows(
    index: int,
    holder: Holder,
    reach: Reach,
    by_block: Mapping[tuple[Any, ...], list[int]],
    names: list[str],
) -> list[dict[str, Any]]:
    """The rows of a holder: by device, and what hooks hold apart from the rest."""
    parts: dict[tuple[str, bool], list[Block]] = defaultdict(list)
    largest_first = sorted(reach.blocks.values(), key=lambda block: -block.bytes)
    for number, block in enumerate(largest_first):
        in_hooks = number < _CHAINS and _HOOKS in reach.chain(block.key)
        parts[block.device, in_hooks].append(block)
    if not parts:
        # Of a graph alone the memory is unknown.
        parts[HOST, False] = []
    rows = []
    for (device, in_hooks), blocks in parts.items():
        other_names: list[str] = []
        held_by, largest = holder.name, Block((), 0, device, "")
        if blocks:
            largest = blocks[0]
            other_names = [names[each] for each in by_block[largest.key] if each != index]
            chain = reach.chain(largest.key)
            if holder.kind == TRACEBACK:
                # It stands for all names of the error.
                chain = re.sub(r"^\[\d\]", "", chain)
            held_by += chain
        also, graphs, remedy = ", ".join(other_names[:_NAMED]), reach.graphs, holder.remedy
        if len(other_names) > _NAMED:
            also += " …"
        if in_hooks:
            graphs = 0
            remedy = f"{held_by.partition(_HOOKS)[0]}{_HOOKS}.clear()"
        rows.append(
            {
                "holder": holder.kind,
                "name": holder.name,
                "device": device,
                "arrays": len(blocks),
                "bytes": sum(block.bytes for block in blocks),
                "freed_bytes": sum(b.bytes for b in blocks if len(by_block[b.key]) == 1),
                "largest": largest.text,
                "largest_bytes": largest.bytes,
                "held_by": held_by,
                "also": also,
                "graphs": graphs,
                "remedy": remedy,
            }
        )
    return rows


def _elsewhere(excluded: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Tensors that no holder reaches: libraries have them, or they are garbage."""
    devices: dict[str, dict[tuple[Any, ...], Block]] = defaultdict(dict)
    for tensor in tensors():
        for block in _blocks(tensor):
            if block.key not in excluded:
                devices[block.device][block.key] = block
    rows = []
    for device, unknown in devices.items():
        largest = max(unknown.values(), key=lambda block: block.bytes)
        rows.append(
            {
                "holder": NOWHERE,
                "name": "libraries or garbage",
                "device": device,
                "arrays": len(unknown),
                "bytes": sum(block.bytes for block in unknown.values()),
                "freed_bytes": 0,
                "largest": largest.text,
                "largest_bytes": largest.bytes,
                "held_by": "",
                "also": "",
                "graphs": 0,
                "remedy": _GARBAGE,
            }
        )
    return rows


def _blocks(tensor: Any) -> list[Block]:
    reader = reader_of(type(tensor))
    # Some tensors have no memory of their own, other_names are deleted meanwhile.
    with contextlib.suppress(Exception):
        if reader is not None:
            return list(reader(tensor))
    return []


def of_notebook() -> pd.DataFrame:
    """The table of the running notebook; of the main module in a program."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return variables()
    return variables(shell.user_ns)
