"""Profiles of PyTorch whose unit of work is another than a marked step: an iteration, a call, or
the recording itself.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np

import nbprof
from nbprof.activity.unit import RECORDING, Unit
from nbprof.dialects.gpu import find_steps
from nbprof.dialects.gpu.links import ANNOTATION, CALL, OP, Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.profiles.profile import Profile
from tests.support.kineto import profile as written
from tests.support.ranks import job

DATA = Path(__file__).resolve().parents[1] / "data"
CPU, GPU = (
    DATA / "kineto" / "cpu_train.pt.trace.json.gz",
    DATA / "gpu" / "torch_gpu.pt.trace.json.gz",
)


def profile_of(kind: str, path: Path = CPU) -> Profile:
    """A recorded profile with its steps taken for units of a kind; of the recording there is one,
    from the first to the last event.
    """
    profile = nbprof.load(path)
    activity = profile.run.activity
    with patch.object(find_steps, "find", _one if kind == RECORDING else find_steps.find):
        assert len(activity.markers)
    activity.unit = Unit(kind)
    return profile


def _one(links: Links, **_options: bool) -> Steps:
    events = links.trace.events
    parts = []
    for host in range(len(links.trace.hosts)):
        rows = links.rows(OP, ANNOTATION, CALL)
        rows = rows[links.host[rows] == host]
        begin, end = np.array([events.start[rows].min()]), np.array([events.end[rows].max()])
        marks = find_steps.Marks(rows[:1], begin, end, ["recording"])
        parts.append(find_steps.of_marks(links, host, marks, []))
    return Steps.joined(parts)


def of_ranks(kind: str, folder: Path) -> Profile:
    """A job of three ranks, the last of which is slow in each of its steps, as units of a kind."""
    arrivals = [[[at] for _ in range(12)] for at in (1000, 1100, 3000)]
    written(folder, *job(arrivals))
    return profile_of(kind, folder)
