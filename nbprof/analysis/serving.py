"""Iterations of an inference engine: how long each took, what of the model it was spent on, and
what its requests got for it.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.figures import percent, ratio
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import ends_before, index_by_group, union_by_group
from nbprof.core.trace import Trace
from nbprof.schema import frames
from nbprof.schema.serving import PARTS

Floats = npt.NDArray[np.float64]

COUNTS = ("requests", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
KINDS = ("prefill", "mixed", "decode", "idle")

# The first that fits wins: kernels of a library of attention may sample, and products of experts
# are products.
_PARTS = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        (
            "sampling",
            r"(?<!up)(?<!down)sampl|top_?p_|min_p|argmax|multinomial|exponential|gumbel|penalt",
        ),
        (
            "moe",
            (
                r"moe|expert|topk_?(?:gating|softmax|forward)|grouped_?(?:gemm|mm)|router|routing"
                r"|bitmatrix|matmul_(?:ogs|scatter)"
            ),
        ),
        (
            "attention",
            (
                r"attn|attention|(?<![a-z])(?:flash(?:::|_fwd|_bwd)|mha|mla|rope)|fmha|paged|rotary"
                r"|_and_cache|kv_?(?:cache|buffer)|batch_?(?:decode|prefill)"
            ),
        ),
        ("norm", r"norm(?!al)"),
        (
            "gemm",
            (
                r"gemm|gemv|nvjet|matmul|cijk_|xmma|marlin|machete|scaled_mm|splitk"
                r"|::(?:mm|bmm|addmm|baddbmm|linear)\Z|cutlass"
            ),
        ),
    )
)


def part_of(kernel: str, op: str = "", *, product: bool = False) -> str:
    """The part of the model that a kernel belongs to, by its name, else by that of the op that
    launched it.

    Parameters
    ----------
    kernel, op : str
    product : bool
        Whether it is known to compute products of matrices.
    """
    for name in (kernel.lower(), op.lower()):
        if not name:
            continue
        for part, pattern in _PARTS:
            if pattern.search(name):
                return part
    return "gemm" if product else "other"


def frame(activity: Activity, trace: Trace) -> pd.DataFrame:
    """One row per iteration, host by host, in time order: the columns of `p.serving.frame`."""
    iterations = activity.engine_iterations.frame()
    if not len(iterations):
        return frames.empty("serving.frame")
    work = _work(activity, trace, iterations)
    used = work[work["row"] >= 0]
    row, duration = used["row"].to_numpy(np.int64), (used["end"] - used["start"]).to_numpy(np.int64)
    count = len(iterations)
    figures: dict[str, object] = {}
    for part in PARTS:
        part_rows = used["part"].to_numpy(object) == part
        total = (
            np.bincount(row[part_rows], duration[part_rows].astype(np.float64), minlength=count)
            / 1e9
        )
        figures[f"{part}_ms"] = total if len(work) else np.full(count, np.nan)
    length = (iterations["end"] - iterations["start"]).to_numpy(np.int64)
    time = np.where(length > 0, length / 1e9, np.nan)
    counts = {key: iterations[key].astype("Int64").mask(iterations[key] < 0) for key in COUNTS}
    # A sequence that decodes gets the token that was computed for it; of several that were drafted
    # some may be rejected.
    single = (
        (iterations["decode_tokens"] == iterations["decode_requests"])
        & (iterations["decode_requests"] > 0)
    ).to_numpy(np.bool_)
    texts = np.array([*activity.texts.codes, None], object)
    pairs = zip(iterations["host"].tolist(), iterations["group"].tolist(), strict=True)
    frame = pd.DataFrame(
        {
            "host": np.array(activity.hosts, object)[iterations["host"]],
            "step": iterations["group"].to_numpy(np.int64),
            "kind": texts[iterations["kind"]],
            "name": texts[iterations["name"]],
            **counts,
            "start_ms": iterations["start"].to_numpy(np.int64) / 1e9,
            "time_ms": time,
            "token_ms": np.where(single, time, np.nan),
            "gap_ms": _gaps(iterations, used),
            "busy_ms": _busy(used, count) if len(work) else np.full(count, np.nan),
            **figures,
            "cut": [pair in activity.incomplete for pair in pairs],
        }
    )
    return frame[frames.names("serving.frame")].astype(frames.dtypes("serving.frame"))


def _work(activity: Activity, trace: Trace, iterations: pd.DataFrame) -> pd.DataFrame:
    """All device work: `row` of the iteration that launched it (-1: none), `host device start end`
    and the `part` of the model.
    """
    kernels, transfers = activity.kernels.frame(), activity.transfers.frame()
    texts, ops = activity.kernel_names.values, activity.ops.values
    kernel, op, product = (kernels[key].to_numpy(np.int64) for key in ("kernel", "op", "eligible"))
    first, group = unique_rows(kernel, op, product)
    each = [
        part_of(str(texts[kernel[i]]), str(ops[op[i]]), product=product[i] == 1)
        for i in first.tolist()
    ]
    part = np.array(each, object)[group]
    part[kernels["event"].isin(activity.collectives.event).to_numpy(np.bool_)] = "communication"
    event = np.concatenate([kernels["event"], transfers["event"]]).astype(np.int64)
    table = pd.DataFrame(
        {
            "event": event,
            "host": np.concatenate([kernels["host"], transfers["host"]]).astype(np.int64),
            "device": np.concatenate([kernels["device"], transfers["device"]]).astype(np.int64),
            "start": trace.events.start[event],
            "end": trace.events.end[event],
            "part": np.concatenate([part, np.full(len(transfers), "copies", object)]),
        }
    )
    table = table[~table["event"].isin(activity.backlog.event)].reset_index(drop=True)
    launched = (
        activity.launches.take(activity.launches.target >= 0)
        .frame()
        .drop_duplicates("target")
        .set_index("target")["event"]
    )
    call = launched.reindex(table["event"]).to_numpy(np.float64)
    has_call = ~np.isnan(call)
    moment = table["start"].to_numpy(np.int64).copy()
    moment[has_call] = trace.events.start[call[has_call].astype(np.int64)]
    host, begun, done = (iterations[key].to_numpy(np.int64) for key in ("host", "begun", "done"))
    return table.assign(
        row=index_by_group((begun, done), host, moment, table["host"].to_numpy(np.int64))
    )


def _gaps(iterations: pd.DataFrame, used: pd.DataFrame) -> Floats:
    """Time from the end of all work of the iterations before to the begin of the first work of
    each, ms; NaN where there is none.
    """
    gaps = np.full(len(iterations), np.nan)
    spans = used.groupby("row").agg(
        host=("host", "first"), start=("start", "min"), end=("end", "max")
    )
    for _, host_spans in spans.groupby("host"):
        rows = host_spans.index.to_numpy(np.int64)
        start, reach = (
            host_spans["start"].to_numpy(np.int64),
            ends_before(host_spans["end"].to_numpy(np.int64)),
        )
        gaps[rows[1:]] = np.maximum(start[1:] - reach[1:], 0) / 1e9
    return gaps


def _busy(used: pd.DataFrame, count: int) -> Floats:
    """Time in which a device ran work of each iteration, ms, as a mean of the devices of the
    host.
    """
    devices = used.groupby("host")["device"].transform("nunique").to_numpy(np.float64)
    row, device, start, end = (
        used[key].to_numpy(np.int64) for key in ("row", "device", "start", "end")
    )
    first, pair = unique_rows(row, device)
    # Only lengths are added up, so it does not matter whether touching work is merged.
    busy = union_by_group(pair, start, end, merge_touching=False)
    length = (busy.end - busy.start) / 1e9 / devices[first][busy.group]
    return np.bincount(row[first][busy.group], length, minlength=count).astype(np.float64)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of iteration: the columns of `p.serving.summary`. `rows` is what `frame`
    gives.
    """
    total_ms = float(rows.loc[~rows["cut"], "time_ms"].sum())
    rows_of_kinds = []
    for kind, kind_rows in _by_kind(rows):
        time = kind_rows["time_ms"].dropna()
        total = float(time.sum())
        prefill, decode = _sum(kind_rows["prefill_tokens"]), _sum(kind_rows["decode_tokens"])
        requests = kind_rows["requests"].to_numpy(np.float64, na_value=np.nan)
        rows_of_kinds.append(
            {
                "kind": kind,
                "iterations": len(kind_rows),
                "total_ms": total,
                "percent": percent(total, total_ms),
                "mean_ms": time.mean(),
                "median_ms": time.median(),
                "p99_ms": time.quantile(0.99),
                "requests": pd.Series(requests).mean(),
                "prefill_tokens": _int(prefill),
                "decode_tokens": _int(decode),
                "tokens_per_s": ratio(1000 * (prefill + decode), total),
                "token_ms": kind_rows["token_ms"].median(),
                "gap_ms": kind_rows["gap_ms"].median(),
                "gaps_ms": kind_rows["gap_ms"].sum(min_count=1),
                "busy_percent": percent(kind_rows["busy_ms"].sum(min_count=1), total),
            }
        )
    return frames.shaped("serving.summary", pd.DataFrame(rows_of_kinds))


