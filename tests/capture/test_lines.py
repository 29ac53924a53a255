"""Which line of a cell runs when, on the Python that is there: by `sys.monitoring` from 3.12 on, by
`sys.settrace` before.
"""

from __future__ import annotations

import linecache
import sys
import threading

import numpy as np
import pytest

from nbprof.capture import lines
from nbprof.capture.lines import LineClock
from nbprof.core.line_times import LineTimes
from tests.support.cells import run_cell

DEFINED = """def add(a, b):
    c = a + b
    return c
def count():
    for i in range(2):
        yield i
def fail():
    raise ValueError
"""


@pytest.fixture
def run(monkeypatch):
    """Runs a text as the cell of some stem."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    return run_cell


def recorded(run, text, names=None):
    names = {} if names is None else names
    clock = LineClock().start()
    try:
        run("2", text, names)
    finally:
        found = clock.stop()
    return found


def changes(found):
    """(stem, line, whether it was reached anew) at each change; None where no line ran."""
    return [(*found.lines[abs(n) - 1], n > 0) if n else None for n in found.line.tolist()]


@pytest.mark.skipif(
    sys.gettrace() is not None and sys.version_info < (3, 12),
    reason="a debugger or a coverage tool is tracing",
)
class TestRecorded:
    def test_lines_and_the_way_back_from_functions(self, run):
        names = {}
        run("1", DEFINED, names)
        found = recorded(run, "x = add(1, 2)\ny = 3\n", names)
        assert changes(found) == [
            ("2", 1, True),
            ("1", 2, True),
            ("1", 3, True),
            ("2", 1, False),
            ("2", 2, True),
            None,
            None,
        ]
        assert (found.times[1:] >= found.times[:-1]).all()
        assert found.source == {"2": "x = add(1, 2)\ny = 3\n", "1": DEFINED}
        assert not found.truncated

    def test_generators_and_exceptions_return_too(self, run):
        names = {}
        run("1", DEFINED, names)
        found = recorded(
            run,
            "for i in count():\n    pass\ntry:\n    fail()\nexcept ValueError:\n    pass\n",
            names,
        )
        ran = changes(found)
        assert ("1", 6, True) in ran
        # Each time that the generator yields, it is the loop again; and the handler is the cell's.
        after = {
            (one, ran[i + 1])
            for i, one in enumerate(ran)
            if one is not None and one[:2] == ("1", 6)
        }
        assert (("1", 6, True), ("2", 1, False)) in after
        assert ran[ran.index(("1", 8, True)) :][1:3] == [("2", 4, False), ("2", 5, True)]

    def test_a_cell_that_runs_already_is_followed_from_there(self, run):
        names = {"LineClock": LineClock}
        run("2", "a = 1\nclock = LineClock().start()\nb = 2\nfound = clock.stop()\nc = 3\n", names)
        assert changes(names["found"])[:3] == [("2", 2, True), ("2", 3, True), ("2", 4, True)]

    def test_the_line_that_begins_the_recording_is_none_and_stands_as_it_was_written(self, run):
        names = {
            "get_ipython": lambda: names["shell"],
            "shell": type("Shell", (), {"run_line_magic": lambda *_: names["clock"].start()})(),
        }
        names["clock"] = LineClock()
        run("2", "get_ipython().run_line_magic('nbprof_begin', '--stacks')\na = 1\n", names)
        found = names["clock"].stop()
        assert changes(found)[:1] == [("2", 2, True)]
        assert found.source["2"] == "%%nbprof --stacks\na = 1\n"

    def test_other_threads_count_for_no_line(self, run):
        names = {"threading": threading}
        run("1", DEFINED, names)
        found = recorded(
            run, "t = threading.Thread(target=add, args=(1, 2))\nt.start()\nt.join()\n", names
        )
        assert set(found.lines) == {("2", 1), ("2", 2), ("2", 3)}

    def test_a_long_loop_is_cut(self, run, monkeypatch):
        monkeypatch.setattr(lines, "MOST", 100)
        found = recorded(run, "for i in range(1000):\n    a = i\n")
        assert found.truncated
        assert len(found.times) == 101
        assert found.line[-1] == 0

    def test_code_that_is_no_cell_is_left_alone(self):
        clock = LineClock().start()
        exec(compile("a = 1\n", "train.py", "exec"), {})
        assert clock.stop() is None
        assert sys.gettrace() is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="here nothing is traced")
def test_a_debugger_keeps_its_tracing(run):
    def debugger(*_):
        return None

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        clock = LineClock().start()
        run("2", "a = 1\n", {})
        assert clock.stop() is None
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert "debugger" in clock.trouble.text


@pytest.mark.skipif(
    sys.version_info >= (3, 12) or sys.gettrace() is not None, reason="by sys.settrace only"
)
def test_what_runs_under_a_debugger_that_the_cell_began_counts_for_no_line(run):
    names = {"sys": sys, "debugger": lambda *_: None}
    try:
        found = recorded(run, "a = 1\nsys.settrace(debugger)\nb = 2\n", names)
    finally:
        sys.settrace(None)
    assert found.truncated
    # The cell itself is still followed, what it calls is not.
    assert [place[1] for place in changes(found) if place] == [1, 2, 3]
    assert found.times[-1] == found.times[-2]


GOOD = LineTimes({"1": "a\n"}, [("1", 1)], np.array([5, 9]), np.array([1, 0], np.int32)).packed()


@pytest.mark.parametrize(
    "change",
    [
        {"source": {"1": 3}},
        {"lines": [["1"]]},
        {"lines": 3},
        {"lines": []},
        {"changes": "%"},
        {"changes": "AAAA"},
        {"changes": None},
    ],
)
def test_what_is_damaged_is_left_out(change):
    assert LineTimes.unpacked(GOOD) is not None
    assert LineTimes.unpacked(GOOD | change) is None


def test_what_is_kept_is_what_was_recorded(run):
    found = recorded(run, "a = 1\nb = 2\n")
    if found is None:
        pytest.skip("a debugger or a coverage tool is tracing")
    again = LineTimes.unpacked(found.packed())
    assert (again.source, again.lines, again.truncated) == (
        found.source,
        found.lines,
        found.truncated,
    )
    assert (again.times.tolist(), again.line.tolist()) == (
        found.times.tolist(),
        found.line.tolist(),
    )
    assert LineTimes.unpacked([]) is None
