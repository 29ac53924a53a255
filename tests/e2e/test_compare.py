"""Two profiles compared in a tab of a real JupyterLab, chosen in the file browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.notebooks import command, wait_for_layout

pytestmark = pytest.mark.browser

DATA = Path(__file__).resolve().parents[1] / "data" / "xspace"


def test_two_profiles_of_the_file_browser_are_compared(page, lab):
    url, root = lab
    (root / "pair").mkdir()
    for name in ("tf_slow", "tf_mended"):
        shutil.copy(DATA / f"{name}.xplane.pb", root / "pair")
    page.goto(f"{url}/lab/tree/pair?reset")
    items = [
        page.locator(".jp-DirListing-item", has_text=name) for name in ("tf_slow", "tf_mended")
    ]
    items[0].wait_for()
    items[0].click()
    items[1].click(modifiers=["Control"])
    items[1].click(button="right")
    page.locator(".lm-Menu-itemLabel", has_text="Compare Profiles").click()
    board = page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp")
    answer = board.locator(".compare-head h2")
    answer.wait_for()
    # Whichever of the two was copied later: the older one stands before.
    first = answer.inner_text()
    # Beside the file browser there is room for all columns.
    assert board.locator("table.categories").evaluate(
        "e => e.parentElement.scrollWidth <= e.parentElement.clientWidth"
    )
    swap = board.get_by_role("button", name="Swap before and after")
    swap.focus()
    page.keyboard.press("Enter")
    assert {first.split(" (")[0], answer.inner_text().split(" (")[0]} == {
        "2.14× faster",
        "2.14× slower",
    }
    assert swap.evaluate("e => e.getRootNode().activeElement === e")
    # The tab comes back with the layout.
    wait_for_layout(page, "tf_mended")
    page.goto(f"{url}/lab/tree/pair")
    answer.wait_for()
    assert answer.inner_text() == first
    assert page.problems == []


def test_runs_of_cells_are_compared_by_the_names_of_their_cells(page, lab):
    url, root = lab
    folders = []
    for name, cell, day in (("tf_slow", 3, "01"), ("tf_mended", 5, "02")):
        folder = (
            root / "cells" / "nbprof-results" / "plugins" / "profile" / f"2026_11_{day}_10_00_00"
        )
        folder.mkdir(parents=True)
        shutil.copy(DATA / f"{name}.xplane.pb", folder)
        (folder / "nbprof.json").write_text(
            json.dumps({"backend": "tensorflow", "label": f"training [{cell}]"})
        )
        folders.append(folder.relative_to(root).as_posix())
    page.goto(f"{url}/lab/tree/cells?reset")
    page.locator(".jp-DirListing-item", has_text="nbprof-results").wait_for()
    command(page, "nbprof:compare", a=folders[0], b=folders[1])
    board = page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp")
    board.locator(".compare-head h2").wait_for()
    page.locator(".lm-TabBar-tabLabel", has_text="training [3] → training [5]").wait_for()
    assert "2026_11_01" not in board.locator(".compare-bar").inner_text()
    assert page.problems == []
