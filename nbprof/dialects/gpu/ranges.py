"""Steps by ranges that a program named (NVTX, ROCTx): those that count and launch work.

A range marks a step where its name says so and nothing else: `step 12`, `iteration 3`, `Epoch 1
batch 40/100`, `train_step`. Of these the family that lasts longest is taken whose ranges lie one
after the other on one thread, with numbers that rise, and of which at least half launched work.
`layer 3` and `optimizer_step 7` are parts of steps, so that no other word is taken for a step;
without one there are none.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import find_steps, notes
from nbprof.dialects.gpu.lanes import ANNOTATION
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that, of_host
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import JAX, PYTORCH, UNKNOWN

_STEP = re.compile(
    r"(?:epoch\s*#?\s*(?P<epoch>\d{1,12})\s+)?"
    r"(?:(?:train(?:ing|er)?|eval(?:uation)?|val(?:idation)?|test|inference|engine|decode|global|"
    r"main|profile|profiler|model|benchmark)\s*)*(?P<word>step|iteration|iter|batch|"
    r"mini\s?batch)s?(?:\s*(?:number|no|num|id|idx|index)?\s*#?\s*(?P<number>\d{1,12})(?:\s*(?:/|"
    r"of)\s*\d+)?)?"
)
_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s_\-:=.,()\[\]|*]+")
_COUNTER = re.compile(r"\d+(?:\s*(?:/|of)\s*\d+)?")
_TORCH = re.compile(r"at::native::|void at::|at_cuda_detail::|c10::|aten::")
_JAX = re.compile(r"XlaModule:.*\bjit_|^jit_|TfrtCpu|PjRt")
_LIKELY = re.compile(r"step|iter|batch", re.IGNORECASE)
_FEWEST = 2


def counted(name: str) -> tuple[str, tuple[int, ...]] | None:
    """The family of a name that marks a step, and its numbers; None for another name."""
    if not _LIKELY.search(name) or len(name) > 80:
        return None
    plain = _BREAKS.sub(" ", name).strip().lower()
    match = _STEP.fullmatch(plain)
    if match is None:
        return None
    numbers = tuple(map(int, filter(None, (match["epoch"], match["number"]))))
    return _COUNTER.sub("N", plain), numbers


def named(names: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    """bool[names]: names that mark steps."""
    return names_that(lambda name: torchnames.STEP.match(name) or counted(name), names)


def framework(trace: Trace) -> Framework:
    """The framework that names of kernels and ranges show; `UNKNOWN` if they show none."""
    names = list(map(str, trace.names))
    if any(map(_TORCH.search, names)):
        return PYTORCH
    if any(map(_JAX.search, names)):
        return JAX
    return UNKNOWN


def find(links: Links, ranges: str, names: npt.NDArray[np.bool_] | None = None) -> Steps:
    """The steps of all hosts.

    Parameters
    ----------
    links : Links
    ranges : str
        What the recorder calls them: `NVTX ranges`.
    names : bool[names], optional
        Names that mark steps; those that `links` knows by default. Batches of a loader are no steps
        then.
    """
    marked = find_steps.find(links, batches=names is None)
    step_names = links.step_names if names is None else names
    parts = [marked]
    for host in find_steps.without_steps(links, marked):
        part = _of_host(links, host, ranges, step_names)
        if part is not None:
            parts.append(part)
    return Steps.joined(parts)


def _of_host(links: Links, host: int, ranges: str, names: npt.NDArray[np.bool_]) -> Steps | None:
    trace, events = links.trace, links.trace.events
    rows = links.rows(ANNOTATION)
    rows = rows[names[events.name[rows]] & (links.host[rows] == host)]
    families: dict[str, list[int]] = {}
    numbers: dict[int, tuple[int, ...]] = {}
    for code in np.unique(events.name[rows]).tolist():
        if (label := counted(str(trace.names[code]))) is not None:
            families.setdefault(label[0], []).append(code)
            numbers[code] = label[1]
    good = []
    for family, codes in families.items():
        marks = find_steps.one_thread(links, rows[np.isin(events.name[rows], codes)])
        numbers_of_marks = list(map(numbers.__getitem__, events.name[marks].tolist()))
        is_counter = len(marks) >= _FEWEST and _rising(numbers_of_marks)
        if is_counter and _launching(links, host, marks):
            good.append((int(events.duration[marks].sum()), family, marks))
    if not good:
        return None
    good.sort(key=lambda candidate: candidate[0], reverse=True)
    _, family, marks = good[0]
    suffix = of_host(trace, host)
    alternatives = [name for _, name, _ in good[1:4]]
    note = notes.steps_by_ranges(suffix, len(marks), ranges, family, alternatives)
    labels = list(map(str, trace.names[events.name[marks]]))
    if len(set(labels)) == 1:
        labels = [f"{labels[0]} {i}" for i in range(len(labels))]
    spans = find_steps.Marks(marks, events.start[marks], events.end[marks], labels)
    return find_steps.of_marks(links, host, spans, [note])


def _rising(numbers: list[tuple[int, ...]]) -> bool:
    """True if a counter rises from range to range; ranges without one all have the same name."""
    return all((not a and not b) or a < b for a, b in pairwise(numbers))


def _launching(links: Links, host: int, marks: Int64s) -> bool:
    """True if at least half of the ranges launched work, on any thread (for backward passes)."""
    events = links.trace.events
    launched = links.launch[links.launch >= 0]
    if not len(launched):
        return not len(links.work)
    times = np.sort(events.start[launched[links.host[launched] == host]])
    count = np.searchsorted(times, events.end[marks]) - np.searchsorted(times, events.start[marks])
    return 2 * int((count > 0).sum()) >= len(marks)
