"""Links into a saved report: its address opens it at a place, and follows the reader."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.test_trace import STEPS, View, recording
from tests.support.kineto import profile

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a link's report")
    p = profile(folder, recording())
    tracks = p.run.timeline.tracks
    return p.save(folder / "report.html"), (tracks.end - tracks.origin) / 1e9


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(120_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    context.close()


def at(page, report, fragment):
    path, end_ms = report
    # The same page with another fragment would not be loaded anew.
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#{fragment}")
    page.wait_for_selector("[role=tab]")
    return View(page, end_ms)


def selected(page):
    return page.get_by_role("tab", selected=True).inner_text()


def address(page):
    return page.evaluate("location.hash")


def test_a_link_opens_a_moment_of_the_trace_with_its_range_and_slice(page, report):
    view = at(page, report, "tab=trace&t=28ms..38ms&range=31..35ms")
    assert selected(page).startswith("Trace")
    assert view.window() == 10.0
    expect(view.range).to_contain_text("31.000–35.000 ms, 4.00 ms")
    box = view.canvas.bounding_box()
    row = view.label("Stream 7").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, row["y"] + 9)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    page.wait_for_function("() => /slice=\\d+/.test(location.hash)")
    link = address(page)
    assert re.fullmatch(r"#tab=trace&t=28ms\.\.38ms&range=31ms\.\.35ms&slice=\d+", link)
    # What was copied opens the same.
    view = at(page, report, link[1:])
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    expect(view.range).to_contain_text("31.000–35.000 ms, 4.00 ms")
    assert view.window() == 10.0


def test_a_link_opens_a_kernel_an_op_and_a_step_where_they_are_longest(page, report):
    view = at(page, report, "tab=trace&kernel=volta_sgemm_128x64_nn")
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    view = at(page, report, "tab=trace&step=4")
    expect(view.range).to_contain_text("40.000–49.500 ms, 9.50 ms")
    at(page, report, "tab=kernels&kernel=elementwise")
    rows = page.get_by_role("tabpanel", name="GPU kernels").locator("tbody tr")
    expect(rows.filter(has_text="elementwise")).not_to_have_count(0)
    expect(rows.filter(has_text="sgemm")).to_have_count(0)
    at(page, report, "tab=ops&op=aten%3A%3Alinear")
    rows = page.get_by_role("tabpanel", name="Ops").locator("tbody tr")
    expect(rows.filter(has_text="aten::linear")).not_to_have_count(0)
    expect(rows.filter(has_text="aten::small")).to_have_count(0)


def test_the_address_follows_tab_and_steps_and_a_changed_one_is_gone_to(page, report):
    at(page, report, "")
    page.get_by_role("tab", name=re.compile("^Steps")).click()
    page.wait_for_function("() => location.hash === '#tab=input'")
    page.get_by_role("tabpanel", name=re.compile("^Steps")).locator(".plot").first.focus()
    for key in ("Home", "ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_function("() => location.hash === '#tab=input&step=1..2'")
    assert page.evaluate("history.length") <= 3, "going back leaves the report"
    page.evaluate(f"location.hash = 'tab=overview&step={STEPS - 1}'")
    expect(page.get_by_role("tab", selected=True)).to_contain_text("Overview")
    expect(page.get_by_role("tabpanel", name="Overview")).to_contain_text(f"step {STEPS - 1}")


@pytest.mark.parametrize(
    "fragment",
    [
        "section-2",
        "tab=nowhere&step=99999&t=9h..&op",
        "tab=trace&t=900s..901s&range=5ms..1ms&slice=99999999&kernel=%E0%A4%A",
        "%%%&&&=&tab",
    ],
)
def test_what_a_link_says_and_the_report_has_not_is_ignored(page, report, fragment):
    view = at(page, report, fragment)
    wanted = "Trace" if fragment.startswith("tab=trace") else "Overview"
    assert selected(page).startswith(wanted)
    if wanted == "Trace":
        expect(view.slice).to_contain_text("Click a slice")
        assert view.window() == pytest.approx(9.5 / 0.8, abs=0.01)
