"""Shared by the tools: framework of a run, figures, lines of a diff, downsampled timelines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.activity.activity import PLAIN
from nbprof.activity.unit import MARKED, STEP, Unit
from nbprof.core.units import scale_bytes
from nbprof.display import wording
from nbprof.display.markup import FixLine
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import JAX, PYTORCH, TENSORFLOW, titled
from nbprof.tools.parts import BarPart, Empty, Figure, Meta

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_BOXES = 500
"""Boxes of a long timeline, of each of which the largest and the least value are kept: charts are
not wider than that.
"""
_AMD = re.compile(r"\b(?:AMD|Instinct|Radeon|gfx\d)")
_KINDS: dict[str, Literal["removed", "added"]] = {"-": "removed", "+": "added"}


def unit_of(run: Run) -> Unit:
    """The unit of work that figures of a run are given per."""
    return Unit.of(run.first_answer)


class GainUnit(NamedTuple):
    """Arguments of `wording.gain` for a run without steps; for a recording also the share of it."""

    per: str | None = None
    gain_percent: float | None = None


def gain_unit(overview: Mapping[str, Any], finding: Mapping[Any, Any]) -> GainUnit:
    """The unit of the gain of a finding: of a mapping `p.overview`, or of what was made of one, and
    a row of `p.advice`.
    """
    unit, time = Unit.of(overview), wording.real(overview.get("step_time_ms"))
    if (step_ms := wording.real(finding.get("gain_of_ms"))) is not None:
        return GainUnit(f"of {wording.millis(step_ms)} {unit.per} without recording")
    if unit.kind == STEP:
        return GainUnit()
    gain = wording.real(finding.get("gain_ms_per_step"))
    if not unit.is_recording or not time or gain is None:
        return GainUnit(unit.per)
    return GainUnit(unit.per, 100 * gain / time)


def unit_in(meta: Meta) -> Unit:
    """The unit of the run that a payload is of."""
    return Unit(meta.unit.kind) if meta.unit else MARKED


def framework_of(run: Run) -> Framework:
    """The framework that wrote the profile, as the recording states it, else as its events show
    it.
    """
    return titled(str(run.first_answer.get("framework") or ""))


def by_torch(run: Run) -> bool:
    """True if PyTorch wrote the profile."""
    return framework_of(run) is PYTORCH


def by_jax(run: Run) -> bool:
    """True if JAX wrote the profile."""
    return framework_of(run) is JAX


def by_tensorflow(run: Run) -> bool:
    """True if TensorFlow wrote the profile, with or without Keras."""
    return framework_of(run) is TENSORFLOW


def by_keras(run: Run) -> bool:
    """True if Keras ran the loop, on any backend."""
    return run.capture is not None and run.capture.of_keras


def unknown(run: Run, view: str, title: str) -> Empty | None:
    """Why a view of a trace is empty that no known framework wrote; None where one did."""
    text = run.missing.get(view, "")
    framework = framework_of(run)
    without_ops = (
        not framework.is_supported or not framework.profiled or not framework.machine_learning
    )
    if not text or not without_ops:
        return None
    return Empty(title=title, text=text)


def plain(run: Run) -> bool:
    """True if no known framework or recorder wrote the trace: it has only lanes, events and
    counters.
    """
    return PLAIN in run.activity.traits and run.capture is None


def without_work(run: Run) -> bool:
    """True if no work of a program was recorded: no op, no kernel, no allocation."""
    if plain(run) or run.activity.has_host_ops or run.activity.has_device:
        return False
    return run.ops.empty and run.kernels.empty and run.known_memory.empty


def has_device(run: Run) -> bool:
    """True if a device other than the host was recorded."""
    return len(run.devices) > 0


def may_have_kernels(run: Run) -> bool:
    """True if the profile can have GPU kernels.

    Not where every device that was recorded is of another kind, such as a TPU, nor without a
    device: there the run used the CPU. A recorder of a GPU's vendor that has none says why.
    """
    if len(run.kernels) > 0 or bool((run.devices["kind"] == "GPU").any()):
        return True
    return run.devices.empty and not framework_of(run).machine_learning


_WITH_KERNELS = {"MTIA", "XPU", "HPU"}
"""Kinds of devices beside GPUs and NPUs whose kernels PyTorch records."""


def chip(run: Run) -> str:
    """The word for the devices of kernels: their kind if all are of one, "NPU" if tables of
    Ascend's profiler name none, else "GPU".
    """
    kinds = set(run.devices["kind"])
    if len(kinds) == 1 and kinds <= _WITH_KERNELS:
        return str(kinds.pop())
    if kinds == {"NPU"} or (not kinds and run.ascend.kinds):
        return "NPU"
    return "GPU"


def unit_of_gpu(names: Iterable[object]) -> str:
    """The unit that runs blocks: "compute unit" if all of these GPUs are AMD's, else
    "multiprocessor".
    """
    gpus = [str(name) for name in names]
    if gpus and all(_AMD.search(name) for name in gpus):
        return "compute unit"
    return "multiprocessor"


def figure(
    key: str, label: str, value: Any, unit: str, digits: int, note: str, **more: Any
) -> Figure:
    """A key figure; a value that was not measured is None, and its note says why.

    Parameters
    ----------
    key, label, value, unit, digits, note
        As in `Figure`; `value` may be missing in any way, and one in ms is given in µs where it is
        short.
    **more
        `bar`, `spread` and `hot` of the figure.
    """
    number = wording.real(value)
    # A spread is in the unit in which it is given.
    if unit == "ms" and number is not None and more.get("spread") is None:
        unit, size = wording.time_unit(number)
        number, digits = number / size, 2 if size > 1 else digits
    return Figure(key=key, label=label, value=number, unit=unit, digits=digits, note=note, **more)


def percent_figure(
    key: str, label: str, percent: Any, note: str, category: str = "device_compute", **more: Any
) -> Figure:
    """A key figure in percent, with a bar in the colour of a category."""
    return figure(key, label, percent, "%", 1, note, bar=bar((category, percent)), **more)


def share(part: float, total: float) -> float | None:
    """A part in percent of the total; None if the total is 0."""
    return 100 * part / total if total > 0 else None


def more_rows(count: int, accessor: str) -> str:
    """A sentence on rows that are not listed; "" if all are."""
    if count <= 0:
        return ""
    return f"{wording.plural(count, 'more row')}: {accessor} has all."


def bytes_figure(key: str, label: str, value: Any, note: str) -> Figure:
    """A key figure of bytes, in the unit that suits them."""
    size = wording.real(value)
    if size is None:
        return figure(key, label, None, "", 0, "not recorded")
    scaled, unit, digits = scale_bytes(size)
    return figure(key, label, scaled, unit, digits, note)


def bar(*parts: tuple[str, Any]) -> list[BarPart] | None:
    """The bar below a figure, from (category, percent); None when a part was not measured."""
    result = []
    for category, value in parts:
        percent = wording.real(value)
        if percent is None:
            return None
        result.append(BarPart(category=category, percent=percent))
    return result


def fix_lines(fix: object) -> list[FixLine]:
    """The lines of a diff: a leading "-" removes, "+" adds, a blank or anything else stays."""
    if not isinstance(fix, str) or not fix.strip():
        return []
    return [_fix_line(line) for line in fix.splitlines()]


def _fix_line(line: str) -> FixLine:
    mark = line[:1]
    if mark in _KINDS:
        return FixLine(kind=_KINDS[mark], text=line[1:])
    return FixLine(kind="same", text=line.removeprefix(" "))


def sample(
    values: npt.NDArray[np.int64], keep: Sequence[int] = (), boxes: int = MOST_BOXES
) -> npt.NDArray[np.int64]:
    """The rows to keep of a timeline: the first, the last, those of `keep`, and of each box the
    largest and the least.
    """
    count = len(values)
    if count <= 2 * boxes:
        return np.arange(count)
    rows = [0, count - 1, *(row for row in keep if 0 <= row < count)]
    edges = np.linspace(0, count, boxes + 1).astype(np.int64).tolist()
    for start, stop in pairwise(edges):
        box = values[start:stop]
        rows += [start + int(np.argmax(box)), start + int(np.argmin(box))]
    return np.unique(np.array(rows, np.int64))
