"""The sidebar with the runs of a notebook and of folders, in a real JupyterLab."""

from __future__ import annotations

import json
import os
import re
import shutil
import time

import pytest

from nbprof.profiles.load import load
from tests.e2e.axe import violations
from tests.e2e.notebooks import SIZE, command, end_kernels, wait_for_kernel, window
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

RUNS = "nbprof-results/plugins/profile"


@pytest.fixture
def folder(lab):
    """(url, folder) with a notebook, two runs of its logdir, and one of another."""
    return made(*lab)


def made(url, root):
    # Each test its own: the kernel of a notebook lives on, in a folder that must not vanish.
    folder = root / f"runs-{len(list(root.glob('runs-*')))}"
    for place, data, age in (
        (f"{RUNS}/first", training_run(12), 7200),
        (f"{RUNS}/second", gpu_run(), 300),
        ("logs/plugins/profile/other", gpu_run(), 9000),
    ):
        file = folder / place / "host.xplane.pb"
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        os.utime(file, (time.time() - age,) * 2)
    source = "# nbprof: a run appears\nimport shutil\nshutil.copytree('nbprof-results/plugins/profile/first', 'nbprof-results/plugins/profile/third')"
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (folder / "train.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )
    return url, folder


@pytest.fixture(scope="module")
def page(browser):
    """One for all tests: a page that has had JupyterLab before loads it in half the time."""
    with window(browser) as page:
        page.on("dialog", lambda dialog: dialog.accept())
        yield page


@pytest.fixture
def sidebar(page, folder):
    """JupyterLab with the notebook, loaded anew, and the runs in the sidebar."""
    show(page, folder)
    yield page
    end_kernels(page, folder[0])
    assert page.problems == []


@pytest.fixture(scope="module")
def resized(page, lab):
    """The same, loaded once for tests that change nothing but its width."""
    show(page, made(*lab))
    yield page
    end_kernels(page, lab[0])


def show(page, folder):
    url, home = folder
    page.problems.clear()
    page.goto(f"{url}/lab/tree/{home.name}/train.ipynb?reset")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    command(page, "nbprof:runs-show")
    row(page, "second").wait_for()


def row(page, name):
    return page.get_by_role("tree", name="Runs").get_by_role(
        "treeitem", name=re.compile(rf"^{name}, ")
    )


def focus(page):
    return page.evaluate("() => document.activeElement.getAttribute('aria-label') ?? ''")


def test_runs_are_listed_newest_first_opened_by_keyboard_and_compared(sidebar, folder):
    page = sidebar
    expected = load(folder[1] / RUNS / "first").overview
    row(page, "first").filter(has_text=expected["verdict_text"]).wait_for()
    told = [item.inner_text() for item in page.locator(".nbprof-runs-tree [role=treeitem]").all()]
    assert [text.split("\n")[0] for text in told] == [
        f"{folder[1].name}/nbprof-results",
        "second",
        "first",
    ]
    assert "5 min ago" in told[1]
    for text in (
        "2 h ago",
        "TensorFlow",
        "12 steps",
        f"{expected['step_time_ms']:.2f} ms",
        expected["verdict"],
    ):
        assert text in told[2]
    # Which two are compared, also where another part of nbprof does it.
    page.evaluate("""() => {
        const { commands } = window.jupyterapp;
        window.compared = [];
        if (!commands.hasCommand("nbprof:compare")) commands.addCommand("nbprof:compare", { execute: () => undefined });
        commands.commandExecuted.connect((_, { id, args }) => { if (id === "nbprof:compare") window.compared.push([args.a, args.b]); });
    }""")
    row(page, "second").click()
    assert focus(page).startswith("second, ")
    page.keyboard.press("Shift+ArrowDown")
    page.get_by_role("button", name="Compare", exact=True).click()
    assert page.evaluate("() => window.compared") == [
        [f"{folder[1].name}/{RUNS}/first", f"{folder[1].name}/{RUNS}/second"]
    ]
    row(page, "second").click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp").get_by_role(
        "tab", name="Overview"
    ).wait_for()
    page.locator(".lm-TabBar-tab.jp-mod-current", has_text="first").wait_for()
    page.get_by_role("searchbox", name="Filter runs").fill("device-b")
    row(page, "first").wait_for(state="detached")
    assert row(page, "second").count() == 1


@pytest.mark.parametrize("width", [200, 250, 330])
def test_a_narrow_sidebar_cuts_nothing_that_matters(resized, width):
    page = resized
    row(page, "first").filter(has_text="12 steps").wait_for()
    row(page, "second").filter(has_text="1 step").wait_for()
    page.evaluate(
        """width => {
            // JupyterLab's own lower bound.
            document.documentElement.style.setProperty('--jp-sidebar-min-width', '100px');
            document.querySelector('.nbprof-sidebar').style.maxWidth = `${width}px`;
            // A change of step time as a row has it whose run has one before it.
            for (const at of document.querySelectorAll('.nbprof-run .delta')) at.textContent = '+100%';
        }""",
        width,
    )
    shown = page.locator(".nbprof-run :is(.name, .was, time, .facts, .step, .delta, b)")
    assert shown.count() >= 10
    cut = "all => all.filter(at => at.scrollWidth > at.clientWidth + 1 && at.clientWidth > 0).map(at => at.textContent)"
    assert page.locator(".nbprof-runs-tree").bounding_box()["width"] <= width
    assert shown.evaluate_all(cut) == []
    assert page.problems == []


