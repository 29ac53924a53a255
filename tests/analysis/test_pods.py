"""Several hosts beside each other: planted stragglers are found, and where nothing is wrong nothing is."""

from __future__ import annotations

import pytest

from nbprof.profiles.load import load
from tests.support import pods


@pytest.mark.parametrize("form", ["kineto", "xspace"])
def test_what_is_written_is_read(form, tmp_path):
    planted = pods.write(tmp_path / "job", 4, 5, "kernel", form=form)
    p = load(tmp_path / "job")
    assert len(p.hosts) == 4
    assert len(p.steps.frame) == 20
    slow = p.pods.frame.groupby("worker")["device_compute_ms"].mean()
    assert slow.idxmax() == p.hosts[planted.ranks[0]]
    each = p.device_time.each_collective
    assert each.groupby("match")["host"].size().value_counts().to_dict() == ({4: 5, 2: 10} if form == "kineto" else {4: 5})
    # Clocks are seconds apart.
    assert p.steps.frame.groupby("host")["start_ms"].min().std() > 1000
