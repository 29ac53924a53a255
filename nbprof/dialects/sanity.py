"""Checks of a readable profile: notes on everything that makes figures less reliable."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Note
from nbprof.core.runs import run_starts
from nbprof.core.trace import Trace
from nbprof.dialects import notes


def overlaps(trace: Trace, kinds: tuple[str, ...], event_kind: str) -> list[Note]:
    """Slices that begin inside a neighbour and end after it: both cannot be drawn as recorded.

    Parameters
    ----------
    trace : Trace
    kinds : tuple of str
        Lane kinds to look at.
    what : str
        What such a slice is called.
    """
    events = trace.events
    of_kind = trace.lanes["kind"].isin(kinds).to_numpy()
    rows = events.of_lanes(of_kind)
    if not len(rows):
        return []
    parent = events.parent[rows]
    # Siblings in their order: one that begins before the one ahead of it has ended overlaps it.
    by_parent = np.arange(len(rows))
    if (parent >= 0).any():
        by_parent = np.lexsort((parent, events.lane[rows]))
    order, parent = rows[by_parent], parent[by_parent]
    lane, start = events.lane[order], events.start[order]
    end = start + events.duration[order]
    siblings = (lane[1:] == lane[:-1]) & (parent[1:] == parent[:-1])
    over = np.flatnonzero(siblings & (start[1:] < end[:-1])) + 1
    if not len(over):
        return []
    lanes = len(np.unique(lane[over]))
    longest_us = int((end[over - 1] - start[over]).max()) / 1e6
    return [notes.overlapping_events(event_kind, len(over), len(rows), lanes, longest_us)]


def lost_launches(launches: pd.DataFrame, starts_work: npt.NDArray[np.bool_]) -> list[Note]:
    """Launches whose work on the device was not recorded.

    Parameters
    ----------
    launches : DataFrame
        `Activity.launches`
    starts_work : bool[launches]
        The calls that always start something on the device (a launch or a copy, not a wait).
    """
    started = launches[starts_work]
    lost = int((started["target"] < 0).sum())
    if not lost:
        return []
    return [notes.lost_launches(lost, len(started))]


def recorded(trace: Trace) -> pd.DataFrame:
    """By host: `host`, `events`, `on_device` (events of devices), `start` and `end` in ps.

    `begin` is when its recording began: with its own clock, or with an event before that.
    """
    events, lanes, hosts = trace.events, trace.lanes, len(trace.hosts)
    number = {name: host for host, name in enumerate(trace.hosts)}
    # The last place is for lanes of no host.
    host = np.array([number.get(name, hosts) for name in lanes["host"].tolist()], np.int64)
    count, on_device = np.zeros((2, hosts + 1), np.int64)
    of_lane, device = (
        lanes["events"].to_numpy(np.int64),
        (lanes["device"] >= 0).to_numpy(np.bool_),
    )
    np.add.at(count, host, of_lane)
    np.add.at(on_device, host[device], of_lane[device])
    first = run_starts(events.lane)
    start, end = (
        np.full(hosts + 1, np.iinfo(np.int64).max),
        np.full(hosts + 1, np.iinfo(np.int64).min),
    )
    if len(first):
        np.minimum.at(start, host[events.lane[first]], events.start[first])
        np.maximum.at(end, host[events.lane[first]], np.maximum.reduceat(events.end, first))
    empty = start > end
    start[empty] = end[empty] = 0
    columns = {
        "events": count[:hosts],
        "on_device": on_device[:hosts],
        "start": start[:hosts],
        "end": end[:hosts],
    }
    begin = columns["start"]
    if len(trace.late_ps) == hosts:
        begin = np.minimum(begin, np.asarray(trace.late_ps, np.int64))
    elif hosts == 1:
        begin = np.minimum(begin, 0)
    return pd.DataFrame({"host": trace.hosts, **columns, "begin": begin})


def length_ps(recorded: pd.DataFrame) -> int | None:
    """The longest recording of a host, ps: clocks of hosts may differ, so spans are per host.

    None without events.
    """
    with_events = recorded[recorded["events"] > 0]
    if len(with_events):
        return int((with_events["end"] - with_events["begin"]).max())
    return None


def hosts(recorded: pd.DataFrame, stepping: Collection[str]) -> list[Note]:
    """Hosts without events, without the devices or steps of the others, or of another time.

    Parameters
    ----------
    recorded : DataFrame
        Of all hosts, times on the clock of the run.
    stepping : str
        The hosts with steps.
    """
    if len(recorded) < 2 or not recorded["events"].any():
        return []
    result: list[Note] = []
    empty = recorded["events"] == 0
    if empty.any():
        result.append(notes.hosts_without_events(recorded.loc[empty, "host"].tolist()))
    bare = ~empty & (recorded["on_device"] == 0)
    if recorded["on_device"].any() and bare.any():
        result.append(notes.hosts_without_device(recorded.loc[bare, "host"].tolist()))
    idle = ~empty & ~recorded["host"].isin(stepping)
    if stepping and idle.any():
        result.append(notes.hosts_without_steps(recorded.loc[idle, "host"].tolist()))
    disjoint = _disjoint(recorded[~empty])
    if disjoint:
        all_hosts = len(disjoint) == int((~empty).sum())
        result.append(notes.hosts_at_other_times(disjoint, all_hosts=all_hosts))
    return result


def _disjoint(recorded: pd.DataFrame) -> list[str]:
    """Hosts whose events all lie before or after those of every other host."""
    if len(recorded) < 2:
        return []
    ordered = recorded.sort_values("start", kind="stable")
    start, end = ordered["start"].to_numpy(np.int64), ordered["end"].to_numpy(np.int64)
    after = np.append(True, np.maximum.accumulate(end)[:-1] < start[1:])
    before = np.append(start[1:] > end[:-1], True)
    return [str(host) for host in recorded["host"][ordered.index[after & before].sort_values()]]
