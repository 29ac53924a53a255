"""The number of steps in words, for one host or several: `32 steps`, `2 steps on 2 ranks`."""

from __future__ import annotations

import re
from collections import Counter

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.display import wording

_RANK = re.compile(r"rank \d+\b")


def of_each(steps: pd.DataFrame) -> list[int]:
    """The number of steps of each host that has any; each row of `steps` is a step of one host."""
    if not len(steps):
        return []
    if "host" not in steps.columns:
        return [len(steps)]
    return sorted(Counter(steps["host"].tolist()).values(), reverse=True)


def longest(steps: pd.DataFrame) -> int:
    """The steps of the host that has the most: how long the run was, however many hosts recorded
    it.
    """
    return max(of_each(steps), default=0)


def format_count(steps: pd.DataFrame, hosts: int = 0, unit: Unit = MARKED) -> str:
    """The number of steps in words; steps of several hosts are not added up, as they ran in
    parallel.

    Parameters
    ----------
    steps : DataFrame
        Rows of `p.steps.frame`.
    hosts : int
        How many hosts recorded, where some may have no step.
    unit : Unit
        The meaning of the rows. A recording that is the only one of its host is not counted.
    """
    counts = of_each(steps)
    if not counts:
        return f"no {unit.plural}"
    least, largest = min(counts), max(counts)
    if least == largest:
        text = wording.plural(largest, unit.noun)
    else:
        text = f"{least:,} to {largest:,} {unit.plural}"
    several = max(len(counts), hosts)
    if unit.is_recording:
        text = "one recording" if several == 1 else "one recording each"
    if several == 1:
        return text
    return (
        f"{text} on {len(counts):,}{f' of {several:,}' if several > len(counts) else ''}"
        f" {noun(steps)}s"
    )


def noun(steps: pd.DataFrame) -> str:
    """The word for the hosts of steps: `rank` if all are named like ranks, else `host`."""
    if all(_RANK.match(str(host)) for host in steps["host"].unique()):
        return "rank"
    return "host"
