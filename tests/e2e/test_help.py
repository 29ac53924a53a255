"""Help where people look: what each column means, what each view is, and the pages of Help in
JupyterLab.
"""

from __future__ import annotations

import pytest

from tests.support.build import profile
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

HEADS = """pane => [...pane.querySelectorAll('th')].map(head => ({
    label: head.textContent,
    help: head.querySelector('[title]')?.title ?? '',
    focus: head.querySelector('[title]')?.matches('button,[tabindex]') ?? false,
}))"""


@pytest.mark.parametrize("made", [gpu_run, lambda: training_run(12)], ids=["gpu", "cpu"])
def test_every_column_says_what_it_means_and_every_view_what_it_is(page, tmp_path, made):
    page.goto(profile(tmp_path, made()).save(tmp_path / "report.html").as_uri())
    page.wait_for_selector("[role=tab]")
    seen = 0
    for tab in page.get_by_role("tab").all():
        tab.click()
        name = tab.evaluate("tab => tab.firstChild.textContent")
        pane = page.get_by_role("tabpanel", name=name)
        if name == "Trace":
            # The tables of a range are there once one is marked.
            pane.locator("canvas").last.focus()
            page.keyboard.press("ArrowRight")
            page.keyboard.press("m")
            pane.locator("th").first.wait_for()
            by_name = pane.evaluate(HEADS)
            pane.get_by_role("radio", name="By lane").click()
            heads = by_name + pane.evaluate(HEADS)
        else:
            for choice in pane.get_by_role("radio").all():
                choice.click()
                assert [
                    head
                    for head in pane.evaluate(HEADS)
                    if not head["help"].endswith(".") or not head["focus"]
                ] == [], name
            heads = pane.evaluate(HEADS)
        assert [
            head for head in heads if not head["help"].endswith(".") or not head["focus"]
        ] == [], name
        seen += len(heads)
        button = pane.get_by_role("button", name=f"What is this? {name}")
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        about = pane.get_by_role("note")
        assert len(about.inner_text()) > 100
        assert about.get_by_role("button").count() == 0, (
            "outside of JupyterLab there is no Help to lead to"
        )
        button.press("Enter")
        assert about.count() == 0
    assert seen > 40
    assert page.problems == []


def test_with_the_keyboard_the_meaning_is_shown_where_the_focus_is(page, tmp_path):
    page.goto(profile(tmp_path, gpu_run()).save(tmp_path / "report.html").as_uri())
    page.get_by_role("tab", name="GPU kernels").click()
    tip = page.locator(".card.tip:visible")
    button = page.get_by_role("columnheader", name="Count").get_by_role("button")
    page.get_by_role("button", name="What is this? GPU kernels").focus()
    page.keyboard.press("Tab")
    button.focus()
    assert tip.inner_text() == button.get_attribute("title") == "Number of launches."
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() == "Total time divided by launches, in whole nanoseconds."
    page.keyboard.press("Escape")
    assert tip.count() == 0
    assert (
        page.evaluate("() => document.activeElement.shadowRoot?.activeElement?.textContent")
        == "Avg µs"
    )


def test_help_opens_in_a_tab_and_leads_from_page_to_page(page, lab):
    url, _ = lab
    outside = []
    page.on(
        "request",
        lambda r: outside.append(r.url) if not r.url.startswith((url, "data:", "blob:")) else None,
    )
    page.goto(f"{url}/lab?reset")
    page.get_by_role("menuitem", name="Help", exact=True).click()
    page.get_by_role("menuitem", name="nbprof Help").click()
    body = page.locator(".nbprof-help-body")
    body.get_by_role("heading", name="The views").wait_for()
    # As "What is this?" of a view does: the event of its link.
    page.evaluate(
        "() => document.body.dispatchEvent(new CustomEvent('nbprof-help', {bubbles: true, detail: 'kernels'}))"
    )
    page.wait_for_function(
        "() => Math.abs(document.querySelector('#nbprof-help-gpu-kernels').getBoundingClientRect().top"
        " - document.querySelector('.nbprof-help-body').getBoundingClientRect().top) < 60"
    )
    body.get_by_role("link", name="p.kernels").press("Enter")
    body.get_by_role("heading", name="How each number is made").wait_for()
    assert (
        page.get_by_role("navigation", name="Pages").locator("[aria-current=page]").inner_text()
        == "How each number is made"
    )
    assert body.locator("a[href^=http]:not([rel='noopener noreferrer'])").count() == 0
    assert outside == []
    assert page.problems == []
