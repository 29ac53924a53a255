"""The pod view, held against XProf's: every step and core, every category, and the bottleneck."""

from __future__ import annotations

import json

import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps import xprof_steps
from nbprof.analysis.steps.pods import bottleneck
from nbprof.profiles.load import load
from tests.analysis.test_bad_steps import host_steps, spans
from tests.parity.peer import NAMES, XPROF, profile, same
from tests.support.profiles import expected
from tests.support.programs import CONVERTER, run

LABELS = dict(
    zip(
        CATEGORIES,
        (
            *(
                "Device compute",
                "Device to device",
                "Device collective communication",
                "Host compute",
                "Kernel launch",
            ),
            *("Input", "Output", "Compilation", "All others"),
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_and_category(name):
    theirs = expected(name, XPROF, "pod_viewer")
    assert {e["id"]: e["name"] for e in theirs["stepBreakdownEvents"]} == dict(
        enumerate(LABELS.values(), 1)
    )
    steps = theirs["podStatsSequence"]["podStatsMap"]
    # The pod viewer drops no step, and numbers them from 0.
    ours = xprof_steps.frame(profile(name).run.activity, drop_incomplete=False)
    assert [s["stepNum"] for s in steps] == list(range(len(ours)))
    assert all(list(s["podStatsPerCore"]) == ["1"] for s in steps), (
        "the GPUs of a host are one worker"
    )
    cores = [s["podStatsPerCore"]["1"] for s in steps]
    same(ours["step_time_ms"] * 1000, [c["totalDurationUs"] for c in cores], "total")
    for ident, category in enumerate(CATEGORIES, 1):
        same(
            ours[f"{category}_ms"] * 1000,
            [c["stepBreakdownUs"][str(ident)] for c in cores],
            category,
            absolute=1e-6,
        )
    assert [LABELS[c] for c in bottleneck(ours)] == [c["bottleneck"] for c in cores]


@pytest.mark.parametrize("name", NAMES)
def test_the_pods_of_one_host_are_its_steps(name):
    p = profile(name)
    pods, steps = p.pods.frame, p.steps.frame
    cores = p.devices["kind"].eq("TPU").sum() or 1
    assert len(pods) == cores * len(steps)
    if cores > 1:
        assert pods["name"].tolist() == steps["name"].repeat(cores).tolist()
        return
    times = ["step_time_ms", *(f"{c}_ms" for c in CATEGORIES)]
    for column in times if len(steps) else []:
        assert pods[column].dropna().tolist() == steps[column].dropna().tolist()
    summary = p.pods.summary
    assert summary["step"].is_unique
    assert summary["slowest_ms"].tolist() == steps["step_time_ms"].tolist()
    assert summary["spread_percent"].isna().all(), "one worker has no spread"


LIVE = """
import sys
from xprof.convert import raw_to_tool_data
sys.stdout.buffer.write(raw_to_tool_data.xspace_to_tool_data(sys.argv[2:], sys.argv[1], {})[0])
"""


def answer(tool, *files):
    """What XProf, run now, says of files."""
    return json.loads(run(LIVE, tool, *files, needs=CONVERTER).stdout)


@pytest.mark.parametrize(
    "recordings",
    [
        {"a": spans(5, 0), "b": [(s + 1, 12) for s, _ in spans(4, 10)]},
        {"a": spans(3, 20), "b": [(s - 1, 9) for s, _ in spans(7, 0)], "c": spans(5, 10)},
        {"a": [(0, 20), (30, 20), (60, 20)], "b": [(14, 20), (44, 20), (74, 20)]},
        {"a": [(0, 20), (30, 20), (60, 20)], "b": [(18, 20), (48, 20), (78, 20)]},
        {
            "a": [(10, 5), (20, 5), (30, 5), (40, 5)],
            "b": [(2, 5), (12, 5), (22, 5), (32, 5)],
            "c": [(29, 9), (39, 9)],
        },
    ],
)
def test_hosts_are_laid_on_one_another_as_by_xprof(tmp_path, recordings):
    files = []
    for name, steps in recordings.items():
        files.append(tmp_path / f"{name}.xplane.pb")
        files[-1].write_bytes(host_steps(*steps, hostname=name))
    theirs = [
        s["podStatsPerCore"].values()
        for s in answer("pod_viewer", *files)["podStatsSequence"]["podStatsMap"]
    ]
    ours = load(tmp_path).pods.frame
    assert len(theirs) == ours["step"].nunique() > 0
    for cores, (_, workers) in zip(theirs, ours.groupby("step", sort=True), strict=True):
        found = {c["hostName"]: (c["totalDurationUs"], c["bottleneck"]) for c in cores}
        assert found == {
            w.worker: (pytest.approx(1000 * w.step_time_ms), LABELS[w.bottleneck])
            for w in workers.itertuples()
        }
