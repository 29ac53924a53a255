"""Which of the recorded loops is the unit of work, and how their times are kept."""

from __future__ import annotations

import base64
import dataclasses
import zlib

import numpy as np
import pytest

from nbprof.core import loop_times
from nbprof.core.loop_times import COMPREHENSION, FOR, WHILE, Loop, LoopTimes, choose
from nbprof.sources.recording import CaptureInfo

MS = 1_000_000
BEGIN = 1_700_000_000 * 1_000_000_000


class Builder:
    """Writes loops of which all iterations take equally long, one after the other."""

    def __init__(self, end_ms: float = 1000) -> None:
        self.loops: list[Loop] = []
        self.rows: list[tuple[int, int, int, int]] = []
        self.end = BEGIN + int(end_ms * MS)

    def add(
        self,
        text: str,
        rows: int,
        each_ms: float,
        *,
        inside: dict[int, float] | None = None,
        **changes,
    ) -> int:
        """A loop that begins with the recording."""
        index = len(self.loops)
        each = int(each_ms * MS)
        parents = {parent: int(ms * MS) for parent, ms in (inside or {}).items()}
        loop = Loop("2", 0, index + 1, text, FOR, 7, rows, rows * each, 0, parents)
        self.loops.append(dataclasses.replace(loop, **changes))
        for i in range(rows):
            asked = BEGIN + i * each
            self.rows.append((index, asked, asked + each // 10, asked + each))
        return index

    @property
    def times(self) -> LoopTimes:
        rows = np.array(self.rows, np.int64).reshape(-1, 4)
        return LoopTimes(
            BEGIN,
            self.end,
            self.loops,
            rows[:, 0].astype(np.int32),
            rows[:, 1],
            rows[:, 2],
            rows[:, 3],
        )


def chosen(builder: Builder) -> int | None:
    """The line of the chosen loop, which is its index and one."""
    found = choose(builder.times)
    return None if found is None else found.line


def test_the_iterations_of_the_loop_that_takes_the_recording():
    loops = Builder()
    loops.add("for i in range(30):", 30, 30)
    found = choose(loops.times)
    assert found is not None
    assert (len(found), found.count, found.line, found.cell, found.sampled) == (
        30,
        30,
        1,
        "2",
        False,
    )
    assert found.start_ns.tolist() == [BEGIN + i * 30 * MS for i in range(30)]
    assert (found.item_ns - found.start_ns).tolist() == [3 * MS] * 30
    assert (found.end_ns - found.start_ns).tolist() == [30 * MS] * 30
    assert found.how == (
        "Steps are the 30 iterations of the loop in line 1, `for i in range(30):`; "
        "`for … in nbprof.steps(…)` around another loop makes its iterations the steps."
    )


def test_a_loop_of_another_cell_is_called_by_its_number():
    loops = Builder()
    loops.add("for x, y in loader:", 1200, 0.8, number=5)
    found = choose(loops.times)
    assert found is not None
    assert (
        "the 1,200 iterations of the loop in line 1 of cell [5], `for x, y in loader:`;"
        in found.how
    )


@pytest.mark.parametrize("share", [0.3, 0.45])
def test_a_loop_that_takes_less_than_half_of_the_recording_is_none(share):
    loops = Builder()
    loops.add("for i in range(30):", 30, 1000 * share / 30)
    assert choose(loops.times) is None
    assert choose(loops.times, least_share=0.2) is not None


def test_nothing_ran():
    assert choose(None) is None
    assert choose(Builder().times) is None


@pytest.mark.parametrize(
    ("outer", "count", "inner", "inner_count", "line"),
    [
        ("for epoch in range(3):", 3, "for x, y in loader:", 30, 2),
        # Many epochs of few batches each.
        ("for epoch in range(50):", 50, "for x, y in loader:", 200, 2),
        ("for e in range(50):", 50, "for x, y in loader:", 200, 2),
        ("for _ in range(num_epochs):", 50, "for x, y in loader:", 200, 2),
        ("for i in range(4):", 4, "for x, y in loader:", 40, 2),
        ("for prompt in prompts:", 10, "while not done:", 200, 2),
        # Micro-batches of a step.
        ("for step in range(30):", 30, "for micro in range(4):", 120, 1),
        # Twelve layers of each step, written as a loop.
        ("for step in range(30):", 30, "for layer in layers:", 360, 1),
        ("for x in batches:", 30, "for w, b in params:", 360, 1),
        ("for x in batches:", 30, "for i in range(4):", 120, 1),
    ],
)
def test_the_way_goes_down_to_batches_and_not_to_parts_of_them(
    outer, count, inner, inner_count, line
):
    loops = Builder()
    loops.add(outer, count, 900 / count)
    kind = WHILE if inner.startswith("while") else FOR
    loops.add(inner, inner_count, 850 / inner_count, inside={0: 850}, kind=kind)
    assert chosen(loops) == line


def test_an_inner_loop_that_takes_little_of_the_outer_one_is_not_the_unit():
    loops = Builder()
    loops.add("for epoch in range(5):", 5, 190)
    loops.add("for x in validation:", 50, 10, inside={0: 500})
    assert chosen(loops) == 1


@pytest.mark.parametrize(("text", "line"), [("for epoch in range(3):", 2), ("for i in a:", 1)])
def test_an_epoch_of_training_and_validation_is_no_unit(text, line):
    loops = Builder()
    loops.add(text, 3, 300)
    loops.add("for x, y in dataset:", 48, 10, inside={0: 480})
    loops.add("for x, y in validation:", 16, 20, inside={0: 320})
    assert chosen(loops) == line


def test_the_way_goes_through_a_loop_of_two_phases():
    loops = Builder()
    loops.add("for epoch in range(3):", 3, 320)
    loops.add("for phase in ('train', 'val'):", 6, 160, inside={0: 960})
    loops.add("for batch in loaders[phase]:", 60, 15, inside={1: 900})
    assert chosen(loops) == 3


def test_an_outer_loop_of_one_iteration_is_passed():
    loops = Builder()
    loops.add("for epoch in range(1):", 1, 960)
    loops.add("for batch in loader:", 60, 15, inside={0: 900})
    assert chosen(loops) == 2


def test_tiny_iterations_are_no_unit_but_the_loop_around_them_is():
    loops = Builder()
    loops.add("for i in range(10):", 10, 96)
    loops.add(
        "for j in range(50_000):", 100, 0.01, inside={0: 940}, count=500_000, total_ns=940 * MS
    )
    assert chosen(loops) == 1
    alone = Builder()
    alone.add("for j in range(2_000_000):", 100, 0.0005, count=2_000_000, total_ns=900 * MS)
    assert choose(alone.times) is None


def test_short_iterations_are_parts_of_the_unit_around_them():
    loops = Builder()
    loops.add("for a in words:", 100, 9)
    loops.add("for b in a:", 2000, 0.4, inside={0: 800})
    assert chosen(loops) == 1
    named = Builder()
    named.add("for epoch in range(100):", 100, 9)
    named.add("for b in loader:", 2000, 0.4, inside={0: 800})
    assert chosen(named) == 2


def test_two_iterations_are_no_unit():
    loops = Builder()
    loops.add("for i in range(2):", 2, 450)
    assert choose(loops.times) is None


@pytest.mark.parametrize("change", [{"count": None}, {"overlaps": True}])
def test_what_is_not_known_exactly_is_no_unit(change):
    loops = Builder()
    loops.add("for i in range(30):", 30, 30, **change)
    assert choose(loops.times) is None


def test_the_comprehension_of_a_cell():
    loops = Builder()
    loops.add("[f(x) for x in xs]", 40, 20, kind=COMPREHENSION)
    found = choose(loops.times)
    assert found is not None
    assert found.waits
    assert "`[f(x) for x in xs]`" in found.how


def test_loops_that_call_one_another_end_the_search():
    loops = Builder()
    loops.add("for a in b:", 10, 90, inside={1: 100})
    loops.add("for c in d:", 100, 9, inside={0: 800})
    assert chosen(loops) == 2


def test_more_iterations_than_were_noted_are_a_sample():
    loops = Builder()
    loops.add("for i in range(200_000):", 100, 9, count=200)
    found = choose(loops.times)
    assert found is not None
    assert (found.sampled, found.count, len(found)) == (True, 200, 100)
    assert "the 200 iterations" in found.how
    assert "of which 100 were timed" in found.how


def good() -> Builder:
    loops = Builder()
    loops.add("for epoch in range(3):", 3, 300)
    loops.add("for x in loader:", 30, 29, inside={0: 870}, wait_ns=5)
    return loops


def test_what_is_kept_is_what_was_recorded():
    times = good().times
    again = LoopTimes.unpacked(times.packed())
    assert again is not None
    assert (again.loops, again.begin_ns, again.end_ns) == (
        times.loops,
        times.begin_ns,
        times.end_ns,
    )
    for name in ("loop", "asked", "got", "ended"):
        assert getattr(again, name).tolist() == getattr(times, name).tolist()
    info = CaptureInfo(loops=times.packed())
    assert CaptureInfo.from_dict(info.to_dict()).loops == times.packed()
    assert CaptureInfo.from_dict({**info.to_dict(), "loops": [1]}).loops == {}
    empty = LoopTimes.unpacked(Builder().times.packed())
    assert empty is not None
    assert not empty.loops


def _times(*columns: list[int]) -> str:
    rows = b"".join(np.array(column, "<i8").tobytes() for column in columns)
    return base64.b64encode(zlib.compress(rows)).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"begin_ns": "now"},
        {"begin_ns": -1},
        {"begin_ns": True},
        {"end_ns": BEGIN - 1},
        {"end_ns": None},
        {"loops": {}},
        {"loops": [3]},
        {"loops": []},
        {"times": "%"},
        {"times": "AAAA"},
        {"times": None},
        {"times": _times([1, 2], [3, 4])},
        {"times": _times(*[[-5] * 33] * 3)},
        {"times": _times(*[[2**62] * 33] * 3)},
    ],
)
def test_what_is_damaged_is_left_out(change):
    assert LoopTimes.unpacked(good().times.packed() | change) is None


@pytest.mark.parametrize(
    "change",
    [
        {"cell": 3},
        {"line": -1},
        {"line": True},
        {"count": "three"},
        {"count": -1},
        {"total_ns": 2**63},
        {"kind": "until"},
        {"inside": {"x": 1}},
        {"inside": {"5": 1}},
        {"inside": {"0": "1"}},
        {"overlaps": 1},
        {"rows": -1},
        {"rows": 10**12},
        {"more": 1},
    ],
)
def test_a_damaged_loop_is_left_out(change):
    packed = good().times.packed()
    first, second = packed["loops"]
    assert LoopTimes.unpacked({**packed, "loops": [first, {**second, **change}]}) is None


@pytest.mark.parametrize("value", [None, [], 3, "", {}])
def test_what_is_no_loops_is_left_out(value):
    assert LoopTimes.unpacked(value) is None


def test_more_iterations_than_are_kept_are_not_read(monkeypatch):
    packed = good().times.packed()
    monkeypatch.setattr(loop_times, "MOST", 10)
    assert LoopTimes.unpacked(packed) is None
