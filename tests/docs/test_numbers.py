"""The page of formulas says what the code says, and every deviation is held by a test that exists."""

from __future__ import annotations

import re

import pytest

from tests.parity.deviations import DEVIATIONS
from tests.parity.peer import NAMES
from tests.support import numbers_page
from tests.support.numbers_page import PAGE, VIEWS


def test_the_page_is_current():
    assert PAGE.read_text() == numbers_page.page(), "write it anew: python -m tests.support.numbers_page"


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda d: f"{d.tool} {d.column} {d.peer}")
def test_a_deviation_has_a_test_and_a_reason(deviation):
    file, _, function = deviation.test.partition("::")
    code = (PAGE.parents[1] / "tests" / file.removeprefix("tests/")).read_text()
    assert re.search(rf"^def {re.escape(function.partition('[')[0])}\(", code, re.MULTILINE)
    assert deviation.reason.endswith(".")
    assert set(deviation.profiles) <= set(NAMES)


@pytest.mark.parametrize("name", VIEWS)
def test_every_frame_tells_its_formula(name):
    face = VIEWS[name]
    for member in numbers_page._members(face):
        doc = (getattr(face, member) if member in vars(face) else face).__doc__ or ""
        assert len(doc.split()) >= 12, f"{name}.{member} says too little of how it is made"
