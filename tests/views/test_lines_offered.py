"""Where nobody recorded which lines of Python a step waits for, the Overview says how to."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbprof.profiles.load import load
from nbprof.sources.recording import CaptureInfo
from nbprof.tools.overview import lines

SLOW = Path(__file__).resolve().parents[1] / "data" / "xspace" / "tf_slow.xplane.pb"
OFF = {"stacks": False, "python": False}


def recorded(**facts):
    p = load(SLOW)
    assert p.overview["bound"] == "input"
    p.run.capture = CaptureInfo(
        **{"backend": "tensorflow", "notebook": "train.ipynb", "options": OFF, **facts}
    )
    return p


@pytest.mark.parametrize(
    ("notebook", "how"), [("train.ipynb", "%%nbprof --stacks"), ("", "nbprof.profile(stacks=True)")]
)
def test_where_input_bounds_and_no_stack_is_known_the_lines_are_offered(notebook, how):
    code = recorded(notebook=notebook).payload()["overview"]["code"]
    assert code["cells"] == []
    (note,) = code["notes"]
    assert "input" in note
    assert how in note


@pytest.mark.parametrize(
    "facts",
    [
        {"options": {**OFF, "stacks": True}},
        {"options": {**OFF, "python": True}},
        {"options": {"addresses": ["worker:6009"]}},
        {"backend": "python"},
        {"python": {"samples": "known"}},
        {"lines": {"known": True}},
    ],
    ids=["stacks", "python", "another process", "no framework", "samples", "lines"],
)
def test_what_was_recorded_or_cannot_be_is_not_offered(facts):
    assert lines.offer(recorded(**facts).run) == ""


def test_other_bounds_and_files_of_other_profilers_are_left_alone(monkeypatch):
    p = load(SLOW)
    assert lines.offer(p.run) == ""
    p = recorded()
    monkeypatch.setitem(p.run.first_answer, "bound", "device_compute")
    assert lines.offer(p.run) == ""
    monkeypatch.setitem(p.run.first_answer, "bound", "other")
    assert "outside ops" in lines.offer(p.run)


def test_of_several_processes_those_of_one_are_pointed_to():
    ranks = [
        {"rank": rank, "error": "", "recorded": rank > 0, "ended": 1.0, "killed": False}
        for rank in range(3)
    ]
    sampled = recorded(ranks=ranks, options={**OFF, "sampling": True})
    assert lines.offer(sampled.run).endswith("p.rank(1) shows the lines of rank 1.")
    assert "--stacks" in lines.offer(recorded(ranks=ranks, options=OFF).run)
