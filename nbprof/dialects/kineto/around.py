"""Calls of Python that only lead to the program: what starts it, the event loop, the kernel of a notebook."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.core import nesting
from nbprof.core.trace import Trace

NOTE = "what started the code"
"""The note of the lane that holds them."""
_STARTS = (
    r"runpy\.py|<frozen runpy>|threading\.py|contextlib\.py|ipykernel_launcher\.py|(?:asyncio|concurrent[/\\]futures|tornado|traitlets|zmq"
    r"|ipykernel|IPython|jupyter_client|debugpy|nbprof)[/\\][^(]*"
)
_NAME = re.compile(rf"(?:[^(]*(?:site-packages|lib[/\\]python[\d.]+)[/\\])?(?:{_STARTS})\(\d+\): ")


def leads(trace: Trace, python: npt.NDArray[np.bool_], slack: int) -> npt.NDArray[np.bool_]:
    """bool[events]: the calls around the first call of the program on their thread, which are some two dozen in a notebook.

    Parameters
    ----------
    python : bool[events]
        Which events are calls of Python.
    slack : int
        How far a call may run past the one that includes it, ps.
    """
    out = np.zeros(len(python), np.bool_)
    rows = np.flatnonzero(python)
    name = trace.events.name[rows]
    starts = np.zeros(len(trace.names), np.bool_)
    found = np.unique(name)
    starts[found] = [_NAME.match(text) is not None for text in trace.names[found].tolist()]
    if not starts.any():
        return out
    # What is built in leads on to what is around it, or is called by it.
    starts[found] |= [text.startswith("<built-in") for text in trace.names[found].tolist()]
    events = trace.events
    parent = nesting.parents(events.lane[rows], events.start[rows], events.duration[rows], slack)
    outer, inside = starts[name], np.zeros(len(rows), np.bool_)
    levels = nesting.levels(parent)
    for level in levels[1:]:
        outer[level] &= outer[parent[level]]
    # Only what has a call of the program in it leads to one.
    for level in reversed(levels):
        below = level[parent[level] >= 0]
        inside[parent[below[~outer[below] | inside[below]]]] = True
    out[rows] = outer & inside
    return out