def parts(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of iteration and part of the model that took time in it: the columns of
    `p.serving.parts`.
    """
    rows_of_kinds = []
    for kind, kind_rows in _by_kind(rows):
        total = {part: float(kind_rows[f"{part}_ms"].sum()) for part in PARTS}
        total_ms = sum(total.values())
        for part, value in total.items():
            if value > 0:
                row = {
                    "kind": kind,
                    "part": part,
                    "total_ms": value,
                    "mean_ms": value / len(kind_rows),
                    "percent": 100 * value / total_ms,
                }
                rows_of_kinds.append(row)
    return frames.shaped("serving.parts", pd.DataFrame(rows_of_kinds))


def _by_kind(rows: pd.DataFrame) -> list[tuple[str | None, pd.DataFrame]]:
    """The whole iterations of each kind; those of which it is not known come last."""
    complete = rows[~rows["cut"]]
    kinds: list[tuple[str | None, pd.DataFrame]] = []
    for kind in KINDS:
        kinds.append((kind, complete[complete["kind"] == kind]))
    kinds.append((None, complete[complete["kind"].isna()]))
    return [(kind, kind_rows) for kind, kind_rows in kinds if len(kind_rows)]


def _sum(values: pd.Series) -> float:
    """The sum, NaN where one is not known."""
    return float(values.sum()) if values.notna().all() else np.nan


def _int(value: float) -> int | None:
    return None if np.isnan(value) else int(value)
