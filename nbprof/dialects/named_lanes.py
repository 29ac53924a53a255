"""The columns of lanes that dialects fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd


class Lane(NamedTuple):
    """The columns of a lane; lanes are drawn in ascending `order`."""

    kind: str
    device: int
    process: str
    thread: str
    note: str
    order: tuple[int, ...]


def fill(lanes: pd.DataFrame, named: Sequence[Lane]) -> None:
    """Fills `kind device process thread note order` of all lanes."""
    for column in ("kind", "process", "thread", "note"):
        lanes[column] = [getattr(lane, column) for lane in named]
    lanes["device"] = np.array([lane.device for lane in named], np.int64)
    position = np.empty(len(named), np.int64)
    position[sorted(range(len(named)), key=lambda i: named[i].order)] = np.arange(len(named))
    lanes["order"] = position.tolist()
