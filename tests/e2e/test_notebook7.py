"""Jupyter Notebook 7: its tree page opens profiles in pages of their own, its notebooks draw
reports, and no plugin of ours is in the way.
"""

from __future__ import annotations

import pytest

from nbprof.profiles.load import load
from tests.e2e.notebooks import end_kernels, save, window, write_notebook
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

PROFILED = """%load_ext nbprof
import jax
import jax.numpy as jnp
import nbprof
double = jax.jit(lambda x: x @ x)"""
CELL = """%%nbprof
for _ in nbprof.steps(range(3)):
    double(jnp.ones((64, 64))).block_until_ready()"""


@pytest.fixture(scope="module")
def profiles(lab):
    """(url, folder): the same server has the pages of Jupyter Notebook."""
    url, root = lab
    folder = root / "classic"
    for run, data in (("first", training_run(5)), ("second", gpu_run())):
        (folder / "logs" / run).mkdir(parents=True)
        (folder / "logs" / run / "host.xplane.pb").write_bytes(data)
    (folder / "host.xplane.pb").write_bytes(training_run(12))
    return url, folder


@pytest.fixture
def told(browser):
    """A page, and every page that it opens; what their consoles say of nbprof is collected."""
    with window(browser) as page:
        page.said = []

        def hear(text):
            if "nbprof" in text.lower():
                page.said.append(text)

        def logged(message):
            if message.type == "error":
                hear(f"{message.text} {message.location['url']}")

        def failed(error):
            # Notebook 7 has errors of its own; the stack of one of ours names the extension.
            hear(f"{error.error} {error.error.stack}")

        page.context.on("console", logged)
        page.context.on("weberror", failed)
        yield page
        page.context.remove_listener("console", logged)
        page.context.remove_listener("weberror", failed)


def item(page, name):
    return page.locator(".jp-DirListing-item", has_text=name)


def board(page):
    found = page.locator(".nbprof-document .nbprof-host[data-live='live']")
    found.wait_for()
    return page.locator(".nbprof-document .nbp")


def test_the_tree_page_opens_files_and_folders_in_pages_of_their_own(told, profiles):
    url, folder = profiles
    # Those of other tests on this server.
    kernels = {kernel["id"] for kernel in told.request.get(f"{url}/api/kernels").json()}
    told.goto(f"{url}/tree/classic")
    item(told, "host.xplane.pb").wait_for()
    with told.expect_popup() as opened:
        item(told, "host.xplane.pb").dblclick()
    page = opened.value
    expected = load(folder / "host.xplane.pb").overview
    assert expected["verdict"] in board(page).inner_text()
    assert page.url.endswith("/edit/classic/host.xplane.pb")
    item(told, "logs").click(button="right")
    with told.expect_popup() as opened:
        told.get_by_role("menuitem", name="Open as Profile").click()
    page = opened.value
    board(page)
    runs = page.get_by_role("combobox", name="Run")
    assert runs.locator("option").count() == 2
    assert told.locator(".nbprof-document").count() == 0, "the tree page keeps its place"
    assert {kernel["id"] for kernel in told.request.get(f"{url}/api/kernels").json()} <= kernels
    assert told.said == []


def test_two_files_are_compared_in_a_page_that_comes_back_as_it_was(told, profiles):
    url, folder = profiles
    (folder / "late.xplane.pb").write_bytes(training_run(9))
    told.goto(f"{url}/tree/classic")
    item(told, "host.xplane.pb").click()
    item(told, "late.xplane.pb").click(modifiers=["Control"])
    item(told, "late.xplane.pb").click(button="right")
    with told.expect_popup() as opened:
        told.get_by_role("menuitem", name="Compare Profiles").click()
    page = opened.value
    tab = board(page).get_by_role("tab", name="Compare")
    tab.wait_for()
    assert "/edit/classic/" in page.url
    assert page.locator(".compare-head h2").count() == 1
    board(page).get_by_role("tab", name="Memory").click()
    page.reload()
    board(page).get_by_role("tab", name="Memory", selected=True).wait_for()
    tab.wait_for()
    assert told.said == []


def test_a_cell_is_profiled_and_its_saved_output_needs_no_kernel(told, profiles):
    url, folder = profiles
    write_notebook(folder / "classic.ipynb", PROFILED, CELL)
    told.goto(f"{url}/notebooks/classic/classic.ipynb")
    told.locator(".jp-CodeCell").nth(1).wait_for()
    told.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
    )
    told.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    output = told.locator(".jp-OutputArea .nbp")
    output.get_by_role("tab", name="Overview").wait_for()
    verdict = output.locator(".verdict h2").inner_text()
    save(told)
    end_kernels(told, url)
    told.reload()
    output.get_by_role("tab", name="Overview").wait_for()
    assert output.locator(".verdict h2").inner_text() == verdict
    end_kernels(told, url)
    assert told.said == []
