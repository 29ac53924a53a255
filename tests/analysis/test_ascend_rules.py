"""Rules and verdict of Ascend profiles: each rule is found where its cause is there, and not found,
or not known, where it is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nbprof.analysis.ascend import rules as ascend_rules
from tests.support import advice_page
from tests.support.ascend import run, steps, table, tasks

CLEAN = [("a", "MatMul", "AI_CORE", 1, 0, 100.0), ("b", "Add", "AI_VECTOR_CORE", 1, 100, 90.0), *(
    (f"c{i}", f"T{i}", "AI_CORE", 1, 190 + 90 * i, 90.0) for i in range(6)
)]  # fmt: skip
"""Tasks one behind the other, none of which takes a fifth of the time."""


def rules(**tables: list[Any]) -> Any:
    return run(tables).ascend.rules.set_index("rule")


def summary(rows: list[tuple[Any, ...]], **more: Any) -> Any:
    return table("op_summary", **tasks(rows, **more))


def state(table_of_rules: Any, rule: str) -> str:
    return str(table_of_rules.loc[rule, "state"])


def test_every_rule_is_there_once_and_says_what_it_found_or_lacks() -> None:
    every = [rule.name for rule in ascend_rules.every()]
    assert len(set(every)) == len(every) > 30
    table_of_rules = rules(step_trace=[table("step_trace", **steps())])
    assert sorted(table_of_rules.index) == sorted(every)
    assert table_of_rules["evidence"].str.endswith(".").all()
    assert (table_of_rules.loc[table_of_rules["state"] == "found", "fix"] != "").all()
    assert (table_of_rules.loc[table_of_rules["state"] != "found", "severity"] == "").all()
    assert table_of_rules.loc[table_of_rules["state"] == "found"].index[0] == "input"
    # Without tables of a profiler of Ascend there are no rules.
    assert len(run({}).ascend.rules) == 0


def test_input_and_all_reduce() -> None:
    table_of_rules = rules(step_trace=[table("step_trace", **steps())])
    assert (
        state(table_of_rules, "input"),
        table_of_rules.loc["input", "severity"],
        table_of_rules.loc["input", "share"],
    ) == (
        "found",
        "High",
        pytest.approx(0.5),
    )
    assert state(table_of_rules, "all_reduce") == "found"
    assert table_of_rules.loc["all_reduce", "value"] == pytest.approx(0.15)
    fed = rules(step_trace=[table("step_trace", **steps(data_aug=0.1, reduce=None))])
    assert (state(fed, "input"), state(fed, "all_reduce")) == ("not found", "not known")


def test_devices_beside_each_other() -> None:
    same = rules(step_trace=[table("step_trace", device=d, **steps()) for d in range(2)])
    assert (state(same, "slow_device"), state(same, "slow_input")) == ("not found", "not found")
    of_devices = rules(
        step_trace=[table("step_trace", device=d, **steps(data_aug=5.0 + 3 * d)) for d in range(2)]
    )
    assert (state(of_devices, "slow_device"), state(of_devices, "slow_input")) == ("found", "found")
    assert "device 1" in of_devices.loc["slow_device", "evidence"]
    assert of_devices.loc["input", "evidence"].startswith(
        "61.5% of an iteration on device 1 of rank 0 (8.00 of 13.00 ms)"
    )
    assert state(rules(step_trace=[table("step_trace", **steps())]), "slow_device") == "not known"


def test_a_slow_first_iteration() -> None:
    columns = steps()
    columns["fp_start_ps"] = np.array(columns["fp_start_ps"])
    columns["fp_start_ps"][0] -= 10**11
    assert state(rules(step_trace=[table("step_trace", **columns)]), "first_iteration") == "found"
    assert (
        state(rules(step_trace=[table("step_trace", **steps())]), "first_iteration") == "not found"
    )


OF_OPS = [
    ("wait", [("a", "A", "AI_CORE", 1, 0, 100.0), ("b", "B", "AI_CORE", 1, 150, 100.0)], {}),
    ("conversions", [(f"t{i}", "TransData", "AI_VECTOR_CORE", 1, i, 1.0) for i in range(3)], {}),
    ("ai_cpu", [("x", "Where", "AI_CPU", 1, 0, 30.0)], {}),
    ("ai_cpu_int64", [("x", "Where", "AI_CPU", 1, 0, 30.0)], {"input_data_types": ["INT64;FLOAT"]}),
    ("strided_slice_grad", [("x", "StridedSliceGrad", "AI_CPU", 1, 0, 30.0)], {}),
    ("get_next", [("x", "GetNext", "AI_CPU", 1, 0, 30.0)], {}),
    (
        "aicpu_serial",
        [("x", "Where", "AI_CPU", 1, 0, 30.0), ("y", "A", "AI_CORE", 1, 40, 100.0)],
        {},
    ),
    ("one_type", [("x", "Conv2D", "AI_CORE", 1, 0, 30.0)], {}),
    (
        "full_precision",
        [("x", "MatMulV2", "AI_CORE", 1, 0, 30.0)],
        {"input_data_types": ["FLOAT;FLOAT"], "hf32_eligible": ["NO"]},
    ),
    ("unaligned", [("x", "MatMulV2", "AI_CORE", 1, 0, 30.0)], {"input_shapes": ["32,100;100,256"]}),
    ("is_finite", [("x", "IsFinite", "AI_CORE", 1, 0, 1.0)], {}),
    (
        "sync_batch_norm",
        [(f"x{i}", "SyncBatchNormGather", "AI_CORE", 1, i, 1.0) for i in range(21)],
        {},
    ),
    ("dynamic", [("x", "A", "AI_CORE", 1, 0, 1.0)], {"op_state": ["dynamic"]}),
]


@pytest.mark.parametrize(("rule", "rows", "more"), OF_OPS)
def test_a_rule_of_ops_is_found_where_its_cause_is(
    rule: str, rows: list[tuple[Any, ...]], more: dict[str, Any]
) -> None:
    table_of_rules = rules(op_summary=[summary(rows, **more)])
    assert state(table_of_rules, rule) == "found", table_of_rules.loc[rule, "evidence"]
    types = {
        "input_data_types": ["FLOAT16"] * len(CLEAN),
        "input_shapes": ["32,256;256,256"] * len(CLEAN),
        "op_state": ["static"] * len(CLEAN),
    }
    assert state(rules(op_summary=[summary(CLEAN, **types)]), rule) == "not found"
    assert state(rules(api_statistic=[API]), rule) == "not known"


API = table(
    "api_statistic",
    device=None,
    level=["acl"],
    api_name=["aclrtLaunchKernel"],
    time_us=[100.0],
    count=[10],
)


OF_COUNTERS = [
    ("memory_bound", {"aic_mte2_ratio": [0.9], "aic_mac_ratio": [0.2]}),
    ("no_bound", {"aic_mte2_ratio": [0.5], "aic_mac_ratio": [0.2]}),
    ("scalar", {"aic_scalar_ratio": [0.85]}),
    ("vector_bound", {"aiv_vec_ratio": [0.6], "aiv_mte2_ratio": [0.2]}),
    ("cube_on_vector", {"vec_ratio": [0.9], "mac_ratio": [0.1]}),
    ("low_cube", {"aic_mac_ratio": [0.3]}),
    ("bank_group_conflict", {"aiv_vec_bankgroup_cflt_ratio": [0.05]}),
    ("bank_conflict", {"aiv_vec_bank_cflt_ratio": [0.05]}),
    ("affinity", {"aic_mac_ratio": [0.3], "aic_mte2_ratio": [0.5]}),
]


@pytest.mark.parametrize(("rule", "counters"), OF_COUNTERS)
def test_a_rule_of_counters_is_found_where_its_cause_is(
    rule: str, counters: dict[str, Any]
) -> None:
    row = [("x", "MatMul", "AI_CORE", 1, 0, 50.0)]
    assert state(rules(op_summary=[summary(row, **counters)]), rule) == "found"
    good = {
        "aic_mac_ratio": [0.95],
        "aic_mte2_ratio": [0.4],
        "aic_scalar_ratio": [0.1],
        "aiv_vec_ratio": [0.1],
    }
    good |= {"aiv_vec_bankgroup_cflt_ratio": [0.0], "aiv_vec_bank_cflt_ratio": [0.0]}
    assert state(rules(op_summary=[summary(row, **good)]), rule) == "not found"
    assert state(rules(op_summary=[summary(row)]), rule) == "not known"


def test_blocks_by_cores() -> None:
    result = run({"op_summary": [summary(CLEAN[:3], block_num=[30, 8, 64])]})
    assert result.ascend.rules.set_index("rule").loc["few_blocks", "state"] == "not known"
    facts = result.ascend.facts
    facts.ai_cores, facts.vector_cores = {("rank 0", 0): 32}, {("rank 0", 0): 5}
    table_of_rules = ascend_rules.frame(facts).set_index("rule")
    # 30 blocks of matrices on 32 cores; 8 of vectors on 5.
    assert table_of_rules.loc[["few_blocks", "uneven_blocks"], "state"].tolist() == [
        "found",
        "found",
    ]
    assert table_of_rules.loc[["few_blocks", "uneven_blocks"], "ops"].tolist() == ["a", "b"]


def test_the_host() -> None:
    columns = {
        "level": ["acl"] * 4,
        "api_name": [
            "aclrtSynchronizeStream",
            "aclopCompileAndExecute",
            "aclrtFree",
            "aclrtLaunchKernel",
        ],
        "time_us": [90_000.0, 100.0, 11_000.0, 5.0],
        "count": [3, 21, 5, 9],
    }
    table_of_rules = rules(api_statistic=[table("api_statistic", device=None, **columns)])
    assert table_of_rules.loc[["sync", "compile", "allocations"], "state"].tolist() == ["found"] * 3
    assert (
        rules(api_statistic=[API]).loc[["sync", "compile", "allocations"], "state"].tolist()
        == ["not found"] * 3
    )


def test_workspace() -> None:
    columns = {
        "fusion_op": ["a", "b"],
        "original_ops": ["a;c", "b"],
        "memory_workspace_bytes": [2.0**20, 0.0],
    }
    table_of_rules = rules(fusion_op=[table("fusion_op", device=None, **columns)])
    assert (state(table_of_rules, "workspace"), table_of_rules.loc["workspace", "value"]) == (
        "found",
        1.0,
    )


def iterated(*devices: dict[str, Any]) -> Any:
    return rules(
        step_trace=[
            table("step_trace", device=number, **steps(**durations))
            for number, durations in enumerate(devices)
        ]
    )


def first_takes(more_ms: int) -> Any:
    columns = steps()
    columns["fp_start_ps"] = np.array(columns["fp_start_ps"])
    columns["fp_start_ps"][0] -= more_ms * 10**9
    return rules(step_trace=[table("step_trace", **columns)])


def with_blocks(*counts: int) -> Any:
    facts = run(
        {"op_summary": [summary(CLEAN[: len(counts)], block_num=list(counts))]}
    ).ascend.facts
    facts.ai_cores = {("rank 0", 0): 8}
    return ascend_rules.frame(facts).set_index("rule")


def calling(name: str, count: int, time_us: float) -> Any:
    columns = {
        "level": ["acl"] * 2,
        "api_name": [name, "aclrtLaunchKernel"],
        "time_us": [time_us, 100.0],
        "count": [count, 9],
    }
    return rules(api_statistic=[table("api_statistic", device=None, **columns)])


def taking(workspace: float) -> Any:
    columns = {"fusion_op": ["a"], "original_ops": ["a;c"], "memory_workspace_bytes": [workspace]}
    return rules(fusion_op=[table("fusion_op", device=None, **columns)])


OF_RUNS = {
    "input": (lambda: iterated({"data_aug": 0.7}), lambda: iterated({"data_aug": 0.5})),
    "all_reduce": (lambda: iterated({"reduce": 1.1}), lambda: iterated({"reduce": 0.9})),
    "first_iteration": (lambda: first_takes(100), lambda: first_takes(0)),
    "slow_device": (
        lambda: iterated({}, {"data_aug": 5.6}),
        lambda: iterated({}, {"data_aug": 5.4}),
    ),
    "slow_input": (
        lambda: iterated({}, {"data_aug": 8.0}),
        lambda: iterated({}, {"data_aug": 7.0}),
    ),
    "sync": (
        lambda: calling("aclrtSynchronizeStream", 1, 101.0),
        lambda: calling("aclrtSynchronizeStream", 1, 100.0),
    ),
    "compile": (
        lambda: calling("aclopCompileAndExecute", 21, 1.0),
        lambda: calling("aclopCompileAndExecute", 20, 1.0),
    ),
    "allocations": (
        lambda: calling("aclrtFree", 1, 10_001.0),
        lambda: calling("aclrtFree", 1, 10_000.0),
    ),
    "workspace": (lambda: taking(1.0), lambda: taking(0.0)),
    "few_blocks": (lambda: with_blocks(7), lambda: with_blocks(8)),
    "uneven_blocks": (lambda: with_blocks(9), lambda: with_blocks(16)),
}


@pytest.mark.parametrize("rule", OF_RUNS)
def test_a_rule_of_a_run_is_found_from_its_limit_on(rule: str) -> None:
    above, below = OF_RUNS[rule]
    assert (state(above(), rule), state(below(), rule)) == ("found", "not found")


def test_every_rule_has_a_case_in_which_it_is_found_and_one_in_which_it_is_not() -> None:
    tried = [*(rule for rule, *_ in OF_OPS), *(rule for rule, _ in OF_COUNTERS), *OF_RUNS]
    assert sorted(tried) == sorted(rule.name for rule in ascend_rules.every())


def test_the_numbers_of_a_threshold_are_those_that_the_check_compares_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = advice_page.numbers_read(monkeypatch)
    for _, rows, more in OF_OPS:
        rules(op_summary=[summary(rows, **more)])
    for _, counters in OF_COUNTERS:
        rules(op_summary=[summary([("x", "MatMul", "AI_CORE", 1, 0, 50.0)], **counters)])
    for above, _ in OF_RUNS.values():
        above()
    assert read == {
        rule.name: set(rule.threshold.numbers)
        for rule in ascend_rules.every()
        if rule.threshold.numbers
    }


def test_what_msprof_itself_found() -> None:
    columns = {
        "part": ["Op Summary", "Op Parallel"],
        "rule_type": ["Computation", "Operator Parallelism"],
        "description": ["Cube use.", "Parallel."],
        "subtype": ["Cube", ""],
        "suggestion": ["Low cube computing usage", ""],
        "tuning_data": ['["op1"]', ""],
    }
    table_of_rules = run({"prof_rule": [table("prof_rule", **columns)]}).ascend.rules
    reported = table_of_rules[table_of_rules["source"] == "prof_rule"]
    assert reported["state"].tolist() == ["found", "not found"]
    assert reported["fix"].tolist() == ["Low cube computing usage", ""]
    assert reported["ops"].tolist() == ['["op1"]', ""]


@pytest.mark.parametrize(
    ("parts", "bound", "word"),
    [
        ({}, "input", "Input-bound"),
        ({"data_aug": 0.5}, "device_compute", "Device-bound"),
        (
            {"data_aug": 0.5, "refresh": 9.0, "reduce": 8.0},
            "device_collectives",
            "Communication-bound",
        ),
        ({"data_aug": 0.5, "refresh": 9.0, "reduce": None}, "", "Grad-refresh-bound"),
        (
            {"data_aug": 3.0, "compute": 1.0, "refresh": 5.2, "reduce": 3.1},
            "",
            "No single bottleneck",
        ),
    ],
)
def test_the_largest_part_is_the_verdict(parts: dict[str, Any], bound: str, word: str) -> None:
    verdict = run({"step_trace": [table("step_trace", **steps(**parts))]}).ascend.verdict
    assert (verdict["bound"], verdict["verdict"]) == (bound, word)
    assert "%" in verdict["text"]


def test_the_verdict_says_what_the_reported_time_leaves_out() -> None:
    verdict = run(
        {"step_trace": [table("step_trace", **steps(iteration_us=np.full(6, 6000.0)))]}
    ).ascend.verdict
    assert verdict["text"].startswith("50% of an iteration")
    assert "it misses 40% of the time between the ends of two iterations" in verdict["detail"]
    assert "would take 5.00 ms instead of 10.00 ms" in verdict["detail"]


def test_without_iterations_the_verdict_is_of_waits() -> None:
    idle = run(
        {
            "op_summary": [
                summary([("a", "A", "AI_CORE", 1, 0, 10.0), ("b", "B", "AI_CORE", 1, 90, 10.0)])
            ]
        }
    ).ascend.verdict
    assert (idle["verdict"], idle["text"]) == (
        "Mostly idle",
        "the device was idle for 80% of the time between its first and its last task",
    )
    busy = run({"op_summary": [summary(CLEAN)]}).ascend.verdict
    assert busy["verdict"] == "Device-bound"
    comm = run(
        {
            "op_summary": [
                summary([("a", "A", "AI_CORE", 1, 0, 10.0), ("h", "H", "HCCL", None, 10, 90.0)])
            ]
        }
    ).ascend.verdict
    assert comm["verdict"] == "Communication-bound"
    assert run({"api_statistic": [API]}).ascend.verdict["verdict"] == "Unknown"
