"""Fused ops and host API calls, as summarized by msprof."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend.ascend import floats, integers, nullable, quotients, texts
from nbprof.schema import frames

_SEPARATORS = re.compile(r"[;,]")
FUSION = frames.names("ascend.fusion.frame")
API = frames.names("ascend.api.frame")


def fusion(table: pd.DataFrame, ops: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per op of the compiled graph with the ops that it was made of; the columns of
    `SCHEMA["ascend.fusion.frame"]`.

    Parameters
    ----------
    table : DataFrame
        The tables `fusion_op`, gathered.
    ops : DataFrame, optional
        Of `ascend_ops.frame`: the tasks of each op, by its name.
    """
    originals = [_names(text) for text in texts(table, "original_ops").tolist()]
    name = texts(table, "fusion_op")
    result = pd.DataFrame(
        {
            "host": table["host"],
            "device": nullable(table["device"].to_numpy(np.int64)),
            "model": nullable(integers(table, "model_id")),
            "fused_op": name,
            "original_ops": [", ".join(names) for names in originals],
            "originals": np.array([len(names) for names in originals], np.int64),
            **_ran(table["host"].to_numpy(object), name, ops),
        }
    )
    for key in FUSION:
        if key.endswith("_bytes"):
            result[key] = pd.array(np.round(floats(table, key)), dtype="Float64").astype("Int64")
    order = ["originals", "memory_total_bytes", "fused_op"]
    return result[FUSION].sort_values(
        order, ascending=[False, False, True], kind="stable", ignore_index=True
    )


def _names(text: str) -> list[str]:
    """Names of ops, separated by commas or semicolons."""
    names = [name.strip() for name in _SEPARATORS.split(text)]
    return [name for name in names if name]


def _ran(host: Any, name: Any, ops: pd.DataFrame | None) -> dict[str, Any]:
    """Tasks and time of each op; missing if no task has its name."""
    if ops is None or not len(ops):
        return {
            "tasks": pd.array([pd.NA] * len(name), dtype="Int64"),
            "total_us": np.full(len(name), np.nan),
        }
    sums = ops.groupby(["host", "op"])["duration_us"].agg(["size", "sum"])
    by_op = sums.reindex(pd.MultiIndex.from_arrays([host, name]))
    return {
        "tasks": pd.array(by_op["size"].to_numpy(), dtype="Int64"),
        "total_us": by_op["sum"].to_numpy(np.float64),
    }


def fused_away(frame: pd.DataFrame) -> tuple[int, int]:
    """Number of listed ops of the graph before and after fusion."""
    return int(np.maximum(frame["originals"].to_numpy(np.int64), 1).sum()), len(frame)


def api(table: pd.DataFrame) -> pd.DataFrame:
    """One row per API of the host at a level, most time first; the columns of
    `SCHEMA["ascend.api.frame"]`.
    """
    total, count = floats(table, "time_us"), integers(table, "count", 0)
    variance = floats(table, "variance")
    calls = pd.DataFrame(
        {
            "host": table["host"],
            "device": nullable(table["device"].to_numpy(np.int64)),
            "level": texts(table, "level"),
            "api": texts(table, "api_name"),
            "count": count,
            "total_us": total,
            "avg_us": quotients(total, count),
            "min_us": floats(table, "min_us"),
            "max_us": floats(table, "max_us"),
            "sd_us": np.sqrt(np.where(variance >= 0, variance, np.nan)),
        }
    )
    # Levels are nested: a share is of the level.
    level_us = calls.groupby(["host", "level"])["total_us"].transform("sum").to_numpy(np.float64)
    calls["fraction"] = quotients(total, level_us)
    return calls[API].sort_values(
        ["total_us", "api"], ascending=[False, True], kind="stable", ignore_index=True
    )
