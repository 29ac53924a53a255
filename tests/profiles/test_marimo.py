"""What marimo is given to show. That it is drawn is tested in a browser."""

from __future__ import annotations

import html

import pandas as pd
import pytest

import nbprof
from tests.e2e.conftest import ROOT
from tests.support.profiles import require

DATA = ROOT / "tests" / "data" / "xspace"


@pytest.fixture(scope="module")
def profile():
    require("marimo")
    return nbprof.load(DATA / "tf_cpu.xplane.pb")


def test_a_profile_and_its_views_are_widgets(profile):
    for shown, views in ((profile, []), (profile.steps, ["input"]), (profile.trace, ["trace"])):
        widget = shown._display_()
        assert type(widget).__name__ == "DashboardWidget"
        assert widget.views == views


def test_a_view_without_data_says_so(profile):
    assert profile.allocator._display_() == repr(profile.allocator)


def test_others_are_in_a_frame(profile):
    comparison = nbprof.compare(profile, nbprof.load(DATA / "tf_slow.xplane.pb"))
    for shown in (profile.overview, profile.advice, comparison, profile.steps.figure()):
        text = html.unescape(shown._display_().text)
        assert text.startswith("<iframe")
        assert "nbprof" in text
        assert "<script" in text


def test_a_part_of_the_findings_is_a_table(profile):
    assert type(profile.advice.head(1)) is pd.DataFrame
