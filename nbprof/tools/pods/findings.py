"""Who holds the others up and what that costs, in sentences and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.pods.chance import LEVEL
from nbprof.analysis.pods.own_time import COLLECTIVES
from nbprof.analysis.pods.stragglers import LATE
from nbprof.display import wording
from nbprof.tools.common import unit_of
from nbprof.tools.parts import Table
from nbprof.tools.tables import table

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

MOST_ROWS = 200
"""Rows of a table in a report; the frames have all."""
_MOST_NAMED = 3
_MOST_LINES = 2
_CHANCE = 0.01
_LEAST_PERCENT = 1.0
_TABLES = {
    "stragglers": (
        "host device straggler own_ms excess_ms slowest_in steps chance pauses last_in collectives"
        " cost_ms saved_ms cause cause_ms"
    ),
    "outliers": (
        "name where kind host time_ms median_ms excess_ms ratio deviations hosts_out hosts"
    ),
}


def table_of(run: Run, name: str) -> Table | None:
    """The table of stragglers or outliers; None where there are none."""
    frame: pd.DataFrame = getattr(run.pod_frames, name)
    if frame.empty:
        return None
    keys = _TABLES[name].split()
    if "device" in keys and not frame["host"].duplicated().any():
        keys.remove("device")
    return table(frame.head(MOST_ROWS), f"pods.{name}", keys)


def left_out(run: Run, name: str) -> str | None:
    """A sentence on the rows that `table_of` omits; None if it has all."""
    count = len(getattr(run.pod_frames, name))
    if count <= MOST_ROWS:
        return None
    return f"The first {MOST_ROWS:,} of {count:,} rows; p.pods.{name} has all."


def text(payload: Payload, limit: int) -> list[str]:
    """For the console: who holds the others up, and whether hosts are missing."""
    lines = []
    for finding in payload.pods.findings or ():
        if finding.startswith("**"):
            # The first sentence; the tab has the rest.
            sentence = wording.plain(finding).partition(". ")[0]
            lines.append(f"{sentence.removesuffix('.')}.")
    return lines[: max(0, min(limit, _MOST_LINES))]


def sentences(run: Run) -> list[str]:
    """Sentences above the map, most important first; **bold** where it matters."""
    frames = run.pod_frames
    ranks, unit = frames.stragglers, unit_of(run)
    if ranks.empty:
        return _missing(run)
    slow = ranks[ranks["straggler"].astype(bool)]
    several = bool(ranks["host"].duplicated().any())
    measured = _measured(frames.what_if)
    sentences = [
        _straggler(row, several, measured, unit)
        for row in slow.head(_MOST_NAMED).to_dict("records")
    ]
    if len(slow) > _MOST_NAMED:
        sentences.append(f"{len(slow) - _MOST_NAMED:,} more delay the others; see the table below.")
    if slow.empty:
        sentences.append(
            f"No straggler found: no worker's own work in {unit.a} takes over 1% longer than that"
            " of the others, beyond noise."
        )
        sentences += _barely_slow(ranks, measured, several, unit)
    return [*sentences, *_what_if(frames.what_if, frames.collectives, unit), *_missing(run)]


def _barely_slow(
    ranks: pd.DataFrame, measured: float | None, several: bool, unit: Unit
) -> list[str]:
    """The rank that differs from the others by more than chance explains, but too little to be a
    straggler.
    """
    if measured is None:
        return []
    beyond_chance = ranks[(ranks["chance"] <= LEVEL) & (ranks["excess_ms"] <= LATE * measured)]
    if beyond_chance.empty:
        return []
    row = beyond_chance.iloc[int(beyond_chance["slowest_in"].to_numpy().argmax())]
    behind = "not behind"
    if row["excess_ms"] > 0:
        behind = f"only {wording.millis(row['excess_ms'])} behind"
    often = f"the slowest in {row['slowest_in']:,} of {row['steps']:,} {unit.plural}"
    worker = f"**{_name(row, several)}**, {often}"
    return [f"Beyond chance, but on average {behind} the median of the others: {worker}."]


def _missing(run: Run) -> list[str]:
    """Sentences on the number of failed ranks, missing hosts, files and partly read hosts."""
    part, failed = len(run.hosts_in_part), run.hosts_failed
    away = len(run.hosts_missing) - part - failed
    see = "see p.pods.missing."
    sentences = []
    if failed:
        subject = "rank failed, and is" if failed == 1 else "ranks failed, and are"
        sentences.append(f"**{failed:,}** {subject} compared up to there; {see}")
    if away:
        subject = "host or file is" if away == 1 else "hosts or files are"
        sentences.append(f"**{away:,}** {subject} missing and not compared; {see}")
    if part:
        subject = "hosts were read only in part, and are"
        if part == 1:
            subject = "host was read only in part, and is"
        sentences.append(f"**{part:,}** {subject} compared as far as possible; {see}")
    return sentences


def _measured(what_if: pd.DataFrame) -> float | None:
    rows = what_if.loc[what_if["what"] == "measured", "step_time_ms"]
    return wording.real(rows.iloc[0]) if len(rows) else None


def _straggler(
    row: dict[Any, Any], several: bool, measured: float | None, unit: Unit = MARKED
) -> str:
    """One straggler: by how much, how often, what that costs, and why."""
    name = _name(row, several)
    behind, steps = wording.millis(row["excess_ms"]), f"{row['steps']:,}"
    if row["chance"] > _CHANCE:
        pauses = f"one {unit.noun}" if row["pauses"] == 1 else f"{row['pauses']:,} {unit.plural}"
        worst = f"**{wording.millis(row['worst_ms'])}**"
        text = (
            f"**{name}** pauses in **{pauses}** of {steps}; in {unit.noun} {row['worst_step']} it"
            f" is {worst} behind."
        )
    elif row["by"] != COLLECTIVES:
        text = (
            f"**{name}** is slow: {unit.a} takes **{behind}** longer than the median of the others,"
            f" and is the longest in {row['slowest_in']:,} of {steps} {unit.plural}. No"
            " communication was recorded, so whether the others wait for it is unknown."
        )
    else:
        text = (
            f"**{name}** delays the others: its own work in {unit.a} takes **{behind}** longer than"
            f" the median of the others, and is the longest in {row['slowest_in']:,} of {steps}"
            f" {unit.plural}."
        )
    if row["why"]:
        text += f" {wording.one_line(row['why'])}"
    if (cost := wording.real(row["cost_ms"])) is not None and cost > 0:
        text += f" In total, the others wait {wording.millis(cost)} {unit.per} for it."
    saved = wording.real(row["saved_ms"])
    if (
        row["by"] == COLLECTIVES
        and saved is not None
        and measured
        and 100 * saved / measured >= _LEAST_PERCENT
    ):
        text += (
            f" If it were as fast as they are, {unit.a} would take about"
            f" **{wording.percent(100 * saved / measured)}** less."
        )
    return text


def _name(row: Any, several: bool) -> str:
    """The host of a rank, with its device where hosts have several."""
    device = f":{row['device']}" if several and pd.notna(row["device"]) else ""
    return wording.one_line(f"{row['host']}{device}")


def _what_if(rows: pd.DataFrame, groups: pd.DataFrame, unit: Unit = MARKED) -> list[str]:
    """Costs of a slow group and of the network, if known and more than 1% of a step."""
    sentences = []
    for row in rows.to_dict("records"):
        percent = wording.real(row["saved_percent"])
        if percent is None or percent < _LEAST_PERCENT:
            continue
        gain = (
            f"{row['how']} **{wording.percent(percent)}** less:"
            f" {wording.millis(row['step_time_ms'])}"
        )
        if row["what"] == "slow_group":
            sentences.append(
                f"Collectives {_group(row['which'], groups)} take longer than those of similar"
                f" groups: with a typical link {unit.a} would take {gain}."
            )
        elif row["what"] == "network_free":
            sentences.append(f"If communication took no time, {unit.a} would take {gain}.")
    return sentences


def _group(members: str, groups: pd.DataFrame) -> str:
    """The ranks of collectives, with the program's word for the group if it is the only one."""
    ranks = wording.one_line(members)
    same = groups["slow"].astype(bool) & (groups["members"] == members)
    names = set(groups.loc[same, "description"]) - {""}
    if len(names) == 1:
        return f"of **{wording.one_line(names.pop())}** (ranks {ranks})"
    return f"among ranks **{ranks}**"
