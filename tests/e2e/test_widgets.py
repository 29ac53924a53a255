"""Live widgets among those of ipywidgets, in a real JupyterLab."""

from __future__ import annotations

import re

import pytest

from tests.e2e.axe import violations
from tests.e2e.conftest import ROOT
from tests.e2e.notebooks import (
    command,
    end_kernels,
    open_notebook,
    wait_for_kernel,
    wait_until_drawn,
    wait_until_idle,
    window,
    write_notebook,
)

pytestmark = pytest.mark.browser

LOAD = """
import ipywidgets as wd, nbprof
other = nbprof.load({other!r})
p = nbprof.load({path!r})
two = lambda: [p.steps.widget(), p.memory.widget()]
"""
LAYOUTS = {
    "row": "wd.HBox(two())",
    "column": "wd.VBox(two())",
    "beside a button": "wd.HBox([wd.Button(description='Next'), *two()])",
    "grid": "wd.GridBox(two(), layout=wd.Layout(grid_template_columns='1fr 1fr'))",
    "tabs": "wd.Tab(two(), titles=['Steps', 'Memory'])",
    "accordion": "wd.Accordion(two(), titles=['Steps', 'Memory'], selected_index=0)",
    "interact": "wd.interact(lambda steps: display(p.steps.widget(selected=(steps, steps))), steps=wd.Dropdown(options=[int(p.steps.frame.step.iloc[-1])]));",
}
SET_LATER = "w = p.steps.widget()\nw"
SELECT = "first, last = (int(p.steps.frame.step.iloc[i]) for i in (-2, -1))\nw.selected = (first, last)\nprint('set', first, last)"


@pytest.fixture(scope="module")
def executed(browser, lab):
    """A notebook with a cell for each layout, after *Run All*."""
    url, folder = lab
    data = ROOT / "tests" / "data" / "xspace"
    load = LOAD.format(path=str(data / "tf_cpu.xplane.pb"), other=str(data / "tf_slow.xplane.pb"))
    write_notebook(folder / "widgets.ipynb", load, SET_LATER, SELECT, *LAYOUTS.values())
    with window(browser) as page:
        open_notebook(page, url, "widgets.ipynb")
        wait_for_kernel(page)
        command(page, "notebook:run-all-cells")
        page.locator(".jp-CodeCell", has_text="set ").locator(
            ".jp-OutputArea-output"
        ).first.wait_for()
        wait_until_idle(page)
        yield page
        end_kernels(page, url)


def cell(page, index):
    found = page.locator(".jp-CodeCell").nth(index)
    found.scroll_into_view_if_needed()
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_dashboard_has_room_in_each_layout(executed, name):
    found = cell(executed, 3 + list(LAYOUTS).index(name))
    shown = found.locator(".nbp:visible")
    shown.first.wait_for()
    wait_until_drawn(executed)
    boxes = [shown.nth(i).bounding_box() for i in range(shown.count())]
    beside = 2 if name in ("row", "beside a button", "grid") else 1
    whole = found.locator(".jp-OutputArea-output").first.bounding_box()["width"]
    assert len(boxes) == (2 if name in ("row", "beside a button", "grid", "column") else 1)
    for box in boxes:
        assert 0.7 * whole / beside <= box["width"] <= whole, (name, boxes, whole)
        assert box["height"] < 2500, (name, boxes)
    if name in ("row", "beside a button"):
        assert abs(boxes[0]["width"] - boxes[1]["width"]) < 4


def test_a_selection_set_before_the_view_is_there_holds(executed):
    said = cell(executed, 2).locator(".jp-OutputArea-output", has_text="set ").text_content()
    _, first, last = said.split()
    shown = cell(executed, 1).locator(".nbp")
    shown.get_by_text(f"steps {first}–{last} selected").first.wait_for()


def test_axe_finds_nothing_in_dashboards_side_by_side(executed):
    cell(executed, 3).locator(".nbp:visible").nth(1).wait_for()
    assert violations(executed, ".nbprof-host") == []


def test_the_header_saves_the_report_and_compares_with_another_run(executed):
    shown = cell(executed, 1).locator(".nbp")
    with executed.expect_download() as saved:
        shown.get_by_role("button", name="Save report").click()
    assert saved.value.suggested_filename == "nbprof-tf_cpu.html"
    shown.get_by_role("button", name="Compare with another run").press("Enter")
    other = shown.get_by_role("menuitem", name=re.compile("tf_slow"))
    other.press("Enter")
    shown.get_by_role("tab", name="Compare", selected=True).wait_for()
    before = shown.get_by_role("tabpanel", name="Compare").get_by_role("combobox", name="Before")
    assert before.locator("option:checked").inner_text().startswith("tf_slow")
    shown.get_by_role("button", name="Compare with another run").click()
    shown.get_by_role("menuitem", name="This run alone").click()
    shown.get_by_role("tab", name="Compare").wait_for(state="detached")
