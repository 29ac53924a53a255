"""Devices of a process that ran nothing, and copies that go to one device after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.intervals import Intervals

_TO_DEVICE = "H2D"


@dataclass(frozen=True)
class InTurn:
    """Copies to several devices of a host that hardly overlap.

    Attributes
    ----------
    devices : int
    ms : float
        What they take per step, all devices together.
    overlap : float
        The part of that time in which another device receives, too, 0 to 1.
    """

    devices: int
    ms: float
    overlap: float


@dataclass(frozen=True)
class Idle:
    """Devices of a host of which some ran nothing: their kind, how many there are, and how many of
    them ran nothing.
    """

    kind: str
    devices: int
    idle: int


def idle(activity: Activity) -> Idle | None:
    """The devices that ran nothing beside others that did; of one host, as other processes may use
    those of a job.
    """
    if len(activity.hosts) != 1 or not len(activity.device_extents):
        return None
    used = set(activity.device_extents.device.tolist())
    for kind, rows in activity.devices.groupby("kind", sort=False):
        without = [device for device in rows["device"].tolist() if device not in used]
        if without and len(without) < len(rows):
            return Idle(str(kind), len(rows), len(without))
    return None


def in_turn(activity: Activity, steps: pd.DataFrame) -> InTurn | None:
    """Copies to the devices of the host with the most of them, within its steps; None with fewer
    than two devices.
    """
    copies = activity.transfers.frame()
    if not len(copies) or not len(steps):
        return None
    copies = copies[
        (activity.texts.values[copies["kind"].to_numpy(np.int64)] == _TO_DEVICE)
        & (copies["device"] >= 0)
    ]
    count = copies.groupby("host")["device"].nunique()
    if not len(count) or count.max() < 2:
        return None
    host = int(count.idxmax())
    of_host = steps[steps["host"] == activity.hosts[host]]
    if not len(of_host):
        return None
    begin = float(of_host["start_ms"].min()) * 1e9
    end = float((of_host["start_ms"] + of_host["step_time_ms"]).max()) * 1e9
    rows = copies[(copies["host"] == host) & (copies["start"] >= begin) & (copies["end"] <= end)]
    lengths = [Intervals.of_rows(of_device).total() for _, of_device in rows.groupby("device")]
    total = sum(lengths)
    if len(lengths) < 2 or not total:
        return None
    return InTurn(
        devices=len(lengths),
        ms=total / 1e9 / len(of_host),
        overlap=1 - Intervals.of_rows(rows).total() / total,
    )
