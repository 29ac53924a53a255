"""The main job in a real JupyterLab: the quickstart is run, looked at, saved, and read again with
no kernel.
"""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import expect

from tests.e2e.conftest import ROOT
from tests.e2e.notebooks import (
    command,
    dashboards,
    end_kernels,
    open_notebook,
    save,
    wait_for_kernel,
    wait_until_drawn,
    window,
)
from tests.e2e.test_page import TABS
from tests.support.saved import packed_of

pytestmark = pytest.mark.browser

# Runs in the kernel behind the profiled cell: what the screen must show, straight from the frames.
PROBE = """
import json, nbprof
P = nbprof.last
with open("expected.json", "w") as file:
    json.dump({
        "summary": P.steps.summary.set_index("category")["mean_ms"].to_dict(), "steps": P.steps.frame["step"].tolist(),
        "step_time": P.overview["step_time_ms"], "verdict": P.overview["verdict"], "top_op": P.ops.frame["op"].iloc[0],
        "top_self": P.ops.frame["self_us"].iloc[0], "memory": P.memory.summary["memory_id"].tolist(), "ops": len(P.ops.frame),
    }, file)
W = P.steps.widget()
W
"""
READ_BACK = """
with open("selected.json", "w") as file:
    json.dump(list(W.selected), file)
W.selected = [W_first, W_last]
"""


@pytest.fixture(scope="module")
def executed(browser, lab):
    """The quickstart, run in JupyterLab and saved; gives what was seen on the way."""
    url, folder = lab
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    first = next(
        i
        for i, c in enumerate(notebook.cells)
        if c.cell_type == "code" and c.source.lstrip().startswith("%%nbprof")
    )
    notebook.cells.insert(first + 1, nbformat.v4.new_code_cell(PROBE))
    nbformat.write(notebook, folder / "quickstart.ipynb")
    with window(browser) as page:
        yield run(page, notebook, url), folder, url, page.problems


def run(page, notebook, url):
    open_notebook(page, url, "quickstart.ipynb")
    # Without a kernel the command would run nothing, and say nothing.
    wait_for_kernel(page)
    command(page, "notebook:run-all-cells")
    dashboards(page).first.get_by_role("tab", name="Overview").wait_for(timeout=300_000)
    page.wait_for_function(
        "count => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].filter(p => /\\[\\d+\\]/.test(p.textContent)).length >= count",
        arg=sum(c.cell_type == "code" and bool(c.source.strip()) for c in notebook.cells),
        timeout=180_000,
    )
    return page


def test_each_tab_shows_the_numbers_of_the_frames(executed):
    page, folder, _, problems = executed
    expected = json.loads((folder / "expected.json").read_text())
    dashboard = dashboards(page).first
    texts = {}
    for tab in TABS:
        dashboard.get_by_role("tab", name=tab).click()
        pane = dashboard.get_by_role("tabpanel", name=tab)
        pane.wait_for()
        wait_until_drawn(page)
        texts[tab] = pane.inner_text()
    assert expected["verdict"] in texts["Overview"]
    assert f"{expected['step_time']:.2f}" in texts["Overview"]
    for category in ("step_time", "input", "host_compute"):
        assert f"{expected['summary'][category]:.2f}" in texts["Steps & input"], category
    # Numbers travel with seven digits.
    shown = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.\d", texts["Ops"])]
    assert (
        min(abs(number - expected["top_self"]) for number in shown)
        <= 0.06 + 1e-6 * expected["top_self"]
    )
    assert all(name in texts["Memory"] for name in expected["memory"])
    assert dashboard.get_by_role("tabpanel", name="Trace").locator("canvas").count() >= 1
    assert problems == []


def test_selected_steps_travel_both_ways(executed):
    page, folder, _, _ = executed
    steps = json.loads((folder / "expected.json").read_text())["steps"]
    widget = dashboards(page).nth(1)
    chart = widget.locator(
        ".plot[tabindex='0'], [tabindex='0'][aria-label^='Step time chart']"
    ).first
    chart.scroll_into_view_if_needed()
    chart.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.wait_for_timeout(500)
    source = READ_BACK.replace("W_first", str(steps[5])).replace("W_last", str(steps[7]))
    command(page, "notebook:replace-selection", text="")
    page.evaluate(
        """source => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = notebook.widgets.length - 1;
            window.jupyterapp.commands.execute('notebook:insert-cell-below').then(() => {
                notebook.activeCell.model.sharedModel.setSource(source);
                window.jupyterapp.commands.execute('notebook:run-cell');
            });
        }""",
        source,
    )
    for _ in range(60):
        if (folder / "selected.json").exists() and (folder / "selected.json").read_text():
            break
        page.wait_for_timeout(250)
    chosen = json.loads((folder / "selected.json").read_text())
    assert chosen[0] == steps[0]
    assert steps[0] < chosen[1] <= steps[4]
    expect(widget).to_contain_text(f"steps {steps[5]}–{steps[7]} selected")


