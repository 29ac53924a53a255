"""The analyses of Ascend's tables at their borders: which side a value that equals a limit is
on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nbprof.analysis.ascend import iterations as ascend_iterations
from nbprof.analysis.ascend import ops as ascend_ops
from nbprof.analysis.ascend import rules as ascend_rules
from nbprof.analysis.ascend import waits as ascend_waits
from nbprof.analysis.ascend.facts import Facts
from tests.analysis.test_ascend import gathered, iterations
from tests.support.ascend import run, steps, table, tasks


def ops(rows: list[tuple[Any, ...]], iterations_: Any = None, **more: Any) -> Any:
    return ascend_ops.frame(
        gathered("op_summary", table("op_summary", **tasks(rows, **more))), iterations_
    )


@pytest.mark.parametrize(("count", "warm"), [(1, 0), (2, 1), (3, 1), (4, 2), (9, 2)])
def test_iterations_that_are_warm_up(count: int, warm: int) -> None:
    assert iterations(**steps(count))["warmup"].tolist() == [True] * warm + [False] * (count - warm)


def test_half_of_the_iterations_are_no_convention() -> None:
    # Of the first no Data Aug Bound is known, so that these are four.
    half = np.array([10, 10, 10, 5, 5.0]) * 1000
    assert ascend_iterations.convention(iterations(**steps(5) | {"iteration_us": half})) == ""
    more = np.array([10, 10, 10, 10, 5.0]) * 1000
    assert (
        ascend_iterations.convention(iterations(**steps(5) | {"iteration_us": more}))
        == ascend_iterations.WHOLE
    )


def test_a_task_that_begins_as_an_iteration_ends_is_of_the_next() -> None:
    frame = iterations(**steps(3))
    # The iterations end 15, 25 and 35 ms after the begin; the last has none behind it.
    starts = [9_999.999, 10_000, 14_999.999, 15_000, 34_999.999, 35_000]
    rows = [("a", "MatMul", "AI_CORE", 1, start, 0.5) for start in starts]
    assert ops(rows, frame)["iteration"].fillna(-1).tolist() == [-1, 1, 1, 2, 3, -1]


def test_a_wait_of_ten_microseconds_is_not_long() -> None:
    rows = [
        ("a", "X", "AI_CORE", 1, 0, 5),
        ("b", "X", "AI_CORE", 1, 15, 5),
        ("c", "X", "AI_CORE", 1, 30.5, 5),
    ]
    row = ascend_waits.frame(ops(rows)).iloc[0]
    assert row[
        [
            "tasks",
            "wait_us",
            "busy_us",
            "long_waits",
            "long_wait_us",
            "longest_us",
            "longest_before",
        ]
    ].tolist() == [*(3, 20.5, 15.0, 1, 10.5, 10.5, "c")]
    assert ascend_waits.rule_share(ops(rows)) == pytest.approx(10.5 / 35.5)


def test_of_a_wait_what_lies_in_a_data_aug_bound_is_for_input() -> None:
    frame = iterations(**steps(3))
    # Data Aug Bounds are 15..20 and 25..30 ms; the stream stands still from 12 to 17 and from 18 to
    # 27.
    rows = [
        ("a", "X", "AI_CORE", 1, 11_000, 1000),
        ("b", "X", "AI_CORE", 1, 17_000, 1000),
        ("c", "X", "AI_CORE", 1, 27_000, 1000),
    ]
    row = ascend_waits.frame(ops(rows), frame).iloc[0]
    assert row["wait_us"] == pytest.approx(14_000)
    assert row["input_wait_us"] == pytest.approx(2000 + 2000 + 2000)


@pytest.mark.parametrize(
    ("share", "level"),
    [
        (0.2, "High"),
        (0.1999, "Medium"),
        (0.05, "Medium"),
        (0.0499, "Low"),
        (None, "Low"),
        (float("nan"), "Low"),
    ],
)
def test_severity_at_its_borders(share: float | None, level: str) -> None:
    assert ascend_rules.severity(share) == level


def measured(name: str, facts: Facts) -> Any:
    (rule,) = (rule for rule in ascend_rules.every() if rule.name == name)
    return rule.ask(facts)


def test_blocks_that_fill_all_cores_are_even() -> None:
    rows = [
        (str(count), "MatMul", "AI_CORE", 1, 100 * i, 10)
        for i, count in enumerate((7, 8, 9, 16, 20))
    ]
    facts = Facts(ops=ops(rows, block_num=[7, 8, 9, 16, 20]), ai_cores={("rank 0", 0): 8})
    few, uneven = measured("few_blocks", facts), measured("uneven_blocks", facts)
    assert few is not None
    assert uneven is not None
    assert (list(few.ops), few.share) == (["7"], pytest.approx(0.2))
    assert (sorted(uneven.ops), uneven.share) == (["20", "9"], pytest.approx(0.4))


@pytest.mark.parametrize(
    ("other_rows", "share"),
    [
        # 30 µs of the AI CPU, 10 of them beside the AI Core, which has 40.
        ([("a", "X", "AI_CORE", 1, 0, 40)], 20 / 60),
        # A vector core beside the AI Core: a moment counts once.
        (
            [
                ("a", "X", "AI_CORE", 1, 0, 40),
                ("c", "X", "AI_VECTOR_CORE", 3, 0, 40),
                ("d", "X", "MIX_AIC", 4, 0, 40),
            ],
            20 / 60,
        ),
        ([("a", "X", "AI_CORE", 1, 0, 40), ("c", "X", "AI_VECTOR_CORE", 3, 35, 15)], 10 / 60),
        # Communication and copies compute nothing: the AI CPU is alone beside them too.
        (
            [
                ("a", "X", "AI_CORE", 1, 0, 40),
                ("c", "hcom", "HCCL", None, 40, 20),
                ("d", "X", "MEMCPY_ASYNC", 5, 0, 90),
            ],
            20 / 60,
        ),
        ([], 1.0),
    ],
)
def test_what_the_ai_cpu_did_alone(other_rows: list[tuple[Any, ...]], share: float) -> None:
    measurement = measured(
        "aicpu_serial", Facts(ops=ops([*other_rows, ("b", "X", "AI_CPU", 2, 30, 30)]))
    )
    assert measurement is not None
    assert measurement.share == pytest.approx(share)


def test_devices_do_not_cover_each_others_ai_cpu() -> None:
    frames = [
        table("op_summary", device=device, **tasks([("a", "X", core, 1, 0, 40)]))
        for device, core in ((0, "AI_CPU"), (1, "AI_CORE"))
    ]
    both = ascend_ops.frame(gathered("op_summary", *frames))
    assert ascend_ops.ai_cpu_alone(both) == pytest.approx((40, 80))


def test_the_longest_task_of_the_ai_cpu_where_no_column_states_it() -> None:
    statistic = {
        "op_type": ["Where", "MatMul"],
        "core_type": ["AI_CPU", "AI_CORE"],
        "count": [4, 2],
        "total_us": [100.0, 300.0],
    }
    measurement = (
        run({"op_statistic": [table("op_statistic", **statistic)]})
        .ascend.rules.set_index("rule")
        .loc["ai_cpu"]
    )
    assert (measurement["state"], measurement["value"]) == ("found", 25.0)
    assert (
        measurement["evidence"]
        == "4 tasks ran on the AI CPU, 25.0% of op time; the longest took at least 25.0 µs."
    )
    empty = run(
        {"op_statistic": [table("op_statistic", **statistic | {"count": [0, 2]})]}
    ).ascend.rules
    assert not empty["evidence"].str.contains("nan", regex=False).any()
    assert not empty["fix"].str.contains("nan", regex=False).any()
