"""Self times of host ops, done at once: by the definition, instant by instant, and XProf's by a
walk with a stack, event by event.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbprof.activity.activity import Activity
from nbprof.activity.tables import HostOps
from nbprof.analysis.ops import ops

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 12)), max_size=40)


def plain(spans):
    """Kept ops with their self time, and the idle time, by the definition."""
    kept, idle = [], 0
    for lane in sorted({s[0] for s in spans}):
        mine = [s for s in spans if s[0] == lane]
        marks = sorted(
            [
                m
                for i, (_, start, length) in enumerate(mine)
                for m in ((start, 2 * i), (start + length, 2 * i + 1))
            ],
            key=lambda m: m[0],
        )
        marks.sort(key=lambda m: (m[0], m[1]))
        stack, done, busy = [], [], 0
        for _, mark in marks:
            which = mark // 2
            if mark % 2 == 0:
                stack.append([which, 0])
            elif any(s[0] == which for s in stack):
                while stack:
                    top, inner = stack.pop()
                    if top == which:
                        length = mine[which][2]
                        if stack:
                            stack[-1][1] += length
                        done.append((lane, mine[which][1], length, length - inner))
                        busy += length - inner
                        break
        extent = max(s[1] + s[2] for s in mine) - min(s[1] for s in mine)
        idle += max(busy, extent) - busy
        kept += done
    return sorted(kept), idle


def of_spans(lane, start, length):
    event = np.arange(len(start))
    return HostOps(
        event=event,
        host=0,
        lane=lane,
        start=start,
        end=start + length,
        op=0,
        type=0,
        dataset=False,
        in_dataset=False,
        eager=True,
    )


@given(SPANS)
def test_self_times_of_xprof_are_those_of_a_walk_with_a_stack(spans):
    spans.sort(key=lambda s: (s[0], s[1], -s[2]))
    activity = Activity(["h"])
    lane, start, length = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    activity.host_ops = of_spans(lane, start, length)
    rows, idle = ops.host_self_times(activity, as_xprof=True)
    found = sorted(
        zip(
            rows["lane"].tolist(),
            rows["start"].tolist(),
            (rows["end"] - rows["start"]).tolist(),
            rows["own"].tolist(),
            strict=True,
        )
    )
    assert (found, idle) == plain(spans)


@given(SPANS)
def test_each_instant_is_that_of_the_op_that_began_last(spans):
    spans.sort(key=lambda s: (s[0], s[1], -s[2]))
    activity = Activity(["h"])
    lane, start, length = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    activity.host_ops = of_spans(lane, start, length)
    rows, idle = ops.host_self_times(activity)
    own, silent, overlaps = [0] * len(spans), 0, []
    for at in range(40):
        for thread in range(3):
            open_ = [
                i
                for i, (on, begin, long) in enumerate(spans)
                if on == thread and begin <= at < begin + long
            ]
            if open_:
                own[open_[-1]] += 1
            mine = [(begin, begin + long) for on, begin, long in spans if on == thread]
            silent += bool(
                mine and not open_ and min(b for b, _ in mine) <= at < max(e for _, e in mine)
            )
    for i, (on, begin, long) in enumerate(spans):
        around = max(
            (k for k in range(i) if spans[k][0] == on and sum(spans[k][1:]) >= begin + long),
            default=-1,
        )
        overlaps.append(any(t == on and b + d > begin for t, b, d in spans[around + 1 : i]))
    assert rows["own"].tolist() == own
    assert rows["overlaps"].tolist() == overlaps
    assert idle == silent
