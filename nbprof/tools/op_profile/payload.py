"""The op profile: the ops of compiled programs with what each takes and uses, of which the page makes its trees."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.analysis import roofline
from nbprof.analysis.op_profile.leaves import MOST_OPS, MOST_TOLD, Leaves
from nbprof.analysis.ops import ops
from nbprof.display import wording
from nbprof.display.codec import coded, numbers, short
from nbprof.schema import columns, frames
from nbprof.schema.columns import Col, rate
from nbprof.tools.common import figure
from nbprof.tools.tables import floats, head

if TYPE_CHECKING:
    from nbprof.run.run import Run

LONGEST = (1200, 300)
"""Letters of an expression of the ops that are told, and of the others."""
_LONGEST_NAME = 300
_WORTH_SAYING, _THOUSAND = 0.01, 1000
_SEEN = 0.001
_SUMMED = ("time_us", "unknown_us", "flops", "bytes")
_SLACK = 1.05
"""How far a rate may exceed a peak before clocks and rounding no longer explain it."""
_TIMES = ((1e6, "s", 1e7), (1e3, "ms", 1e3), (1.0, "µs", 0.0))
_NAME = columns.text("name", "Op", "Program, category or scope; the ops in it; and the ops inside a fusion.")
_GFLOPS = rate("flops", "", "GFLOP/s", "Floating-point operations per second, in 10⁹, narrow ones weighted by their width.")
_GBYTES = rate("bytes", "", "GB/s", "Bytes of main memory per second, in 10⁹.")


def payload(run: Run) -> dict[str, Any]:
    """The `OpProfile` part."""
    if not has(run):
        return {**nothing(), "empty": {"title": "No ops of compiled programs", "text": run.programs.hlo_missing}}
    leaves = run.programs.op_profile_leaves
    peaks = roofline.peaks(run.activity)
    on_cpu = not run.activity.has_device
    return {
        "empty": None,
        "where": "cpu" if on_cpu else "device",
        "device": wording.one_line(peaks.device),
        "peak_flops": wording.real(peaks.flops_per_second),
        "peak_bytes": wording.real(peaks.bytes_per_second),
        "impossible": float(ops.IMPOSSIBLE),
        "idle_us": wording.real(leaves.idle / 1e6),
        "figures": figures(run),
        "statement": statement(run),
        "notes": _notes(run, leaves, peaks, on_cpu),
        "heads": _heads(peaks),
        "ops": _ops(leaves),
        "rest": {
            **_columns(leaves.rest, ("program", "category")),
            **_sums(leaves.rest),
            "ops": numbers(leaves.rest["ops"]),
            "rows": len(leaves.rest),
        },
        "inside": {
            **_columns(leaves.inside, ("name", "category", "shape")),
            "expression": coded(wording.cut(text, LONGEST[1]) for text in leaves.inside["expression"]),
            "op": numbers(leaves.inside["op"]),
            "flops": short(floats(leaves.inside["flops"])),
            "rows": len(leaves.inside),
        },
        "arrays": {
            **_columns(leaves.arrays, ("role", "shape", "layout", "padded")),
            **{key: numbers(leaves.arrays[key]) for key in ("op", "bytes", "padded_bytes")},
            "rows": len(leaves.arrays),
        },
    }


def nothing() -> dict[str, Any]:
    """The part without ops."""
    none: dict[str, Any] = {"rows": 0}
    return {
        "empty": None,
        "where": "device",
        "device": "",
        "peak_flops": None,
        "peak_bytes": None,
        "impossible": float(ops.IMPOSSIBLE),
        "idle_us": None,
        "figures": [],
        "statement": "",
        "notes": [],
        "heads": [],
        "ops": none,
        "rest": none,
        "inside": none,
        "arrays": none,
    }


def has(run: Run) -> bool:
    """Whether an op of a compiled program ran."""
    return not run.programs.hlo_missing


def left_out(run: Run) -> int:
    """Ops that the payload has in sums alone."""
    return (
        max(0, run.persist("ops of compiled programs", lambda: int((run.programs.op_profile_upper["kind"] == "op").sum())) - MOST_OPS)
        if has(run)
        else 0
    )


def figures(run: Run) -> list[dict[str, Any]]:
    """The root of the tree as figures."""
    tree = run.programs.op_profile_upper
    root = tree.iloc[0]
    count = int((tree["kind"] == "op").sum())
    programs = int((tree["kind"] == "program").sum())
    scale, unit = next((scale, unit) for scale, unit, least in _TIMES if root["time_us"] >= least)
    time, wasted = float(root["time_us"]), float(root["wasted_us"])
    lost = float(root["unknown_fraction"])
    busy = time * (1 - lost)
    unknown = f"; cost unknown for {wording.percent(100 * lost)} of op time" if lost > _WORTH_SAYING else ""
    rates = [_rate(root[key], busy, unit) + unknown for key, unit in (("flops", "FLOP/s"), ("bytes", "B/s"))]
    return [
        figure("time", "Time of ops", time / scale, unit, 2, f"{wording.plural(count, 'op')} of {wording.plural(programs, 'program')}"),
        figure("flops_utilization", "FLOPS utilization of ops", _percent(root["flops_utilization"]), "%", 1, rates[0]),
        figure("memory_bandwidth", "Memory bandwidth of ops", _percent(root["bandwidth_utilization"]), "%", 1, rates[1]),
        figure(
            "wasted", "Wasted", wasted / scale, unit, 2,
            f"{wording.percent(100 * wasted / time)} of the time of ops{unknown}"
            if time and wasted == wasted
            else "the cost of the ops is unknown" if lost == 1 else "the peaks are unknown",
        ),
    ]  # fmt: skip


def statement(run: Run) -> str:
    """Where to begin, with its numbers; marked."""
    tree = run.programs.op_profile_upper
    whole = float(tree["time_us"].iloc[0])
    found = tree[tree["kind"] == "op"]
    if not whole or found.empty:
        return ""
    sums = found.groupby("category", sort=False)["time_us"].sum()
    category = str(sums.idxmax())
    most = f"Most time goes to **{_plain(category)}**: {wording.percent(100 * float(sums.max()) / whole)}."
    if (lost := float(tree["unknown_fraction"].iloc[0])) > _WORTH_SAYING:
        most += f" The cost of ops that take **{wording.percent(100 * lost)}** of the time is unknown."
    known = bool(found["wasted_us"].notna().any())
    rows = found.sort_values("wasted_us" if known else "time_us", ascending=False, kind="stable")
    name, kind, time, wasted, computing, moving = (
        rows[key].iloc[0] for key in ("name", "category", "time_us", "wasted_us", "flops_utilization", "bandwidth_utilization")
    )
    share = wording.percent(100 * float(time) / whole)
    if not known:
        return f"{most} The longest op is **{_plain(name)}**: {share}."
    used = [
        f"{wording.percent(100 * float(value))} of the {what}"
        for value, what in ((computing, "peak FLOP/s"), (moving, "memory bandwidth"))
        if value == value
    ]
    does = "waits for earlier work" if str(kind).endswith("-done") else f"uses {' and '.join(used)}"
    saved = wording.percent(100 * float(wasted) / whole)
    return f"{most} **{_plain(name)}** wastes the most, **{saved}** of all op time: it takes {share} and {does}."


def by_category(part: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """The categories of a part for a table without script, most time first; the last row is what is beyond `most`.

    Each has `name`, `ops` (how many), `share` and `wasted` (of the time of all ops), `unknown` (the part of its own time whose cost is not
    known), `flops` and `bytes` (of the peaks); None: not known.
    """
    tables = []
    for table, many in ((part["ops"], 1), (part["rest"], part["rest"].get("ops", 0))):
        if table["rows"]:
            names = np.array(table["category"]["values"], object)[table["category"]["codes"]]
            tables.append(pd.DataFrame({"name": names, "ops": many, **{key: table[key] for key in _SUMMED}}))
    if not tables:
        return []
    sums = pd.concat(tables).groupby("name", sort=False).sum(min_count=1).sort_values("time_us", ascending=False, kind="stable")
    if len(sums) > most:
        others = sums.iloc[most:].sum(min_count=1).rename(wording.plural(len(sums) - most, "other category", "other categories"))
        sums = pd.concat([sums.head(most), others.to_frame().T])
    whole = float(sums["time_us"].sum()) or 1.0
    out = []
    for name, many, time, unknown, flops, moved in sums.itertuples():
        busy = time - unknown
        used = {"flops": _used(flops, busy, part["peak_flops"]), "bytes": _used(moved, busy, part["peak_bytes"])}
        if (used["bytes"] or 0) > part["impossible"]:
            used["bytes"] = None
        known = [value for value in used.values() if value is not None]
        wasted = (1 - min(1.0, max(known))) * busy / whole if known else None
        lost = unknown / time if time else 0.0
        out.append({"name": name or "other", "ops": int(many), "share": time / whole, "wasted": wasted, "unknown": lost, **used})
    return out


def _used(total: float, time_us: float, peak: float | None) -> float | None:
    return None if total != total or not time_us or peak is None else total / (time_us / 1e6) / peak


def text(tree: pd.DataFrame, missing: str, most: int = 12) -> str:
    """The upper part of the tree in a few lines."""
    if tree.empty:
        return f"<nbprof op_profile: {missing}>"
    count = int((tree["kind"] == "op").sum())
    lines = [f"<nbprof op_profile: {wording.plural(count, 'op')}; .frame is the DataFrame>"]
    heads = ("time", "unknown", "wasted", "FLOPS", "memory")
    lines.append(" ".join(f"{text:>8}" for text in heads))
    shown = tree[tree["kind"] != "fused"]
    whole = float(tree["time_us"].iloc[0]) or 1.0
    kept = shown[shown["time_us"].rank(method="first", ascending=False) <= most]
    for depth, name, *parts in zip(
        kept["depth"], kept["name"], kept["time_fraction"], kept["unknown_fraction"] * kept["time_us"] / whole, kept["wasted_us"] / whole,
        kept["flops_utilization"], kept["bandwidth_utilization"], strict=True,
    ):  # fmt: skip
        said = " ".join(f"{wording.percent(None if part != part else 100 * part):>8}" for part in parts)
        lines.append(f"{said}  {'  ' * depth}{wording.one_line(str(name))[:80]}")
    if len(shown) > len(kept):
        lines.append(f"and {len(shown) - len(kept):,} more rows")
    return "\n".join(lines)


def _plain(name: object) -> str:
    """A foreign name in a marked text."""
    return wording.one_line(str(name)).replace("*", "\u2217")


def _notes(run: Run, leaves: Leaves, peaks: roofline.Peaks, on_cpu: bool) -> list[str]:
    out = []
    if on_cpu:
        out.append("Times are CPU thread times: ops that run concurrently are counted separately.")
    if lacking := peaks.lacking:
        what = " and ".join(lacking)
        rest = "so there is no utilization and no wasted time" if len(lacking) > 1 else "so utilization is based on the other one only"
        device = "the CPU" if on_cpu else wording.one_line(peaks.device) or "this device"
        out.append(
            f"The peak {what} of {device} {'are' if len(lacking) > 1 else 'is'} unknown, {rest}: pass them with nbprof.load(path, "
            "peaks=...)."
        )
    frame = leaves.ops
    if gone := int((~frame["in_file"].astype(bool)).sum()):
        out.append(f"The file lacks the program of {wording.plural(gone, 'op')}, so what they compute may be unknown.")
    unknown = frame["unknown"].sum() / max(float(frame["time"].sum()), 1.0)
    if unknown > _WORTH_SAYING:
        part = wording.percent(100 * float(unknown))
        out.append(f"FLOPs and bytes are unknown for ops that take {part} of the time; the other figures exclude them.")
    seconds = frame["time"] / 1e12
    above = (frame["flops"] > _SLACK * peaks.flops_per_second * seconds) | (frame["moved"] > _SLACK * peaks.bytes_per_second * seconds)
    # Of ops that are next to nothing, as those that only begin a copy, a rate means little.
    above &= frame["time"] >= _SEEN * float(frame["time"].sum())
    if over := int(above.sum()):
        why = "other threads may do part of the work outside their events" if on_cpu else "a cache may serve some of their bytes"
        out.append(f"{wording.plural(over, 'op')} {'is' if over == 1 else 'are'} above a peak: {why}, or the peak is too low.")
    if count := left_out(run):
        out.append(f"{wording.plural(count, 'smaller op')} are combined: p.op_profile.frame lists them.")
    return out


def _ops(leaves: Leaves) -> dict[str, Any]:
    frame = leaves.ops
    cuts = np.where(np.arange(len(frame)) < MOST_TOLD, *LONGEST).tolist()
    return {
        **_columns(frame, ("program", "name", "category", "duplicate", "framework_op", "source", "shape", "layout", "trace_op")),
        **_sums(frame),
        "expression": coded(wording.cut(text, most) for text, most in zip(frame["expression"], cuts, strict=True)),
        "in_file": frame["in_file"].to_numpy(np.bool_),
        "inside_left_out": numbers(leaves.inside_left_out),
        "at_ms": short(np.round(floats(frame["at_ms"]), 6)),
        "for_ms": floats(frame["for_ms"]).astype(np.float32),
        "rows": len(frame),
    }


def _columns(frame: pd.DataFrame, keys: Iterable[str]) -> dict[str, Any]:
    return {key: coded(wording.cut(text, _LONGEST_NAME) for text in frame[key]) for key in keys}


def _sums(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        "time_us": short(floats(frame["time"]) / 1e6),
        "unknown_us": short(floats(frame["unknown"]) / 1e6),
        "flops": short(floats(frame["flops"])),
        "bytes": short(floats(frame["moved"])),
        "runs": numbers(floats(frame["runs"])),
    }


def _heads(peaks: roofline.Peaks) -> list[dict[str, Any]]:
    """The columns of the tree, by what the page sorts them by: rates in place of parts where a peak is not known."""
    flops, moved = math.isfinite(peaks.flops_per_second), math.isfinite(peaks.bytes_per_second)
    columns = {
        "name": _NAME,
        "time": _declared("time_fraction"),
        "wasted": _declared("wasted_us")._replace(label="Wasted %", unit="percent") if flops or moved else None,
        "flops": _declared("flops_utilization") if flops else _GFLOPS,
        "bytes": _declared("bandwidth_utilization") if moved else _GBYTES,
        "runs": _declared("occurrences"),
        "framework_op": _declared("framework_op"),
    }
    return [{**head(col), "key": key} for key, col in columns.items() if col is not None]


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
