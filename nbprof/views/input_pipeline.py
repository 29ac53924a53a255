"""Where the input time goes: kinds of work, the tf.data graph, the input ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.views import wording
from nbprof.views.overview import by_torch, unknown
from nbprof.views.tables import floats, table

if TYPE_CHECKING:
    from nbprof.run import Run

_COLUMNS = ("op", "category", "occurrences", "total_ms", "total_percent", "self_ms", "self_percent", "us_per_call")
MOST_NODES = 400


def payload(run: Run) -> dict[str, Any]:
    """The `Input` part."""
    ops = run.input_ops
    total = float(np.nansum(floats(ops["self_ms"]))) if len(ops) else 0.0
    steps = len(run.steps)
    return {
        "empty": _empty(run) if ops.empty and run.tf_data_pipelines.empty else None,
        "total_ms": total,
        "per_step_ms": total / steps if steps and len(ops) else None,
        "categories": [_category(row) for row in run.input_categories.to_dict("records")],
        "pipelines": pipelines(run),
        "ops": table(_with_cost(ops, _TORCH_CATEGORIES if by_torch(run) else _CATEGORIES), "input_ops", _COLUMNS),
        "bottleneck": _bottleneck(run),
        "noun": "op" if by_torch(run) else "iterator",
    }


def _empty(run: Run) -> dict[str, Any]:
    framework = str(run.overview.get("framework") or "")
    if plain := unknown(run, "input", "No input ops in this run"):
        return plain
    if by_torch(run):
        return {
            "title": "No input work in this run",
            "text": "No DataLoader was asked for a batch while the profile was recorded, and nothing was copied to a device. "
            "A DataLoader works ahead in processes of its own:",
            "code": "loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)\nfor batch in loader:",
        }
    if "tensorflow" in framework.lower() or "keras" in framework.lower():
        return {
            "title": "No input ops in this run",
            "text": "The steps read no tf.data pipeline while they were recorded. A tf.data.Dataset shows each of its stages here.",
            "code": "ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(64).prefetch(tf.data.AUTOTUNE)\nmodel.fit(ds)",
        }
    return {"title": "No input ops in this run", "text": "The profile has no events of a data loader or an input pipeline."}


def _category(row: dict[Any, Any]) -> dict[str, Any]:
    advice = row.get("advice")
    return {
        "key": str(row["category"]),
        "label": str(row.get("label") or row["category"]),
        "time_ms": wording.real(row.get("time_ms")),
        "percent": wording.real(row.get("percent")),
        "advice": advice if isinstance(advice, str) else "",
    }


_CATEGORIES = {
    "preprocessing": "Preprocessing",
    "demanded_file_read": "Read on demand",
    "advanced_file_read": "Read in advance",
    "enqueue": "Enqueue",
}
_TORCH_CATEGORIES = {
    "preprocessing": "Ops on samples",
    "demanded_file_read": "In the training process",
    "advanced_file_read": "Waiting for workers",
    "enqueue": "Copy to the device",
}


def _with_cost(ops: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    if ops.empty:
        return ops
    calls = floats(ops["occurrences"])
    cost = np.divide(floats(ops["self_ms"]) * 1000, calls, out=np.full(len(ops), np.nan), where=calls > 0)
    named = ops["category"].map(lambda key: names.get(str(key), str(key)))
    return ops.assign(us_per_call=cost, category=named)


def _bottleneck(run: Run) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if by_torch(run):
        return _most(run.input_ops)
    nodes = run.tf_data_nodes
    if nodes.empty or run.input_ops.empty:
        return np.zeros(len(run.input_ops), np.uint8)
    worst = nodes[nodes["bottleneck"].fillna(False).astype(bool)]
    names = set(worst["long_name"]) | set(worst["iterator"])
    return np.asarray(run.input_ops["op"].isin(names)).astype(np.uint8)


def _most(ops: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Marks the one with the most self time, where it makes up most of the input."""
    out = np.zeros(len(ops), np.uint8)
    share = floats(ops["self_percent"]) if len(ops) else np.zeros(0)
    if len(share) and np.nanmax(share, initial=0.0) > 50:
        out[int(np.nanargmax(share))] = 1
    return out


def pipelines(run: Run) -> list[dict[str, Any]]:
    """The tf.data pipelines in the order of the frame, each with its nodes."""
    return [_pipeline(row, run.tf_data_nodes) for row in run.tf_data_pipelines.to_dict("records")]


def _pipeline(row: dict[Any, Any], nodes: pd.DataFrame) -> dict[str, Any]:
    advice = row.get("advice")
    mine = nodes[nodes["pipeline"] == row["pipeline"]] if len(nodes) else nodes
    if len(mine) and "host" in mine.columns and "host" in row:
        mine = mine[mine["host"] == row["host"]]
    return {
        "name": str(row["pipeline"]),
        "host": str(row.get("host", "")),
        "calls": int(row["calls"]),
        "slow_calls": int(row["slow_calls"]),
        "mean_us": wording.real(row["mean_us"]),
        "min_us": wording.real(row["min_us"]),
        "max_us": wording.real(row["max_us"]),
        "advice": advice if isinstance(advice, str) else "",
        "nodes": [_node(node) for node in mine.head(MOST_NODES).to_dict("records")],
    }


def _node(row: dict[Any, Any]) -> dict[str, Any]:
    parent, note = row.get("parent"), row.get("note")
    return {
        "id": str(row["id"]),
        "parent": None if parent is None or parent is pd.NA or parent != parent or parent == "" else str(parent),
        "name": str(row["iterator"]),
        "long_name": str(row["long_name"]),
        "note": note if isinstance(note, str) else "",
        "total_ms": wording.real(row["total_ms"]) or 0.0,
        "self_ms": wording.real(row["self_ms"]) or 0.0,
        "calls": int(row["calls"]),
        "critical": bool(row["critical"]),
        "bottleneck": bool(row["bottleneck"]),
    }
