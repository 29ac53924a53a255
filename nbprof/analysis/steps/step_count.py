"""How many steps there are, told for one host or for several: `32 steps`, `2 steps on 2 ranks`."""

from __future__ import annotations

import re

import pandas as pd

_RANK = re.compile(r"rank \d+\b")


def of_each(steps: pd.DataFrame) -> list[int]:
    """How many steps each host has, of the hosts that have any; each row of `steps` is a step of one host."""
    if not len(steps):
        return []
    if "host" not in steps.columns:
        return [len(steps)]
    return [int(count) for count in steps["host"].value_counts()]


def most(steps: pd.DataFrame) -> int:
    """The steps of the host that has the most: how long the run was, however many hosts recorded it."""
    return max(of_each(steps), default=0)


def format_count(steps: pd.DataFrame, hosts: int = 0) -> str:
    """The count of steps in words; the rows of several hosts are not added up, as they ran side by side.

    Parameters
    ----------
    steps : DataFrame
        Rows of `p.steps.frame`.
    hosts : int
        How many hosts recorded, where some may have no step.
    """
    counts = of_each(steps)
    if not counts:
        return "no steps"
    least, largest = min(counts), max(counts)
    text = _plural(largest, "step") if least == largest else f"{least:,} to {largest:,} steps"
    several = max(len(counts), hosts)
    if several == 1:
        return text
    return f"{text} on {len(counts):,}{f' of {several:,}' if several > len(counts) else ''} {noun(steps)}s"


def noun(steps: pd.DataFrame) -> str:
    """What the hosts of steps are called: `rank` where all have the name of one, else `host`."""
    return "rank" if all(_RANK.match(str(host)) for host in steps["host"].unique()) else "host"


def _plural(count: int, one: str) -> str:
    return f"{count:,} {one}{'' if count == 1 else 's'}"
