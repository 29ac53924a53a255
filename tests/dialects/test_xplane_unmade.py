"""Steps on the CPU that wait for input before a thread of tf.data asks for it."""

from __future__ import annotations

import pytest

import nbprof
from tests.support.xspace import MS, PlaneWriter, xspace

STEP = 10 * MS
OF_GENERATOR = "PyFunc:PyFunc"


def parts(tmp_path, *, resource=(), ahead=(), compute=(), asks=(6, 1)):
    """Three steps of 10 ms whose call of a function takes the first 8; input, host compute and
    other of the middle one.

    `resource`, `ahead` and `compute` are (name, begin in ms, ms) of events in each step: on a
    thread of tf.data's for its own batch and for one of no step, and on a thread of the executor.
    `asks` is when the batch is asked for.
    """
    host = PlaneWriter("/host:CPU")
    lines = {
        name: []
        for name in (
            "python",
            "tf_Compute",
            "tf_data_iterator_get_next",
            "tf_data_iterator_resource",
            "tf_data_pool",
        )
    }
    called = [("TFE_Py_ExecuteCancelable", 0, 8), ("KernelAndDeviceFunc::Run", 0, 5)]
    asked = [("IteratorGetNextOp::DoCompute", *asks)]
    for i in range(3):
        lines["python"].append(host.event("train", i * STEP, STEP, step_num=i, group_id=i + 1))
        for line, events in zip(
            lines.values(), (called, compute, asked, resource, ahead), strict=True
        ):
            group = {"group_id": i + 1} if events is not ahead else {}
            line += [
                host.event(name, i * STEP + int(at * MS), int(ms * MS), **group)
                for name, at, ms in events
            ]
    for number, (name, events) in enumerate(lines.items()):
        host.line(name, events, line_id=number + 1)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(xspace(host))
    return (
        nbprof.load(path).steps.frame[["input_ms", "host_compute_ms", "other_ms"]].iloc[1].tolist()
    )


def test_a_step_without_a_pipeline_at_work_waits_for_what_it_asks(tmp_path) -> None:
    assert parts(tmp_path) == [1, 7, 2]


def test_a_step_waits_while_its_batch_is_made_though_nobody_asks_yet(tmp_path) -> None:
    assert parts(tmp_path, resource=[("Iterator::Root::Prefetch::FlatMap", 1, 5.5)]) == [6, 2, 2]


def test_a_batch_that_is_made_while_the_program_is_elsewhere_holds_up_nothing(tmp_path) -> None:
    # A callback after the call; what is made meanwhile is work of the host as ever.
    assert parts(tmp_path, resource=[("Iterator::Root::Prefetch::FlatMap", 8, 2)]) == [1, 9, 0]


@pytest.mark.parametrize(
    "op",
    ["dense/MatMul:MatMul", "loss/PyFunc:PyFunc", "ThunkExecutor::Execute (wait for completion)"],
)
def test_a_step_that_runs_an_op_does_not_wait(tmp_path, op) -> None:
    made = [("Iterator::Root::Prefetch::FlatMap", 1, 5)]
    assert parts(tmp_path, resource=made, compute=[(op, 2, 2)]) == [4, 4, 2]


@pytest.mark.parametrize(
    ("work", "held"),
    [(OF_GENERATOR, 3), ("map/EagerPyFunc:EagerPyFunc", 3), ("map/DecodeJpeg:DecodeJpeg", 0)],
)
def test_a_call_waits_for_the_python_of_a_pipeline_before_it_returns(tmp_path, work, held) -> None:
    # It makes a batch of no recorded step. The call has done its work at 5 ms, and returns at 8 ms.
    assert parts(tmp_path, ahead=[(work, 4, 5)], asks=(1, 1)) == [1 + held, 7 - held, 2]


def test_python_of_the_program_is_not_held_up_by_a_pipeline_that_no_call_waits_for(
    tmp_path,
) -> None:
    assert parts(tmp_path, ahead=[(OF_GENERATOR, 8, 2)], asks=(1, 1)) == [1, 7, 2]


def test_xprof_knows_no_such_wait(tmp_path) -> None:
    parts(tmp_path, resource=[("Iterator::Root::Prefetch::FlatMap", 1, 5.5)])
    assert nbprof.load(tmp_path / "a.xplane.pb").steps.as_xprof()["input_ms"].iloc[1] == 1
