"""Profiles of PyTorch whose unit of work is another than a marked step: an iteration, a call, or the recording itself."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np

import nbprof
from nbprof.activity.unit import RECORDING, Unit
from nbprof.dialects.kineto import steps as kineto_steps
from nbprof.dialects.kineto.links import ANNOTATION, CALL, OP, Links
from nbprof.dialects.kineto.steps import Steps
from nbprof.profiles.profile import Profile

DATA = Path(__file__).resolve().parents[1] / "data"
CPU, GPU = DATA / "kineto" / "cpu_train.pt.trace.json.gz", DATA / "gpu" / "torch_gpu.pt.trace.json.gz"


def profile_of(kind: str, path: Path = CPU) -> Profile:
    """A recorded profile with its steps taken for units of a kind; of the recording there is one, from the first to the last event."""
    profile = nbprof.load(path)
    activity = profile.run.activity
    with patch.object(kineto_steps, "find", _one if kind == RECORDING else kineto_steps.find):
        assert len(activity.markers)
    activity.unit = Unit(kind)
    return profile


def _one(links: Links) -> Steps:
    events = links.trace.events
    rows = links.rows(OP, ANNOTATION, CALL)
    begin, end = np.array([events.start[rows].min()]), np.array([events.end[rows].max()])
    return kineto_steps.of_marks(links, 0, rows[:1], begin, end, ["recording"], [])
