"""Instances of ranges on threads: the paths that they form, and the moments inside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.ranges.totals import MAIN, OTHER, SEPARATOR, PathKey
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import Intervals
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int64s, Trace

Ints = npt.NDArray[np.integer[Any]]

NOT_COUNTED = -2
"""The range of a moment that is in no step that counts; -1 is that of a moment in no range."""
_DIGITS = re.compile(r"\d+")


@dataclass
class Steps:
    """The steps that count, by host, ps; steps that touch remain separate."""

    by_host: list[Intervals]

    @classmethod
    def of(cls, steps: pd.DataFrame, hosts: Sequence[str]) -> Steps:
        """The steps of rows of `p.steps.frame`."""
        begin, end = step_bounds(steps)
        by_host = []
        for name in hosts:
            rows = (steps["host"] == name).to_numpy(np.bool_)
            by_host.append(Intervals.union(begin[rows], end[rows], merge_touching=False))
        return cls(by_host)

    def _rows_of_host(self, host: Ints, number: int) -> Int64s:
        if len(self.by_host) == 1:
            return np.arange(len(host))
        return np.flatnonzero(host == number)

    def number(self, host: Ints, time: Int64s) -> Int64s:
        """The index of the step of its host that each moment is in; -1 for none."""
        result = np.full(len(time), -1, np.int64)
        for number, steps in enumerate(self.by_host):
            rows = self._rows_of_host(host, number)
            result[rows] = steps.index_at(time[rows])
        return result

    def within(self, host: Ints, start: Int64s, end: Int64s) -> Int64s:
        """The part of each span that is in steps of its host, ps."""
        result = np.zeros(len(start), np.int64)
        for number, steps in enumerate(self.by_host):
            rows = self._rows_of_host(host, number)
            result[rows] = steps.covered_within(start[rows], end[rows])
        return result


class Paths(NamedTuple):
    """The paths of ranges.

    Attributes
    ----------
    of_range : int64[ranges]
        The path of each range.
    above : int64[paths]
        The path around each path; -1 for none.
    keys : list of PathKey
        Thread, kind and names of each path.
    """

    of_range: Int64s
    above: Int64s
    keys: list[PathKey]


class Instances:
    """Ranges of threads by lane and start, so that each stands after the range around it.

    Parameters
    ----------
    activity : Activity
    trace : Trace
    steps : Steps
    """

    def __init__(self, activity: Activity, trace: Trace, steps: Steps) -> None:
        ranges = activity.ranges
        self.activity = activity
        self.trace = trace
        self.steps = steps
        order = np.lexsort((-ranges.end, ranges.start, ranges.lane))
        position = np.empty(len(order) + 1, np.int64)
        position[order], position[-1] = np.arange(len(order)), -1
        self.host = ranges.host[order].astype(np.int64)
        self.lane = ranges.lane[order].astype(np.int64)
        self.start = ranges.start[order]
        self.end = ranges.end[order]
        self.name = ranges.name[order].astype(np.int64)
        self.kind = ranges.kind[order].astype(np.int64)
        self.parent = position[ranges.parent[order]].astype(np.int32)
        self.step = steps.number(self.host, self.start)

    def innermost(self, lane: Ints, time: Int64s) -> Int64s:
        """The innermost range around moments of lanes; -1 for none."""
        result = np.full(len(time), -1, np.int64)
        first_of_lane = run_starts(self.lane)
        end_of_lane = np.append(first_of_lane[1:], len(self.lane))
        for first, end in zip(first_of_lane.tolist(), end_of_lane.tolist(), strict=True):
            rows = np.flatnonzero(lane == self.lane[first])
            last = first + np.searchsorted(self.start[first:end], time[rows], side="right") - 1
            result[rows] = np.where(last >= first, last, -1)
        # From ranges that have ended outwards, to one that has not.
        pending = np.flatnonzero(result >= 0)
        while len(pending):
            pending = pending[self.end[result[pending]] <= time[pending]]
            result[pending] = self.parent[result[pending]]
            pending = pending[result[pending] >= 0]
        return result

    def innermost_in_steps(self, lane: Ints, time: Int64s) -> Int64s:
        """As `innermost`, but `NOT_COUNTED` for moments in no step that counts."""
        row = self.innermost(lane, time)
        host = self.lane_host[lane]
        return np.where(self.steps.number(host, time) >= 0, row, NOT_COUNTED)

    @cached_property
    def lane_host(self) -> Int64s:
        """The host of each lane."""
        names = pd.Index(self.trace.lanes["host"].astype(str))
        return pd.Index(self.activity.hosts).get_indexer(names).astype(np.int64)

    @cached_property
    def main(self) -> Int64s:
        """By host, the lane whose ranges divide the step; -1 for hosts without ranges.

        It is the lane of the marks of steps, or else the one with the most time in ranges.
        """
        result = np.full(len(self.activity.hosts), -1, np.int64)
        markers = self.activity.markers
        markers = markers.take((markers.device < 0) & (markers.event >= 0))
        marked_lanes = self.trace.events.lane[markers.event]
        length = np.where(self.parent < 0, self.end - self.start, 0)
        for host in np.unique(self.host).tolist():
            rows = self.host == host
            lanes, lane_code = np.unique(self.lane[rows], return_inverse=True)
            with_marks = lanes[np.isin(lanes, marked_lanes[markers.host == host])]
            if len(with_marks):
                result[host] = with_marks[0]
            else:
                result[host] = lanes[np.argmax(np.bincount(lane_code, length[rows]))]
        return result

    @cached_property
    def is_main(self) -> npt.NDArray[np.bool_]:
        """Flags of the ranges on the main lane of their host."""
        return np.asarray(self.lane == self.main[self.host], np.bool_)

    @cached_property
    def folded(self) -> npt.NDArray[np.object_]:
        """Names by code, where names that differ in numbers alone, each in a different step, are
        one: `log N`.
        """
        names: npt.NDArray[np.object_] = self.activity.texts.values.copy()
        used = np.unique(self.name)
        first, _ = unique_rows(self.name, self.host, self.step)
        times = np.bincount(self.name[first][self.step[first] >= 0], minlength=len(names))
        hosts = np.bincount(self.name[unique_rows(self.name, self.host)[0]], minlength=len(names))
        families: dict[str, list[int]] = {}
        for code in used.tolist():
            text = _DIGITS.sub("N", str(names[code]))
            if times[code] <= hosts[code] and text != names[code]:
                families.setdefault(text, []).append(code)
        for text, codes in families.items():
            if len(codes) > 1 and self._differ_by_step(codes):
                names[codes] = text
        return names

    def _differ_by_step(self, codes: list[int]) -> bool:
        """True if no step has two of these names."""
        rows = np.flatnonzero(np.isin(self.name, codes) & (self.step >= 0))
        steps, _ = unique_rows(self.host[rows], self.step[rows])
        names, _ = unique_rows(self.host[rows], self.step[rows], self.name[rows])
        return len(steps) == len(names)

    @cached_property
    def paths(self) -> Paths:
        """The paths of the ranges, each after the path around it."""
        texts, names = pd.factorize(self.folded[self.name])
        kinds = self.activity.texts.values
        path = np.full(len(self.name), -1, np.int64)
        above: list[Int64s] = []
        keys: list[PathKey] = []
        for level in nesting.levels(self.parent):
            outer = np.where(self.parent[level] >= 0, path[self.parent[level]], -1)
            first, code = unique_rows(
                outer, texts[level], self.kind[level], self.is_main[level].astype(np.int64)
            )
            path[level] = len(keys) + code
            above.append(outer[first])
            for row, around in zip(level[first].tolist(), outer[first].tolist(), strict=True):
                name = str(names[texts[row]]).replace(SEPARATOR, " ")
                if around >= 0:
                    name = f"{keys[around].path}{SEPARATOR}{name}"
                thread = MAIN if self.is_main[row] else OTHER
                keys.append(PathKey(thread, str(kinds[self.kind[row]]), name))
        return Paths(path, np.concatenate(above) if above else np.zeros(0, np.int64), keys)
