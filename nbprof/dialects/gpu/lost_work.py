"""Steps whose device work was partly lost: their times are unknown."""

from __future__ import annotations

import re
from itertools import compress

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int64s
from nbprof.dialects import torchnames
from nbprof.dialects.gpu import notes
from nbprof.dialects.gpu.lanes import ANNOTATION, CALL, KERNEL, OP
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that, of_host, rows_that

Flags = npt.NDArray[np.bool_]

# From this share of the launches of a step on, missing kernels change what the step says.
_SERIOUS = 0.05
# What Kineto writes after the last event of a device.
_WRITTEN_LAST = re.compile(
    r"PyTorch Profiler \(|Iteration Start: PyTorch Profiler|Record Window End"
)
# So many last steps without any launch, of a program that launched work in as many before, are no
# chance.
_SILENT = 2


def mark(links: Links, host: int, steps: Steps, matched: Int64s) -> None:
    """Fills `steps.lost`, and adds the warning that names them.

    Parameters
    ----------
    links : Links
    host : int
    steps : Steps
        Those of one host, in time order.
    matched : int64[steps]
        Pieces of device work of each.
    """
    kernels = links.work[links.kind[links.work] == KERNEL]
    # A recording without any kernel has its own note.
    if not (links.host[kernels] == host).any():
        return
    unread = _unread(links, host, steps)
    if unread.any():
        steps.lost.update(compress(steps.keys, unread.tolist()))
        beyond = notes.LostWork(of_host(links.trace, host), _names(steps, unread), not unread.all())
        steps.notes.append(notes.unread_steps(beyond))
        return
    if len(matched) < 2:
        return
    launched, lost = _launches(links, host, steps)
    truncated = np.array([step in steps.truncated for step in steps.keys], np.bool_)
    listed = (steps.end > steps.start) & ~truncated
    lacking = listed & (lost > 0) & (lost >= _SERIOUS * launched)
    silent = listed & _silent(launched, matched)
    after = listed & ~lacking & ~silent & _after(steps, lacking)
    missing = lacking | silent | after
    complete = listed & ~missing
    # If all steps lost a little, none is more reliable than the others.
    if complete.any() or 2 * lost.sum() > launched.sum():
        steps.lost.update(compress(steps.keys, missing.tolist()))
    suffix = of_host(links.trace, host)
    if lacking.any():
        lossy = notes.LostWork(suffix, _names(steps, lacking), bool(complete.any()))
        lost_count, launched_count = int(lost[lacking].sum()), int(launched[lacking].sum())
        steps.notes.append(notes.lost_work(lossy, lost_count, launched_count, _names(steps, after)))
    if silent.any():
        unrecorded = notes.LostWork(suffix, _names(steps, silent), bool(complete.any()))
        steps.notes.append(notes.unrecorded_steps(unrecorded))


def _launches(links: Links, host: int, steps: Steps) -> tuple[Int64s, Int64s]:
    """By step: the number of launches of kernels and graphs, and of those without device work."""
    events, calls = links.trace.events, links.calls
    calls = calls[~links.captured & (links.host[calls] == host)]
    calls = rows_that(links.trace, calls, torchnames.launches_work)
    step = np.searchsorted(steps.begun, events.start[calls], side="right") - 1
    within = (step >= 0) & (events.start[calls] < steps.done[step])
    step, calls = step[within], calls[within]
    without = ~np.isin(calls, links.launch)
    count = len(steps.begun)
    return np.bincount(step, minlength=count), np.bincount(step[without], minlength=count)


def _silent(launched: Int64s, matched: Int64s) -> Flags:
    """The last steps, from the first on behind which no step has launches or device work."""
    is_short = np.zeros(len(matched), np.bool_)
    working = np.flatnonzero((launched > 0) | (matched > 0))
    if len(working) >= _SILENT and len(matched) - 1 - working[-1] >= _SILENT:
        is_short[working[-1] + 1 :] = True
    return is_short


def _unread(links: Links, host: int, steps: Steps) -> Flags:
    """Steps whose device work may be in the part of a truncated file that was not read.

    Kineto writes the events of the host first, then those of devices and the calls that launched
    them, buffer by buffer: any step may lack some until all buffers are written. A recording of
    devices alone is in the order of time.
    """
    nothing = np.zeros(len(steps.done), np.bool_)
    if not links.trace.receipt.read_in_part:
        return nothing
    if names_that(_WRITTEN_LAST.match, links.trace.names).any():
        return nothing
    if len(links.rows(OP, ANNOTATION, CALL)):
        return ~nothing
    work = links.work[links.host[links.work] == host]
    return np.asarray(steps.done >= links.trace.events.end[work].max(initial=0), np.bool_)


def _after(steps: Steps, lacking: Flags) -> Flags:
    """Steps after one with lost work, if steps begin when the device has done the work before."""
    follows = np.append(False, lacking[:-1])
    late = steps.start > steps.begun
    sound = ~lacking & ~follows
    sound[:1] = False
    if not sound.any() or 2 * int(late[sound].sum()) <= int(sound.sum()):
        return np.zeros(len(lacking), np.bool_)
    return follows


def _names(steps: Steps, chosen: Flags) -> list[str]:
    return list(compress(steps.names, chosen.tolist()))
