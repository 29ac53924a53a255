"""A run that nbprof recorded tells how it was made when it is opened again."""

from __future__ import annotations

import json

import pytest

from tests.support.xspace import training_run


def test_the_label_and_framework_come_back(tmp_path):
    from nbprof.profiles.load import load

    folder = tmp_path / "plugins" / "profile" / "a"
    folder.mkdir(parents=True)
    (folder / "h.xplane.pb").write_bytes(training_run(3))
    plain = load(folder)
    assert plain.run.capture is None
    info = {
        "backend": "tensorflow",
        "framework": "TensorFlow 9, Keras 9",
        "started": "2026-01-02T03:04:05",
        "elapsed_s": 1.5,
        "label": "run 7",
    }
    (folder / "nbprof.json").write_text(json.dumps(info))
    again = load(tmp_path)
    assert again.run.capture is not None
    assert "run 7" in again.text()
    assert again.overview["framework"] == "TensorFlow 9, Keras 9"
    assert again.overview["environment"]["versions"] == {"TensorFlow": "9", "Keras": "9"}
    (folder / "nbprof.json").write_text("{ not json")
    assert load(tmp_path).run.capture is None


def recorded(folder, **info):
    folder.mkdir(parents=True)
    (folder / "h.xplane.pb").write_bytes(training_run(8))
    (folder / "nbprof.json").write_text(json.dumps({"backend": "tensorflow", **info}))
    return folder


@pytest.mark.parametrize("kept", [True, False])
def test_the_warm_up_that_was_asked_for_is_in_no_average(tmp_path, monkeypatch, kept):
    from nbprof.profiles.load import load

    if kept:
        monkeypatch.setenv("NBPROF_CACHE", "1")
        monkeypatch.setenv("NBPROF_CACHE_DIR", str(tmp_path / "cache"))
    found = load(recorded(tmp_path / "a"))
    assert not found.steps.frame["warmup"].any()
    text = str(found.receipt)
    assert (
        "warm-up: no step is excluded from averages (no leading step takes over 4 times the median of the following ones)"
        in text
    )
    asked = load(recorded(tmp_path / "b", options={"warmup": 3}))
    frame = asked.steps.frame
    assert frame["warmup"].tolist() == [True] * 3 + [False] * 5
    assert not frame["counted"][:3].any()
    assert frame["counted"].sum() == found.steps.frame["counted"][3:].sum()
    assert (
        "warm-up: the first 3 steps are excluded from averages, as requested by --warmup 3"
        in str(asked.receipt)
    )
    assert asked.overview["step_time_ms"] == pytest.approx(
        frame["step_time_ms"][frame["counted"]].mean()
    )
    # What was asked for may change in the file: what was kept of the first answer is not the
    # second.
    (tmp_path / "b" / "nbprof.json").write_text(json.dumps({"options": {"warmup": 1}}))
    assert load(tmp_path / "b").steps.frame["warmup"].sum() == 1


@pytest.mark.parametrize("warmup", [8, 10**12])
def test_a_warm_up_that_would_leave_nothing_is_said(tmp_path, warmup):
    from nbprof.profiles.load import load

    profile = load(recorded(tmp_path / "a", options={"warmup": warmup}))
    assert not profile.steps.frame["warmup"].any()
    assert profile.steps.frame["counted"].any()
    assert f"; --warmup {warmup} would leave no step" in str(profile.receipt)


@pytest.mark.parametrize("warmup", [-1, 1.5, "3", None, True])
def test_a_damaged_warm_up_is_none(tmp_path, warmup):
    from nbprof.profiles.load import load

    assert load(recorded(tmp_path / "a", options={"warmup": warmup})).run.capture.warmup is None


def test_windows_of_a_cell_know_each_other(tmp_path):
    from nbprof.profiles.load import load

    home = tmp_path / "plugins" / "profile"
    for first in (101, 1, 201):
        recorded(home / f"steps-{first}", group="one", window=[first, first + 7])
    recorded(home / "another", group="two", window=[1, 8])
    recorded(home / "plain")
    (home / "damaged").mkdir()
    (home / "damaged" / "nbprof.json").write_text("[")
    runs = load(home / "steps-101").runs
    assert runs["run"].tolist() == ["steps-1", "steps-101", "steps-201"]
    assert runs["first_step"].tolist() == [1, 101, 201]
    assert runs["shown"].tolist() == [False, True, False]
    assert load(runs["path"][2]).runs["shown"].tolist() == [False, False, True]
    assert load(home / "plain").runs["run"].tolist() == ["plain"]
    assert load(home / "another").runs["last_step"].tolist() == [8]


def test_a_damaged_window_is_none(tmp_path):
    from nbprof.sources.recording import CaptureInfo

    for window in ([1], ["a", "b"], [1, 2, 3], "ab", {}):
        assert CaptureInfo.from_dict({"window": window}).window == []


def test_after_out_of_memory_the_memory_stands_first(tmp_path):
    from nbprof.profiles.load import load
    from nbprof.tools.dashboard import select

    error = "cell failed in step 9, after 8 complete steps: ResourceExhaustedError: OOM when allocating tensor"
    profile = load(recorded(tmp_path / "a", cell_failed=True, error=error, out_of_memory=True))
    meta = profile.payload()["meta"]
    assert [tab["id"] for tab in meta["tabs"]] == ["memory", "overview", "input", "ops", "trace"]
    assert meta["notice"]["title"] == f"The {error}."
    largest = profile.memory.summary.sort_values("peak_bytes").iloc[-1]
    assert meta["notice"]["text"] == (
        f"Memory ran out. The recorded peak up to that point is {int(largest['peak_bytes'])} B on {largest['memory_id']}; "
        "the tab Memory shows what was live at that peak."
    )
    assert [
        tab["id"]
        for tab in select(profile.payload(), ["overview", "memory", "trace"])["meta"]["tabs"]
    ] == [
        "memory",
        "overview",
        "trace",
    ]
    assert [
        tab["id"] for tab in select(profile.payload(), ["overview", "ops"])["meta"]["tabs"]
    ] == ["overview", "ops"]
    failed = load(
        recorded(
            tmp_path / "b",
            cell_failed=True,
            error="cell failed in step 9, after 8 complete steps: ValueError: no",
        )
    ).payload()["meta"]
    assert failed["tabs"][0]["id"] == "overview"
    assert failed["notice"]["text"] == "Recorded up to that point: 8 steps."


def test_out_of_memory_before_anything_was_allocated_is_said(tmp_path):
    from nbprof.profiles.load import load

    folder = recorded(tmp_path / "a", cell_failed=True, error="cell failed", out_of_memory=True)
    (folder / "h.xplane.pb").write_bytes(training_run(0))
    assert (
        load(folder).payload()["meta"]["notice"]["text"]
        == "Memory ran out, and no allocations had been recorded."
    )
