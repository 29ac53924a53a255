"""The page of formulas says what the code says, and every deviation is held by a test that
exists.
"""

from __future__ import annotations

import re

import pytest

from nbprof.frames import SCHEMA
from nbprof.profiles.profile import Profile
from nbprof.schema import frames
from tests.parity.deviations import DEVIATIONS
from tests.parity.peer import NAMES
from tests.support import numbers_page
from tests.support.frames import accessors, frames_of
from tests.support.numbers_page import PAGE, VIEWS


def test_the_page_is_current():
    assert PAGE.read_text() == numbers_page.page(), (
        "write it anew: python -m tests.support.numbers_page"
    )


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
    for member in numbers_page.members(name):
        doc = (getattr(face, member) if member in vars(face) else face).__doc__ or ""
        assert len(doc.split()) >= 12, f"{name}.{member} says too little of how it is made"


@pytest.mark.parametrize("frame", SCHEMA)
def test_every_frame_is_on_the_page_with_its_columns(frame):
    page = PAGE.read_text()
    way = frame.replace("comparison.", "nbprof.compare(a, b).")
    way = way.replace("fits.", "nbprof.fits(model, batch).")
    title = re.compile(rf"^##+ `(?:p\.)?{re.escape(way)}(?:\(…\))?`$", re.MULTILINE)
    inside, _, key = way.rpartition(".")
    at = title.search(page) or re.search(
        rf'^### `p\.{re.escape(inside)}\["{key}"\]`$', page, re.MULTILINE
    )
    assert at, f"{frame} has no section"
    section = re.split(r"^##", page[at.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        column.name for column in (*SCHEMA[frame], *frames.WHERE_KNOWN.get(frame, []))
    ]


def test_every_frame_that_a_profile_hands_out_is_in_the_schema():
    # Findings are the rows of ascend.rules.frame that apply.
    found = {
        *frames_of(Profile),
        *(frame for way, face in accessors().items() for frame in frames_of(face, f"{way}.")),
    }
    assert found - set(SCHEMA) == {"ascend.rules.found"}


def test_the_name_of_a_view_stands_for_its_main_frame():
    assert SCHEMA["steps"] == SCHEMA["steps.frame"]
    assert "steps" not in SCHEMA
    with pytest.raises(KeyError):
        SCHEMA["none"]
