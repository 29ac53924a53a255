"""Of a recording in which a few times, durations, kinds or ranks are corrupt, what is said agrees
with what its sound part says.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nbprof.dialects.allocators import added_up
from tests.fuzz import values

SEED, COUNT = 11, 10


@pytest.fixture(scope="module", params=list(values.FORMATS))
def sound(request, tmp_path_factory):
    form = request.param
    return form, values.figures(values.FORMATS[form].sound(), tmp_path_factory.mktemp("sound"))


def test_the_sound_recording_has_all_figures(sound):
    form, figures = sound
    assert not any(map(math.isnan, (figures.step_ms, figures.busy_percent, figures.kernel_ms)))
    assert figures.steps == values.FORMATS[form].steps


def test_corrupt_values(sound, tmp_path):
    form, figures = sound
    assert [values.one(form, SEED, number, figures, tmp_path) for number in range(COUNT)] == [
        ""
    ] * COUNT


@pytest.mark.parametrize("way", values.WAYS, ids=lambda way: way.__name__)
def test_each_way_changes_the_file(way):
    k = values.recording(0)
    before = k.encode()
    way(k, values.Random(3))
    assert k.encode() != before


def test_another_figure_verdict_or_finding_is_a_fault(sound):
    figures = sound[1]
    assert not values.faults(figures, figures)
    for changed in (
        replace(figures, step_ms=2 * figures.step_ms),
        replace(figures, busy_percent=figures.busy_percent / 2),
        replace(figures, kernel_ms=figures.kernel_ms + 3_000),
        replace(figures, verdict="Output-bound"),
        replace(figures, steps=figures.steps - 1),
        replace(figures, findings=figures.findings | {"kernel_launch"}),
    ):
        assert values.faults(figures, changed)


def test_sizes_that_add_up_to_the_least_number_are_in_use_as_none():
    """Its opposite is no number of 64 bits."""
    sizes = np.array([np.iinfo(np.int64).min, 5])
    assert added_up(np.zeros(2, np.int32), sizes, np.full(2, -1)).tolist() == [0, 4]
