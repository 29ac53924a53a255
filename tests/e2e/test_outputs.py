"""Many saved outputs on one page: they share a budget of memory, and none of them loses what a
reader has set or moves what is below it.
"""

from __future__ import annotations

import pytest

from tests.e2e.notebooks import wait_until_drawn
from tests.support.build import profile
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

MANY = 8
SMALL = "globalThis[Symbol.for('nbprof.outputs')] = {guests: new Set(), budget: 3e6}"
"""A budget for two of them, in place of one for dozens."""

COUNT = """() => {
    const hosts = [...document.querySelectorAll('.nbprof-host')];
    const canvases = hosts.flatMap(host => [...host.shadowRoot.querySelectorAll('canvas')]);
    return {
        drawn: hosts.filter(host => host.shadowRoot.querySelector('.nbp')).length,
        resting: hosts.filter(host => host.dataset.nbprofResting !== undefined).length,
        canvas: canvases.reduce((sum, canvas) => sum + canvas.width * canvas.height * 4, 0),
        tops: hosts.map(host => Math.round(host.getBoundingClientRect().top + scrollY)),
    };
}"""

STATE = """host => {
    const root = host.shadowRoot;
    const pane = root.querySelector('.pane:not([hidden])');
    return {
        tab: root.querySelector('[role=tab][aria-selected=true]').textContent,
        sorted: [...pane.querySelectorAll('th')].map(head => head.getAttribute('aria-sort')),
        chosen: [...pane.querySelectorAll('[role=radio][aria-checked=true]')].map(choice => choice.textContent),
        fields: [...pane.querySelectorAll('input,select')].map(field => field.value),
        folds: [...pane.querySelectorAll('td[aria-expanded=true]')].map(cell => cell.title),
        steps: root.querySelector('.nbp').innerText.match(/steps? [0-9]+–[0-9]+ selected/g),
        lanes: [...pane.querySelectorAll('[role=treeitem]')].map(lane => lane.title + lane.getAttribute('aria-expanded')),
        window: pane.querySelector('.strips .tlab')?.innerText ?? null,
        height: host.offsetHeight,
    };
}"""


@pytest.fixture(scope="module")
def fragments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    made = []
    for name, raw in (("gpu", gpu_run()), ("cpu", training_run(40))):
        (folder / name).mkdir()
        made.append(profile(folder / name, raw).mimebundle()[0])
    return made


def host(page, i):
    return page.locator(".nbprof-host").nth(i)


def far_and_back(page, first, last):
    """Looks at the last output until the first one rests, then at the first again."""
    host(page, last).evaluate("host => host.scrollIntoView({block: 'end'})")
    page.wait_for_function(
        "i => document.querySelectorAll('.nbprof-host')[i].dataset.nbprofResting !== undefined",
        arg=first,
    )
    host(page, first).evaluate("host => host.scrollIntoView()")
    page.wait_for_function(
        "i => document.querySelectorAll('.nbprof-host')[i].shadowRoot.querySelector('.nbp')",
        arg=first,
    )
    wait_until_drawn(page)


@pytest.fixture
def many(page, fragments, tmp_path):
    """A page of outputs, each drawn once, with a budget for a few."""
    body = "".join(f"<div>{fragments[i % 2]['text/html']}</div>" for i in range(MANY))
    page.add_init_script(SMALL)
    path = tmp_path / "page.html"
    path.write_text(
        f"<!doctype html><meta charset=utf-8><body style='background:#fff'>{body}", encoding="utf-8"
    )
    page.goto(path.as_uri())
    page.wait_for_function(
        "n => document.querySelectorAll('[data-nbprof-state=live]').length === n", arg=MANY
    )
    page.wait_for_function("() => document.querySelectorAll('[data-nbprof-resting]').length > 1")
    return page


def test_nothing_moves_while_outputs_rest_and_come_back(many):
    before = many.evaluate(COUNT)
    assert before["drawn"] + before["resting"] == MANY, (
        "the same output twice is drawn once in each place"
    )
    for i in (MANY - 1, 0):
        host(many, i).evaluate("host => host.scrollIntoView()")
        many.wait_for_function(
            "i => document.querySelectorAll('.nbprof-host')[i].shadowRoot.querySelector('.nbp')",
            arg=i,
        )
        wait_until_drawn(many)
        now = many.evaluate(COUNT)
        assert now["tops"] == before["tops"]
        assert now["drawn"] < MANY


def test_an_output_that_comes_back_is_as_its_reader_left_it(many):
    page = many
    first = host(page, 0)
    first.evaluate("host => host.scrollIntoView()")
    chart = first.locator("[tabindex='0'][aria-label^='Step time chart']").first
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    first.get_by_role("tab", name="GPU kernels").click()
    first.get_by_role("radio", name="By op").click()
    first.get_by_role("tabpanel", name="GPU kernels").locator(
        "tr:has(td[aria-expanded=false])"
    ).first.click()
    first.get_by_role("tabpanel", name="GPU kernels").get_by_role("button", name="Count").click()
    first.get_by_role("tab", name="Trace").click()
    canvas = first.get_by_role("tabpanel", name="Trace").locator("canvas").last
    canvas.focus()
    for key in ("w", "w", "d", "ArrowRight", "Shift+ArrowRight", "m"):
        page.keyboard.press(key)
        wait_until_drawn(page)
    wait_until_drawn(page)
    seen = first.evaluate(STATE)
    assert seen["window"]
    assert page.evaluate(COUNT)["canvas"] > 0
    canvas.evaluate("canvas => canvas.blur()")

    far_and_back(page, 0, MANY - 1)
    after = first.evaluate(STATE)
    assert after == seen
    first.get_by_role("tab", name="GPU kernels").click()
    kernels = first.evaluate(STATE)
    assert "By op" in kernels["chosen"]
    assert kernels["folds"]
    assert "descending" in kernels["sorted"] or "ascending" in kernels["sorted"]
    assert page.problems == []
