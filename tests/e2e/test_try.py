"""*Try it* at a finding in a real JupyterLab: what came of it, and the changed cell."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.axe import violations
from tests.e2e.notebooks import (
    command,
    dashboards,
    end_kernels,
    open_notebook,
    restart,
    run_code,
    save,
    wait_for_kernel,
    wait_until_drawn,
    wait_until_idle,
    window,
    write_notebook,
)

pytest.importorskip("torch")
pytestmark = pytest.mark.browser

# A gain that does not depend on what else the machine does, and as few turns as an interval needs.
READY = """
%load_ext nbprof
import time, torch, nbprof
from torch.utils.data import DataLoader
from nbprof.capture.experiments import engine, register

engine.MOST_PAIRS = engine.LEAST_PAIRS
engine._WINDOW_S = 0.02
register.EXPERIMENTS = [each for each in register.EXPERIMENTS if each.name == "loader_workers"]
engine.statistics.median_of = lambda *_: engine.statistics.Median(2.0, 1.0, 3.0)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((8,), float(index)), index % 3

torch.manual_seed(0)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
"""
CELL = """%%nbprof -o p
loader = DataLoader(
    Slow(),
    batch_size=4,  # few
)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CHANGED = CELL.partition("\n")[2].rstrip("\n")
MIME = "application/vnd.nbprof.v1+json"


@pytest.fixture(scope="module")
def opened(browser, lab):
    """A notebook whose second cell was recorded; gives the page and the folder."""
    url, folder = lab
    write_notebook(folder / "try.ipynb", READY, CELL)
    with window(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        open_notebook(page, url, "try.ipynb")
        wait_for_kernel(page)
        command(page, "notebook:run-all-cells")
        dashboards(page).first.get_by_role("tab", name="Overview").wait_for()
        wait_until_idle(page)
        yield page, folder
        end_kernels(page, url)


def button(page):
    return page.get_by_role("button", name=re.compile("^Try it: "))


def finding(page):
    return dashboards(page).locator(".recs > li", has=button(page))


def sources(page):
    return page.evaluate(
        "() => [...window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells].map(c => c.getSource())"
    )


def test_a_remedy_is_tried_from_the_keyboard_and_shown_where_it_was_found(opened):
    page, folder = opened
    assert button(page).count() == 1
    button(page).focus()
    page.keyboard.press("Enter")
    said = finding(page).get_by_role("status")
    said.filter(has_text="Trying: DataLoader with").wait_for()
    assert "s of about 60 s" in finding(page).locator(".said").inner_text()
    tried = dashboards(page).locator(".tried")
    tried.wait_for()
    wait_until_drawn(page)
    assert "DataLoader with" in tried.inner_text()
    evidence = finding(page).locator(".ev").inner_text()
    assert re.search(r"Tried: DataLoader with .* \[.*\] of a step, results equal", evidence)
    assert tried.locator("tr.change ins").first.inner_text().strip().startswith("num_workers=")
    assert violations(page, ".nbprof-host") == []
    assert page.problems == []
    # It is part of what is saved, without anything that needs the kernel.
    save(page)
    notebook = json.loads((folder / "try.ipynb").read_text())
    (output,) = [each for each in notebook["cells"][1]["outputs"] if MIME in each.get("data", {})]
    assert "Tried" in "".join(output["data"]["text/plain"])


def test_the_changed_cell_is_inserted_below_and_not_run(opened):
    page, _ = opened
    before = sources(page)
    insert = dashboards(page).get_by_role("button", name="Insert as a new cell").first
    insert.click()
    page.wait_for_function(
        "n => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.length > n",
        arg=len(before),
    )
    after = sources(page)
    assert [*after[:2], *after[3:]] == before
    lines = CHANGED.splitlines()
    added = [line for line in after[2].splitlines() if line not in lines]
    assert [line.strip().partition("=")[0] for line in added] == [
        "num_workers",
        "persistent_workers",
        "prefetch_factor",
    ]
    assert [line for line in after[2].splitlines() if line in lines] == lines
    dashboards(page).get_by_text("Inserted below.").wait_for()


def test_nothing_scrolls_sideways_and_the_reason_wraps(opened):
    page, _ = opened
    table = dashboards(page).locator(".tried .tx")
    assert table.evaluate("node => node.scrollWidth - node.clientWidth") <= 1


def test_another_kernel_says_why_it_cannot(opened):
    page, _ = opened
    restart(page)
    wait_for_kernel(page)
    run_code(page, "import nbprof")
    wait_until_idle(page)
    button(page).click()
    said = finding(page).get_by_role("alert")
    said.filter(has_text="This kernel did not record this profile").wait_for()
    assert page.problems == []
