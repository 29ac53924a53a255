"""The time of each line in the editor of a cell, in a real JupyterLab and without a kernel: it goes
with the text and the output it is of.
"""

from __future__ import annotations

import nbformat
import pytest

from nbprof.sources.recording import CaptureInfo
from tests.analysis.test_lines import BASE, CELL, RAN
from tests.e2e.notebooks import command, open_notebook
from tests.support.kineto import Kineto, profile

pytestmark = pytest.mark.browser

MARKS = ".jp-CodeCell .cm-gutter.nbprof-heat .cm-gutterElement"


@pytest.fixture
def notebook(lab, tmp_path):
    url, folder = lab
    file = Kineto(baseTimeNanoseconds=BASE)
    file.launched("gemm", 20, 25, 30)
    p = profile(tmp_path, file)
    p.run.capture = CaptureInfo(cells={"1": 7, "2": 8}, lines=RAN.packed())
    cell = nbformat.v4.new_code_cell(CELL.rstrip(), execution_count=8)
    cell.outputs = [nbformat.v4.new_output("display_data", p.mimebundle()[0])]
    nbformat.write(
        nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell("after = 1")]),
        folder / "gutter.ipynb",
    )
    return url


def test_the_gutter_goes_with_the_text_and_the_output_that_it_is_of(page, notebook):
    open_notebook(page, notebook, "gutter.ipynb")
    page.wait_for_selector(f"{MARKS} i")
    # A spacer, which is not seen, may stand among them.
    assert [text for text in page.locator(f"{MARKS} span").all_inner_texts() if text] == [
        "< 0.1 ms"
    ] * 3
    assert page.locator(".cm-gutter.nbprof-heat").count() == 1
    set_source = "text => window.jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(text)"
    page.evaluate(set_source, CELL.rstrip() + "  # faster")
    page.wait_for_selector(".nbprof-heat", state="detached")
    page.evaluate(set_source, CELL.rstrip())
    page.wait_for_selector(f"{MARKS} i")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0 }")
    command(page, "notebook:clear-cell-output")
    page.wait_for_selector(".nbprof-heat", state="detached")
    assert page.problems == []
