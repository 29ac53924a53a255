"""What is drawn has its room: no text lies over another one, none is cut, and what opens is seen,
at every width.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from nbprof.profiles.comparison import compare
from nbprof.profiles.load import load
from tests.e2e.notebooks import wait_until_drawn
from tests.e2e.test_page import open_page, visit
from tests.support import kineto, msprof
from tests.support.build import profile
from tests.support.kineto import Kineto
from tests.support.xspace import gpu_run, training_run
from tests.views.test_op_profile import made as programs

pytestmark = pytest.mark.browser

WIDTHS = (1400, 1000, 700, 420)

TEXTS = """
const pane = root.querySelector(".pane:not([hidden])"), edge = pane.getBoundingClientRect(), texts = [];
const walk = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT);
for (let node = walk.nextNode(); node; node = walk.nextNode()) {
  const parent = node.parentElement;
  if (!node.textContent.trim() || !parent.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (parent.closest(".card,.menu,.sr")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const rect of range.getClientRects()) {
    let [left, right, top, bottom] = [rect.left, rect.right, rect.top, rect.bottom];
    // What a scroller or an ellipsis hides is not drawn.
    for (let up = parent; up !== pane; up = up.parentElement) {
      const style = getComputedStyle(up), box = up.getBoundingClientRect();
      if (style.overflowX === "visible" && style.overflowY === "visible") continue;
      [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
    }
    if (right - left > 1 && bottom - top > 1) texts.push({ text: node.textContent.trim(), parent, left, right, top, bottom });
  }
}
"""

FAULTS = (
    "root => {"
    + TEXTS
    + """
  const faults = texts.filter(({ right }) => right > edge.right + 1).map(({ text }) => `beyond the page: ${text}`);
  texts.forEach((a, i) => {
    for (const b of texts.slice(i + 1)) {
      if (a.parent === b.parent) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      // Lines of text may touch.
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1.5 && down > 4) faults.push(`one over the other: ${a.text} | ${b.text}`);
    }
  });
  return faults;
}"""
)

CODE = """root => [...root.querySelectorAll(".pane:not([hidden]) .fix")].map((box) => {
  const pre = box.querySelector("pre"), edge = pre.getBoundingClientRect();
  const copy = box.querySelector("button").getBoundingClientRect();
  const words = [];
  const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    // Spaces at the end of a line may stand beyond it.
    for (const { index, 0: word } of node.textContent.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      words.push(...range.getClientRects());
    }
  }
  return {
    code: pre.textContent,
    over: words.some(({ right, top, bottom }) => right > copy.left && top < copy.bottom && bottom > copy.top),
    cut: pre.scrollWidth > pre.clientWidth || words.some(({ right, bottom }) => right > edge.right + 1 || bottom > edge.bottom + 1),
    words: words.length,
  };
})"""


def torch_run() -> Kineto:
    """A training on the CPU that waits for its DataLoader, with ops of long names."""
    trace = Kineto()
    for i in range(8):
        at = i * 30_000.0
        trace.step(i, at, 29_000.0)
        trace.note(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 100, 20_000.0
        )
        trace.op("aten::addmm", at + 21_000, 4_000.0)
        trace.op(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            at + 26_000,
            1_500.0,
        )
    return trace


def npu_run(folder):
    tasks, marks = msprof.training(5)
    return load(msprof.prof(folder / "PROF_000001_20230818142704322_ABC", tasks, marks))


PROFILES = {
    "tensorflow on a GPU": lambda folder: profile(folder, gpu_run()),
    "tensorflow on a CPU": lambda folder: profile(folder, training_run(24)),
    "torch on a CPU": lambda folder: kineto.profile(folder, torch_run()),
    "an NPU": npu_run,
    "compiled programs": lambda folder: programs(folder, 40),
}


@pytest.fixture(scope="module")
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layout")
    return PROFILES[request.param](folder).save(folder / "report.html")


@pytest.mark.parametrize("saved", PROFILES, indirect=True)
def test_texts_have_room_and_code_is_read_in_full_beside_its_copy_button(page, saved, request):
    open_page(page, saved, width=WIDTHS[0], height=900)
    board, tabs = page.locator(".nbp"), page.get_by_role("tab").all()
    advised = re.search("tensorflow|torch", request.node.callspec.params["saved"])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for tab in tabs:
            tab.click()
            wait_until_drawn(page)
            where = width, tab.inner_text()
            assert board.evaluate(FAULTS) == [], where
            boxes = board.evaluate(CODE)
            assert boxes or not advised or tab is not tabs[0], "the advice has code"
            assert [b for b in boxes if b["over"] or b["cut"] or not b["words"]] == [], where


def test_what_a_narrow_page_leaves_out_is_one_click_away(page, tmp_path):
    path = profile(tmp_path, gpu_run()).save(tmp_path / "report.html")
    open_page(page, path, width=1400, height=900)
    pane = visit(page, "Ops")
    more, head = (
        pane.get_by_role("button", name="Show more columns"),
        pane.get_by_role("columnheader", name="Total"),
    )
    assert head.first.is_visible()
    assert not more.is_visible()
    page.set_viewport_size({"width": 700, "height": 900})
    assert not head.first.is_visible()
    more.click()
    assert head.first.is_visible()
    pane.get_by_role("button", name="Show fewer columns").click()
    assert not head.first.is_visible()


def test_what_helps_is_read_at_every_width(page, tmp_path):
    p = profile(tmp_path, training_run(24))
    text = next(
        category["advice"] for category in p.payload()["input"]["categories"] if category["advice"]
    )
    open_page(page, p.save(tmp_path / "report.html"), width=1400, height=900)
    first = text.replace("**", "").split(",")[0]
    helps = visit(page, "Steps & input").locator("td.dim").filter(has_text=first)
    for width in (1400, 700):
        page.set_viewport_size({"width": width, "height": 900})
        wait_until_drawn(page)
        assert [each.is_visible() for each in helps.all()].count(True) == 1


def test_the_axis_of_a_comparison_has_room_for_its_numbers(page, tmp_path):
    runs = []
    # An axis to 400 ms, with a number every 50.
    for name, factor in (("before", 11.0), ("after", 12.5)):
        trace = Kineto()
        for i in range(10):
            at, length = i * 400_000.0, (300_000.0 + i * 1000) * factor / 10
            trace.step(i, at, length)
            trace.op("aten::mm", at + 10, length - 20)
        (tmp_path / name).mkdir()
        runs.append(kineto.profile(tmp_path / name, trace))
    path = compare(*runs).save(tmp_path / "report.html")
    open_page(page, path, width=1400, height=900)
    axis = visit(page, "Compare").locator(".dots .axp span")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wait_until_drawn(page)
        assert {"0", "400"} <= set(axis.all_inner_texts())
        boxes = [each.bounding_box() for each in axis.all()]
        assert len(boxes) > 2
        gaps = [after["x"] - before["x"] - before["width"] for before, after in pairwise(boxes)]
        assert min(gaps) > 3, width


@pytest.mark.parametrize("width", [1400, 700])
# The keys are the same in each report; the receipts are of different lengths.
@pytest.mark.parametrize("saved", ["tensorflow on a GPU", "an NPU"], indirect=True)
def test_the_keys_and_the_receipt_open_in_view(page, saved, width):
    open_page(page, saved, width=width, height=600)
    page.locator(".nbp").get_by_role("tab", name="Overview").focus()
    page.keyboard.press("?")
    keys = page.locator(".keys")
    box = keys.bounding_box()
    assert box["y"] + box["height"] <= 600 + 1
    page.keyboard.press("?")
    assert not keys.is_visible()
    assert page.get_by_role("tab", name="Overview").bounding_box()["y"] >= 0, (
        "back where the reader was"
    )
    page.get_by_role("button", name="receipt").click()
    box = page.locator(".receipt").bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= 600 + 1