@pytest.fixture(scope="module")
def saved(executed):
    """The notebook as saved from JupyterLab, its kernel gone: a trusted and an untrusted copy that
    name no kernel.
    """
    page, folder, url, _ = executed
    save(page)
    notebook = nbformat.read(folder / "quickstart.ipynb", 4)
    outputs = [
        o
        for c in notebook.cells
        if c.cell_type == "code"
        for o in c.outputs
        if "application/vnd.nbprof.v1+json" in o.get("data", {})
    ]
    assert outputs, "the saved notebook holds the report"
    end_kernels(page, url)
    for key in ("kernelspec", "language_info"):
        notebook.metadata.pop(key, None)
    nbformat.write(notebook, folder / "untrusted.ipynb")
    notebook.metadata["title"] = "trusted"
    nbformat.write(notebook, folder / "trusted.ipynb")
    # As `jupyter trust` does it, which takes seconds to start.
    NotebookNotary(data_dir=str(folder / ".data")).sign(notebook)
    return page, folder, url, outputs


@pytest.mark.parametrize("name", ["trusted", "untrusted"])
def test_the_saved_notebook_reads_well_with_no_kernel(browser, saved, name):
    _, folder, url, _ = saved
    expected = json.loads((folder / "expected.json").read_text())
    with window(browser) as page:
        open_notebook(page, url, f"{name}.ipynb")
        page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        dashboard = dashboards(page).first
        dashboard.get_by_role("tab", name="Steps & input").click()
        assert f"{expected['summary']['input']:.2f}" in dashboard.inner_text()
        assert page.request.get(f"{url}/api/kernels").json() == []


def test_each_profiled_cell_has_one_output_within_its_budget(saved):
    _, _, _, outputs = saved
    for output in outputs:
        assert set(output["data"]) == {
            "application/vnd.nbprof.v1+json",
            "text/html",
            "image/png",
            "text/plain",
        }
        assert len(packed_of(output["data"])) < 300_000


@pytest.fixture(scope="module")
def converted(saved):
    """The page that nbconvert makes of the notebook."""
    _, folder, _, _ = saved
    from nbconvert.exporters import HTMLExporter

    page, _ = HTMLExporter().from_filename(folder / "untrusted.ipynb")
    (folder / "page.html").write_text(page, encoding="utf-8")
    return folder / "page.html"


@pytest.mark.parametrize("scripts", [True, False])
def test_the_nbconvert_page_reads_well_offline(browser, converted, scripts):
    expected = json.loads((converted.parent / "expected.json").read_text())
    context = browser.new_context(
        viewport={"width": 1300, "height": 1000}, java_script_enabled=scripts, offline=True
    )
    page = context.new_page()
    asked = []
    page.on(
        "request",
        lambda r: (
            asked.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        ),
    )
    page.goto(converted.as_uri(), wait_until="domcontentloaded")
    if scripts:
        dashboard = page.locator(".nbp").first
        dashboard.get_by_role("tab", name="Steps & input").click()
        assert f"{expected['summary']['input']:.2f}" in dashboard.inner_text()
    else:
        text = page.inner_text("body")
        assert expected["verdict"] in text
        assert f"{expected['step_time']:.2f}" in text
    # The page template of nbconvert asks for its own libraries (require.js, MathJax, Mermaid);
    # nothing of ours does.
    ours = [
        u
        for u in asked
        if not any(part in u for part in ("require", "mathjax", "MathJax", "mermaid"))
    ]
    assert ours == []
    context.close()


def test_the_pdf_path_takes_the_picture(saved):
    """LaTeX takes the first type of its list that an output has: that is the PNG, and it is large
    enough to print.
    """
    import io
    from base64 import b64decode

    from nbconvert.exporters import LatexExporter
    from PIL import Image

    _, _, _, outputs = saved
    order = LatexExporter().default_config["NbConvertBase"]["display_data_priority"]
    for output in outputs:
        assert next(kind for kind in order if kind in output["data"]) == "image/png"
        with Image.open(io.BytesIO(b64decode(output["data"]["image/png"]))) as picture:
            assert picture.width >= 1050
            assert picture.height >= 900
