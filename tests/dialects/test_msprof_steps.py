"""Steps of Ascend profiles at their borders: the first iteration, the last numbered step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from nbprof.core.trace import Events
from nbprof.dialects.msprof import steps as msprof_steps


def trace_of(tables: dict[str, Any], start: list[int], length: list[int]) -> Any:
    count = len(start)
    events = Events(
        np.zeros(count, np.int32), np.zeros(count, np.int32), np.array(start), np.array(length)
    )
    return SimpleNamespace(hosts=["a"], events=events, names=np.array(["x"], object), tables=tables)


class Listed(SimpleNamespace):
    """A table with its rows."""

    def __len__(self) -> int:
        return len(self.frame)


def test_numbered_steps_last_until_the_next_and_the_last_one_until_its_end() -> None:
    frame = pd.DataFrame(
        {"step_id": pd.array([7, 7, 8, 8, None, 9], "Int64"), "event": [0, 1, 2, 3, 4, 5]}
    )
    trace = trace_of(
        {"op_summary": [Listed(host=0, frame=frame)]},
        [10, 20, 50, 40, 90, 70],
        [5, 5, 9, 5, 99, 30],
    )
    steps = msprof_steps._numbered(trace, 0)
    assert steps is not None
    assert steps.names == ["step 7", "step 8", "step 9"]
    assert (steps.start.tolist(), steps.end.tolist()) == ([10, 40, 70], [40, 70, 100])
    # The first event of each stands for it.
    assert steps.event.tolist() == [0, 3, 5]
    assert msprof_steps._numbered(trace, 1) is None


def test_the_wait_for_the_input_of_the_first_iteration_is_not_known() -> None:
    frame = pd.DataFrame(
        {
            "event": [0, 1, 2],
            "iteration_id": [1, 2, 3],
            "iteration_start_ps": [5, 35, 65],
            "fp_start_ps": [10, 40, 60],
            "iteration_end_ps": [30, 60, 90],
        }
    ).astype("Int64")
    trace = trace_of({"step_trace": [Listed(host=0, frame=frame)]}, [5, 30, 60], [25, 30, 30])
    steps: Any = SimpleNamespace(host=np.zeros(3, np.int64))
    event, host, start, end = msprof_steps.gaps(trace, steps)
    # The third begins with its forward pass: it did not wait.
    assert (event.tolist(), host.tolist(), start.tolist(), end.tolist()) == ([1], [0], [30], [40])