# As JupyterLab's settings place a sidebar below the notebooks.
BELOW = """() => {
    const { shell } = window.jupyterapp;
    const panel = [...shell.widgets("left")].find(each => each.hasClass("nbprof-sidebar"));
    shell.add(panel, "down");
    shell.activateById(panel.id);
}"""


def test_below_the_notebook_it_is_used_though_it_is_wide_and_short(sidebar):
    page = sidebar
    row(page, "first").filter(has_text="12 steps").wait_for()
    page.set_viewport_size({"width": SIZE["width"], "height": 600})
    try:
        page.evaluate(BELOW)
        tree, search = page.locator(".nbprof-runs-tree"), page.get_by_role("searchbox")
        page.wait_for_function(
            "() => document.querySelector('.nbprof-runs-tree').clientWidth > 640"
        )
        area, shown = page.locator(".nbprof-sidebar").bounding_box(), tree.bounding_box()
        assert area["height"] < 200
        assert shown["height"] > area["height"] / 2
        assert row(page, "second").bounding_box()["height"] < shown["height"] / 2
        assert search.bounding_box()["x"] + search.bounding_box()["width"] <= shown["x"]
        search.fill("first")
        row(page, "second").wait_for(state="detached")
        row(page, "first").click()
        page.keyboard.press("Enter")
        page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp").get_by_role(
            "tab", name="Overview"
        ).wait_for()
    finally:
        page.set_viewport_size(SIZE)


def test_axe_finds_nothing_in_the_list_of_runs(sidebar):
    page = sidebar
    row(page, "first").filter(has_text="12 steps").wait_for()
    found = {"light": violations(page, ".nbprof-sidebar")}
    row(page, "second").click()
    page.keyboard.press("Shift+ArrowDown")
    found["two selected"] = violations(page, ".nbprof-sidebar")
    page.keyboard.press("Delete")
    page.get_by_role("dialog").wait_for()
    found["delete"] = violations(page, ".jp-Dialog-content")
    page.keyboard.press("Escape")
    row(page, "second").click()
    page.keyboard.press("F2")
    found["rename"] = violations(page, ".nbprof-sidebar")
    page.keyboard.press("Escape")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    found["dark"] = violations(page, ".nbprof-sidebar")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.wait_for_function("() => document.body.dataset.jpThemeLight === 'true'")
    assert {state: lines for state, lines in found.items() if lines} == {}


def test_a_run_is_renamed_in_place_and_deleted_after_a_question(sidebar, folder):
    page, home = sidebar, folder[1] / RUNS
    row(page, "second").dblclick()
    run = page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp .run-id b")
    run.wait_for()
    assert run.inner_text() == "second"
    row(page, "second").click()
    page.keyboard.press("F2")
    page.keyboard.type("not this")
    page.keyboard.press("Escape")
    assert focus(page).startswith("second, ")
    page.keyboard.press("F2")
    page.keyboard.type("with prefetch")
    page.keyboard.press("Enter")
    row(page, "with prefetch").wait_for()
    assert sorted(path.name for path in home.iterdir()) == ["first", "with prefetch"]
    page.wait_for_function(
        "() => document.activeElement.getAttribute('aria-label')?.startsWith('with prefetch, ')"
    )
    # Its tab goes with it, and has one name with the list and the dashboard.
    page.locator(".lm-TabBar-tab.jp-mod-current", has_text="with prefetch").wait_for()
    run.filter(has_text="with prefetch").wait_for()
    for answer, left in (
        ("Cancel", ["first", "with prefetch"]),
        (re.compile("Delete|Trash"), ["first"]),
    ):
        page.keyboard.press("Delete")
        dialog = page.get_by_role("dialog")
        assert f"{folder[1].name}/{RUNS}/with prefetch" in dialog.inner_text()
        dialog.get_by_role("button", name=answer).click()
        row(page, "with prefetch").wait_for(state="visible" if answer == "Cancel" else "detached")
        assert sorted(path.name for path in home.iterdir()) == left
        if answer == "Cancel":
            row(page, "with prefetch").click()
    page.locator(
        ".nbprof-bar:visible", has_text=f"{folder[1].name}/{RUNS}/with prefetch: it was deleted"
    ).wait_for()
    assert run.inner_text() == "with prefetch", "what was read stays"


def test_a_cell_gets_a_run_and_a_run_that_a_cell_saved_is_listed(sidebar):
    page = sidebar
    wait_for_kernel(page)
    command(page, "notebook:run-cell")
    row(page, "third").wait_for()
    row(page, "third").click(button="right")
    page.get_by_role("menuitem", name="Insert nbprof.load").click()
    page.locator(".jp-Notebook .jp-Cell", has_text=f'nbprof.load("{RUNS}/third")').wait_for()


def test_a_folder_that_was_added_stays_is_told_when_it_is_gone_and_leaves(sidebar, folder):
    page, logs = sidebar, f"{folder[1].name}/logs"
    with page.expect_response(
        lambda r: "/api/workspaces/" in r.url and logs in (r.request.post_data or "")
    ):
        command(page, "nbprof:runs-add-folder", path=logs)
    row(page, "other").wait_for()
    page.goto(page.url.split("?")[0])
    row(page, "other").wait_for()
    shutil.rmtree(folder[1] / "logs")
    command(page, "nbprof:runs-refresh")
    head = page.locator(".nbprof-folder[role=treeitem]", has_text=logs)
    page.get_by_text("This folder no longer exists").wait_for()
    head.click(button="right")
    page.get_by_role("menuitem", name="Remove Folder from the List").click()
    head.wait_for(state="detached")
    assert row(page, "first").count() == 1
