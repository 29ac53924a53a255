"""Iterations of an inference engine: how long each took, what of the model it was spent on, and
what its requests got for it.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
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
            r"moe|expert|topk_?(?:gating|softmax|forward)|grouped_?(?:gemm|mm)|router|routing|bitmatrix|matmul_(?:ogs|scatter)",
        ),
        (
            "attention",
            r"attn|attention|(?<![a-z])(?:flash(?:::|_fwd|_bwd)|mha|mla|rope)|fmha|paged|rotary|_and_cache|kv_?(?:cache|buffer)|batch_?(?:decode|prefill)",
        ),
        ("norm", r"norm(?!al)"),
        (
            "gemm",
            r"gemm|gemv|nvjet|matmul|cijk_|xmma|marlin|machete|scaled_mm|splitk|::(?:mm|bmm|addmm|baddbmm|linear)\Z|cutlass",
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
        if name and (found := next((part for part, pattern in _PARTS if pattern.search(name)), "")):
            return found
    return "gemm" if product else "other"


def frame(activity: Activity, trace: Trace) -> pd.DataFrame:
    """One row per iteration, host by host, in time order: the columns of `p.serving.frame`."""
    found = activity.engine_iterations.frame()
    if not len(found):
        return frames.empty("serving.frame")
    work = _work(activity, trace, found)
    used = work[work["row"] >= 0]
    row, duration = used["row"].to_numpy(np.int64), (used["end"] - used["start"]).to_numpy(np.int64)
    count = len(found)
    out: dict[str, object] = {}
    for part in PARTS:
        mine = used["part"].to_numpy(object) == part
        total = np.bincount(row[mine], duration[mine].astype(np.float64), minlength=count) / 1e9
        out[f"{part}_ms"] = total if len(work) else np.full(count, np.nan)
    length = (found["end"] - found["start"]).to_numpy(np.int64)
    time = np.where(length > 0, length / 1e9, np.nan)
    counts = {key: found[key].astype("Int64").mask(found[key] < 0) for key in COUNTS}
    # A sequence that decodes gets the token that was computed for it; of several that were drafted
    # some may be rejected.
    single = (
        (found["decode_tokens"] == found["decode_requests"]) & (found["decode_requests"] > 0)
    ).to_numpy(np.bool_)
    texts = np.array([*activity.texts.codes, None], object)
    pairs = zip(found["host"].tolist(), found["group"].tolist(), strict=True)
    frame = pd.DataFrame(
        {
            "host": np.array(activity.hosts, object)[found["host"]],
            "step": found["group"].to_numpy(np.int64),
            "kind": texts[found["kind"]],
            "name": texts[found["name"]],
            **counts,
            "start_ms": found["start"].to_numpy(np.int64) / 1e9,
            "time_ms": time,
            "token_ms": np.where(single, time, np.nan),
            "gap_ms": _gaps(found, used),
            "busy_ms": _busy(used, count) if len(work) else np.full(count, np.nan),
            **out,
            "cut": [pair in activity.cut for pair in pairs],
        }
    )
    return frame[frames.names("serving.frame")].astype(frames.dtypes("serving.frame"))


def _work(activity: Activity, trace: Trace, found: pd.DataFrame) -> pd.DataFrame:
    """All device work: `row` of the iteration that launched it (-1: none), `host device start end`
    and the `part` of the model.
    """
    kernels, transfers = activity.kernels.frame(), activity.transfers.frame()
    texts, ops = activity.kernel_names.values, activity.ops.values
    kernel, op, product = (kernels[key].to_numpy(np.int64) for key in ("kernel", "op", "eligible"))
    first, one = unique_rows(kernel, op, product)
    each = [
        part_of(str(texts[kernel[i]]), str(ops[op[i]]), product=product[i] == 1)
        for i in first.tolist()
    ]
    part = np.array(each, object)[one]
    part[kernels["event"].isin(activity.collectives.event).to_numpy(np.bool_)] = "communication"
    event = np.concatenate([kernels["event"], transfers["event"]]).astype(np.int64)
    out = pd.DataFrame(
        {
            "event": event,
            "host": np.concatenate([kernels["host"], transfers["host"]]).astype(np.int64),
            "device": np.concatenate([kernels["device"], transfers["device"]]).astype(np.int64),
            "start": trace.events.start[event],
            "end": trace.events.end[event],
            "part": np.concatenate([part, np.full(len(transfers), "copies", object)]),
        }
    )
    out = out[~out["event"].isin(activity.backlog.event)].reset_index(drop=True)
    launched = (
        activity.launches.take(activity.launches.target >= 0)
        .frame()
        .drop_duplicates("target")
        .set_index("target")["event"]
    )
    call = launched.reindex(out["event"]).to_numpy(np.float64)
    known = ~np.isnan(call)
    moment = out["start"].to_numpy(np.int64).copy()
    moment[known] = trace.events.start[call[known].astype(np.int64)]
    host, begun, done = (found[key].to_numpy(np.int64) for key in ("host", "begun", "done"))
    return out.assign(
        row=index_by_group((begun, done), host, moment, out["host"].to_numpy(np.int64))
    )


def _gaps(found: pd.DataFrame, used: pd.DataFrame) -> Floats:
    """Time from the end of all work of the iterations before to the begin of the first work of
    each, ms; NaN where there is none.
    """
    out = np.full(len(found), np.nan)
    spans = used.groupby("row").agg(
        host=("host", "first"), start=("start", "min"), end=("end", "max")
    )
    for _, mine in spans.groupby("host"):
        rows = mine.index.to_numpy(np.int64)
        start, reach = mine["start"].to_numpy(np.int64), ends_before(mine["end"].to_numpy(np.int64))
        out[rows[1:]] = np.maximum(start[1:] - reach[1:], 0) / 1e9
    return out


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
    whole = float(rows.loc[~rows["cut"], "time_ms"].sum())
    out = []
    for kind, mine in _by_kind(rows):
        time = mine["time_ms"].dropna()
        total = float(time.sum())
        tokens = {key: _sum(mine[key]) for key in ("prefill_tokens", "decode_tokens")}
        computed = (
            None
            if None in tokens.values()
            else sum(value for value in tokens.values() if value is not None)
        )
        out.append(
            {
                "kind": kind,
                "iterations": len(mine),
                "total_ms": total,
                "percent": 100 * total / whole if whole else np.nan,
                "mean_ms": time.mean(),
                "median_ms": time.median(),
                "p99_ms": time.quantile(0.99),
                "requests": pd.Series(
                    mine["requests"].to_numpy(np.float64, na_value=np.nan)
                ).mean(),
                **tokens,
                "tokens_per_s": np.nan
                if computed is None or not total
                else 1000 * computed / total,
                "token_ms": mine["token_ms"].median(),
                "gap_ms": mine["gap_ms"].median(),
                "gaps_ms": mine["gap_ms"].sum(min_count=1),
                "busy_percent": 100 * mine["busy_ms"].sum(min_count=1) / total if total else np.nan,
            }
        )
    return frames.shaped("serving.summary", pd.DataFrame(out))


def parts(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of iteration and part of the model that took time in it: the columns of
    `p.serving.parts`.
    """
    out = []
    for kind, mine in _by_kind(rows):
        total = {part: float(mine[f"{part}_ms"].sum()) for part in PARTS}
        whole = sum(total.values())
        out += [
            {
                "kind": kind,
                "part": part,
                "total_ms": value,
                "mean_ms": value / len(mine),
                "percent": 100 * value / whole,
            }
            for part, value in total.items()
            if value > 0
        ]
    return frames.shaped("serving.parts", pd.DataFrame(out))


def _by_kind(rows: pd.DataFrame) -> list[tuple[str | None, pd.DataFrame]]:
    """The whole iterations of each kind; those of which it is not known come last."""
    whole = rows[~rows["cut"]]
    known = [(kind, whole[whole["kind"] == kind]) for kind in KINDS]
    return [
        (kind, mine) for kind, mine in [*known, (None, whole[whole["kind"].isna()])] if len(mine)
    ]


def _sum(values: pd.Series) -> int | None:
    """The sum, None where one is not known."""
    return None if values.isna().any() else int(values.sum())
