"""Times of work on devices in an XSpace file that cannot be."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.dialects import durations
from nbprof.dialects.corrupt import Mender
from nbprof.dialects.xplane import tpu
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.tpu_cores import SPARSE

_STEPS, _PROGRAMS, _OPS = (
    ("Steps", "Sparse Core Steps"),
    ("XLA Modules", "Sparse Core Modules"),
    ("XLA Ops", "Sparse Core Ops"),
)
_IN_ORDER = (*_STEPS, *_PROGRAMS)
_NEVER = np.iinfo(np.int64).max // 4


def mend(placed: Placed) -> list[Note]:
    """Replaces impossible times on GPUs and TPU cores and in derived lines; returns warnings."""
    notes: list[Note] = []
    if placed.gpu_planes:
        notes += _mended(placed, _OfGpus(placed))
    planes = placed.trace.planes
    cores = []
    for number, plane in enumerate(planes):
        if tpu.CORE.match(plane.name) or SPARSE.match(plane.name):
            cores.append(number)
    if cores and "line" in placed.trace.lanes:
        notes += _mended(placed, _OfCores(placed, cores))
    return notes


def _mended(placed: Placed, mender: Mender) -> list[Note]:
    for host in range(len(placed.trace.hosts)):
        mender.device(host)
        mender.device_notes(host)
    notes = [*mender.about_clocks(), *mender.about_unusable(), *mender.notes()]
    placed.unusable[mender.unusable] = True
    mender.apply()
    return notes


class _OfGpus(Mender):
    """Work on streams."""

    correlation = "correlation_id"
    launch_shape = ("kernel_details",)

    def __init__(self, placed: Placed) -> None:
        super().__init__(placed.trace)
        lanes = placed.trace.lanes
        self._of_gpu = lanes["plane"].isin(placed.gpu_planes).to_numpy(np.bool_)
        self._lane_kind = lanes["kind"].astype(str).to_numpy()

    def _rows(self, host: int, *kinds: str) -> Int64s:
        lanes = self._of_gpu & np.isin(self._lane_kind, kinds) & (self.lane_host == host)
        return self.trace.events.of_lanes(lanes)

    def work(self, host: int) -> Int64s:
        """Events on streams of GPUs."""
        return self._rows(host, "device")

    def calls(self, host: int) -> Int64s:
        """Calls into the driver, which carry the id of what they started."""
        lanes = (self._lane_kind == "host") & (self.lane_host == host)
        rows = self.trace.events.of_lanes(lanes)
        return rows[self.trace.arg(self.correlation, rows=rows) > 0]

    def is_kernel(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n]: work with the details of a launch."""
        return self.trace.text_arg("kernel_details", rows=rows) >= 0

    def images(self, host: int) -> Int64s:
        """Steps, ops and programs that a profiler made of the work on streams."""
        return self._rows(host, "steps", "derived")


class _OfCores(Mender):
    """Steps, programs and ops of TPU cores, each on a separate line."""

    too_long = (
        "its program or step, later calls of it, later work of its line or the whole recording had"
        " ended by then"
    )
    too_far = "long before or after all runs of programs on the core"

    def __init__(self, placed: Placed, cores: list[int]) -> None:
        super().__init__(placed.trace)
        lanes = placed.trace.lanes
        self._plane = lanes["plane"].to_numpy(np.int64)
        self._of_core = np.isin(self._plane, cores)
        self._line = lanes["line"].astype(str).to_numpy()
        self.in_order = self._of_core & np.isin(self._line, _IN_ORDER)
        self.recorded_on_device = self._of_core & np.isin(self._line, (*_IN_ORDER, *_OPS))

    def _lanes(self, host: int, lines: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = (
            self._of_core & np.isin(self._line, lines) & (self.lane_host == host)
        )
        return chosen

    def _rows(self, host: int, *lines: str) -> Int64s:
        return self.trace.events.of_lanes(self._lanes(host, lines))

    def work(self, host: int) -> Int64s:
        """Ops of cores."""
        return self._rows(host, *_OPS)

    def images(self, host: int) -> Int64s:
        """Events that a profiler derived from ops."""
        lanes = self._of_core & ~np.isin(self._line, (*_IN_ORDER, *_OPS)) & (self.lane_host == host)
        derived = lanes & (self.trace.lanes["kind"] == "derived").to_numpy(np.bool_)
        return self.trace.events.of_lanes(derived)

    def device(self, host: int) -> None:
        """Steps and programs, which follow one another, and the ops in them."""
        for lines in (_STEPS, _PROGRAMS):
            rows = self._rows(host, *lines)
            # Steps are called by their number.
            name = self._line_codes(rows) if lines is _STEPS else None
            none = np.full(len(rows), _NEVER, np.int64)
            nothing = np.zeros(0, np.int64)
            self.replace_of_device(
                rows,
                self.spans(rows, name),
                self._others_end(host, lines),
                (nothing, nothing),
                none,
            )
        steps = self._rows(host, *_STEPS)
        self.replace(steps, durations.in_turn(self.spans(steps)))
        ops = self.measured(self.work(host))
        for lane in np.unique(self.trace.events.lane[ops]).tolist():
            self._ops(ops[self.trace.events.lane[ops] == lane], self._programs(lane))

    def _others_end(self, host: int, lines: tuple[str, ...]) -> int:
        """End of everything that a host and its cores recorded on other lines."""
        rows = self._rows(host, *(line for line in (*_IN_ORDER, *_OPS) if line not in lines))
        return max(
            self._host_end(host),
            int((self.trace.events.start[rows] + self.duration[rows]).max(initial=0)),
        )

    def _line_codes(self, rows: Int64s) -> Int64s:
        return self.trace.events.lane[rows].astype(np.int64)

    def _programs(self, lane: int) -> Int64s:
        """The runs of programs of the core of a line; the steps where no programs were recorded."""
        of_core = self._plane == self._plane[lane]
        for lines in (_PROGRAMS, _STEPS):
            rows = self.trace.events.of_lanes(of_core & np.isin(self._line, lines))
            if len(rows):
                break
        return rows

    def _ops(self, rows: Int64s, programs: Int64s) -> None:
        """The ops of one core."""
        programs = programs[np.argsort(self.trace.events.start[programs], kind="stable")]
        runs = self.spans(programs)
        wrong = durations.outside(self.spans(rows), runs)
        self.misplaced.extend(rows[wrong].tolist())
        rows = rows[~wrong]
        ops = self.spans(rows)
        until = np.full(len(rows), _NEVER, np.int64)
        if len(programs):
            nth = np.searchsorted(runs.start, ops.start, side="right") - 1
            in_run = (nth >= 0) & (ops.start < runs.end[nth])
            until = np.where(in_run, runs.end[nth], until)
        self.replace(rows, durations.of_ops(ops, until))
