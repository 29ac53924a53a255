"""The live status of a profiled cell in a real JupyterLab: it is seen, its button ends the
recording and not the cell, and it leaves nothing.
"""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.e2e.notebooks import (
    command,
    dashboards,
    end_kernels,
    open_again,
    open_notebook,
    restart,
    run_code,
    running,
    save,
    wait_for_kernel,
    wait_until_idle,
    window,
    write_notebook,
)

pytestmark = pytest.mark.browser

READY = """
%reload_ext nbprof
import json, time, os
import tensorflow as tf
import nbprof

def train(steps, until=None):
    for i in nbprof.steps(range(steps)):
        tf.reduce_sum(tf.ones((50, 50)))
        time.sleep(0.02)
        if until and os.path.exists(until):
            break
    return i + 1
"""
STOPPED = "%%nbprof -o p\nsteps = train(20000, 'go')\njson.dump([steps, p is None if 'p' in globals() else True], open('ran', 'w'))"
TOLD = "json.dump([p.run.capture.steps_seen, p.run.capture.steps_marked, [n.text for n in p.run.capture.notes]], open('told', 'w'))"
LATER = "step => Number(document.querySelector('.nbprof-strip .item[data-name=step] b').textContent.replaceAll(',', '')) > step"
ENDLESS = "%%nbprof\ntrain(100000)"
LARGE = """
from nbprof.profiles import profile as made
from nbprof.tools import dashboard

dashboard.MANY_EVENTS, whole = 0, made.Profile.payload

def waits(self, *args):
    while not os.path.exists('go'):
        time.sleep(0.05)
    dashboard.MANY_EVENTS, made.Profile.payload = 200_000, whole
    return whole(self, *args)

made.Profile.payload = waits
"""


def strip(page):
    return page.locator(".nbprof-strip")


def shows(page, text):
    page.wait_for_function(
        "text => document.querySelector('.nbprof-strip .head')?.textContent.startsWith(text)",
        arg=text,
    )


def step(page):
    return int(
        page.locator(".nbprof-strip .item[data-name='step'] b").inner_text().replace(",", "")
    )


def outputs(folder, name):
    notebook = nbformat.read(folder / name, 4)
    return [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]


