"""docs/architecture.md shows the rooms as the import contract has them."""

from __future__ import annotations

from tests.support import architecture_page
from tests.support.architecture_page import PAGE, ROOT, layers, says


def test_the_drawing_is_that_of_the_contract():
    assert PAGE.read_text() == architecture_page.page(), (
        "write it anew: python -m tests.support.architecture_page"
    )


def test_every_room_is_in_the_contract_and_says_what_it_is_for():
    listed = {room for floor in layers() for room in floor}
    there = {path.parent.name for path in (ROOT / "nbprof").glob("*/__init__.py")} | {
        path.stem for path in (ROOT / "nbprof").glob("*.py") if path.stem != "__init__"
    }
    assert listed == there
    assert all(says(room) for room in listed)
    # A house of few rooms, each with a sign at its door: 17, a front door each for the shell, for CI
    # and for assistants, and the engine room.
    assert len(list((ROOT / "nbprof").glob("*/__init__.py"))) <= 21
    # Among the modules are those named after libraries whose trainers call nbprof.
    assert len([path for path in (ROOT / "nbprof").glob("*.py") if path.stem != "__init__"]) <= 7
