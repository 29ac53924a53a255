"""The limit of an iteration on an NPU, in a sentence with its figure."""

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
        " {missing:.0%} of the time between the ends of two iterations."
    ),
    FROM_FP: "Iteration Time in the file is measured from FP Start, without the Data Aug Bound.",
}


def verdict(summary: pd.DataFrame, ops: pd.DataFrame, waits: pd.DataFrame) -> dict[str, Any]:
    """The limit of the main model of the slowest device; without iterations, whether the device was
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
    shares = _shares(row)
    largest = max(shares, key=lambda part: shares[part])
    detail = _detail(row, "data_aug" in shares)
    if shares[largest] < _LEAST:
        by_share = sorted(shares.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{_NAMES[part]} {share:.0%}" for part, share in by_share)
        return _verdict("", "No single bottleneck", f"an iteration is {parts}", detail)
    bound, word, text = _WORDS[largest]
    return _verdict(bound, word, f"{shares[largest]:.0%} {text}", detail)


def _verdict(bound: str, word: str, text: str, detail: str) -> dict[str, Any]:
    return {"bound": bound, "verdict": word, "text": text, "detail": detail}


def _shares(row: pd.Series[Any]) -> dict[str, float]:
    """Parts of an iteration as fractions; without those that are unknown."""
    parts = {"data_aug": row["data_aug_fraction"]}
    if pd.notna(row["all_reduce_fraction"]):
        parts["all_reduce"] = row["all_reduce_fraction"]
        parts["compute"] = row["fp_to_bp_fraction"] + row["update_fraction"]
    else:
        parts["grad_refresh"] = row["grad_refresh_fraction"]
        parts["fp_to_bp"] = row["fp_to_bp_fraction"]
    return {part: float(share) for part, share in parts.items() if pd.notna(share)}


_NAMES = {
    "data_aug": "Data Aug Bound",
    "compute": "compute",
    "fp_to_bp": "FP to BP",
    "all_reduce": "all-reduce after BP End",
    "grad_refresh": "Grad Refresh Bound",
}


def of_marks(overview: dict[str, Any], iterations: dict[str, Any]) -> dict[str, Any]:
    """The verdict of `p.overview` if only the marks of iterations are known: no task of the device
    is inside them.
    """
    unproven = "No device tasks were recorded in the iterations: based on the iteration trace alone"
    evidence = [(False, unproven), *overview["confidence_evidence"][1:]]
    failed = sum(not ok for ok, _ in evidence)
    detail = (
        f"{iterations['detail']} The Ascend tab shows its parts, from the iteration trace; tasks"
        " were not recorded."
    )
    return {
        "bound": iterations["bound"] or None,
        "verdict": iterations["verdict"],
        "verdict_text": iterations["text"],
        "verdict_detail": detail.strip(),
        "confidence": "medium" if failed == 1 else "low",
        "confidence_evidence": evidence,
    }


def _detail(row: pd.Series[Any], gap: bool) -> str:
    """Sentences on the Data Aug Bound and on the file's Iteration Time."""
    sentences = []
    if gap and row["data_aug_ms"] > 0:
        less = float(row["iteration_ms"] - row["data_aug_ms"])
        sentences.append(
            f"Without the Data Aug Bound an iteration would take {wording.millis(less)} instead of"
            f" {wording.millis(row['iteration_ms'])}."
        )
    reported_ms = float(row["reported_iteration_ms"])
    if row["convention"] in _OTHER_MEANING and reported_ms < row["iteration_ms"]:
        missing = 1 - reported_ms / float(row["iteration_ms"])
        sentences.append(_OTHER_MEANING[row["convention"]].format(missing=missing))
    return " ".join(sentences)


def _of_waits(ops: pd.DataFrame, waits: pd.DataFrame) -> dict[str, Any]:
    """The verdict without iterations, from the idle time of devices."""
    devices = waits[waits["stream"].isna() & waits["wait_fraction"].notna()]
    if not len(devices):
        detail = "The profile has neither iterations nor start times of tasks."
        return _verdict("", "Unknown", "", detail)
    if len(devices) == 1:
        subject, period = "the device was", "between its first and its last task"
    else:
        subject = f"the {len(devices)} devices were"
        period = "between the first and the last task of each"
    wait, busy = float(devices["wait_us"].sum()), float(devices["busy_us"].sum())
    share = ascend.part(wait, wait + busy)
    if share >= _LEAST:
        text = f"{subject} idle for {_percent(share)} of the time {period}"
        # The tables do not have the cause: launches, or the program between them.
        return _verdict("", "Mostly idle", text, _NO_MARKS)
    communication = float(ops[ops["core"] == ascend.COMMUNICATION]["duration_us"].sum())
    if busy > 0 and communication / (wait + busy) >= _LEAST:
        text = f"communication takes {communication / (wait + busy):.0%} of the time {period}"
        return _verdict("device_collectives", "Communication-bound", text, _NO_MARKS)
    text = f"tasks ran for {_percent(1 - share)} of the time {period}"
    return _verdict("device_compute", "Device-bound", text, _NO_MARKS)


def _percent(share: float) -> str:
    """A share below 100 % is never shown as 100 %."""
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"


_NO_MARKS = "The profile has no iteration trace, so this covers all tasks."
