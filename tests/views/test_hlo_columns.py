"""The columns of ops of compiled programs, and the rates beside their peaks, in fitting units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.frames import SCHEMA
from nbprof.tools.hlo import payload
from nbprof.tools.pods.heat import Heat

COLUMNS = {column.name: column for column in SCHEMA["hlo.frame"]}


def test_counts_of_operations_are_in_billions_and_say_so():
    flops, size = COLUMNS["flops"], COLUMNS["bytes"]
    assert (payload._head(flops).key, payload._head(flops).label) == ("gflops", "GFLOPs")
    assert payload._help(flops).endswith(" In 10⁹.")
    assert list(payload._values(flops, pd.Series([2e9, np.nan]))) == pytest.approx(
        [2.0, np.nan], nan_ok=True
    )
    assert "In 10⁹" not in payload._help(size)
    assert list(payload._values(size, pd.Series([2e9]))) == [2e9]


def test_operations_per_byte_have_two_digits():
    intensity = COLUMNS["operational_intensity"]
    assert payload._head(intensity).digits == 2
    assert payload._head(COLUMNS["flops"]).digits == COLUMNS["flops"].digits


@pytest.mark.parametrize(("peak", "text"), [(312e12, "of 312 "), (1.5e12, "of 1.50 ")])
def test_a_peak_has_digits_where_it_is_small(peak, text):
    rate = payload._Rate("flops", "Compute", "FLOP/s", 1e12)
    assert text in str(rate.figure(peak, "Device memory", "")), peak


def test_cells_are_told_from_the_median_of_their_step_in_percent_of_the_median_step():
    time, one = np.array([[10.0], [10.0], [15.0]]), np.array([0])
    heat = Heat(np.arange(3), one, one, np.zeros((3, 1), np.int64), time, time[..., None], one == 0)
    assert heat.over(None).ravel().tolist() == [0.0, 0.0, 50.0]
