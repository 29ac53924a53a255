"""The op profile: the ops of compiled programs with what each takes and uses, of which the page
makes its trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis import roofline
from nbprof.analysis.op_profile.leaves import MOST_OPS, MOST_TOLD, Leaves
from nbprof.analysis.ops import ops
from nbprof.display import wording
from nbprof.display.codec import Coded, coded, numbers, short
from nbprof.schema import columns, frames
from nbprof.schema.columns import Col, rate
from nbprof.tools.common import figure
from nbprof.tools.op_profile.parts import FusedOps, OpArrays, OpProfile, OtherOps, ProfiledOps
from nbprof.tools.parts import Column, Empty, Figure
from nbprof.tools.tables import floats, head

if TYPE_CHECKING:
    from nbprof.run.run import Run

LONGEST = (1200, 300)
"""Letters of an expression: of the ops that are sent in full, and of the others."""
_LONGEST_NAME = 300
_WORTH_SAYING, _THOUSAND = 0.01, 1000
_SEEN = 0.001
_SUMMED = ("time_us", "unknown_us", "flops", "bytes")
_SLACK = 1.05
"""How far a rate may exceed a peak before clocks and rounding no longer explain it."""
_TIMES = ((1e6, "s", 1e7), (1e3, "ms", 1e3), (1.0, "µs", 0.0))
_NAME = columns.text(
    "name", "Op", "Program, category or scope; the ops in it; and the ops inside a fusion."
)
_GFLOPS = rate(
    "flops",
    "",
    "GFLOP/s",
    "Floating-point operations per second, in 10⁹, narrow ones weighted by their width.",
)
_GBYTES = rate("bytes", "", "GB/s", "Bytes of main memory per second, in 10⁹.")


def payload(run: Run) -> OpProfile:
    """The ops of compiled programs."""
    if not has(run):
        return nothing(Empty(title="No ops of compiled programs", text=run.programs.hlo_missing))
    leaves = run.programs.op_profile_leaves
    peaks = roofline.peaks(run.activity)
    on_cpu = not run.activity.has_device
    return OpProfile(
        empty=None,
        where="cpu" if on_cpu else "device",
        device=wording.one_line(peaks.device),
        peak_flops=wording.real(peaks.flops_per_second),
        peak_bytes=wording.real(peaks.bytes_per_second),
        impossible=float(ops.IMPOSSIBLE),
        idle_us=wording.real(leaves.idle / 1e6),
        figures=figures(run),
        statement=statement(run),
        notes=_notes(run, leaves, peaks, on_cpu),
        heads=_heads(peaks),
        ops=_ops(leaves),
        rest=_other_ops(leaves.rest),
        inside=_fused_ops(leaves.fused_ops),
        arrays=_arrays(leaves.arrays),
    )


def nothing(empty: Empty | None = None) -> OpProfile:
    """The part without ops."""
    return OpProfile(
        empty=empty,
        where="device",
        device="",
        peak_flops=None,
        peak_bytes=None,
        impossible=float(ops.IMPOSSIBLE),
        idle_us=None,
        figures=[],
        statement="",
        notes=[],
        heads=[],
    )


def has(run: Run) -> bool:
    """True if an op of a compiled program ran."""
    return not run.programs.hlo_missing


def left_out(run: Run) -> int:
    """Number of ops that the payload has only in sums."""
    if not has(run):
        return 0
    count = run.persist(
        "ops of compiled programs",
        lambda: int((run.programs.op_profile_upper["kind"] == "op").sum()),
    )
    return max(0, count - MOST_OPS)


def _unknown_cost(fraction: float) -> str:
    """The end of a note: op time whose cost is unknown; "" if it is little."""
    if fraction <= _WORTH_SAYING:
        return ""
    return f"; cost unknown for {wording.percent(100 * fraction)} of op time"


def figures(run: Run) -> list[Figure]:
    """The root of the tree as figures."""
    tree = run.programs.op_profile_upper
    root = tree.iloc[0]
    scale, unit = next((scale, unit) for scale, unit, least in _TIMES if root["time_us"] >= least)
    time, wasted = float(root["time_us"]), float(root["wasted_us"])
    lost = float(root["unknown_fraction"])
    busy = time * (1 - lost)
    unknown = _unknown_cost(lost)
    ops = wording.plural(int((tree["kind"] == "op").sum()), "op")
    programs = wording.plural(int((tree["kind"] == "program").sum()), "program")
    flops, bandwidth = _percent(root["flops_utilization"]), _percent(root["bandwidth_utilization"])
    flop_rate = _rate(root["flops"], busy, "FLOP/s") + unknown
    byte_rate = _rate(root["bytes"], busy, "B/s") + unknown
    if time and wasted == wasted:
        wasted_note = f"{wording.percent(100 * wasted / time)} of the time of ops{unknown}"
    elif lost == 1:
        wasted_note = "the cost of the ops is unknown"
    else:
        wasted_note = "the peaks are unknown"
    return [
        figure("time", "Time of ops", time / scale, unit, 2, f"{ops} of {programs}"),
        figure("flops_utilization", "FLOPS utilization of ops", flops, "%", 1, flop_rate),
        figure("memory_bandwidth", "Memory bandwidth of ops", bandwidth, "%", 1, byte_rate),
        figure("wasted", "Wasted", wasted / scale, unit, 2, wasted_note),
    ]


def statement(run: Run) -> str:
    """The category with the most time and the op with the most waste; marked."""
    tree = run.programs.op_profile_upper
    total = float(tree["time_us"].iloc[0])
    op_rows = tree[tree["kind"] == "op"]
    if not total or op_rows.empty:
        return ""
    sums = op_rows.groupby("category", sort=False)["time_us"].sum()
    share = wording.percent(100 * float(sums.max()) / total)
    text = f"Most time goes to **{_escaped(sums.idxmax())}**: {share}."
    lost = float(tree["unknown_fraction"].iloc[0])
    if lost > _WORTH_SAYING:
        text += (
            f" The cost of ops that take **{wording.percent(100 * lost)}** of the time is unknown."
        )
    if op_rows["wasted_us"].notna().any():
        op = op_rows.sort_values("wasted_us", ascending=False, kind="stable").iloc[0]
        return f"{text} {_most_wasteful(op, total)}"
    op = op_rows.sort_values("time_us", ascending=False, kind="stable").iloc[0]
    share = wording.percent(100 * float(op["time_us"]) / total)
    return f"{text} The longest op is **{_escaped(op['name'])}**: {share}."


def _most_wasteful(op: pd.Series[Any], total_us: float) -> str:
    """A sentence on the op with the most waste: its time and the resources that it uses."""
    does = "waits for earlier work"
    if not str(op["category"]).endswith("-done"):
        used = []
        for key, resource in (
            ("flops_utilization", "peak FLOP/s"),
            ("bandwidth_utilization", "memory bandwidth"),
        ):
            if op[key] == op[key]:
                used.append(f"{wording.percent(100 * float(op[key]))} of the {resource}")
        does = f"uses {' and '.join(used)}"
    share = wording.percent(100 * float(op["time_us"]) / total_us)
    saved = wording.percent(100 * float(op["wasted_us"]) / total_us)
    return (
        f"**{_escaped(op['name'])}** wastes the most, **{saved}** of all op time: it takes {share}"
        f" and {does}."
    )


class CategorySums(NamedTuple):
    """A category of ops; what is not known is None.

    Attributes
    ----------
    name : str
    ops : int
    share, wasted : float
        Of the time of all ops.
    unknown : float
        The part of its time whose cost is unknown.
    flops, bytes : float
        Of the peaks.
    """

    name: str
    ops: int
    share: float
    wasted: float | None
    unknown: float
    flops: float | None
    bytes: float | None


def by_category(part: OpProfile, limit: int) -> list[CategorySums]:
    """The categories of a part for a table without script, most time first; the last row sums up
    those beyond `limit`.
    """
    tables = []
    if part.ops is not None and part.ops.rows:
        tables.append(_by_op(part.ops).assign(ops=1))
    if part.rest is not None and part.rest.rows:
        tables.append(_by_op(part.rest).assign(ops=part.rest.ops))
    if not tables:
        return []
    sums = (
        pd.concat(tables)
        .groupby("name", sort=False)
        .sum(min_count=1)
        .sort_values("time_us", ascending=False, kind="stable")
    )
    if len(sums) > limit:
        name = wording.plural(len(sums) - limit, "other category", "other categories")
        rest = sums.iloc[limit:].sum(min_count=1).rename(name)
        sums = pd.concat([sums.head(limit), rest.to_frame().T])
    total = float(sums["time_us"].sum()) or 1.0
    return [_category_sums(part, row, total) for row in sums.reset_index(names="name").itertuples()]


def _by_op(table: ProfiledOps | OtherOps) -> pd.DataFrame:
    """The sums of each op with the name of its category."""
    names = np.array(table.category.values, object)[table.category.codes]
    return pd.DataFrame({"name": names, **{key: getattr(table, key) for key in _SUMMED}})


def _category_sums(part: OpProfile, row: Any, total_us: float) -> CategorySums:
    busy_us = row.time_us - row.unknown_us
    flops = _used(row.flops, busy_us, part.peak_flops)
    moved = _used(row.bytes, busy_us, part.peak_bytes)
    if (moved or 0) > part.impossible:
        moved = None
    utilizations = [value for value in (flops, moved) if value is not None]
    wasted = None
    if utilizations:
        wasted = (1 - min(1.0, max(utilizations))) * busy_us / total_us
    return CategorySums(
        name=row.name or "other",
        ops=int(row.ops),
        share=row.time_us / total_us,
        wasted=wasted,
        unknown=row.unknown_us / row.time_us if row.time_us else 0.0,
        flops=flops,
        bytes=moved,
    )


def _used(total: float, time_us: float, peak: float | None) -> float | None:
    if total != total or not time_us or peak is None:
        return None
    return total / (time_us / 1e6) / peak


def text(tree: pd.DataFrame, missing: str, limit: int = 12) -> str:
    """The upper part of the tree in a few lines."""
    if tree.empty:
        return f"<nbprof op_profile: {missing}>"
    count = int((tree["kind"] == "op").sum())
    heads = ("time", "unknown", "wasted", "FLOPS", "memory")
    lines = [
        f"<nbprof op_profile: {wording.plural(count, 'op')}; .frame is the DataFrame>",
        " ".join(f"{head:>8}" for head in heads),
    ]
    nodes = tree[tree["kind"] != "fused"]
    total = float(tree["time_us"].iloc[0]) or 1.0
    largest = nodes[nodes["time_us"].rank(method="first", ascending=False) <= limit]
    for row in largest.to_dict("records"):
        fractions = (
            row["time_fraction"],
            row["unknown_fraction"] * row["time_us"] / total,
            row["wasted_us"] / total,
            row["flops_utilization"],
            row["bandwidth_utilization"],
        )
        cells = " ".join(f"{wording.percent(_percent(value)):>8}" for value in fractions)
        name = wording.one_line(str(row["name"]))[:80]
        lines.append(f"{cells}  {'  ' * row['depth']}{name}")
    if len(nodes) > len(largest):
        lines.append(f"and {len(nodes) - len(largest):,} more rows")
    return "\n".join(lines)


def _escaped(name: object) -> str:
    """A foreign name in a marked text."""
    return wording.one_line(str(name)).replace("*", "\u2217")


def _notes(run: Run, leaves: Leaves, peaks: roofline.Peaks, on_cpu: bool) -> list[str]:
    sentences = []
    if on_cpu:
        sentences.append(
            "Times are CPU thread times: ops that run concurrently are counted separately."
        )
    if peaks.lacking:
        device = wording.one_line(peaks.device) or "this device"
        if on_cpu:
            device = "the CPU"
        sentences.append(_lacking(peaks.lacking, device))
    frame = leaves.ops
    if missing := int((~frame["in_file"].astype(bool)).sum()):
        sentences.append(
            f"The file lacks the program of {wording.plural(missing, 'op')}, so what they compute"
            " may be unknown."
        )
    unknown = frame["unknown"].sum() / max(float(frame["time"].sum()), 1.0)
    if unknown > _WORTH_SAYING:
        sentences.append(
            f"FLOPs and bytes are unknown for ops that take"
            f" {wording.percent(100 * float(unknown))} of the time; the other figures exclude them."
        )
    if above := _above_peak(frame, peaks):
        cause = "a cache may serve some of their bytes"
        if on_cpu:
            cause = "other threads may do part of the work outside their events"
        ops = wording.plural(above, "op is", "ops are")
        sentences.append(f"{ops} above a peak: {cause}, or the peak is too low.")
    if count := left_out(run):
        sentences.append(
            f"{wording.plural(count, 'smaller op')} are combined: p.op_profile.frame lists them."
        )
    return sentences


def _lacking(peaks: Sequence[str], device: str) -> str:
    """A sentence on peaks that are unknown."""
    verb, consequence = "is", "so utilization is based on the other one only"
    if len(peaks) > 1:
        verb, consequence = "are", "so there is no utilization and no wasted time"
    return (
        f"The peak {' and '.join(peaks)} of {device} {verb} unknown, {consequence}: pass them with"
        " nbprof.load(path, peaks=...)."
    )


def _above_peak(frame: pd.DataFrame, peaks: roofline.Peaks) -> int:
    """Number of ops whose rates exceed a peak. Ops that take next to no time, such as the start of
    a copy, are not counted: their rates mean little.
    """
    seconds = frame["time"] / 1e12
    flops = frame["flops"] > _SLACK * peaks.flops_per_second * seconds
    moved = frame["moved"] > _SLACK * peaks.bytes_per_second * seconds
    long_enough = frame["time"] >= _SEEN * float(frame["time"].sum())
    return int(((flops | moved) & long_enough).sum())


def _ops(leaves: Leaves) -> ProfiledOps:
    frame = leaves.ops
    cuts = np.where(np.arange(len(frame)) < MOST_TOLD, *LONGEST).tolist()
    return ProfiledOps(
        time_us=short(floats(frame["time"]) / 1e6),
        unknown_us=short(floats(frame["unknown"]) / 1e6),
        flops=short(floats(frame["flops"])),
        bytes=short(floats(frame["moved"])),
        runs=numbers(floats(frame["runs"])),
        program=_texts(frame, "program"),
        name=_texts(frame, "name"),
        category=_texts(frame, "category"),
        duplicate=_texts(frame, "duplicate"),
        framework_op=_texts(frame, "framework_op"),
        source=_texts(frame, "source"),
        shape=_texts(frame, "shape"),
        layout=_texts(frame, "layout"),
        trace_op=_texts(frame, "trace_op"),
        expression=coded(
            wording.shortened(text, length)
            for text, length in zip(frame["expression"], cuts, strict=True)
        ),
        in_file=frame["in_file"].to_numpy(np.bool_),
        inside_left_out=numbers(leaves.fused_ops_left_out),
        at_ms=short(np.round(floats(frame["at_ms"]), 6)),
        for_ms=floats(frame["for_ms"]).astype(np.float32),
        rows=len(frame),
    )


def _other_ops(frame: pd.DataFrame) -> OtherOps:
    return OtherOps(
        time_us=short(floats(frame["time"]) / 1e6),
        unknown_us=short(floats(frame["unknown"]) / 1e6),
        flops=short(floats(frame["flops"])),
        bytes=short(floats(frame["moved"])),
        runs=numbers(floats(frame["runs"])),
        program=_texts(frame, "program"),
        category=_texts(frame, "category"),
        ops=numbers(frame["ops"]),
        rows=len(frame),
    )


def _fused_ops(frame: pd.DataFrame) -> FusedOps:
    return FusedOps(
        name=_texts(frame, "name"),
        category=_texts(frame, "category"),
        shape=_texts(frame, "shape"),
        expression=coded(wording.shortened(text, LONGEST[1]) for text in frame["expression"]),
        op=numbers(frame["op"]),
        flops=short(floats(frame["flops"])),
        rows=len(frame),
    )


def _arrays(frame: pd.DataFrame) -> OpArrays:
    return OpArrays(
        role=_texts(frame, "role"),
        shape=_texts(frame, "shape"),
        layout=_texts(frame, "layout"),
        padded=_texts(frame, "padded"),
        op=numbers(frame["op"]),
        bytes=numbers(frame["bytes"]),
        padded_bytes=numbers(frame["padded_bytes"]),
        rows=len(frame),
    )


def _texts(frame: pd.DataFrame, key: str) -> Coded:
    return coded(wording.shortened(text, _LONGEST_NAME) for text in frame[key])


def _heads(peaks: roofline.Peaks) -> list[Column]:
    """The columns of the tree, by what the page sorts them by: rates in place of parts where a peak
    is not known.
    """
    flops, moved = math.isfinite(peaks.flops_per_second), math.isfinite(peaks.bytes_per_second)
    columns = {"name": _NAME, "time": _declared("time_fraction")}
    if flops or moved:
        columns["wasted"] = _declared("wasted_us")._replace(label="Wasted %", unit="percent")
    columns |= {"flops": _GFLOPS, "bytes": _GBYTES}
    if flops:
        columns["flops"] = _declared("flops_utilization")
    if moved:
        columns["bytes"] = _declared("bandwidth_utilization")
    columns |= {"runs": _declared("occurrences"), "framework_op": _declared("framework_op")}
    return [replace(head(col), key=key) for key, col in columns.items()]


def _declared(key: str) -> Col:
    return frames.column("op_profile.frame", key)


def _percent(value: float) -> float | None:
    return None if value != value else 100 * float(value)


def _rate(total: float, time_us: float, unit: str) -> str:
    if total != total or not time_us:
        return "not known"
    rate, prefixes = float(total) / time_us * 1e6, ["", "k", "M", "G", "T", "P"]
    while rate >= _THOUSAND and len(prefixes) > 1:
        rate, prefixes = rate / _THOUSAND, prefixes[1:]
    return f"{rate:,.3g} {prefixes[0]}{unit}"
