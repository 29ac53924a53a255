"""What limits an iteration on an NPU: a sentence with its figure."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend.iterations import FROM_FP, OWN_START
from nbprof.analysis.verdict import SINGLE_BOTTLENECK_PERCENT
from nbprof.display import wording

_LEAST = SINGLE_BOTTLENECK_PERCENT / 100
_WORDS = {
    "data_aug": (
        "input",
        "Input-bound",
        "of an iteration is before FP Start: the device waits for data",
    ),
    "compute": (
        "device_compute",
        "Device-bound",
        "of an iteration is the forward and backward pass and the update",
    ),
    "fp_to_bp": (
        "device_compute",
        "Device-bound",
        "of an iteration is the forward and backward pass",
    ),
    "all_reduce": (
        "device_collectives",
        "Communication-bound",
        "of an iteration is exposed all-reduce after BP End",
    ),
    # Communication or weight update: the file does not say which.
    "grad_refresh": ("", "Grad-refresh-bound", "of an iteration is the Grad Refresh, after BP End"),
}
_OTHER_MEANING = {
    OWN_START: (
        "Iteration Time in the file is measured from the start of the iteration itself: it misses"
        " {apart:.0%} of the time between the ends of two iterations."
    ),
    FROM_FP: "Iteration Time in the file is measured from FP Start, without the Data Aug Bound.",
}


def verdict(summary: pd.DataFrame, ops: pd.DataFrame, waits: pd.DataFrame) -> dict[str, Any]:
    """What limits the main model of the slowest device; without iterations, whether the device was
    idle.

    Parameters
    ----------
    summary : DataFrame
        Of `ascend_iterations.summary`.
    ops, waits : DataFrame
        Of `ascend_ops.frame` and `ascend_waits.frame`.

    Returns
    -------
    dict
        `bound` (a category of step time or ""), `verdict` (a word), `text` (its fact), `detail`.
    """
    rows = summary[
        summary["main"].astype(bool)
        & (summary["iteration_ms"] > 0)
        & summary["fp_to_bp_fraction"].notna()
    ]
    if not len(rows):
        return _of_waits(ops, waits)
    row = rows.loc[rows["iteration_ms"] == rows["iteration_ms"].max()].iloc[0]
    parts = {"data_aug": row["data_aug_fraction"]}
    if pd.notna(row["all_reduce_fraction"]):
        parts |= {
            "all_reduce": row["all_reduce_fraction"],
            "compute": row["fp_to_bp_fraction"] + row["update_fraction"],
        }
    else:
        parts |= {
            "grad_refresh": row["grad_refresh_fraction"],
            "fp_to_bp": row["fp_to_bp_fraction"],
        }
    shares = {name: float(value) for name, value in parts.items() if pd.notna(value)}
    name = max(shares, key=lambda key: shares[key])
    bound, word, text = _WORDS[name]
    share = shares[name]
    detail = _detail(row, "data_aug" in shares)
    if share < _LEAST:
        listed = ", ".join(
            f"{_TOLD[key]} {value:.0%}"
            for key, value in sorted(shares.items(), key=lambda item: -item[1])
        )
        return {
            "bound": "",
            "verdict": "No single bottleneck",
            "text": f"an iteration is {listed}",
            "detail": detail,
        }
    return {"bound": bound, "verdict": word, "text": f"{share:.0%} {text}", "detail": detail}


_TOLD = {
    "data_aug": "Data Aug Bound",
    "compute": "compute",
    "fp_to_bp": "FP to BP",
    "all_reduce": "all-reduce after BP End",
    "grad_refresh": "Grad Refresh Bound",
}


def of_marks(overview: dict[str, Any], iterations: dict[str, Any]) -> dict[str, Any]:
    """The verdict of `p.overview` where the marks of iterations are all that is known of them: no
    task of the device lies in them.
    """
    evidence = [
        (
            False,
            "No device tasks were recorded in the iterations: based on the iteration trace alone",
        ),
        *overview["confidence_evidence"][1:],
    ]
    failed = sum(not ok for ok, _ in evidence)
    return {
        "bound": iterations["bound"] or None,
        "verdict": iterations["verdict"],
        "verdict_text": iterations["text"],
        "verdict_detail": (
            f"{iterations['detail']} The Ascend tab shows its parts, from the iteration trace;"
            " tasks were not recorded.".strip()
        ),
        "confidence": "medium" if failed == 1 else "low",
        "confidence_evidence": evidence,
    }


def _detail(row: pd.Series[Any], gap: bool) -> str:
    parts = []
    if gap and row["data_aug_ms"] > 0:
        less = float(row["iteration_ms"] - row["data_aug_ms"])
        parts.append(
            f"Without the Data Aug Bound an iteration would take {wording.millis(less)} instead of"
            f" {wording.millis(row['iteration_ms'])}."
        )
    reported_ms = float(row["reported_iteration_ms"])
    if row["convention"] in _OTHER_MEANING and reported_ms < row["iteration_ms"]:
        parts.append(
            _OTHER_MEANING[row["convention"]].format(
                apart=1 - reported_ms / float(row["iteration_ms"])
            )
        )
    return " ".join(parts)


def _of_waits(ops: pd.DataFrame, waits: pd.DataFrame) -> dict[str, Any]:
    all_streams = waits[waits["stream"].isna() & waits["wait_fraction"].notna()]
    if not len(all_streams):
        return {
            "bound": "",
            "verdict": "Unknown",
            "text": "",
            "detail": "The profile has neither iterations nor start times of tasks.",
        }
    wait, busy = float(all_streams["wait_us"].sum()), float(all_streams["busy_us"].sum())
    share = ascend.part(wait, wait + busy)
    period = (
        "between its first and its last task"
        if len(all_streams) == 1
        else "between the first and the last task of each"
    )
    who = "the device" if len(all_streams) == 1 else f"the {len(all_streams)} devices"
    if share >= _LEAST:
        text = (
            f"{who} {'was' if len(all_streams) == 1 else 'were'} idle for {_percent(share)} of the"
            f" time {period}"
        )
        # The cause, launches or the program between them, is not in the tables.
        return {"bound": "", "verdict": "Mostly idle", "text": text, "detail": _NO_MARKS}
    comm = float(ops[ops["core"] == ascend.COMMUNICATION]["duration_us"].sum())
    if busy > 0 and comm / (wait + busy) >= _LEAST:
        text = f"communication takes {comm / (wait + busy):.0%} of the time {period}"
        return {
            "bound": "device_collectives",
            "verdict": "Communication-bound",
            "text": text,
            "detail": _NO_MARKS,
        }
    text = f"tasks ran for {_percent(1 - share)} of the time {period}"
    return {"bound": "device_compute", "verdict": "Device-bound", "text": text, "detail": _NO_MARKS}


def _percent(share: float) -> str:
    """A share below 100 % is never shown as 100 %."""
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"


_NO_MARKS = "The profile has no iteration trace, so this covers all tasks."
