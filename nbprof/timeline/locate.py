"""The slice of what another view names: an op's longest call, a step, the memory peak, a gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.input.input_pipeline import COPY_TO_DEVICE
from nbprof.analysis.memory import memory
from nbprof.core.trace import Int64s
from nbprof.display import wording
from nbprof.timeline import gaps
from nbprof.timeline.drawable import Drawable
from nbprof.timeline.find import Finder
from nbprof.timeline.lanes import without_place
from nbprof.timeline.slices import Slices

# Margin on each side of a slice, as a multiple of its length, and the least one, ns.
_ROOM = 0.4
_LEAST_NS = 500.0
_PEAK_ROOM = 0.01
# ps
_NS = 1000
# Clocks that differ by a smaller share agree.
_CLOCKS = 0.001
# Markers that start in a range, of which the nearest is found.
_MOST_MARKERS = 100
_TO_DEVICE = " (host to device)"
_NOUNS = {"op": "op", "kernel": "kernel", "input": "input op", "function": "function"}


class Locator:
    """Finds the slices of what other views name.

    Parameters
    ----------
    run : Drawable
    slices : Slices
    finder : Finder
    """

    def __init__(self, run: Drawable, slices: Slices, finder: Finder) -> None:
        self._run, self._slices, self._finder = run, slices, finder

    def locate(self, target: Mapping[str, Any]) -> dict[str, Any]:
        """A `Located`; without such a slice `found` is False and the range is the profile.

        Parameters
        ----------
        target : mapping
            `kind`, and as they apply `name` (exactly as the table has it), `host`, `device`
            (heading or number of a device), `where` ("device" or "host", of an op), `step`,
            `time_ms` (after the start of the profile, as in the tables: of an op or kernel where
            the longest call of the row starts that is meant).
        """
        kind = str(target["kind"])
        if kind == "step":
            return self._step(target)
        if kind == "gap":
            return self._gap(target)
        if kind == "memory_peak":
            return self._peak(target)
        name = str(target.get("name") or "")
        calls = self._calls(kind, name, target.get("where"))
        chosen = calls.take(np.flatnonzero(self._on(calls.event, target)))
        call, subject = "slice", "slice called"
        if kind in _NOUNS:
            call, subject = "call", f"call of the {_NOUNS[kind]}"
        if not len(chosen.event):
            on = " there" if len(calls.event) else ""
            return self._nothing(f"The trace has no {subject} {_short(name)}{on}.")
        count = f"the longest of {len(chosen.event):,} {call}s"
        if len(chosen.event) == 1:
            count = f"the only {call}"
        event, length = chosen.longest()
        # Several rows of a table may have one name: a kernel launched by different ops. The row
        # tells when its own longest call starts.
        row = chosen.take(self._starting(chosen.event, target.get("time_ms")))
        if len(row.event) and event not in row.event:
            event, length = row.longest()
            # Of calls as long as each other a table may have taken another.
            if length < chosen.length.max():
                count = f"the longest {call} of its row"
        drawn = int(self._slices.durations(np.array([event]))[0])
        if abs(drawn - length) > max(_NS, _CLOCKS * length):
            # As a TPU counts its ops: the table and the slice are both right.
            measured, drawn_text = wording.micros(length / 1e6, 3), wording.micros(drawn / 1e6, 3)
            count += (
                f" by the device's own clock, {measured}; {drawn_text} by the clock of the trace"
            )
        return self._around(event, f"{_short(name)}: {count}.")

    def _calls(self, kind: str, name: str, location: object) -> _Calls:
        """The events that a row of a table counts."""
        activity = self._run.activity
        candidates: list[_Calls] = []
        if kind == "kernel":
            candidates = [
                _events(activity.kernels.frame(), "kernel", activity.kernel_names.codes.get(name))
            ]
        elif kind == "op":
            # Names get their codes as the tables are made: these first.
            sides = {"device": activity.device_ops.frame(), "host": activity.host_ops.frame()}
            code = activity.ops.codes.get(name)
            # Device time is the cost of an op; its calls on the host only launch it.
            for side, table in sides.items():
                rows = _events(table, "op", code)
                if location in (side, None, "") and len(rows.event):
                    candidates = [rows]
                    break
        elif kind == "input":
            candidates = self._input(name)
        elif kind == "function":
            candidates = [
                _events(activity.functions.frame(), "name", activity.texts.codes.get(name))
            ]
        calls = _Calls.joined(candidates)
        if len(calls.event):
            return calls
        events = self._named(name, by_part=kind == "name")
        return _Calls(events, self._slices.durations(events))

    def _input(self, name: str) -> list[_Calls]:
        activity = self._run.activity
        if name.endswith(_TO_DEVICE):
            texts = activity.texts.codes
            calls = activity.calls.frame()
            copies = calls[
                (calls["name"] == texts.get(name.removesuffix(_TO_DEVICE), -1))
                & (calls["kind"] == texts.get(COPY_TO_DEVICE, -1))
            ]
            return [_Calls.rows(copies)]
        tables = (activity.host_ops.frame(), "op"), (activity.iterators.frame(), "name")
        code = activity.ops.codes.get(name)
        for table, column in tables:
            rows = _events(table, column, code)
            if len(rows.event):
                return [rows]
        return []

    def _named(self, name: str, *, by_part: bool) -> Int64s:
        """Events of a name, short or in full; where there are none, with `by_part` those whose
        name contains the text.
        """
        if not name:
            return np.zeros(0, np.int64)
        tracks = self._slices.tracks
        codes = np.flatnonzero((tracks.names == name) | (tracks.full == name))
        if not len(codes):
            if not by_part:
                return np.zeros(0, np.int64)
            return self._finder.hits(name).ids.astype(np.int64)
        has_name = np.zeros(len(tracks.names), np.bool_)
        has_name[codes] = True
        parts = self._slices.parts
        ids = [np.flatnonzero(has_name[part.events.name]) + part.first for part in parts]
        events = np.concatenate(ids).astype(np.int64)
        drawn: npt.NDArray[np.bool_] = self._slices.kind[self._lane(events)] > 0
        return events[drawn]

    def _lane(self, events: Int64s) -> npt.NDArray[Any]:
        recorded, derived = self._slices.parts
        boundary = int(np.searchsorted(events, derived.first))
        lanes_recorded = recorded.events.lane[events[:boundary]]
        lanes_derived = derived.events.lane[events[boundary:] - derived.first]
        return np.concatenate([lanes_recorded, lanes_derived])

    def _on(self, events: Int64s, target: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Mask of events on the host and the device of a target."""
        host, device = target.get("host"), target.get("device")
        if not host and device in (None, ""):
            return np.ones(len(events), np.bool_)
        lanes = np.zeros(len(self._slices.kind), np.bool_)
        for lane in self._slices.tracks.lanes:
            process = without_place(lane.process)
            headings = {lane.device, process, process.removeprefix(f"{lane.host} · ")}
            on_host = not host or lane.host == host
            on_device = device in (None, "") or str(device) in headings
            lanes[lane.id] = on_host and on_device
        result: npt.NDArray[np.bool_] = lanes[self._lane(events)]
        return result

    def _starting(self, events: Int64s, time_ms: object) -> npt.NDArray[np.intp]:
        """Positions of those that start at a time of a table, to within the ns to which tables
        round it.
        """
        if not isinstance(time_ms, (int, float)) or isinstance(time_ms, bool):
            return np.zeros(0, np.intp)
        return np.flatnonzero(np.abs(self._slices.starts(events) - float(time_ms) * 1e9) <= _NS)

    def _step(self, target: Mapping[str, Any]) -> dict[str, Any]:
        steps = self._run.steps
        if len(steps):
            if target.get("host"):
                steps = steps[steps["host"] == target["host"]]
            if target.get("step") is not None:
                steps = steps[steps["step"] == target["step"]]
            named = steps[steps["name"] == target.get("name")]
            if len(named):
                steps = named
        if not len(steps):
            if isinstance(target.get("step"), int):
                return self._nothing(f"The trace has no step {target['step']:,}.")
            return self._nothing("There is no such step in the trace.")
        nearest = 0
        if target.get("time_ms") is not None:
            starts = steps["start_ms"].to_numpy(np.float64)
            nearest = int(np.argmin(np.abs(starts - float(target["time_ms"]))))
        row = steps.iloc[nearest]
        start = self._slices.ns(round(float(row["start_ms"]) * 1e9))
        end = start + float(row["step_time_ms"]) * 1e6
        marker = self._marker(str(row["host"]), start, end)
        return self._result(marker, start, end, f"Step {row['name']}.")

    def _marker(self, host: str, start: float, end: float) -> int | None:
        """The slice on a lane of steps that is nearest to a range, if it overlaps it."""
        slices = self._slices
        best: tuple[float, int] | None = None
        low, high = slices.ps(start), slices.ps(end)
        for lane in slices.tracks.lanes:
            if lane.kind != "steps" or lane.host != host:
                continue
            part = slices.part_of(lane.id)
            first, behind = part.starting(lane.id, low, high)
            starting = range(first, min(behind, first + _MOST_MARKERS))
            for row in [*part.reaching(lane.id, low).tolist(), *starting]:
                begin = int(part.events.start[row])
                end_ = begin + int(part.events.duration[row])
                distance = float(abs(begin - low) + abs(end_ - high))
                if best is None or distance < best[0]:
                    best = distance, part.first + row
        if best is None:
            return None
        _, marker = best
        return marker

    def _gap(self, target: Mapping[str, Any]) -> dict[str, Any]:
        moment = device = None
        if target.get("time_ms") is not None:
            moment = self._slices.ns(round(float(target["time_ms"]) * 1e9))
        if target.get("device") not in (None, ""):
            device = str(target["device"])
        gap = gaps.nearest(self._slices, moment, target.get("host"), device)
        if gap is None:
            return self._nothing("No device in this profile was idle between two activities.")
        length = wording.micros((gap.end - gap.start) / 1e6)
        meanwhile = "; the host recorded nothing then"
        if gap.name:
            meanwhile = f"; the host was in {_short(gap.name)}"
        start, end = self._slices.ns(gap.start), self._slices.ns(gap.end)
        return self._result(gap.event, start, end, f"{gap.process} idle for {length}{meanwhile}.")

    def _peak(self, target: Mapping[str, Any]) -> dict[str, Any]:
        summary, rows = self._run.memory_summary, self._run.memory_timeline
        name = target.get("name")
        if name:
            summary = summary[summary["memory_id"] == name]
        elif len(summary):
            with_peak = summary[summary["peak_bytes"].notna()].head(1)
            summary = memory.leading(summary, self._run.hosts, self._run.activity.has_device)
            if not len(summary):
                summary = with_peak
        if not len(summary) or pd.isna(summary.iloc[0]["peak_bytes"]):
            return self._nothing("No allocator in this profile reports how much memory was in use.")
        peak = summary.iloc[0]
        at_peak = rows["time_ms"] == peak["peak_time_ms"]
        at_peak &= rows["memory_id"] == peak["memory_id"]
        at_peak &= rows["in_use_bytes"] == peak["peak_bytes"]
        orders = rows["order"][at_peak]
        event = int(orders.max()) if len(orders) else None
        moment = self._slices.ns(round(float(peak["peak_time_ms"]) * 1e9))
        room = _PEAK_ROOM * self._slices.ns(self._slices.tracks.end)
        text = f"Peak of {peak['memory_id']}: {int(peak['peak_bytes']):,} bytes in use."
        return self._result(event, moment - room, moment + room, text, room=0.0)

    def _around(self, event: int, text: str) -> dict[str, Any]:
        ref = self._slices.ref(event)
        return self._result(event, ref["start_ns"], ref["start_ns"] + ref["duration_ns"], text)

    def _result(
        self, event: int | None, start: float, end: float, text: str, room: float = _ROOM
    ) -> dict[str, Any]:
        """The range with room on both sides, within the profile."""
        ends = self._slices.ns(self._slices.tracks.end)
        more = max(room * (end - start), _LEAST_NS)
        low, high = max(start - more, 0.0), min(end + more, max(ends, end))
        high = max(high, low + _LEAST_NS)
        return {
            "found": True,
            "slice": self._slices.ref_or_none(event),
            "from": low,
            "to": high,
            "text": text,
        }

    def _nothing(self, text: str) -> dict[str, Any]:
        return {
            "found": False,
            "slice": None,
            "from": 0.0,
            "to": self._slices.ns(self._slices.tracks.end),
            "text": text,
        }


