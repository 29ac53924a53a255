"""Calls of Python in profiles of JAX and TensorFlow: what starts the program lies on a lane of its
own, threads without any are folded.
"""

from __future__ import annotations

import pytest

from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

STARTS = [
    "$<frozen runpy>:198 _run_module_as_main",
    "$ipykernel_launcher.py:18 <module>",
    "$application.py:1075 launch_instance",
    "$base_events.py:607 run_forever",
    "$kernelbase.py:508 dispatch_shell",
    "$interactiveshell.py:3786 run_code",
    "$builtins exec",
]
NOTE = "what started the code"


def recorded(
    tmp_path, starts=STARTS, own=("$1234567890.py:3 <module>", "$1234567890.py:1 train"), threads=()
):
    """A call in a call, as a notebook's kernel makes them, around a step; `threads` are the calls
    of others, each in the one before.
    """
    host = PlaneWriter("/host:CPU")

    def nested(names):
        return [host.event(name, i * MS, (100 - 2 * i) * MS) for i, name in enumerate(names)]

    host.line(
        "python",
        [*nested([*starts, *own]), host.event("train", 40 * MS, 10 * MS, step_num=1, _r=1)],
        line_id=7,
    )
    for i, names in enumerate(threads):
        host.line("", nested(names), line_id=(1 << 62) + i)
    return profile(tmp_path, xspace(host))


def lanes(p):
    return {
        (lane.name, lane.note): lane
        for lane in p.run.timeline.tracks.lanes
        if lane.process == "Host"
    }


def test_what_starts_the_code_is_folded(tmp_path):
    p = recorded(tmp_path)
    found = lanes(p)
    start, own = found["python", NOTE], found["python", ""]
    assert (start.folded, start.events) == (True, len(STARTS))
    assert not own.folded
    names = p.trace.events(lane=own.id)["name"].tolist()
    assert names[:2] == ["$1234567890.py:3 <module>", "$1234567890.py:1 train"]
    assert "train" in names


def test_its_lane_stands_behind_the_one_that_it_is_of(tmp_path):
    p = recorded(tmp_path, threads=[["$mine.py:3 load"]])
    order = [(lane.name, lane.note) for lane in p.run.timeline.tracks.lanes if lane.kind == "host"]
    assert order == [("python", ""), ("python", NOTE), ("thread", "")]


def test_nothing_is_lost_and_args_stay_with_their_events(tmp_path):
    p = recorded(tmp_path)
    trace = p.run.trace
    assert set(STARTS) <= set(p.trace.events()["name"])
    assert len(trace.events) == p.receipt.events
    (event,) = trace.args["step_num"].event.tolist()
    assert trace.names[trace.events.name[event]] == "train"
    assert p.steps.frame["step_time_ms"].tolist() == [10.0]


@pytest.mark.parametrize(
    "thread",
    [
        [
            "$threading.py:988 _bootstrap",
            "$threading.py:971 run",
            "$bounds.py:88 _run",
            "$__init__.py:313 __init__",
        ],
        ["$base_events.py:1845 _run_once", "$selectors.py:451 select", "$builtins len"],
        ["$time sleep"],
    ],
)
def test_a_thread_of_the_kernel_is_folded(tmp_path, thread):
    found = lanes(recorded(tmp_path, threads=[thread]))
    assert found["thread", ""].folded
    assert ("thread", NOTE) not in found


@pytest.mark.parametrize(
    "thread",
    [
        [
            "$threading.py:988 _bootstrap",
            "$threading.py:971 run",
            "$loader.py:9 fetch",
            "$time sleep",
        ],
        ["$base_events.py:1845 _run_once", "$events.py:78 _run", "$1234567890.py:7 answer"],
    ],
)
def test_a_thread_of_the_program_stays_open(tmp_path, thread):
    found = lanes(recorded(tmp_path, threads=[thread]))
    assert not found["thread", ""].folded
    assert found["thread", NOTE].events == len(
        [name for name in thread if name.startswith(("$threading", "$base_events", "$events"))]
    )


@pytest.mark.parametrize("starts", [["$events.py:3 main"], ["$application.py:3 serve"], []])
def test_code_of_a_script_stays(tmp_path, starts):
    assert ("python", NOTE) not in lanes(recorded(tmp_path, starts))


def test_where_all_threads_are_of_the_kernel_they_stay_open(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("", [host.event("$time sleep", 0, 50 * MS)], line_id=1)
    host.line("", [host.event("$posix getppid", 0, 90 * MS)], line_id=2)
    found = lanes(profile(tmp_path, xspace(host)))
    assert [found["thread 1", ""].folded, found["thread 2", ""].folded] == [False, False]


def test_a_number_that_is_a_hash_is_not_shown(tmp_path):
    names = {
        name
        for name, _ in lanes(recorded(tmp_path, threads=[["$mine.py:3 load"], ["$mine.py:9 send"]]))
    }
    assert {"thread #1", "thread #2"} < names
