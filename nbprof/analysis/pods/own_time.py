"""The time of a step that a rank needs for itself: without the time in which it only communicates.

In a job that communicates all ranks take the same time for a step, however slow one of them is: the
others wait for it in a collective. They differ in the rest of the step. It is measured by the clock
of each host alone, and if ranks wait for a group with a slow rank, only that rank stands out.
Without recorded communication, it is the entire step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.pods.chance import Floats
from nbprof.analysis.steps.step_rows import turns
from nbprof.core.trace import Int64s

COLLECTIVES, STEPS = "collectives", "steps"
_OF_STEP = ["host", "device", "step", "turn"]
"""A step of a device: its number may come back in the next epoch, as the next turn."""


@dataclass
class OwnTime:
    """Times of counted steps in ms, by step and rank; NaN where a rank has not recorded a step.

    Attributes
    ----------
    ranks : DataFrame
        `host rank device`, a row a column of the tables.
    step : object[steps]
        The number of each.
    step_time, own : float64[steps, ranks]
    exposed : float64[steps, ranks]
        Communication without computation.
    waited : float64[steps, ranks]
        The part of it in which other ranks were waited for, at most; NaN where calls of ranks could
        not be matched.
    numbers : DataFrame
        `host start_ms number`: which step of the table each step of a host is.
    by : str
        How own time is separated from waiting: `COLLECTIVES`, or `STEPS` if it is the entire step.
    """

    ranks: pd.DataFrame
    step: npt.NDArray[np.object_]
    step_time: Floats
    own_ms: Floats
    exposed: Floats
    waited: Floats
    numbers: pd.DataFrame
    by: str

    @property
    def measured(self) -> float:
        """The mean step time in ms: of all ranks, which wait for each other, or of the slowest if
        nothing says that they do.
        """
        if not self.step_time.size:
            return float("nan")
        if self.by == COLLECTIVES:
            return float(np.nanmedian(self.step_time, axis=1).mean())
        return float(np.nanmax(self.step_time, axis=1).mean())


def own_time(
    steps: pd.DataFrame, pods: pd.DataFrame, overlap: pd.DataFrame, each: pd.DataFrame
) -> OwnTime | None:
    """The own time of each rank; None where there are no two to compare.

    Parameters
    ----------
    steps, pods, overlap, each : DataFrame
        As `run.steps`, `run.pods`, `p.device_time.overlap` (or of `host_communication.by_step`) and
        `p.device_time.each_collective`, each the rows of all hosts.
    """
    if not len(steps) or not len(pods):
        return None
    steps = steps.assign(turn=turns(steps))
    # The public frame does not tell turns apart.
    each = each if "turn" in each else each.assign(turn=0)
    counted = steps[steps["counted"].astype(bool)]
    communication = _communicating(counted, pods, overlap, each) if len(overlap) else None
    return communication or _without_communication(counted, pods)


def _communicating(
    counted: pd.DataFrame, pods: pd.DataFrame, overlap: pd.DataFrame, each: pd.DataFrame
) -> OwnTime | None:
    # A rank that never communicates waits for nobody, and nobody for it.
    ranks_of = overlap.groupby(["host", "device"], dropna=False)
    talks = ranks_of["communication_ms"].transform("max") > 0
    rows = overlap[talks & overlap["step"].notna()]
    # Programs that train and test in turn count each from 0.
    matched = each[(each["match"] >= 0) & each["step"].notna()] if len(each) else each
    numbered = _numbered(counted, pods, matched)
    numbered = numbered.assign(_turn=numbered.groupby(["host", "_number"], sort=False).cumcount())
    numbered, rows = (
        frame.assign(_at=(frame["start_ms"] * 1e6).round().astype("int64"))
        for frame in (numbered, rows)
    )
    rows = rows[["host", "rank", "device", "_at", "exposed_communication_ms"]].merge(
        numbered.drop(columns="start_ms"), on=["host", "_at"]
    )
    if not len(rows) or not (rows["exposed_communication_ms"] > 0).any():
        return None
    ranks, of_rank = _ranks(rows)
    if len(ranks) < 2:
        return None
    step, of_step = _in_order(rows, ["_number", "_turn"])
    shape = len(step), len(ranks)
    total, exposed = (
        _table(shape, of_step, of_rank, rows[name])
        for name in ("step_time_ms", "exposed_communication_ms")
    )
    total[_odd(shape, of_step, of_rank, rows, each)] = np.nan
    waited = np.full(shape, np.nan)
    if len(matched):
        sums = (
            matched.groupby(_OF_STEP, sort=False)["wait_us"]
            .sum()
            .rename("_wait")
            .reset_index()
            .astype({"step": "int64"})
        )
        table = rows[_OF_STEP].astype({"step": "int64"}).merge(sums, on=_OF_STEP, how="left")
        # More than was exposed held nobody up.
        waited = np.minimum(_table(shape, of_step, of_rank, table["_wait"] / 1e3), exposed)
    seen = ~np.isnan(total).all(axis=1)
    if not seen.any():
        return None
    total, exposed, waited = total[seen], exposed[seen], waited[seen]
    return OwnTime(
        ranks, step[seen], total, total - exposed, exposed, waited, _numbers(numbered), COLLECTIVES
    )


def _odd(
    shape: tuple[int, int], of_step: Int64s, of_rank: Int64s, rows: pd.DataFrame, each: pd.DataFrame
) -> npt.NDArray[np.bool_]:
    """bool[steps, ranks]: steps in which a rank has more or fewer collectives, compared with the
    others, than it usually has.

    One was not recorded, or is on the other side of the border of a step: its waiting is unknown
    there.
    """
    calls = each[each["step"].notna()] if len(each) else each
    if not len(calls):
        return np.zeros(shape, np.bool_)
    sums = (
        calls.groupby(_OF_STEP, sort=False)
        .size()
        .rename("_calls")
        .reset_index()
        .astype({"step": "int64"})
    )
    table = rows[_OF_STEP].astype({"step": "int64"}).merge(sums, on=_OF_STEP, how="left")
    count = _table(shape, of_step, of_rank, table["_calls"].fillna(0))
    more = count - np.nanmedian(count, axis=1, keepdims=True)
    return np.asarray((more != np.nanmedian(more, axis=0)) & ~np.isnan(count), np.bool_)


def _numbered(counted: pd.DataFrame, pods: pd.DataFrame, matched: pd.DataFrame) -> pd.DataFrame:
    """`host step start_ms step_time_ms`, and the number that the step has on all hosts: `_number`.

    Hosts that count differently are matched by the collectives that they share; without any, by the
    alignment of `pods`.
    """
    columns = ["host", "step", "turn", "start_ms", "step_time_ms"]
    if not len(matched):
        numbers = (
            pods[["host", "group", "step"]]
            .drop_duplicates(["host", "group"])
            .rename(columns={"step": "_number"})
        )
        return counted[[*columns, "group"]].merge(numbers, on=["host", "group"])[
            [*columns, "_number"]
        ]
    # The largest group that a host is in has most of the others to be compared with.
    rows = matched[matched["ranks_seen"] == matched.groupby("host")["ranks_seen"].transform("max")]
    step = rows["step"].astype("float64")
    away = step - step.groupby(rows["match"]).transform("median")
    shift = away.groupby(rows["host"]).median().round()
    return counted[columns].assign(
        _number=counted["step"] - counted["host"].map(shift).fillna(0).astype("int64")
    )


def _without_communication(counted: pd.DataFrame, pods: pd.DataFrame) -> OwnTime | None:
    rows = pods.merge(
        counted[["host", "group", "start_ms"]].rename(columns={"start_ms": "_start"}),
        on=["host", "group"],
    )
    rows = rows.assign(
        _number=rows["step"], _turn=rows.groupby(["worker", "step"], sort=False).cumcount()
    )
    rows["device"] = [
        str(w)[len(str(h)) + 1 :] or None for w, h in zip(rows["worker"], rows["host"], strict=True)
    ]
    rows["device"] = pd.to_numeric(rows["device"], errors="coerce").astype("Int64")
    rows["rank"] = pd.array([pd.NA] * len(rows), "Int64")
    ranks, of_rank = _ranks(rows)
    if len(ranks) < 2:
        return None
    step, of_step = _in_order(rows, ["_number", "_turn"])
    shape = len(step), len(ranks)
    total = _table(shape, of_step, of_rank, rows["step_time_ms"])
    unknown = np.full(shape, np.nan)
    return OwnTime(
        ranks,
        step,
        total,
        total,
        unknown,
        unknown,
        _numbers(rows.assign(start_ms=rows["_start"])),
        STEPS,
    )


def _numbers(rows: pd.DataFrame) -> pd.DataFrame:
    return (
        rows[["host", "start_ms", "_number"]]
        .drop_duplicates()
        .rename(columns={"_number": "number"})
    )


def _ranks(rows: pd.DataFrame) -> tuple[pd.DataFrame, Int64s]:
    keys = ["host", "device"]
    code = np.asarray(rows.groupby(keys, sort=False, dropna=False).ngroup(), np.int64)
    ranks = rows[["host", "rank", "device"]].drop_duplicates(keys).reset_index(drop=True)
    return ranks.astype({"rank": "Int64", "device": "Int64"}), code


def _in_order(rows: pd.DataFrame, keys: list[str]) -> tuple[npt.NDArray[np.object_], Int64s]:
    code = np.asarray(rows.groupby(keys, sort=True).ngroup(), np.int64)
    first = np.unique(code, return_index=True)[1]
    return rows["_number"].to_numpy(object)[first], code


def _table(shape: tuple[int, int], row: Int64s, column: Int64s, values: pd.Series) -> Floats:
    table = np.full(shape, np.nan)
    table[row, column] = values.to_numpy(np.float64)
    return table
