"""The pod view, held against XProf's: every step and core, every category, and the bottleneck."""

from __future__ import annotations

import pytest

from nbprof.activity import CATEGORIES
from nbprof.analysis import xprof_steps
from nbprof.analysis.pods import bottleneck
from tests.parity.peer import NAMES, XPROF, profile, same
from tests.support.profiles import expected

LABELS = dict(
    zip(
        CATEGORIES,
        (
            *("Device compute", "Device to device", "Device collective communication", "Host compute", "Kernel launch"),
            *("Input", "Output", "Compilation", "All others"),
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_and_category(name):
    theirs = expected(name, XPROF, "pod_viewer")
    assert {e["id"]: e["name"] for e in theirs["stepBreakdownEvents"]} == dict(enumerate(LABELS.values(), 1))
    steps = theirs["podStatsSequence"]["podStatsMap"]
    # The pod viewer drops no step, and numbers them from 0.
    ours = xprof_steps.frame(profile(name).run.activity, drop_incomplete=False)
    assert [s["stepNum"] for s in steps] == list(range(len(ours)))
    assert all(list(s["podStatsPerCore"]) == ["1"] for s in steps), "the GPUs of a host are one worker"
    cores = [s["podStatsPerCore"]["1"] for s in steps]
    same(ours["step_time_ms"] * 1000, [c["totalDurationUs"] for c in cores], "total")
    for ident, category in enumerate(CATEGORIES, 1):
        same(ours[f"{category}_ms"] * 1000, [c["stepBreakdownUs"][str(ident)] for c in cores], category, absolute=1e-6)
    assert [LABELS[c] for c in bottleneck(ours)] == [c["bottleneck"] for c in cores]


@pytest.mark.parametrize("name", NAMES)
def test_the_pods_of_one_host_are_its_steps(name):
    p = profile(name)
    pods, steps = p.pods.frame, p.steps.frame
    assert len(pods) == len(steps)
    times = ["step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
    for column in times if len(steps) else []:
        assert pods[column].dropna().tolist() == steps[column].dropna().tolist()
    summary = p.pods.summary
    assert summary["step"].is_unique
    assert summary["slowest_ms"].tolist() == steps["step_time_ms"].tolist()
    assert summary["spread_percent"].isna().all(), "one worker has no spread"
