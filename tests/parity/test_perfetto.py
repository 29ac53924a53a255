"""A Perfetto trace and its twin, a Chrome trace of the same events in JSON: lanes, slices, nesting,
args, counters and arrows are equal.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from nbprof.core.trace import Trace
from tests.support import chrome, perfetto
from tests.support.perfetto import Story, events_of

WAYS = [
    {"interned": False},
    {"interned": True},
    {"interned": True, "forget": True},
    {"interned": True, "compressed": True},
]


def plain(trace: Trace) -> list[dict[str, Any]]:
    """Events in an order that does not depend on the file: what starts at one time with one length
    is in any order.
    """
    out = events_of(trace)
    for one in out:
        for key, value in one["args"].items():
            if isinstance(value, str) and value.startswith("["):
                one["args"][key] = json.loads(value)
    return sorted(
        out,
        key=lambda e: (e["pid"], e["tid"], e["start"], -e["duration"], e["name"], str(e["args"])),
    )


def arrows(trace: Trace) -> list[tuple[int, int, int, str]]:
    flows = trace.flows
    if flows is None:
        return []
    threads = trace.lanes["thread"].to_numpy()
    assert flows.enclosing.all()
    return sorted(
        (i, p, t, str(threads[lane]))
        for i, p, t, lane in zip(
            flows.id.tolist(),
            flows.phase.tolist(),
            flows.time.tolist(),
            flows.lane.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_the_twin_in_json_says_the_same(seed: int, way: dict[str, bool]) -> None:
    rng = Random(seed)
    story = Story.random(rng, 600)
    ours = perfetto.read(story.perfetto(rng, **way))
    theirs = chrome.read(story.json(), "host.json")
    assert plain(ours) == plain(theirs)
    assert len(ours.events) == len(story.slices)
    assert not ours.receipt.lines
    columns = ["host", "process", "thread", "line_id", "events", "pid", "tid", "labels"]
    assert sorted(ours.lanes[columns].to_numpy().tolist()) == sorted(
        theirs.lanes[columns].to_numpy().tolist()
    )
    assert arrows(ours) == arrows(theirs)
    for one, other in zip(ours.counters.itertuples(), theirs.counters.itertuples(), strict=True):
        assert (one.series, one.time, one.value) == (other.series, other.time, other.value)
        assert ours.lanes["process"].iloc[one.lane] == theirs.lanes["process"].iloc[other.lane]
    assert (ours.epoch_ns, ours.hosts) == (theirs.epoch_ns, theirs.hosts)
