"""Ctrl-C at random moments of a cell leaves a kernel that works; `make fuzz` presses it more
often.
"""

from __future__ import annotations

import pytest

from tests.fuzz.interrupts import FRAMEWORKS, storm
from tests.support.profiles import require

CELLS = 4


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_kernel_works_on_after_ctrl_c_at_any_moment(framework, tmp_path):
    require(framework)
    became = []
    for number, presses, out, wrong in storm(framework, 1, range(CELLS), tmp_path):
        assert not wrong, "\n".join([f"cell {number} {presses}", *wrong])
        became.append(out.became)
        print(
            f"cell {number} {presses}: {out.became}, answered {out.answer_s:.2f} s after the last Ctrl-C"
        )
    assert len(became) == CELLS
