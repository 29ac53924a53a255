"""Frames by their names in the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbprof import compare
from nbprof.core.errors import NbprofError
from nbprof.frames import SCHEMA
from nbprof.profiles.load import read
from nbprof.profiles.named import frame, names
from tests.support.frames import OF_A_PROFILE, public

DATA = Path(__file__).parents[1] / "data" / "xspace"


@pytest.fixture(scope="module")
def profile():
    return read(DATA / "jax_cpu.xplane.pb")


def test_each_frame_is_the_one_under_p(profile):
    taken = [name for name in names(profile) if not name.startswith("memory_viewer[")]
    assert [*taken, "trace.range"] == sorted(OF_A_PROFILE, key=[*taken, "trace.range"].index)
    for name in taken:
        found, whole = frame(profile, name), public(profile, name)
        assert found.equals(whole[found.columns]), name
        assert {col.name for col in SCHEMA[name]} <= {*found.columns}, name
    assert frame(profile, "steps").equals(profile.steps.frame)


def test_programs_are_named_in_brackets(profile):
    module = profile.memory_viewer.modules.module[0]
    assert frame(profile, f"memory_viewer[{module}].timeline").equals(
        profile.memory_viewer[module].timeline
    )
    for name, said in (
        ("memory_viewer[nothing].at_peak", "nothing"),
        ("memory_viewer[module].at_peak", "put the name of a program"),
    ):
        with pytest.raises(NbprofError, match=said):
            frame(profile, name)


def test_frames_of_a_comparison(profile):
    comparison = compare(profile, profile)
    assert names(comparison) == [name for name in SCHEMA if name.startswith("comparison.")]
    assert frame(comparison, "comparison.categories").equals(comparison.categories)
    assert frame(comparison, "verdict").equals(comparison.verdict)


@pytest.mark.parametrize(
    "name",
    [
        "kernel.by_nam",
        "run",
        "__class__",
        "steps.__init__",
        "save",
        "trace.export",
        "trace.range",
        "comparison.verdict",
        "",
        "." * 99,
    ],
)
def test_what_is_no_frame_is_not_reached(profile, name):
    with pytest.raises(NbprofError, match="there is no frame"):
        frame(profile, name)


def test_near_names_are_said(profile):
    with pytest.raises(NbprofError, match=r"kernels\.by_name"):
        frame(profile, "kernel.by_nam")
