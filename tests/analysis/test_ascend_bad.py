"""Tables of Ascend that lack columns, or hold what cannot be: every frame and the tab are made all
the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbprof
from nbprof.analysis.ascend import ops as ascend_ops
from nbprof.display import codec
from nbprof.tools.ascend import payload as ascend
from tests.support import msprof
from tests.support.ascend import run, steps, table, tasks
from tests.support.frames import below, of_run

_ROWS = [
    ("a", "A", "AI_CORE", 1, 0, 10.0),
    ("b", "B", "AI_CPU", 2, 5, 3.0),
    ("h", "H", "HCCL", None, 9, 4.0),
]
_TABLES: dict[str, dict[str, Any]] = {
    "step_trace": steps(5),
    "op_summary": tasks(
        _ROWS,
        aic_mac_ratio=[0.1, 0.2, 0.3],
        block_num=[1, 2, None],
        input_shapes=["1,2;2,3", "", None],
    ),
    "op_statistic": {
        "op_type": ["A"],
        "core_type": ["AI_CORE"],
        "count": [1],
        "total_us": [1.0],
        "min_us": [1.0],
        "max_us": [1.0],
    },
    "fusion_op": {"fusion_op": ["x"], "original_ops": ["x;y"], "memory_workspace_bytes": [2.0]},
    "api_statistic": {"level": ["acl"], "api_name": ["a"], "time_us": [1.0], "count": [1]},
    "l2_cache": {"stream_id": [1], "task_id": [0], "hit_rate": [0.5]},
    "prof_rule": {"part": ["Op"], "suggestion": ["x"]},
}


def damaged(rng: np.random.Generator) -> dict[str, list[Any]]:
    """Some of the tables, with some of their columns, a few of which are empty, of texts, negative
    or beyond all bounds.
    """
    tables = {}
    for kind, columns in _TABLES.items():
        count = len(next(iter(columns.values())))
        columns_left = {name: values for name, values in columns.items() if rng.random() < 0.75}
        for name in columns_left:
            is_integer = name.endswith(("_ps", "_id", "num", "count"))
            wrong = [
                None,
                -5 if is_integer else float("inf"),
                2**62 if name.endswith("_ps") else None if is_integer else "text",
            ]
            if (choice := rng.integers(0, 12)) < len(wrong):
                columns_left[name] = [wrong[choice]] * count
        if columns_left and rng.random() < 0.8:
            tables[kind] = [table(kind, device=None if rng.random() < 0.3 else 0, **columns_left)]
    return tables


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_tables_make_frames_of_their_schema(seed: int) -> None:
    result = run(damaged(np.random.default_rng(seed)))
    for name, columns in below("ascend.").items():
        frame = getattr(result.ascend, of_run(name))
        assert [str(t) for t in frame.dtypes] == [col.dtype for col in columns], name
    assert codec.unpack(codec.pack(ascend.payload(result)))["verdict"]["word"]
    assert isinstance(result.ascend.notes, list)


def test_tables_of_other_devices_do_not_contradict_each_other() -> None:
    result = run(
        {
            "op_summary": [table("op_summary", device=1, **tasks(_ROWS))],
            "op_statistic": [table("op_statistic", **_TABLES["op_statistic"])],
        }
    )
    assert result.ascend.notes == []
    assert result.ascend.op_types["source"].tolist() == ["op_statistic", "op_summary", "op_summary"]
    assert ascend_ops.disagreement(result.ascend.ops, result.ascend.tables["op_statistic"]) == ""


def test_no_file_at_all_and_files_without_rows() -> None:
    empty = table("op_summary", **{name: values[:0] for name, values in tasks(_ROWS).items()})
    for result in (run({}), run({"op_summary": [empty]})):
        assert result.ascend.kinds == []
        assert not ascend.has(result)
        assert ascend.payload(result)["empty"]["title"] == "No tables from Ascend's profiler"


def _later(event: dict[str, Any]) -> None:
    for marks in (event, event.get("args", {})):
        for name in ("ts", "FP Start", "BP End", "Iteration End"):
            if name in marks:
                marks[name] += 1.7e15


@pytest.mark.parametrize(
    ("change", "steps_", "message"),
    [
        (lambda event: event.update(ts=10**17) if "ts" in event else None, 3, ""),
        (
            lambda event: (
                event["args"].update({"FP Start": 10**17}) if "FP Start" in event["args"] else None
            ),
            3,
            "",
        ),
        (_later, 0, "none of its iterations ends near the timeline"),
    ],
    ids=["begins", "marks", "clock"],
)
def test_iterations_of_another_clock_are_told_and_left_out(
    tmp_path: Path, change: Any, steps_: int, message: str
) -> None:
    folder = tmp_path / "PROF_1_20250109094754000_A"
    msprof.older(folder, *msprof.training(3))
    (file,) = folder.rglob("step_trace_*.json")
    events = json.loads(file.read_text())
    for event in events:
        change(event)
    file.write_text(json.dumps(events))
    p = nbprof.load(folder)
    assert (len(p.steps.frame) if p.overview["unit"]["kind"] == "step" else 0) == steps_
    assert message in str(p.receipt)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "²"),
        ("id", "9" * 30),
        ("aic_frequency", "9" * 30),
        ("ai_core_num", "x"),
        ("id", None),
    ],
)
def test_facts_that_are_no_numbers_are_unknown(tmp_path: Path, key: str, value: object) -> None:
    folder = tmp_path / "PROF_1_20250109094754000_A"
    msprof.older(folder, *msprof.training(3))
    (file,) = folder.rglob("info.json.*")
    facts = json.loads(file.read_text())
    facts["DeviceInfo"][0][key] = value
    file.write_text(json.dumps(facts))
    p = nbprof.load(folder)
    assert len(p.steps.frame) == 3
    assert p.kernels.devices["device"].tolist() == [0]
    device = p.run.activity.devices.iloc[0]
    unknown = {
        "id": ["cores", "clock_khz"],
        "aic_frequency": ["clock_khz"],
        "ai_core_num": ["cores"],
    }[key]
    assert device[unknown].isna().all()
