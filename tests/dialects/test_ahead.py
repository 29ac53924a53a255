"""Marked steps of JAX on the CPU that only dispatch: each lasts until its programs have run."""

from __future__ import annotations

import pytest

from tests.dialects.test_program_steps import Cpu
from tests.support.build import profile
from tests.support.xspace import MS

COUNT = 4


def loop(
    mark_ms=1.0, run_ms=10.0, every_ms=1.0, *, nested=True, wait=False, idle=-1, function="update"
):
    """Marks of so many ms each; runs of the step's program one behind the other, or each in its
    mark.
    """
    host, ran = Cpu(), 0.0
    for i in range(COUNT):
        at = i * every_ms
        host.calls.append(
            host.plane.event("train", int(at * MS), int(mark_ms * MS), _r=1, step_num=i + 1)
        )
        if i == idle:
            continue
        host.calls.append(
            host.plane.event(f"PjitFunction({function})", int((at + 0.1) * MS), int(0.4 * MS))
        )
        if nested:
            host.calls.append(
                host.plane.event(f"PjitFunction({function})", int((at + 0.2) * MS), int(0.1 * MS))
            )
        ran = max(ran, at + 0.5)
        host.ran(f"jit_{function.replace('<', '_').replace('>', '')}", ran, ran + run_ms)
        ran += run_ms
        assert not wait or ran <= at + mark_ms
    return host


def times(p):
    return p.steps.frame[["name", "start_ms", "step_time_ms"]].to_numpy().tolist()


@pytest.mark.parametrize(
    ("nested", "function"), [(True, "update"), (False, "update"), (True, "<lambda>")]
)
def test_a_step_that_is_dispatched_ahead_lasts_until_its_program_has_run(
    tmp_path, nested, function
):
    p = profile(tmp_path, loop(nested=nested, function=function).data())
    # The first from its mark to the end of its run, the others from there for as long as theirs.
    assert times(p) == [
        ["train 1", 0, 10.5],
        ["train 2", 10.5, 10],
        ["train 3", 20.5, 10],
        ["train 4", 30.5, 10],
    ]
    assert p.steps.frame["host_compute_ms"].tolist() == pytest.approx([10.4, 10, 10, 10])
    assert p.steps.frame["counted"].all(), "the begin of the first is marked"
    assert "steps_dispatched_ahead" in set(p.receipt.notes["key"])
    assert p.steps.as_xprof()["step_time_ms"].tolist() == [1.0] * COUNT, "XProf has the marks"


def test_what_is_between_a_run_and_the_next_mark_is_in_no_step(tmp_path):
    host = loop(every_ms=15.0)
    host.calls.append(host.plane.event("save", 12 * MS, 2 * MS))
    p = profile(tmp_path, host.data())
    assert times(p) == [[f"train {i + 1}", 15.0 * i, 10.5] for i in range(COUNT)]
    assert p.steps.frame["host_compute_ms"].tolist() == pytest.approx([10.4] * COUNT)


def test_steps_that_wait_for_their_program_are_as_marked(tmp_path):
    p = profile(tmp_path, loop(mark_ms=12.0, every_ms=12.0, wait=True).data())
    assert times(p) == [[f"train {i + 1}", 12.0 * i, 12] for i in range(COUNT)]
    assert "steps_dispatched_ahead" not in set(p.receipt.notes["key"])


def test_marks_stay_where_calls_and_runs_are_not_as_many(tmp_path):
    host = loop()
    host.ran("jit_update", 50, 60)
    p = profile(tmp_path, host.data())
    assert [time for _, _, time in times(p)] == [1.0] * COUNT


def test_marks_stay_where_a_step_dispatched_nothing(tmp_path):
    p = profile(tmp_path, loop(idle=1).data())
    assert [time for _, _, time in times(p)] == [1.0] * COUNT


def test_what_a_marked_step_compiles_is_compilation_of_that_step(tmp_path):
    """Whatever the function is called; what is compiled behind the loop, while its runs go on, is
    of no step.
    """
    host = Cpu()
    for i in range(COUNT):
        at = i * 20
        host.calls.append(host.plane.event("train", at * MS, 12 * MS, _r=1, step_num=i + 1))
        host.calls.append(host.plane.event("PjitFunction(<lambda>)", at * MS, 11 * MS))
        host.calls.append(host.plane.event("backend_compile", (at + 1) * MS, 9 * MS))
        host.ran("jit__lambda", at + 11, at + 18)
    host.calls.append(host.plane.event("PjitFunction(summed)", 74 * MS, 3 * MS))
    host.calls.append(host.plane.event("backend_compile", 74 * MS, 3 * MS))
    p = profile(tmp_path, host.data())
    assert [time for _, _, time in times(p)] == [18.0] * COUNT
    assert p.steps.frame["compile_ms"].tolist() == pytest.approx([9.0] * COUNT)
