"""The trace of a saved report under hand and keys: selecting, moving, finding, jumping, at every
width and theme, as a person does it.

One page is opened for the module; each test begins with nothing selected, nothing searched for and
the whole profile in view.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.notebooks import wait_until_drawn
from tests.support.kineto import BACKWARD, Kineto, profile

pytestmark = pytest.mark.browser

STEPS = 6
STEP = 10_000.0
"""µs between the starts of two steps."""
LONE = 31_234.5
"""When (µs) the one event of stream 9 starts, which takes half a µs of 60 ms."""

# Colours of the canvas in a box of CSS pixels, as a count by colour.
COLOURS = """
(canvas, [x, y, width, height]) => {
    const ratio = canvas.width / canvas.clientWidth;
    const { data } = canvas.getContext("2d").getImageData(x * ratio, y * ratio, Math.max(1, width * ratio), Math.max(1, height * ratio));
    const found = {};
    for (let i = 0; i < data.length; i += 4) {
        const colour = data.slice(i, i + 4).join(",");
        found[colour] = (found[colour] ?? 0) + 1;
    }
    return found;
}
"""

# The pixels of a line of a canvas that are black.
BLACK = """
(canvas, y) => {
    const { data } = canvas.getContext("2d").getImageData(0, y, canvas.width, 1);
    return [...Array(canvas.width).keys()].filter(x => data.slice(4 * x, 4 * x + 4).join() === "0,0,0,255");
}
"""


def recording():
    """Steps with a forward and a backward op, which launch kernels; small ops; memory; a lone
    event; idle threads.
    """
    trace = Kineto()
    trace.named(100, label="CPU", tid=100, thread="python main")
    for i in range(STEPS):
        start = i * STEP
        trace.step(i, start, 9_500.0)
        op = trace.op("aten::linear", start + 500, 2_000.0, types=["float"])
        inner = trace.op("aten::addmm", start + 600, 1_500.0)
        # The call of the fourth step is the longest.
        trace.launched(
            "volta_sgemm_128x64_nn",
            start + 700,
            start + 1_500,
            3_000.0 + (400 if i == 3 else 0),
            inner,
        )
        trace.op("autograd::backward", start + 3_000, 4_000.0, tid=BACKWARD)
        trace.launched(
            "elementwise_kernel<4, add>", start + 3_200, start + 6_000, 1_000.0, op, tid=BACKWARD
        )
        for k in range(40):
            trace.op(f"aten::small_{k % 4}", start + 7_200 + 40 * k, 20.0)
        trace.memory(start + 1_000, 1 << 20, 0x1000 + i, (i + 1) << 20, 8 << 20, device=0)
        trace.memory(
            start + 9_000, -(1 << 20), 0x1000 + i, (3 if i == 3 else 0) << 20, 8 << 20, device=0
        )
    trace.copy(
        "Memcpy HtoD (Pinned -> Device)",
        LONE,
        0.5,
        trace.call("cudaMemcpyAsync", LONE - 20, 3),
        stream=9,
    )
    for tid in (201, 202, 203):
        trace.op("idle::wait", 59_000.0, 1.0, tid=tid)
    return trace


# A text and Enter in one turn: between two, a busy page begins the search itself, and Enter goes to
# the first hit.
TYPED = """(input, text) => {
    input.focus();
    input.value = text;
    input.dispatchEvent(new InputEvent("input", { bubbles: true }));
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}"""


class View:
    """The trace of an open report, in the words of a person."""

    def __init__(self, page, end_ms):
        self.page, self.end_ms = page, end_ms
        self.canvas = page.locator(".trace .scroller canvas")
        self.slice = page.locator(".details .slice")
        self.range = page.locator(".details .range")
        pane = page.locator(".pane", has=page.locator(".trace"))
        self.search = pane.locator(".toolbar input").first
        self.hits = pane.locator(".toolbar .hits").first
        self.words = page.locator(".trace > .sr")
        self.shown = page.locator(".strips small")

    def label(self, name):
        return self.page.locator(".labels .tlab").filter(
            has=self.page.locator("span", has_text=re.compile(rf"^[▾▸]?{re.escape(name)}"))
        )

    def point(self, lane, ms, depth=0):
        """Where a time on a lane is on the page, while the whole profile is in view."""
        label = self.label(lane).first
        label.scroll_into_view_if_needed()
        box, row = self.canvas.bounding_box(), label.bounding_box()
        return box["x"] + box["width"] * ms / self.end_ms, row["y"] + 9 + 17 * depth

    def click(self, lane, ms, depth=0):
        self.page.mouse.click(*self.point(lane, ms, depth))

    def press(self, *keys):
        self.canvas.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, text):
        self.search.evaluate(TYPED, text)

    def window(self):
        """Length of the window in ms, as it is told beside the strip."""
        value, unit = re.fullmatch(r"([\d.,]+) (\S+) shown", self.shown.text_content()).groups()
        return float(value.replace(",", "")) * {"s": 1e3, "ms": 1, "µs": 1e-3}[unit]

    def colours(self, x, y, width, height):
        return self.canvas.evaluate(COLOURS, [x, y, width, height])

    def reset(self):
        self.page.get_by_role("tab", name="Trace").click()
        filters = self.page.locator(".corner input")
        for field in (self.search, filters):
            if field.input_value():
                field.fill("")
        self.press("0", "Escape")
        expect(self.slice).to_contain_text("Click a slice")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    p = profile(folder, recording())
    made = p.run.timeline.tracks
    return p.save(folder / "report.html"), (made.end - made.origin) / 1e9


def opened(browser, report, **options):
    path, end_ms = report
    context = browser.new_context(**{"viewport": {"width": 1300, "height": 1000}, **options})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.goto(path.as_uri())
    page.get_by_role("tab", name="Trace").click()
    view = View(page, end_ms)
    view.canvas.wait_for()
    # Tests know where things are while all of it is in view.
    view.at_first = view.window()
    view.press("0")
    return view


@pytest.fixture(scope="module")
def shared(browser, report):
    view = opened(browser, report)
    yield view
    view.page.context.close()


@pytest.fixture
def view(shared):
    shared.reset()
    yield shared
    assert shared.page.problems == []


def test_it_opens_on_a_typical_step_with_all_of_them_a_click_away(view):
    whole = view.window()
    assert view.at_first == pytest.approx(9.5 / 0.8, abs=0.01), "a step, and room beside it"
    view.page.get_by_role("button", name="typical: ").click()
    assert view.window() == view.at_first < whole / 2
    view.page.get_by_role("button", name="all steps").click()
    assert view.window() == whole


def test_a_click_selects_a_slice_and_the_details_say_what_it_is(view):
    view.click("Stream 7", 33.0)
    for text in (
        "volta_sgemm_128x64_nn",
        "aten::addmm",
        "31.500 ms, 3.40 ms",
        "ProfilerStep#3",
        "800.0 µs before it ran",
    ):
        expect(view.slice).to_contain_text(text)
    expect(view.words).to_contain_text(
        "volta_sgemm_128x64_nn, 3.40 ms at 31.500 ms on Stream 7 of GPU 0."
    )
    view.click("Stream 7", 38.0)
    expect(view.slice).to_contain_text("Click a slice")


def test_several_slices_add_up(view):
    view.click("Stream 7", 2.0)
    view.page.keyboard.down("Control")
    view.click("Stream 7", 12.0)
    view.page.keyboard.up("Control")
    expect(view.slice).to_contain_text("2 slices")
    expect(view.words).to_contain_text("2 slices selected, 6.00 ms in total.")


def test_keys_go_from_slice_to_slice(view):
    view.click("Stream 7", 33.0)
    for key, start, name in (
        ("ArrowRight", "36.000 ms", "elementwise_kernel"),
        ("ArrowLeft", "31.500 ms", "volta_sgemm"),
        (".", "41.500 ms", "volta_sgemm"),
        (",", "31.500 ms", "volta_sgemm"),
        ("[", "30.700 ms", "cudaLaunchKernel"),
        ("ArrowUp", "30.600 ms", "aten::addmm"),
        ("ArrowUp", "30.500 ms", "aten::linear"),
        ("ArrowDown", "30.600 ms", "aten::addmm"),
    ):
        view.press(key)
        expect(view.slice, key).to_contain_text(start)
        expect(view.slice, key).to_contain_text(name)
    view.press("Escape")
    expect(view.slice).to_contain_text("Click a slice")
    expect(view.words).to_contain_text("Nothing selected.")


def test_arrows_of_the_selected_slice_are_drawn_until_they_are_switched_off(view):
    view.click("Stream 7", 33.0)
    expect(view.slice).to_contain_text("Launched")
    wait_until_drawn(view.page)
    picture = "canvas => canvas.toDataURL()"
    shown = view.canvas.evaluate(picture)
    view.press("l")
    wait_until_drawn(view.page)
    hidden = view.canvas.evaluate(picture)
    view.press("l")
    wait_until_drawn(view.page)
    assert hidden != shown == view.canvas.evaluate(picture)


def test_a_range_is_marked_by_shift_and_drag_and_says_what_took_its_time(view):
    x, y = view.point("Stream 7", 10.0)
    view.page.keyboard.down("Shift")
    view.page.mouse.move(x, y)
    view.page.mouse.down()
    view.page.mouse.move(view.point("Stream 7", 30.0)[0], y, steps=3)
    view.page.mouse.up()
    view.page.keyboard.up("Shift")
    expect(view.range).to_contain_text("GPU 0 idle 60%")
    assert re.search(r"volta_sgemm_128x64_nn\s+device\s+2\s+6\.000", view.range.inner_text())
    expect(view.words).to_contain_text("Range of")
    view.range.get_by_text("By lane").click()
    expect(view.range).to_contain_text("Stream 7")
    view.range.get_by_text("By name").click()


def mark(view, start, end):
    """Marks a range by Shift and drag, between two times (ms) of Stream 7."""
    x, y = view.point("Stream 7", start)
    view.page.keyboard.down("Shift")
    drag(view, (x, y), view.point("Stream 7", end))
    view.page.keyboard.up("Shift")


def drag(view, start, end):
    view.page.mouse.move(*start)
    view.page.mouse.down()
    view.page.mouse.move(*end, steps=3)
    view.page.mouse.up()


def marked(view):
    """Start and end of the marked range in ms; None where there is none."""
    found = re.search(r"([\d.]+)–([\d.]+) ms,", view.range.inner_text())
    return found and tuple(map(float, found.groups()))


def test_an_end_of_the_range_follows_the_pointer_and_the_arrow_keys(view):
    pixel = view.end_ms / view.canvas.bounding_box()["width"]
    mark(view, 10.0, 30.0)
    start, end = marked(view)
    drag(view, view.point("Stream 7", end), view.point("Stream 7", 45.2))
    assert marked(view) == pytest.approx((start, 45.2), abs=pixel)
    # Near the edge of a slice it takes that.
    drag(view, view.point("Stream 7", 45.2), view.point("Stream 7", 44.6))
    assert marked(view) == pytest.approx((start, 44.5), abs=1e-3)
    # Over the other end, it is that one.
    drag(view, view.point("Stream 7", start), view.point("Stream 7", 52.8))
    assert marked(view) == pytest.approx((44.5, 52.8), abs=pixel)
    _, end = marked(view)
    grip = view.page.get_by_role("slider", name="End of the range")
    view.canvas.focus()
    view.page.keyboard.press("Tab")
    view.page.keyboard.press("Tab")
    expect(grip).to_be_focused()
    for key, by in (("ArrowLeft", -1), ("ArrowLeft", -1), ("Shift+ArrowRight", 10)):
        end += by * pixel
        view.page.keyboard.press(key)
        expect(grip).to_have_attribute("aria-valuetext", re.compile(r"^[\d.]+ ms$"))
        assert marked(view) == pytest.approx((44.5, end), abs=2e-3), key
    # Other keys do what they do on the lanes.
    view.page.keyboard.press("w")
    assert view.window() < view.end_ms - 1
    view.page.keyboard.press("Escape")
    assert marked(view) is None
    expect(view.canvas).to_be_focused()
    expect(grip).to_be_hidden()


def test_an_end_that_is_let_go_keeps_the_range_and_escape_ends_a_drag(view):
    mark(view, 10.0, 38.0)
    view.click("Stream 7", 33.0)
    before = marked(view)
    # A press on an end, beside all slices, that moves nothing.
    view.click("Stream 7", before[1])
    assert marked(view) == before
    x, y = view.point("Stream 7", before[1])
    view.page.mouse.move(x, y)
    view.page.mouse.down()
    view.page.mouse.move(x + 80, y, steps=4)
    view.canvas.focus()
    view.page.keyboard.press("Escape")
    view.page.mouse.up()
    assert marked(view) == before
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")


def test_a_click_beside_the_slices_clears_the_range(view):
    mark(view, 10.0, 30.0)
    view.click("Stream 7", 33.0)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    assert marked(view), "a slice is looked at while a range is marked"
    view.click("Stream 7", 38.0)
    assert marked(view) is None
    expect(view.slice).to_contain_text("Click a slice")
    view.click("Stream 7", 33.0)
    mark(view, 10.0, 30.0)
    box = view.canvas.bounding_box()
    view.page.mouse.click(box["x"] + 20, box["y"] + 10)
    assert marked(view) is None
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    mark(view, 10.0, 30.0)
    view.range.get_by_role("button", name="Clear the range").click()
    assert marked(view) is None
    expect(view.range.get_by_text("Go to the longest idle gap")).to_be_focused()


def test_a_distance_is_measured_from_the_selected_slice_to_another(view):
    view.click("Stream 7", 2.0)
    x, y = view.point("Stream 7", 12.0)
    view.page.keyboard.down("Shift")
    view.page.mouse.click(x, y)
    view.page.keyboard.up("Shift")
    expect(view.range).to_contain_text("1.500–14.500 ms, 13.00 ms")
    view.click("Stream 7", 33.0)
    view.press("m")
    expect(view.range).to_contain_text("31.500–34.900 ms, 3.40 ms")


def test_a_search_counts_marks_and_goes_from_hit_to_hit(view):
    view.find("sgemm")
    expect(view.hits).to_contain_text("6 hits")
    # Six marks in the strip, at the starts of the kernels and nowhere else.
    strip = view.page.locator("canvas.strip")
    width = strip.evaluate("canvas => canvas.clientWidth")
    wait_until_drawn(view.page)
    marked = strip.evaluate(BLACK, 29)
    runs = [x for x in marked if x - 1 not in marked]
    assert runs == pytest.approx(
        [width * (10 * i + 1.5) / view.end_ms for i in range(STEPS)], abs=2
    )
    view.search.press("Enter")
    expect(view.hits).to_contain_text("1 of 6 hits")
    view.search.press("Shift+Enter")
    expect(view.hits).to_contain_text("6 of 6 hits")
    expect(view.slice).to_contain_text("51.500 ms")
    view.click("Stream 7", 33.0)
    expect(view.hits).to_contain_text("4 of 6 hits")
    view.page.get_by_role("button", name="Next hit").click()
    expect(view.hits).to_contain_text("5 of 6 hits")
    view.page.get_by_role("button", name="Previous hit").click()
    expect(view.hits).to_contain_text("4 of 6 hits")
    expect(view.words).to_contain_text("Hit 4 of 6.")


def test_an_expression_is_searched_for_and_a_wrong_one_is_told(view):
    view.find("/small_[12]$/")
    expect(view.hits).to_contain_text("120 hits")
    view.find("/small_[/")
    expect(view.page.locator(".toolbar .problem")).not_to_be_empty()
    view.find("no such slice")
    expect(view.hits).to_contain_text("0 hits")
    expect(view.page.get_by_role("button", name="Next hit")).to_be_disabled()


def names(view):
    return [
        text.split("\n")[0].lstrip("▾▸")
        for text in view.page.locator(".labels .tlab").all_inner_texts()
    ]


def test_lanes_are_filtered_pinned_and_closed(view):
    lanes = view.page.locator(".corner input")
    lanes.fill("/^Stream/")
    expect(view.label("Busy")).to_have_count(0)
    assert [name for name in names(view) if name.startswith("Stream")] == ["Stream 7", "Stream 9"]
    lanes.fill("")
    expect(view.label("Busy")).to_have_count(1)
    view.click("Stream 7", 33.0)
    view.press("p")
    pinned = view.page.locator(".labels.pinned .tlab")
    expect(pinned).to_have_count(1)
    expect(pinned).to_contain_text("Stream 7")
    # The pinned lane is drawn, and its slices are reached, at the top.
    view.click("Stream 7", 3.0)
    expect(view.slice).to_contain_text("1.500 ms, 3.00 ms")
    view.press("p")
    expect(pinned).to_have_count(0)
    device = view.label("GPU 0")
    device.click()
    expect(device).to_have_attribute("aria-expanded", "false")
    expect(view.label("Stream 7")).to_have_count(0)
    device.press("ArrowRight")
    expect(view.label("Stream 7")).to_have_count(1)
    # A search opens what it finds.
    view.label("GPU 0").press("ArrowLeft")
    expect(view.label("Stream 7")).to_have_count(0)
    view.find("elementwise")
    expect(view.hits).to_contain_text("6 hits")
    view.search.press("Enter")
    expect(view.label("Stream 7")).to_have_count(1)


def test_threads_with_little_in_them_are_gathered(view):
    rest = view.label("3 more threads")
    rest.click()
    expect(view.label("thread 201")).to_have_count(1)
    view.label("3 more threads").click()
    expect(view.label("thread 201")).to_have_count(0)


def test_the_view_is_moved_by_keys_wheel_and_hand_and_goes_back(view):
    whole = view.window()
    x, y = view.point("Stream 7", 33.0)
    view.page.mouse.move(x, y)
    view.page.keyboard.down("Control")
    for _ in range(4):
        view.page.mouse.wheel(0, -300)
    view.page.keyboard.up("Control")
    expect(view.shown).not_to_have_text(f"{whole:.2f} ms shown")
    near = view.window()
    assert near < whole / 10
    # What was under the pointer still is.
    view.page.mouse.click(x, y)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    view.page.wait_for_timeout(600)
    view.press("u")
    assert view.window() == whole
    view.press("Shift+U")
    assert view.window() == near
    view.press("f")
    assert view.window() == pytest.approx(3.4 / 0.8, rel=0.01)
    # By hand: the lanes follow the pointer.
    box = view.canvas.bounding_box()
    view.page.mouse.move(box["x"] + 600, y)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + 100, y, steps=4)
    view.page.mouse.up()
    assert view.window() == pytest.approx(3.4 / 0.8, rel=0.01)
    view.page.mouse.click(box["x"] + 20, y)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    view.press("s")
    view.press("0")
    assert view.window() == whole


def test_rows_and_charts_lead_into_the_trace(view):
    go = view.page.get_by_role
    go("tab", name="Ops").click()
    ops = go("tabpanel", name="Ops")
    ops.locator("tbody tr").filter(has_text="Device").filter(has_text="aten::addmm").first.click()
    # Its longest call, as such.
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    expect(view.hits).to_contain_text("9 of 13 hits")
    go("tab", name="GPU kernels").click()
    go("tabpanel", name="GPU kernels").locator("tbody tr").filter(
        has_text="elementwise"
    ).first.click()
    expect(view.slice).to_contain_text("elementwise_kernel")
    go("tab", name="Memory").click()
    go("tabpanel", name="Memory").get_by_text("Show in trace →").click()
    expect(view.page.locator(".said")).to_contain_text("The peak of memory.")
    expect(view.range).to_contain_text("50.000–59.500 ms, 9.50 ms")
    view.press("Escape")
    view.range.get_by_text("Go to the longest idle gap").click()
    expect(view.page.locator(".said")).to_contain_text("GPU 0")
    expect(view.range).to_contain_text("GPU 0 idle 100%")
    go("tab", name="Steps").click()
    go("tabpanel", name="Steps").locator(".plot").first.focus()
    for key in ("Home", "ArrowRight", "Shift+ArrowRight"):
        view.page.keyboard.press(key)
    go("tabpanel", name="Steps").get_by_text("show in trace →").first.click()
    expect(view.range).to_contain_text("10.000–29.500 ms, 19.50 ms")
    # The selected steps stay within reach.
    view.press("Escape", "0")
    view.page.get_by_text("zoom to steps 1–2").click()
    expect(view.range).to_contain_text("10.000–29.500 ms, 19.50 ms")


def lone(view):
    """The colours around the one event of half a µs, and beside it."""
    x, y = view.point("Stream 9", LONE / 1000)
    box = view.canvas.bounding_box()
    view.page.mouse.move(box["x"], box["y"])
    wait_until_drawn(view.page)
    left, top = x - box["x"], y - box["y"]
    return view.colours(left - 2, top - 4, 5, 8), view.colours(left + 20, top - 4, 5, 8)


def test_a_lone_short_event_is_seen_and_can_be_clicked_with_the_whole_profile_in_view(view):
    here, beside = lone(view)
    assert len(beside) == 1
    assert len(here) == 2
    view.click("Stream 9", LONE / 1000)
    expect(view.slice).to_contain_text("Memcpy HtoD")


def test_every_control_is_reached_by_tab(view):
    view.click("Stream 7", 33.0)
    view.press("m")
    view.find("sgemm")
    expect(view.hits).to_contain_text("hits")
    reached = view.page.evaluate_handle("() => new Set()")
    view.page.get_by_role("tab", name="Trace").focus()
    inside = "() => { let at = document.activeElement; while (at?.shadowRoot) at = at.shadowRoot.activeElement; return at; }"
    for _ in range(120):
        view.page.keyboard.press("Tab")
        if not view.page.evaluate(
            f"reached => {{ const at = ({inside})(); if (!at?.closest('.pane')) return false; reached.add(at); return true; }}",
            reached,
        ):
            break
    missed = view.page.evaluate(
        """reached => {
            const root = document.querySelector('.nbprof-host').shadowRoot;
            const pane = root.querySelector('.pane:not([hidden])');
            const stops = [...pane.querySelectorAll('a,button,input,select,summary,canvas:not(.strip),[tabindex="0"]')];
            const seen = stops.filter(each => each.getClientRects().length && each.tabIndex >= 0 && !each.disabled);
            return [seen.length, seen.filter(each => !reached.has(each)).map(each => each.outerHTML.slice(0, 120))];
        }""",
        reached,
    )
    assert missed[0] > 12
    assert missed[1] == []
    # Pins are no stops, as P pins; of a choice the arrow keys reach the others.
    skipped = view.page.locator(
        ".pane:not([hidden]) button[tabindex='-1']:visible:not(.pin,[role=radio])"
    )
    assert skipped.count() == 0


def test_the_list_of_keys_opens_by_its_key(view):
    view.press("?")
    help_ = view.page.locator("#nbp-trace-keys")
    expect(help_).to_be_visible()
    expect(help_).to_contain_text("next, previous longest idle gap")
    view.press("?")
    expect(help_).to_be_hidden()


def test_on_a_screen_of_two_pixels_to_one_the_picture_has_both(browser, report):
    view = opened(browser, report, device_scale_factor=2)
    wait_until_drawn(view.page)
    assert view.canvas.evaluate("canvas => canvas.width / canvas.clientWidth") == pytest.approx(
        2, abs=0.01
    )
    here, beside = lone(view)
    assert (len(here), len(beside)) == (2, 1)
    view.click("Stream 7", 33.0)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    assert view.page.problems == []
    view.page.context.close()


def test_a_narrow_window_holds_it_all(browser, report):
    view = opened(browser, report, viewport={"width": 390, "height": 844})
    wait_until_drawn(view.page)
    page, lanes = (
        view.page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]"),
        view.canvas.bounding_box(),
    )
    assert page[0] <= page[1]
    assert lanes["width"] > 200
    view.click("Stream 7", 33.0)
    expect(view.slice).to_contain_text("31.500 ms, 3.40 ms")
    view.press("m")
    expect(view.range).to_contain_text("3.40 ms")
    assert view.slice.bounding_box()["y"] < view.range.bounding_box()["y"]
    assert view.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert view.page.problems == []
    view.page.context.close()


def test_in_the_dark_the_lanes_are_dark_and_texts_are_read(browser, report):
    view = opened(browser, report, color_scheme="dark")
    wait_until_drawn(view.page)
    here, beside = lone(view)
    assert list(beside) == ["17,17,17,255"]
    assert len(here) == 2
    # The names of lanes stand out from what is behind them.
    colour = view.label("Stream 7").evaluate("label => getComputedStyle(label).color")
    assert min(map(float, re.findall(r"[\d.]+", colour)[:3])) > 200
    assert view.page.problems == []
    view.page.context.close()


def test_a_report_fills_its_window(browser, report):
    view = opened(browser, report, viewport={"width": 1300, "height": 700})
    short = view.canvas.bounding_box()["height"]
    view.page.set_viewport_size({"width": 1300, "height": 960})
    wait_until_drawn(view.page)
    tall = view.canvas.bounding_box()["height"]
    assert tall > short
    assert view.page.evaluate("() => document.documentElement.scrollHeight - innerHeight") <= 0
    view.page.context.close()
