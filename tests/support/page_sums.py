"""The file js/tests/sums.json: what Python makes of rows that the page adds up itself, because a
person may select among them.

The tests of the page hold its sums against it. To write it anew: `python -m
tests.support.page_sums`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis import kernels
from nbprof.analysis.ops import ops
from nbprof.analysis.steps import steps

PAGE = Path(__file__).resolve().parents[2] / "js" / "tests" / "sums.json"
NAN = float("nan")


def page() -> str:
    """The text of the file."""
    made = {"kernels": _kernels(), "ops": _ops(), "steps": _steps()}
    lines = [f'  "{name}": {json.dumps(part, ensure_ascii=False)}' for name, part in made.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _kernels() -> dict[str, Any]:
    """Launch shapes of a few kernels, and what they come to by name and by op: all, and those that
    a filter by op leaves.
    """
    rows = pd.DataFrame(
        [
            ("gemm", "dense", 30.5, 3, 8.0, 14.5, 50.0, 1),
            ("gemm", "dense", 10.0, 1, 10.0, 10.0, NAN, 1),
            ("gemm", "dense_1", 7.25, 2, 3.0, 4.25, 25.0, 1),
            ("relu", "dense", 5.0, 4, 1.0, 2.0, 100.0, 0),
            ("copy", "", 2.0, 1, 2.0, 2.0, NAN, NAN),
            ("relu", "conv", 1.5, 3, 0.25, 0.75, 12.5, 0),
        ],
        columns=[
            "kernel",
            "op",
            "total_us",
            "occurrences",
            "min_us",
            "max_us",
            "occupancy_percent",
            "uses_tensor_core",
        ],
    )
    rows["avg_us"] = rows["total_us"] / rows["occurrences"]
    dense = rows["op"] == "dense"
    return {
        "rows": _records(rows),
        "by_name": _records(kernels.by_name(rows)),
        "by_op": _records(kernels.by_op(rows)),
        "dense": {
            "rows": np.flatnonzero(dense).tolist(),
            "by_name": _records(kernels.by_name(rows[dense])),
        },
    }


def _ops() -> dict[str, Any]:
    """Ops of both sides by type and by scope: all, and those that a filter leaves."""
    rows = pd.DataFrame(
        [
            ("device", "MatMul", "model/dense/MatMul", 4, 50.0, 50.0),
            ("device", "Conv2D", "model/conv_1/Conv2D", 3, 32.0, 30.0),
            ("device", "Conv2D", "model/conv_2/Conv2D", 1, 20.0, 20.0),
            ("host", "Dataset", "Iterator::Root::Map", 10, 150.0, 100.0),
            ("host", "Dataset", "Iterator::Root::Batch", 2, 170.0, 20.0),
            ("host", "MatMul", "MatMul", 1, 60.0, 60.0),
        ],
        columns=["where", "type", "op", "occurrences", "total_us", "self_us"],
    )
    rows["self_fraction"] = rows["self_us"] / rows.groupby("where")["self_us"].transform("sum")
    rows["cumulative_fraction"] = rows.groupby("where")["self_fraction"].cumsum()
    some = rows["op"].str.contains("conv_2|Root")
    return {
        "rows": _records(rows),
        "by_type": _records(ops.by_type(rows)),
        "by_scope": _records(ops.by_scope(rows, None)),
        "some": {
            "rows": np.flatnonzero(some).tolist(),
            "by_type": _records(ops.by_type(rows[some])),
        },
    }


def _steps() -> dict[str, Any]:
    """Steps of two hosts, of which one recorded no device, and the summary of those that count."""
    times = np.array([40.0, 10.0, 12.0, 11.0, 13.5, 12.5])
    rows = pd.DataFrame(
        {"step": [0, 1, 2, 1, 2, 3], "step_time_ms": times, "counted": [False, *[True] * 5]}
    )
    for category in CATEGORIES:
        rows[f"{category}_ms"] = np.nan
    rows["device_compute_ms"] = [30.0, 4.0, 5.0, NAN, NAN, NAN]
    rows["input_ms"] = [5.0, 3.0, 2.5, 1.0, 6.0, 0.5]
    rows["other_ms"] = rows["step_time_ms"] - rows[["device_compute_ms", "input_ms"]].sum(axis=1)
    shown = ["step", "step_time_ms", "counted", "device_compute_ms", "input_ms", "other_ms"]
    return {"rows": _records(rows[shown]), "summary": _records(steps.summary(rows))}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows; what is missing is null."""
    # pandas knows how to write what is missing.
    return json.loads(frame.to_json(orient="records", double_precision=12))


if __name__ == "__main__":
    PAGE.write_text(page())
