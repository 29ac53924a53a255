"""Turns the Trace of AMD's rocprofv3 into the activity tables, as Kineto's.

ROCTx ranges are in the place of annotations.

Kernels and copies are linked with the call whose correlation id they state. With HSA's calls
recorded beside HIP's, that may be one of HSA inside one of HIP: then it is the latter, which the
program made.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from functools import cached_property
from typing import cast

import numpy as np

from nbprof.activity import activity as act
from nbprof.core.receipt import Note
from nbprof.core.trace import INT, ArgColumn, Trace
from nbprof.dialects.gpu import absent, range_ops, ranges, receipt
from nbprof.dialects.gpu.device import Work
from nbprof.dialects.gpu.lanes import CALL, COPY, FILL, KERNEL, Kinds, kinds, split
from nbprof.dialects.gpu.links import Flags
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.gpu.recording import GpuRecording
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import host_of_lanes
from nbprof.dialects.rocprof import perfetto
from nbprof.frameworks.register import HIP

HOW = (
    "This recording has no steps, so step time is unknown: no ROCTx ranges mark them. Put a range"
    ' such as "step 12" around each iteration (roctxRangePush; torch.cuda.nvtx.range on ROCm) and'
    " record it with  rocprofv3 --runtime-trace."
)
_REMEDY = "Record with  rocprofv3 --runtime-trace."
_LOST = (
    "the kernels were not traced or were lost. Record with  rocprofv3 --runtime-trace,  or add"
    " --kernel-trace."
)


def interpret(trace: Trace) -> act.Activity:
    """The activity of one recording; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.
    """
    if perfetto.is_rocprof(trace):
        perfetto.translate(trace)
    kind = kinds(trace)
    range_ops.name(trace, kind)
    _to_outer_calls(trace, kind == CALL)
    return _Rocprof(trace, split(trace, kind)).activity()


class _Rocprof(GpuRecording):
    """A recording of rocprofv3 on its way into the tables."""

    sets_ranges = "ROCTx"

    def __init__(self, trace: Trace, kind: Kinds) -> None:
        super().__init__(trace, kind)
        # Work is not counted for markers of steps: each would be a separate part of the program.
        self.links.step_names = ranges.named(trace.names)
        named = ranges.framework(trace)
        self.framework = named if named.is_supported else HIP

    @cached_property
    def work(self) -> Work:
        """Device work, with its classes; all devices are AMD's, whatever they are called."""
        return Work(
            self.links, [True] * len(self.trace.hosts), self.origins, [{} for _ in self.trace.hosts]
        )

    def find_steps(self) -> Steps:
        """The steps, by the ROCTx ranges that mark them."""
        return ranges.find(self.links, "ROCTx ranges")

    def notes(self) -> list[Note]:
        """Lines for the receipt."""
        return receipt.notes(
            self.links, self.steps, self.hosts, self.tables.launches.frame(), self.origins, _LOST
        )

    def _traits(self) -> set[str]:
        # Copies are recorded on request alone, as kernels and calls are, and no file says what was
        # requested.
        return super()._traits() | (
            set() if np.isin(self.links.kind, (COPY, FILL)).any() else {act.UNKNOWN_COPIES}
        )

    def missing(self) -> dict[str, str]:
        """A sentence for each kind of data that the recording lacks."""
        activity, links = self.tables, self.links
        missing = {
            "memory": (
                "rocprofv3 does not record framework allocations; torch.profiler does, with"
                " profile_memory=True."
            ),
            "input": "rocprofv3 does not record input waits.",
        }
        if not len(links.rows(KERNEL)):
            # Calls, copies and kernels are traced on request, each by itself: calls without a
            # launch do not show that nothing ran.
            if absent.lost_kernels(links) or absent.without_times(links):
                missing["kernels"] = absent.without_kernels(links, "This recording", _LOST)
            else:
                missing["kernels"] = (
                    "This recording has no GPU kernels: the program ran none, or they were not"
                    f" traced. {_REMEDY}"
                )
        if not len(self.steps.host):
            missing["steps"] = HOW
        if not activity.has_host_ops:
            missing["ops"] = (
                "This recording has no framework ops: rocprofv3 only knows ops from ROCTx ranges."
            )
        return missing


def _to_outer_calls(trace: Trace, call: Flags) -> None:
    """Gives device work of a call of HSA the correlation id of the HIP call around that."""
    cat, ident = trace.text_arg("cat"), trace.arg("correlation")
    category = np.array([*trace.strings, ""], object)[cat] if len(cat) else np.zeros(0, object)
    hsa, hip = call & (category == "hsa_runtime"), call & (category == "hip_runtime")
    if not hsa.any() or not hip.any():
        return
    host = host_of_lanes(trace)[trace.events.lane].astype(np.int64)
    inner = np.flatnonzero(hsa & (ident > 0))
    outer = Nest(trace, np.flatnonzero(hip))
    around = outer.around(inner)
    inner, around = inner[around >= 0], around[around >= 0]
    if not len(inner):
        return
    keys = ident[inner] + (host[inner] << 48)
    order = np.argsort(keys, kind="stable")
    work = np.flatnonzero(~call & (ident > 0))
    queries = ident[work] + (host[work] << 48)
    position = np.minimum(np.searchsorted(keys[order], queries), len(keys) - 1)
    matches = keys[order][position] == queries
    if not matches.any():
        return
    ident[work[matches]] = ident[outer.rows[around[order[position[matches]]]]]
    rows = np.flatnonzero(ident >= 0)
    column = ArgColumn(rows.astype(np.int32), INT, ident[rows])
    trace.args = ChainMap(
        {"correlation": column}, cast("MutableMapping[str, ArgColumn]", trace.args)
    )
