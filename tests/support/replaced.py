"""Puts made-up frames into a real run: only such as its schema allows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.run.run import Run
from nbprof.schema.frames import SCHEMA

_PUBLIC = {
    **{name: f"{name}.frame" for name in ("steps", "pods", "ops", "kernels", "torch_ops")},
    **{
        name: name.replace("_", ".", 1)
        for name in ("steps_summary", "pods_summary", "pods_cores", "ops_with_idle")
    },
    **{f"memory_{name}": f"memory.{name}" for name in ("timeline", "ops", "summary", "peak")},
    "kernel_devices": "kernels.devices",
    "input_ops": "input_pipeline.frame",
    "input_categories": "input_pipeline.categories",
    "torch_ops_by_shapes": "torch_ops.frame",
    "torch_modules": "torch_ops.modules",
    "programs.hlo": "hlo.frame",
    "programs.op_profile": "op_profile.frame",
    "programs.memory_modules": "memory_viewer.modules",
}
"""What the schema calls the frames of a run that have another name there."""

_SORTS = {
    **dict.fromkeys(("object", "str", "string"), "text"),
    **dict.fromkeys(("int64", "int32", "uint8", "Int64"), "whole number"),
    **dict.fromkeys(("float64", "float32", "Float64"), "number"),
    **dict.fromkeys(("bool", "boolean"), "flag"),
}


def put(run: Run, name: str, frame: pd.DataFrame) -> None:
    """Has `run.<name>` be a frame, after a look whether its columns are those of the schema and
    what they hold is of its types.

    Columns that only serve views, as `group` in the steps, have no place in the schema: the frame
    must have those of the real one.
    """
    check(name, frame, _get(run, name))
    holder = run
    *where, last = name.split(".")
    for part in where:
        holder = getattr(run, part)
    run.memo.values[holder.prefix + last] = frame


def check(name: str, frame: pd.DataFrame, real: pd.DataFrame) -> None:
    """Fails where a made-up frame has other columns than a run has, or holds another sort of values
    than the schema says or the run has.
    """
    assert list(frame.columns) == list(real.columns), (
        f"{name} has the columns {list(frame.columns)}; a run has {list(real.columns)}"
    )
    declared = _types(name, real)
    found = {column: str(dtype) for column, dtype in frame.dtypes.items()}
    wrong = {
        column: (found[column], kind)
        for column, kind in declared.items()
        if _SORTS[found[column]] not in (_SORTS[kind], _SORTS[str(real[column].dtype)])
    }
    assert not wrong, f"{name}: {wrong}"


def shaped(run: Run, name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with all columns of `run.<name>`, in their order and of their types; those that the rows
    lack are missing, or 0 and ''.
    """
    out = {}
    for column, kind in _types(name, _get(run, name)).items():
        nothing: Any = {"text": "", "number": float("nan")}.get(
            _SORTS[kind], 0 if kind in ("int64", "bool") else pd.NA
        )
        out[column] = (
            rows[column]
            if column in rows
            else pd.Series([nothing] * len(rows), rows.index).astype(kind)
        )
    return pd.DataFrame(out, index=rows.index)


def _types(name: str, real: pd.DataFrame) -> dict[str, str]:
    """The columns of a frame and their types: by the schema; by the real frame where only views
    know them.
    """
    schema = {col.name: col.dtype for col in SCHEMA.get(_PUBLIC.get(name, name), ())}
    return {
        str(column): schema.get(str(column), str(dtype)) for column, dtype in real.dtypes.items()
    }


def _get(run: Run, name: str) -> pd.DataFrame:
    out: Any = run
    for part in name.split("."):
        out = getattr(out, part)
    return out
