"""The lines at which blocks were allocated that steps leave behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.memory import allocated_at, growth
from nbprof.analysis.memory.allocated_at import Code
from nbprof.analysis.memory.roles import roles
from nbprof.analysis.python import Python
from nbprof.core.line_times import LineTimes
from tests.analysis.test_python import BASE, samples
from tests.support.kineto import BACKWARD, Kineto, profile

KIB, MS = 1024, 10**6
STEPS = 4
STEP_MS = 1000
CELL = "/tmp/ipykernel_1/42.py"
LOADER = 300
OUTPUT, GRADIENT, BATCH = (i << 30 for i in (1, 2, 3))


class Leak(Kineto):
    """Steps of a second, in which three threads allocate what is never freed."""

    def __init__(self, **calls):
        super().__init__()
        self.total = 0
        for step in range(STEPS):
            self.one(step, 1000.0 * STEP_MS * step, **calls)

    def block(self, ts, address, tid):
        self.total += KIB
        self.memory(ts, KIB, address, self.total, 0, device=0, tid=tid)

    def one(self, step, ts, python=False):
        ms = 1000.0
        self.step(step, ts, 999 * ms)
        if python:
            self.add("train.py(31): fit", "python_function", ts + 50 * ms, 300 * ms, args={})
        self.op("aten::linear", ts + 100 * ms, 200 * ms)
        numbered = {"Sequence number": step, "Fwd thread id": 0}
        self.op("aten::addmm", ts + 110 * ms, 180 * ms, **numbered)
        self.block(ts + 120 * ms, OUTPUT + step * KIB, 100)
        self.op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            ts + 400 * ms,
            200 * ms,
            tid=BACKWARD,
            **{"Sequence number": step, "Fwd thread id": 1},
        )
        self.block(ts + 450 * ms, GRADIENT + step * KIB, BACKWARD)
        self.op("aten::copy_", ts + 700 * ms, 100 * ms, tid=LOADER)
        self.block(ts + 710 * ms, BATCH + step * KIB, LOADER)


@pytest.fixture
def unfreed(tmp_path):
    """The blocks that steps leave behind, by op, with the lines that a recording has."""

    def unfreed(code, **calls):
        run = profile(tmp_path, Leak(**calls)).run
        found = roles(run.activity, run.memory_timeline, run.trace.events, code).located
        assert found["bytes"].sum() == 3 * (STEPS - 1) * KIB
        return found

    return unfreed


def by_op(rows):
    return {row.op.rpartition("::")[2]: (row.line, row.line_source) for row in rows.itertuples()}


def ran(*changes):
    """Changes of the line, each at some ms, and the end of the recording."""
    times = np.array([at for at, _ in changes], np.int64)
    line = np.array([number for _, number in changes], np.int32)
    return LineTimes({}, [("42", 5), ("42", 6), ("42", 9)], BASE + times * MS, line)


def code(times=None, python=None):
    return Code(times, python, {"42": 3}, BASE)


def test_lines_that_were_recorded_for_a_part_of_the_cell(unfreed):
    times = replace(ran((0, 1), (90, 2), (310, 1), (500, 0)), truncated=True)
    rows = unfreed(code(times)).set_index("op")
    assert set(rows.loc["aten::addmm", "line_source"]) == {
        allocated_at.RECORDED,
        allocated_at.NO_MORE_LINES,
    }


def test_the_line_that_ran_during_the_op(unfreed):
    changes = [(0, 1)]
    for step in range(STEPS):
        at = STEP_MS * step
        changes += [(at + 90, 2), (at + 310, 1), (at + 390, 3), (at + 610, 1)]
    found = by_op(unfreed(code(ran(*changes, (STEPS * STEP_MS, 0)))))
    assert found["addmm"] == ("Cell [3]:6", allocated_at.RECORDED)
    # The cell's thread waits for the backward pass, not for that of a loader.
    assert found["evaluate_function: AddmmBackward0"] == (
        "Cell [3]:9",
        allocated_at.RECORDED,
    )
    assert found["copy_"] == ("", allocated_at.OTHER_THREAD)


def test_lines_of_another_time_say_nothing(unfreed):
    found = by_op(unfreed(code(ran((900_000, 1), (990_000, 0)))))
    assert found["addmm"] == ("", allocated_at.NOT_RECORDED)


def test_no_line_ran(unfreed):
    found = by_op(unfreed(code(ran((0, 0), (STEPS * STEP_MS, 0)))))
    assert found["addmm"] == ("", allocated_at.NO_LINE)


def sampled(*rows):
    """Stacks of the cell's thread at some ms: the line of the cell, and that of a function."""
    stacks = []
    for i, (_, cell, *inner) in enumerate(rows):
        stack = [(CELL, "<module>", 1, cell)]
        stack += [("/project/model.py", "forward", 10, line) for line in inner]
        stacks.append((i + 1, stack, 0, 5))
    return Python(samples(stacks, at=[0, *(row[0] for row in rows)]), {"42": 3})


def test_a_stack_that_was_sampled_during_one_of_the_ops(unfreed):
    python = sampled((50, 2), (1150, 5, 12), (1500, 9), (1750, 2))
    found = by_op(unfreed(code(python=python)))
    assert found["addmm"] == ("model.py:12", allocated_at.SAMPLED)
    assert found["evaluate_function: AddmmBackward0"] == ("Cell [3]:9", allocated_at.SAMPLED)
    assert found["copy_"] == ("", allocated_at.OTHER_THREAD)


def test_samples_at_several_lines_do_not_decide(unfreed):
    found = by_op(unfreed(code(python=sampled((150, 5), (1150, 6)))))
    assert found["addmm"] == ("", allocated_at.SEVERAL)
    assert found["evaluate_function: AddmmBackward0"] == ("", allocated_at.NOT_SAMPLED)


def test_the_function_where_pytorch_recorded_calls(unfreed):
    found = by_op(unfreed(None, python=True))
    assert found["addmm"] == ("train.py:31", allocated_at.CALLS)
    assert found["copy_"] == ("", allocated_at.NO_CALL)
    # A recorded line is better.
    changes = [(0, 2), (STEPS * STEP_MS, 0)]
    better = by_op(unfreed(code(ran(*changes)), python=True))
    assert better["addmm"] == ("Cell [3]:6", allocated_at.RECORDED)


def test_without_any_of_them_the_reason_is_said(unfreed):
    assert set(by_op(unfreed(None)).values()) == {("", allocated_at.NOT_RECORDED)}


def test_growth_is_at_a_line_only_where_all_of_it_is(unfreed):
    changes = [(0, 2), (STEPS * STEP_MS, 0)]
    rows = unfreed(code(ran(*changes)))
    (memory,) = rows["memory_id"].unique()
    grown = growth.Growth(memory, STEPS, 1.0, KIB, 3 * KIB, 9 * KIB, None, op="aten::addmm")
    assert growth.with_place(grown, rows).line == "Cell [3]:6"
    assert not growth.with_place(grown, rows).in_function
    calls = rows.assign(line="train.py:31", line_source=allocated_at.CALLS)
    assert growth.with_place(grown, calls).in_function
    two = rows[rows["op"] == "aten::addmm"]
    two = pd.concat([two, two.assign(line="Cell [3]:8")], ignore_index=True)
    assert growth.with_place(grown, two).line == ""
    # In turn by two lines, neither of which leaves it in most steps: the role is still one.
    turns = two.assign(steps=1, role="activations")
    assert growth.with_place(replace(grown, steps=3), turns).role == "activations"
