"""The dashboard, its text, its report and the brief speak of the unit of work, and a recording
without steps has an answer.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import nbprof
from nbprof.activity.unit import CALL, ITERATION, KINDS, RECORDING, STEP, Unit
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.payload import Part
from nbprof.schema import frames
from nbprof.tools import dashboard
from nbprof.tools.common import without_work
from nbprof.tools.overview.text import gain_text
from nbprof.tools.tables import DERIVED, head
from tests.support.kineto import Kineto, profile
from tests.support.units import CPU, GPU, of_ranks, profile_of

STEPS = re.compile(r"\bsteps?\b", re.IGNORECASE)
OTHERS = (ITERATION, CALL, RECORDING)
# The tab, and what it suggests, are called so whatever the unit is; the verdict has a table of its
# own.
FIXED = re.compile(
    r"Steps & input|Next steps?|nbprof\.steps|ProfilerStep|p\.steps|_step\b|Optimizer\.step|step\(\)"
)


def spoken(part, path=""):
    """Every text of nbprof's own in a part of a payload, with where it is: heads, figures, notes,
    sentences.
    """
    if isinstance(part, (dict, Part)):
        for key, value in part.items():
            if key not in (
                "data",
                "verdict",
                "confidence",
                "about",
                "run",
                "receipt",
                "footer",
                "name",
                "code",
                "key",
                "words",
                "unit",
            ):
                yield from spoken(value, f"{path}.{key}")
    elif isinstance(part, list):
        for at, value in enumerate(part):
            yield from spoken(value, f"{path}[{at}]")
    elif isinstance(part, str):
        yield path, part


@pytest.mark.parametrize("path", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", OTHERS)
def test_no_tab_speaks_of_steps(path, kind):
    payload = dashboard.dashboard(profile_of(kind, path).run)
    assert payload["meta"]["unit"] == Unit(kind).words
    parts = {
        tab: part
        for tab, part in payload.items()
        if tab in ("overview", "steps", "input", "kernels", "hlo", "device_time", "pods")
    }
    parts["device_time"] = {
        **parts["device_time"],
        "tables": {},
    }  # a number of a step is a number, also of a recording
    parts["pods"] = {**parts["pods"], "empty": None}  # what the tab compares in general
    found = [(where, text) for where, text in spoken(parts) if STEPS.search(FIXED.sub("", text))]
    assert not found


def test_a_payload_of_steps_names_no_unit():
    payload = dashboard.dashboard(profile_of(STEP).run)
    assert "unit" not in payload["meta"]
    assert "noun" not in payload["steps"]
    assert not any(
        key in item for item in payload["overview"]["advice"] for key in ("per", "gain_percent")
    )


@pytest.mark.parametrize(
    ("kind", "label", "rate"),
    [
        (STEP, "Average step", "Steps per second"),
        (ITERATION, "Average iteration", "Iterations per second"),
        (CALL, "Average call", "Calls per second"),
        (RECORDING, "Duration", None),
    ],
)
def test_the_figures_are_named_by_the_unit(kind, label, rate):
    payload = dashboard.dashboard(profile_of(kind).run)
    figures = {figure["key"]: figure for figure in payload["overview"]["figures"]}
    assert figures["step_time"]["label"] == label
    assert (figures["steps_per_second"]["label"] if rate else None) == rate
    assert rate or "steps_per_second" not in figures
    assert ("spread" in figures["step_time"]) is (kind != RECORDING)


def test_a_recording_states_its_duration_and_its_gain_in_percent():
    profile = profile_of(RECORDING)
    payload = dashboard.dashboard(profile.run)
    duration, item = payload["overview"]["figures"][0], payload["overview"]["advice"][0]
    assert duration["note"] == "first to last event"
    assert duration["value"] == pytest.approx(profile.steps.frame["step_time_ms"].iloc[0])
    assert item["gain_percent"] == pytest.approx(100 * item["gain_ms"] / duration["value"])
    assert (
        gain_text(item)
        == f"about {wording.millis(-item['gain_ms'])}, {item['gain_percent']:.0f}% of the recording"
    )
    assert wording.gain(2.0, "up to") == "up to −2.00 ms per step"
    assert payload["meta"]["notice"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_the_report_and_the_brief_follow(kind):
    profile, unit = profile_of(kind, GPU), Unit(kind)
    text = str(profile)
    counted = "one recording" if unit.is_recording else f"5 {unit.plural}"
    assert counted in text.splitlines()[0]
    assert f"{unit.average} " in text
    assert unit.per in text
    html = profile._repr_mimebundle_()[0]["text/html"]
    assert ("Where the time goes" if unit.is_recording else f"Where {unit.a} goes") in html
    brief = nbprof.brief(profile)
    assert counted in brief
    assert ("Duration" if unit.is_recording else f"{unit.time.capitalize()} ") in brief
    assert f"{unit.per}]" in brief


@pytest.mark.parametrize("kind", OTHERS)
def test_headings_of_all_columns_can_be_reworded(kind):
    unit = Unit(kind)
    for col in (*(col for name in frames.SCHEMA for col in frames.SCHEMA[name]), *DERIVED.values()):
        for key in ("label", "help"):
            text = unit.reword(head(col)[key])
            assert "the the" not in text.lower()
            assert unit.is_recording or not STEPS.search(
                re.sub(r"[`p]?\.?\bsteps?\.\w+|_steps?\b|steps?_\w+", "", text)
            ), text
    assert Unit(STEP).reword("ms / step") == "ms / step"
    assert Unit(RECORDING).reword("ms / step") == "ms"
    assert (
        Unit(CALL).reword("A step, in `p.steps.frame`; step_time.")
        == "A call, in `p.steps.frame`; step_time."
    )


def test_a_widget_of_a_recording_offers_no_steps():
    with pytest.raises(NbprofError, match="this recording is not divided into steps"):
        profile_of(RECORDING).widget(selected=(1, 1))
    assert profile_of(RECORDING).widget().selected == []
    assert profile_of(CALL).widget(selected=(2, 3)).selected == [2, 3]


def test_recordings_of_several_hosts_say_who_was_recorded_for_long_and_not_who_is_slow(tmp_path):
    run = of_ranks(RECORDING, tmp_path).run
    pods = dashboard.dashboard(run)["pods"]
    assert pods["total"] == 3
    assert "how long each was recorded, not which is slow" in pods["statement"]
    assert "slowest" not in pods["statement"]
    assert not pods["findings"]
    assert "stragglers" not in pods
    assert "straggler" not in set(run.advice["rule"])
    assert not [
        line for line in run.receipt.lines if "step" in line.text and "compared" in line.text
    ]
    # The same job by its steps has a straggler.
    assert dashboard.dashboard(of_ranks(STEP, tmp_path).run)["pods"]["findings"]


def test_windows_of_device_time_are_calls_and_no_recording_twice():
    assert dashboard.dashboard(profile_of(CALL, GPU).run)["device_time"]["windows"][:2] == [
        "Whole recording",
        "Call 1",
    ]
    part = dashboard.dashboard(profile_of(RECORDING, GPU).run)["device_time"]
    assert part["windows"] == ["Whole recording"]
    assert np.isfinite(part["parts_ms"]).all()


def test_a_recording_without_any_work_says_so(tmp_path):
    # A file of PyTorch's that has its profiler in it, and nothing else.
    file = Kineto(trace_id="x", baseTimeNanoseconds=1)
    file.add("PyTorch Profiler (0)", "Trace", 0, 10, pid="Spans", tid="PyTorch Profiler")
    file.add(
        "Iteration Start: PyTorch Profiler",
        "none",
        0,
        None,
        pid="Traces",
        tid="Trace PyTorch Profiler",
    )
    payload = dashboard.dashboard(profile(tmp_path, file).run)
    assert payload["steps"]["empty"]["title"] == "The recording contains no work."
    assert payload["overview"]["no_advice"].startswith("The recording contains no work")


def test_what_a_program_did_is_work_also_without_steps():
    assert not without_work(profile_of(STEP).run)
    assert not without_work(nbprof.load(CPU.parents[1] / "xspace" / "jax_cpu.xplane.pb").run)
