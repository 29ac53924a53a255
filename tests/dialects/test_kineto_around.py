"""Calls of Python that start the program lie on a lane of their own, so that its code comes
first.
"""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, profile

STARTS = [
    "<frozen runpy>(198): _run_module_as_main",
    "ipykernel_launcher.py(18): <module>",
    "/opt/env/lib/python3.11/site-packages/traitlets/config/application.py(1075): launch_instance",
    "asyncio/base_events.py(607): run_forever",
    "IPython/core/interactiveshell.py(3526): run_code",
    "<built-in method exec of builtin object at 0x7f0000000000>",
]
CELL = "/tmp/ipykernel_4711/1234567890.py"


def recorded(
    tmp_path,
    starts=STARTS,
    own=(f"{CELL}(3): <module>", f"{CELL}(1): train", "contextlib.py(81): inner"),
):
    """A call in a call, as a notebook's kernel makes them, around an op."""
    made = Kineto()
    for depth, name in enumerate((*starts, *own)):
        made.add(name, "python_function", 10 + depth, 900 - 2 * depth)
    made.step(1, 100, 200)
    made.op("aten::mm", 150, 50)
    # A call of the event loop that leads to nothing stays where it is.
    made.add("asyncio/events.py(80): _run", "python_function", 950, 5)
    return profile(tmp_path, made)


def lanes(p):
    return {(lane.name, lane.note): lane for lane in p.run.timeline.tracks.lanes}


def test_what_starts_the_code_is_folded(tmp_path):
    p = recorded(tmp_path)
    (start,) = [lane for (_, note), lane in lanes(p).items() if note == "what started the code"]
    assert start.folded
    assert start.events == len(STARTS)
    (own,) = [
        lane
        for (name, note), lane in lanes(p).items()
        if name == "main thread" and note != start.note
    ]
    assert not own.folded
    names = p.trace.events(lane=own.id)["name"].tolist()
    assert not any("IPython" in name or "runpy" in name for name in names)
    assert "asyncio/events.py(80): _run" in names


def test_nothing_is_lost(tmp_path):
    p = recorded(tmp_path)
    assert set(STARTS) <= set(p.trace.events()["name"])
    assert len(p.run.trace.events) == p.receipt.events


def test_a_stack_begins_with_the_code(tmp_path):
    (text,) = recorded(tmp_path).torch_ops.by("stack").query("op == 'aten::mm'")["call_stack"]
    assert text.split("\n") == ["contextlib.py(81): inner", "Cell(1): train", "Cell(3): <module>"]


@pytest.mark.parametrize(
    "starts", [["/srv/me/asyncio_demo.py(3): main"], ["/srv/me/IPython/mine.py(3): main"], []]
)
def test_code_of_a_script_stays(tmp_path, starts):
    p = recorded(tmp_path, starts)
    assert not [lane for (_, note), lane in lanes(p).items() if note == "what started the code"]


def test_threads_of_the_kernel_and_of_nbprof_are_folded(tmp_path):
    made = Kineto()
    made.step(1, 100, 200)
    made.op("aten::mm", 150, 50)
    threads = {
        501: (
            "threading.py(971): run",
            "nbprof/capture/bounds.py(88): _run",
            "psutil/__init__.py(313): memory_info",
        ),
        502: ("asyncio/base_events.py(1845): _run_once", "selectors.py(451): select"),
        503: ("threading.py(971): run", "/srv/me/loader.py(9): fetch"),
    }
    for tid, names in threads.items():
        for depth, name in enumerate(names):
            made.add(name, "python_function", 10 + depth, 900 - 2 * depth, tid=tid)
    found = lanes(profile(tmp_path, made))
    assert [found[f"thread {tid}", ""].folded for tid in threads] == [True, True, False]
    assert [key for key in found if key[1] == "what started the code"] == [
        ("thread 503", "what started the code")
    ]
