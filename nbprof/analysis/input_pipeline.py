"""Where the host spends its time on input: the host side of TensorFlow Profiler's input pipeline analyzer, and its twin for PyTorch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import Activity

_FILES = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "ArrayRecord")
# The kind, in `Activity.calls`, of a call that copies to a device.
COPY_TO_DEVICE = "copy H2D"
_AHEAD = ("::MemoryReader", "::MemoryWriter", "::Interleave", "::Prefetch", "::ParallelMap")

# category key: (what the screen calls it, what helps)
CATEGORIES: dict[str, tuple[str, str]] = {
    "preprocessing": (
        "Data preprocessing",
        "map in parallel with num_parallel_calls=tf.data.AUTOTUNE, or preprocess offline",
    ),
    "demanded_file_read": ("Reading files on demand", "read ahead: prefetch, interleave, a larger reader buffer"),
    "advanced_file_read": (
        "Reading files in advance",
        "tune the prefetch size, the interleave cycle_length, the reader buffer",
    ),
    "enqueue": ("Enqueuing data", "combine small chunks into fewer large ones"),
    "other": ("Other reading or processing", "use tf.data for what is read outside of it"),
}

# The same kinds of work as PyTorch's DataLoader does them.
TORCH_CATEGORIES: dict[str, tuple[str, str]] = {
    "demanded_file_read": (
        "Loading in the training process",
        "load in worker processes: DataLoader(..., num_workers=4, persistent_workers=True)",
    ),
    "preprocessing": (
        "Ops on samples in the training process",
        "transform and collate in worker processes (num_workers), or on the device",
    ),
    "advanced_file_read": (
        "Waiting for the worker processes",
        "more num_workers, a larger prefetch_factor, persistent_workers=True; cheaper transforms",
    ),
    "enqueue": (
        "Copying to the device",
        "DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)",
    ),
    "other": ("Other reading or processing", "iterate over a torch.utils.data.DataLoader, which works ahead"),
}


def category(op: str, kind: str) -> str:
    """The input category of one host op; '' when it is no input op."""
    if kind.startswith("InfeedEnqueue") or op.upper().startswith("MEMCPYHTOD"):
        return "enqueue"
    if kind != "Dataset":
        return ""
    if op.rpartition("::")[2] in _FILES:
        return "advanced_file_read" if any(part in op for part in _AHEAD) else "demanded_file_read"
    return "preprocessing"


def ops(activity: Activity, rows: pd.DataFrame) -> pd.DataFrame:
    """One row an input op, self time descending: the columns of `p.input_pipeline.frame`.

    `rows` are the host ops with their self time, from `nbprof.analysis.ops.host_self_times`. Of PyTorch the batches that the loop asked a
    DataLoader for, the ops inside, and the calls that copy to the device.
    """
    if activity.framework == "PyTorch":
        return _shares(_torch_ops(activity, rows))
    grouped = rows.assign(total=rows["end"] - rows["start"]).groupby("op", sort=False)
    out = grouped.agg(type=("type", "first"), occurrences=("total", "size"), total=("total", "sum"), own=("own", "sum")).reset_index()
    names, types = activity.ops.values, activity.types.values
    op = [str(names[c]) for c in out["op"]]
    kind = [str(types[c]) for c in out["type"]]
    found = [category(o, k) for o, k in zip(op, kind, strict=True)]
    table = pd.DataFrame(
        {
            "op": op,
            "category": found,
            "occurrences": out["occurrences"].astype("i8"),
            "total_ms": out["total"] / 1e9,
            "self_ms": out["own"] / 1e9,
        }
    )
    return _shares(table[table["category"] != ""])


def _torch_ops(activity: Activity, rows: pd.DataFrame) -> pd.DataFrame:
    inside = rows[rows["dataset"]]
    grouped = inside.assign(total=inside["end"] - inside["start"]).groupby("op", sort=False)
    out = grouped.agg(type=("type", "first"), occurrences=("total", "size"), total=("total", "sum"), own=("own", "sum")).reset_index()
    names, types = activity.ops.values, activity.types.values
    op = [str(names[c]) for c in out["op"]]
    kind = [_torch_category(o, str(types[c])) for o, c in zip(op, out["type"], strict=True)]
    calls = activity.calls
    texts = activity.texts.values
    copies = calls[np.isin(calls["kind"], [code for code, text in enumerate(texts) if text == COPY_TO_DEVICE])]
    by_call = (
        copies.assign(total=copies["end"] - copies["start"]).groupby("name", sort=False).agg(n=("event", "nunique"), t=("total", "sum"))
    )
    return pd.DataFrame(
        {
            "op": [*op, *(f"{texts[c]} (host to device)" for c in by_call.index)],
            "category": [*kind, *["enqueue"] * len(by_call)],
            "occurrences": np.concatenate([out["occurrences"], by_call["n"]]).astype("i8"),
            "total_ms": np.concatenate([out["total"], by_call["t"]]).astype("f8") / 1e9,
            "self_ms": np.concatenate([out["own"], by_call["t"]]).astype("f8") / 1e9,
        }
    )


def _torch_category(op: str, kind: str) -> str:
    if kind != "DataLoader":
        return "preprocessing"
    return "advanced_file_read" if "MultiProcessing" in op else "demanded_file_read"


def _shares(table: pd.DataFrame) -> pd.DataFrame:
    # Shares are of the self time of all input ops, so total shares of nested iterators add up to more than 100.
    whole = float(table["self_ms"].sum()) or np.nan
    table = table.assign(total_percent=100 * table["total_ms"] / whole, self_percent=100 * table["self_ms"] / whole)
    columns = ["op", "category", "occurrences", "total_ms", "total_percent", "self_ms", "self_percent"]
    return table.sort_values(["self_ms", "op"], ascending=[False, True], kind="stable", ignore_index=True)[columns]


def categories(table: pd.DataFrame, framework: str = "") -> pd.DataFrame:
    """The five kinds of input work with their time and what helps; the columns of `p.input_pipeline.categories`."""
    time = table.groupby("category")["self_ms"].sum()
    whole = float(time.sum())
    rows = []
    for key, (label, advice) in (TORCH_CATEGORIES if framework == "PyTorch" else CATEGORIES).items():
        value = float(time.get(key, 0.0))
        rows.append(
            {
                "category": key,
                "label": label,
                "time_ms": value,
                "percent": 100 * value / whole if whole else np.nan,
                "advice": advice if value > 0 else "",
            }
        )
    out = pd.DataFrame(rows)
    return out.sort_values("time_ms", ascending=False, kind="stable", ignore_index=True)
