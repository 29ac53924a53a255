"""Headers of lanes, and notes about the timeline as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbprof.display.wording import duration, one_line, plural
from nbprof.timeline.levels import Stack
from nbprof.timeline.tracks import Lane, Tracks

MOST_NAME = 600
_BLOCK = 1 << 19
# Threshold of "far": a multiple of the length of nearly all events, measured on a sample.
_FEW, _SAMPLE, _FAR, _NEAR, _SHARE = 20, 100_000, 50, 5, 0.005


def head(lane: Lane, hosts: int) -> dict[str, Any]:
    """The header of a lane: with its host if there are several, and with the number of its device
    on that host if it is of one.
    """
    header = {
        "id": lane.id,
        "process": lane.process,
        "name": one_line(lane.name)[:MOST_NAME],
        "note": one_line(lane.note)[:MOST_NAME],
        "kind": lane.kind,
        "events": lane.events,
        "folded": lane.folded,
        "derived": lane.derived,
    }
    if hosts > 1 and lane.host:
        header["host"] = lane.host
    # "-1" is the host itself.
    if lane.device.isdecimal():
        header["device"] = int(lane.device)
    return header


_CLOCKS = "Each host is drawn by its own clock; p.pods.clocks shows the differences."


def notes(tracks: Tracks, stacks: list[Stack]) -> list[str]:
    """Notes on a lane: sentences about derived, stacked or suspicious events."""
    sentences = [*tracks.notes, *stacked(stacks), *lone(tracks)]
    hosts = {lane.host for lane in tracks.lanes if lane.events and lane.host}
    if len(hosts) > 1:
        sentences.insert(0, _CLOCKS)
    return sentences


def stacked(stacks: list[Stack]) -> list[str]:
    """A sentence if events overlap only partly."""
    moved, lanes = sum(each.moved for each in stacks), sum(each.moved_lanes for each in stacks)
    if not moved:
        return []
    subject, levels = f"{moved:,} events overlap others on their lane", "separate levels"
    if moved == 1:
        subject, levels = "1 event overlaps others on its lane", "a separate level"
    return [f"{subject} partially, on {plural(lanes, 'lane')}: drawn on {levels}."]


def lone(tracks: Tracks) -> list[str]:
    """A sentence if a few events are so far from the others that those shrink to a speck."""
    events = tracks.events
    if len(events) < _FEW:
        return []
    sample = np.sort(events.start[:: max(len(events) // _SAMPLE, 1)])
    low, high = int(sample[int(len(sample) * 0.01)]), int(sample[int(len(sample) * 0.99)])
    core = max(high - low, 1)
    if (tracks.end - tracks.origin) < _FAR * core:
        return []
    first, last = low - _NEAR * core, high + _NEAR * core
    away = 0
    for offset in range(0, len(events), _BLOCK):
        rows = slice(offset, offset + _BLOCK)
        start = events.start[rows]
        away += int(((start > last) | (start + events.duration[rows] < first)).sum())
    if not away or away > _SHARE * len(events):
        return []
    far = duration(max(low - tracks.origin, tracks.end - high) / 1e12)
    lie = "lies" if away == 1 else "lie"
    subject = f"{plural(away, 'event')} {lie} far from the others"
    return [f"{subject}, up to {far} away; these take {duration(core / 1e12)}."]