@dataclass
class _Calls:
    """Ids of events, ascending, and how long each took by the clock of the table that counts them,
    ps.
    """

    event: Int64s
    length: Int64s

    @classmethod
    def rows(cls, table: pd.DataFrame) -> _Calls:
        """The events of rows of a table of the activity."""
        length = table["duration"] if "duration" in table else table["end"] - table["start"]
        return cls(table["event"].to_numpy(np.int64), length.to_numpy(np.int64))

    @classmethod
    def joined(cls, parts: list[_Calls]) -> _Calls:
        """The calls of several tables, each event once."""
        none = np.zeros(0, np.int64)
        event = np.concatenate([none, *(part.event for part in parts)])
        length = np.concatenate([none, *(part.length for part in parts)])
        # Of an event that is counted twice the longer one.
        order = np.lexsort((-length, event))
        event, length = event[order], length[order]
        first = np.flatnonzero(np.diff(event, prepend=-1) > 0)
        return cls(event[first], length[first])

    def take(self, rows: npt.NDArray[np.intp]) -> _Calls:
        return _Calls(self.event[rows], self.length[rows])

    def longest(self) -> tuple[int, int]:
        """Id and length of the first of the longest."""
        row = int(np.argmax(self.length))
        return int(self.event[row]), int(self.length[row])


def _events(table: pd.DataFrame, column: str, code: int | None) -> _Calls:
    if code is None:
        return _Calls.rows(table.iloc[:0])
    return _Calls.rows(table.iloc[np.flatnonzero(table[column].to_numpy() == code)])


def _short(name: str) -> str:
    if len(name) > 120:
        return f"{name[:119]}…"
    return name
