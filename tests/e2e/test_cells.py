"""Profile a cell by button in a real JupyterLab: it runs as it is, its dashboard stands below it,
and the settings hold.
"""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.e2e.axe import violations
from tests.e2e.notebooks import command, end_kernels, window
from tests.e2e.test_lab import open_notebook
from tests.e2e.test_live import wait_for_kernel, wait_until_idle
from tests.support.xspace import training_run

pytestmark = pytest.mark.browser

READY = """
import tensorflow as tf, nbprof, time

def train(steps):
    for i in nbprof.steps(range(steps)):
        tf.reduce_sum(tf.ones((50, 50)))
        time.sleep(0.005)
"""
CELLS = [
    READY,
    "train(12)",
    "before = 1\ntrain(9)\n1 / 0",
    "%%nbprof --warmup 0\ntrain(12)",
    "time.sleep(1.5)",
]
SETTINGS = {"steps": "2:6", "colours": "safe", "lanes": 6}
PLUGIN = "lab/api/settings/nbprof:plugin"

# What a silent request to the kernel says of an expression.
ASK = """
async expression => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const {content} = await kernel.requestExecute({code: "", silent: true, user_expressions: {it: expression}}).done;
    return content.user_expressions.it.data["text/plain"];
}
"""
PRESS = "[data-command='nbprof:profile-cell']"


@pytest.fixture(scope="module")
def opened(browser, lab):
    """A notebook with a loop, its kernel ready, in a JupyterLab with settings; gives the page and
    the folder.
    """
    url, folder = lab
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS] + [
        nbformat.v4.new_markdown_cell("Text")
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "cells.ipynb")
    with window(browser) as page:
        page.request.put(f"{url}/{PLUGIN}", data=json.dumps({"raw": json.dumps(SETTINGS)}))
        try:
            open_notebook(page, url, "cells.ipynb")
            wait_for_kernel(page)
            choose(page, 0)
            page.keyboard.press("Control+Enter")
            ran(page, 0, 1)
            yield page, folder
        finally:
            page.request.put(f"{url}/{PLUGIN}", data=json.dumps({"raw": "{}"}))
            end_kernels(page, url)


def cell(page, index):
    return page.locator(".jp-Notebook .jp-Cell").nth(index)


def choose(page, index):
    cell(page, index).locator(".jp-InputPrompt, .jp-InputArea-prompt").first.click()


def ran(page, index, count):
    cell(page, index).locator(".jp-InputPrompt", has_text=f"[{count}]").wait_for()


def shown(page, index):
    board = cell(page, index).locator(".jp-OutputArea .nbp")
    board.get_by_role("tab", name="Overview").wait_for()
    return board


def notes(page):
    return page.evaluate(ASK, "nbprof.last.run.capture.notes")


def source(page, index):
    return page.evaluate(
        "i => window.jupyterapp.shell.currentWidget.content.widgets[i].model.sharedModel.getSource()",
        index,
    )


def test_the_button_shows_the_dashboard_and_leaves_the_cell_as_it_is(opened):
    page, folder = opened
    choose(page, 1)
    cell(page, 1).locator(f".jp-cell-toolbar {PRESS}").click()
    board = shown(page, 1)
    ran(page, 1, 2)
    assert "5 steps" in board.locator(".run-id").inner_text()
    assert source(page, 1) == "train(12)"
    assert "recorded by the Profile button, with --steps 2:6" in notes(page)
    assert page.evaluate(ASK, "In[-1], get_ipython().execution_count") == "('train(12)', 3)"
    # The next time it is the plain cell again.
    page.keyboard.press("Control+Enter")
    ran(page, 1, 3)
    assert cell(page, 1).locator(".nbp").count() == 0
    page.keyboard.press("Control+s")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.model.dirty")
    saved = nbformat.read(folder / "cells.ipynb", 4).cells[1]
    assert (saved.source, saved.outputs) == ("train(12)", [])
    assert page.problems == []


def test_selected_lines_by_keyboard_behind_a_cell_that_runs(opened):
    page, _ = opened
    choose(page, 4)
    page.keyboard.press("Control+Enter")
    cell(page, 2).locator(".cm-line", has_text="train(9)").click()
    page.keyboard.press("Alt+Shift+L")
    assert "5 steps" in shown(page, 2).locator(".run-id").inner_text()
    wait_until_idle(page)
    assert "recorded by Profile Selected Lines (line 2 of the cell), with --steps 2:6" in notes(
        page
    )
    assert page.evaluate(ASK, "'before' in globals()") == "False"
    assert cell(page, 4).locator(".nbp").count() == 0
    assert source(page, 2) == CELLS[2]


def test_the_settings_hold_for_what_is_typed_and_drawn(opened):
    page, _ = opened
    choose(page, 3)
    page.keyboard.press("Control+Enter")
    board = shown(page, 3)
    wait_until_idle(page)
    assert "default options in effect: --steps 2:6" in notes(page)
    assert board.get_attribute("data-palette") == "safe"
    host = "getComputedStyle(document.querySelector('.nbprof-host').shadowRoot.querySelector('.nbp')).getPropertyValue('--c-host')"
    assert page.evaluate(host).strip() == "#1E41D3"
    board.get_by_role("tab", name="Trace").click()
    lanes = board.get_by_role("separator", name="Height of the lanes")
    lanes.wait_for()
    assert (
        int(lanes.get_attribute("aria-valuenow"))
        <= 6 * 18 + 20
        < int(lanes.get_attribute("aria-valuemax"))
    )


def test_it_says_why_it_cannot(opened):
    page, _ = opened
    button = page.locator(f".jp-NotebookPanel-toolbar {PRESS}")
    assert button.get_attribute("aria-disabled") == "false"
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 5; }")
    page.wait_for_function(
        f'() => document.querySelector(".jp-NotebookPanel-toolbar {PRESS}").title.startsWith("A markdown cell")'
    )
    assert button.get_attribute("aria-disabled") == "true"
    choose(page, 1)
    # A menu is for what is in view, as that of JupyterLab's own commands; the buttons in a
    # notebook's toolbar are for the notebook.
    enabled = "args => window.jupyterapp.commands.isEnabled('nbprof:profile-cell', args)"
    assert page.evaluate(enabled, {}) is True
    command(page, "nbprof:help")
    page.locator(".nbprof-help:visible").first.wait_for()
    assert (page.evaluate(enabled, {}), page.evaluate(enabled, {"toolbar": True})) == (False, True)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.close()")
    choose(page, 1)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.wait_for_function(
        f'() => document.querySelector(".jp-NotebookPanel-toolbar {PRESS}").title.startsWith("This notebook has no kernel")'
    )
    assert button.get_attribute("aria-disabled") == "true"


def test_open_profile_takes_a_typed_path(opened):
    page, folder = opened
    (folder / "typed").mkdir(exist_ok=True)
    (folder / "typed" / "host.xplane.pb").write_bytes(training_run(6))
    page.evaluate("() => { void window.jupyterapp.commands.execute('nbprof:open-profile'); }")
    page.get_by_role("textbox", name="Path of a profile").fill("nowhere")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text('There is no file or folder "nowhere".').wait_for()
    assert violations(page, ".jp-Dialog-content") == []
    page.get_by_role("textbox", name="Path of a profile").fill("typed/host.xplane.pb")
    page.keyboard.press("Enter")
    page.locator(".nbprof-document .nbp").get_by_role("tab", name="Overview").wait_for()
    assert page.problems == []
