"""Matches runs of compiled graphs in a trace with inductor's description of the graphs.

Names of kernels are unique within a graph only, and library calls (`aten::addmm`) have no name of
their own. So a run goes by the graph that calls the same kernels in the same order; where several
do, by what they share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from nbprof.core import nesting
from nbprof.core.trace import Int64s
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.lookups import names_that
from nbprof.formats.chrome.inductor import Kernel, Program

_RUN = re.compile(r"(?:## )?Call CompiledFxGraph")
_FUSED = re.compile(r"(?:graph_\d+_)?((?:triton|cpp)_\w+)\Z")
_LIBRARY = re.compile(r"(?:extern_kernels\.|torch\.ops\.\w+\.|aten::|\w+::)(\w+)")


def kernels(nest: Nest, programs: Sequence[Program]) -> tuple[list[Kernel], Int64s]:
    """The described kernels, and the index of the one that each event of a nest is or is in, -1."""
    numbers: dict[Kernel, int] = {}
    number_of_event = np.full(len(nest.rows), -1, np.int64)
    if not programs or not len(nest.rows):
        return [], number_of_event
    names = nest.trace.names
    code = nest.trace.events.name[nest.rows]
    plain = {name_code: _plain(str(names[name_code])) for name_code in np.unique(code).tolist()}
    listed = list(map(_plain_names, programs))
    matched: dict[tuple[str, ...], list[Kernel | None]] = {}
    run = names_that(_RUN.match, names)[code]
    in_run = np.flatnonzero(nest.parent >= 0)
    in_run = in_run[run[nest.parent[in_run]]]
    for rows in np.split(in_run, np.flatnonzero(np.diff(nest.parent[in_run])) + 1):
        called = tuple(map(plain.__getitem__, code[rows].tolist()))
        if called not in matched:
            matched[called] = _match(called, programs, listed)
        for row, kernel in zip(rows.tolist(), matched[called], strict=True):
            if kernel is not None:
                number_of_event[row] = numbers.setdefault(kernel, len(numbers))
    _by_name(number_of_event, code, plain, programs, numbers)
    nesting.inherit(nest.parent, number_of_event)
    return list(numbers), number_of_event


def _plain(name: str) -> str:
    """Common name of a kernel or op: `addmm` for `extern_kernels.addmm` and `aten::addmm`."""
    match = _FUSED.match(name) or _LIBRARY.match(name)
    if match is None:
        return name
    return match[1]


def _plain_names(program: Program) -> list[str]:
    return [_plain(kernel.name) for kernel in program]


def _match(
    called: tuple[str, ...], programs: Sequence[Program], listed: list[list[str]]
) -> list[Kernel | None]:
    """The kernel of each call of a run, by programs with the same calls; None for allocations."""
    fitting: list[list[Kernel | None]] = []
    for program, names in zip(programs, listed, strict=True):
        listed_names = set(names)
        if [name for name in called if name in listed_names] == names:
            following = iter(program)
            fitting.append([next(following) if name in listed_names else None for name in called])
    if not fitting:
        return [None] * len(called)
    return list(map(_shared, zip(*fitting, strict=True)))


def _shared(several: Sequence[Kernel | None]) -> Kernel | None:
    """The facts in which all fitting graphs agree on a call."""
    described = [kernel for kernel in several if kernel is not None]
    if len(described) < len(several):
        return None
    shared = described[0]
    if any(kernel.ops != shared.ops for kernel in described):
        shared = shared._replace(ops=())
    if any(kernel.lines != described[0].lines for kernel in described):
        shared = shared._replace(lines=())
    return shared


def _by_name(
    number_of_event: Int64s,
    code: np.ndarray,
    plain: dict[int, str],
    programs: Sequence[Program],
    numbers: dict[Kernel, int],
) -> None:
    """Finds kernels outside of matched runs by name, where a name means one thing."""
    named: dict[str, list[Kernel]] = {}
    for kernel in filter(is_fused, chain(*programs)):
        named.setdefault(_plain(kernel.name), []).append(kernel)
    for name_code, name in plain.items():
        if name in named and (shared := _shared(named[name])) is not None:
            rows = np.flatnonzero((code == name_code) & (number_of_event < 0))
            if len(rows):
                number_of_event[rows] = numbers.setdefault(shared, len(numbers))


def is_fused(kernel: Kernel) -> bool:
    """True for a kernel that inductor generated, False for a call of a library."""
    return bool(_FUSED.match(kernel.name))
