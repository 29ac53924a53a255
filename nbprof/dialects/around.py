"""Calls of Python outside the program: start, event loop, threads of the kernel and nbprof."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import nesting
from nbprof.core.late_pattern import late_pattern
from nbprof.core.trace import Trace

Flags = npt.NDArray[np.bool_]

NOTE = "what started the code"
"""The note of the lane that holds them."""


@dataclass(frozen=True)
class Names:
    """Patterns for the beginnings of the names of a recorder's calls of Python.

    Attributes
    ----------
    starts : Pattern
        Calls that may lead to the program.
    helpers : Pattern
        Calls that those make for themselves, which lead to nothing.
    built_in : Pattern
        Functions that have no Python code. They lead on to what is around them, or are called by
        it.
    """

    starts: re.Pattern[str]
    helpers: re.Pattern[str]
    built_in: re.Pattern[str]


_LIBRARY = r"(?:[^(]*(?:site-packages|lib[/\\]python[\d.]+)[/\\])?"
_OWN_THREADS = (
    r"nbprof[/\\](?:capture[/\\](?:(?:bounds|python_samples)\.py\(\d+\): _run|jax\.py\(\d+\): wait)"
    r"|notebook[/\\]live_status\.py\(\d+\): _run)\b"
)
# Modules of the standard library that the kernel and nbprof call, and that call no program.
_HELPERS = (
    r"enum|selectors|socket|weakref|_weakrefset|queue|hmac|codeop|signal|linecache|pathlib|"
    r"json[/\\]__init__|<frozen importlib\._bootstrap>|<frozen abc>"
)
KINETO = Names(
    late_pattern(
        rf"{_LIBRARY}(?!{_OWN_THREADS})(?:runpy\.py|<frozen"
        r" runpy>|threading\.py|contextlib\.py|ipykernel_launcher\.py|(?:asyncio|"
        r"concurrent[/\\]futures|tornado|traitlets|zmq|ipykernel|IPython|jupyter_client|debugpy|"
        r"nbprof)[/\\][^(]*)\(\d+\): "
    ),
    late_pattern(rf"{_LIBRARY}(?:{_OWN_THREADS}|(?:{_HELPERS})(?:\.py)?\(\d+\): )"),
    late_pattern(r"<built-in"),
)
"""PyTorch: `IPython/core/interactiveshell.py(3526): run_code`."""

XSPACE = Names(
    # A file by its name alone may be anyone's: only those that are called as no other file is, or
    # with their functions.
    late_pattern(
        r"\$(?:(?:runpy|<frozen runpy>|threading|contextlib|ipykernel_launcher|interactiveshell|"
        r"async_helpers|zmqshell|ipkernel|kernelbase|kernelapp|base_events|selector_events|ioloop|"
        r"zmqstream|iostream|parentpoller|shellchannel)(?:\.py)?:\d+ |"
        r"application\.py:\d+ launch_instance\b|asyncio\.py:\d+ (?:start|_handle_events)\b|"
        r"events\.py:\d+ (?:_run|trigger)\b|runners\.py:\d+ (?:run|run_until_complete)\b|"
        r"thread\.py:\d+ (?:run|_worker)\b)"
    ),
    late_pattern(
        rf"\$(?:(?:{_HELPERS}|attrsettr|traitlets|compilerop|display_trap|builtin_trap|"
        r"displaypub)(?:\.py)?:\d+ "
        r"|asyncio\.py:\d+ (?:add_callback|call_at)\b|session\.py:\d+"
        r" (?:msg|send)\b|history\.py:\d+ store_(?:inputs|output)\b"
        r"|(?:bounds|live_status|python_samples)\.py:\d+ _run\b|jax\.py:\d+ wait\b)"
    ),
    late_pattern(r"\$[^:]+ [^:]+\Z"),
)
"""TensorFlow and JAX: `$interactiveshell.py:3526 run_code`, and `$builtins exec`."""


def find(trace: Trace, python: Flags, names: Names, slack: int = 0) -> tuple[Flags, Flags]:
    """The calls that lead to the program, and the lanes that have none of its calls.

    Parameters
    ----------
    python : bool[events]
        Which events are calls of Python.
    slack : int
        How far a call may run past the one that includes it, ps.

    Returns
    -------
    leads : bool[events]
        The calls around the first call of the program on their thread, some two dozen in a
        notebook.
    aside : bool[lanes]
        Lanes of nothing but calls of Python, none of them the program's.
    """
    leads, aside = np.zeros(len(python), np.bool_), np.zeros(len(trace.lanes), np.bool_)
    rows = np.flatnonzero(python)
    if not len(rows):
        return leads, aside
    events = trace.events
    name = events.name[rows]
    starts, next_to_start = (
        np.zeros(len(trace.names), np.bool_),
        np.zeros(len(trace.names), np.bool_),
    )
    for code in pd.unique(name).tolist():
        text = trace.names[code]
        next_to_start[code] = names.helpers.match(text) is not None
        starts[code] = not next_to_start[code] and (
            names.starts.match(text) is not None or names.built_in.match(text) is not None
        )
    parent = nesting.parents(events.lane[rows], events.start[rows], events.duration[rows], slack)
    outer, in_start = starts[name], np.zeros(len(rows), np.bool_)
    levels = nesting.levels(parent)
    for level in levels[1:]:
        outer[level] &= outer[parent[level]]
    # The first call under those decides: calls of a library to itself are not the program's.
    first = ~outer & ~next_to_start[name] & ((parent < 0) | outer[parent])
    for level in reversed(levels):
        below = level[parent[level] >= 0]
        in_start[parent[below[first[below] | in_start[below]]]] = True
    leads[rows] = outer & in_start
    count = len(trace.lanes)
    all_python = np.bincount(events.lane[rows], minlength=count) == np.bincount(
        events.lane, minlength=count
    )
    aside[events.lane[rows]] = True
    aside &= all_python
    aside[events.lane[rows[first]]] = False
    return leads, aside