@pytest.fixture(scope="module")
def page(browser, lab):
    """A page of JupyterLab's; a kernel that a test leaves serves the next, which need not import
    the framework.
    """
    with window(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        yield page
        end_kernels(page, lab[0])


@pytest.fixture
def opened(page, lab):
    """A notebook whose kernel has nbprof and a loop; gives the page, what went wrong on it, and the
    folder.
    """
    url, folder = lab
    write_notebook(folder / "strip.ipynb", READY)
    for name in ("go", "ran", "told"):
        (folder / name).unlink(missing_ok=True)
    if page.url.startswith(url):
        open_again(page, "strip.ipynb")
    else:
        open_notebook(page, url, "strip.ipynb")
    wait_for_kernel(page)
    command(page, "notebook:run-all-cells")
    wait_until_idle(page)
    return page, page.problems, folder


def test_the_button_ends_the_recording_and_the_cell_goes_on(opened):
    page, problems, folder = opened
    run_code(page, STOPPED)
    shows(page, "recording")
    button = page.get_by_role("button", name="Stop and analyse")
    button.wait_for()
    first = step(page)
    page.wait_for_function(LATER, arg=first)
    strip(page).locator(".item[data-name='CPU']").wait_for()
    names = (
        strip(page).locator(".item").evaluate_all("items => items.map(item => item.dataset.name)")
    )
    assert names[:2] == ["step", "step time"]
    assert {"input", "CPU", "memory", "buffer", ""} <= set(names)
    # Who listens is told of the phase, and not of every picture.
    said, before = strip(page).get_by_role("status").inner_text(), step(page)
    page.wait_for_function(LATER, arg=before)
    assert strip(page).get_by_role("status").inner_text() == said
    button.click()
    shows(page, "recorded steps 1 to ")
    last = int(
        strip(page).locator(".head").inner_text().split(" to ")[1].split(";")[0].replace(",", "")
    )
    assert not button.is_visible()
    page.wait_for_function(LATER, arg=last)
    assert running(page)
    assert not (folder / "ran").exists()
    (folder / "go").touch()
    dashboards(page).first.get_by_role("tab", name="Overview").wait_for()
    assert strip(page).count() == 0
    wait_until_idle(page)
    run_code(page, TOLD)
    wait_until_idle(page)
    seen, marked, notes = json.loads((folder / "told").read_text())
    assert marked == last < seen == json.loads((folder / "ran").read_text())[0]
    assert f"Stop and analyse was pressed: recording ended after step {last:,}" in notes
    save(page)
    saved = outputs(folder, "strip.ipynb")
    # What a framework writes when it is first imported is its own.
    texts = [output["text"] for output in saved if output["output_type"] == "stream"]
    assert [text for text in texts if "nbprof" in text or "recording" in text] == []
    left, shown = (output["data"] for output in saved if output["output_type"] != "stream")
    assert set(shown) == {"application/vnd.nbprof.v1+json", "text/html", "image/png", "text/plain"}
    assert set(left) == {"text/html", "text/plain"}
    assert left["text/plain"].startswith(f"nbprof: the cell ran {seen:,} steps in ")
    assert problems == []


def test_the_first_picture_of_a_large_run_becomes_the_whole_where_the_reader_is(opened, lab):
    page, problems, folder = opened
    run_code(page, LARGE)
    wait_until_idle(page)
    run_code(page, "%%nbprof -o p\ntrain(30)\nNone")
    first = dashboards(page).first
    first.get_by_text("analysing…").wait_for()
    assert running(page)
    assert strip(page).count() == 0
    assert [tab.inner_text() for tab in first.get_by_role("tab").all()] == ["Overview"]
    assert first.locator(".verdict").is_visible()
    assert first.locator(".stepchart").is_visible()
    save(page)
    (folder / "later.ipynb").write_bytes((folder / "strip.ipynb").read_bytes())
    first.get_by_role("button", name="Steps & input").or_(
        first.get_by_role("link", name="Steps & input")
    ).click()
    (folder / "go").touch()
    dashboards(page).first.get_by_role("tab", name="Steps & input", selected=True).wait_for()
    wait_until_idle(page)
    assert dashboards(page).count() == 1
    assert dashboards(page).first.get_by_text("analysing…").count() == 0
    save(page)
    *_, shown = (output["data"] for output in outputs(folder, "strip.ipynb") if "data" in output)
    assert set(shown) == {"application/vnd.nbprof.v1+json", "text/html", "image/png", "text/plain"}
    assert "early" not in shown["application/vnd.nbprof.v1+json"]
    # As saved in the middle it stays what it is, with a kernel or without.
    open_notebook(page, lab[0], "later.ipynb")
    wait_for_kernel(page)
    dashboards(page).first.get_by_text("the analysis did not finish").wait_for()
    assert problems == []


def test_a_kernel_that_is_restarted_leaves_a_line(opened):
    page, problems, folder = opened
    run_code(page, ENDLESS)
    page.get_by_role("button", name="Stop and analyse").wait_for()
    restart(page)
    page.wait_for_function("() => document.querySelector('.nbprof-strip:not([data-kind])')")
    assert strip(page).locator("*").count() == 0
    ended = "nbprof: the kernel ended before this cell did; last shown: recording · step "
    assert strip(page).inner_text().startswith(ended)
    save(page)
    (left,) = outputs(folder, "strip.ipynb")
    assert left["data"]["text/plain"].startswith(ended)
    assert ended in left["data"]["text/html"]
    # JupyterLab asks the kernel for a thread for each target of comms, and drops what a restart
    # makes of a request that is not answered yet.
    assert [each for each in problems if "create_subshell_request" not in each] == []
