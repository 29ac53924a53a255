"""The saved report as a page: opened from a file, with and without scripts, at every width, light
and dark, and asking no host for anything.
"""

from __future__ import annotations

import csv
import io
import pickle
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import nbprof
from nbprof.display import codec
from nbprof.profiles.load import load
from nbprof.profiles.report import html
from tests.e2e.axe import violations
from tests.e2e.notebooks import wait_until_drawn
from tests.support.build import profile
from tests.support.caching_allocator import LOGGED, MIB, WEIGHT, Allocator, snapshot
from tests.support.hlo import metadata_plane
from tests.support.hlo_memory import large, small
from tests.support.kineto import Kineto
from tests.support.kineto import profile as of_torch
from tests.support.profiles import real
from tests.support.xspace import gpu_run, training_run, xspace
from tests.views.test_op_profile import made as fused

pytestmark = pytest.mark.browser
EVIL = "</script><img src=x onerror=window.hacked=1>/evil:Evil"
TABS = ["Overview", "Steps & input", "Ops", "Memory", "Trace"]


def open_page(page, path, **viewport):
    asked = []
    page.context.set_offline(True)
    page.on(
        "request",
        lambda r: (
            asked.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        ),
    )
    if viewport:
        page.set_viewport_size(viewport)
    page.goto(path.as_uri())
    page.wait_for_selector("[role=tab]")
    return asked


def visit(page, name):
    # "Memory" is not "Program memory"; behind a name there may be a count.
    begins = re.compile(f"^{re.escape(name)}")
    page.get_by_role("tab", name=begins).click()
    pane = page.get_by_role("tabpanel", name=begins)
    pane.wait_for()
    return pane


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    p = profile(folder, training_run(24, evil=EVIL))
    return p, p.save(folder / "report.html")


def test_every_tab_shows_its_numbers_and_asks_no_host(page, report):
    p, path = report
    asked = open_page(page, path)
    overview = visit(page, "Overview").inner_text()
    assert p.overview["verdict"] in overview
    assert f"{p.overview['step_time_ms']:.2f}" in overview
    assert "Run Dataset.map in parallel" in overview
    steps = visit(page, "Steps & input").inner_text()
    for category in ("input", "host_compute"):
        assert f"{p.steps.summary.set_index('category').loc[category, 'mean_ms']:.2f}" in steps
    assert "bottleneck" in steps
    assert "Device side" not in steps, "there is no device"
    ops = visit(page, "Ops").inner_text()
    assert "Host, by op" in ops
    assert "Device" not in ops
    top = p.ops.frame.iloc[0]
    assert top["op"].split("::")[-1].split("/")[-1] in ops
    assert f"{top['self_us']:,.1f}" in ops
    assert "mklcpu" in visit(page, "Memory").inner_text()
    trace = visit(page, "Trace")
    assert trace.locator("canvas").count() >= 1
    overview = visit(page, "Overview")
    assert "whole run" not in overview.inner_text()
    overview.get_by_role("group").first.focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    some = p.steps.frame.head(4)
    share = 100 * some["host_compute_ms"].sum() / some["step_time_ms"].sum()
    # The bar, the figure and the table are of the selected steps; what is not says so.
    assert overview.inner_text().partition("Your ranges")[0].count(f"{share:.1f}") == 2
    assert f"{share:.0f}%" in overview.locator(".stack-l").inner_text()
    assert overview.locator(".verdict .of-run").first.inner_text().startswith("whole run")
    ops = visit(page, "Ops")
    assert "this view covers the whole run" in ops.get_by_role("status").first.inner_text()
    ops.get_by_role("button", name="clear").click()
    assert "whole run" not in visit(page, "Overview").inner_text()
    assert asked == []
    assert page.problems == []
    assert page.evaluate("window.hacked") is None


def test_gpu_views_show_kernels_and_memory(page, tmp_path):
    p = profile(tmp_path, gpu_run())
    open_page(page, p.save(tmp_path / "report.html"))
    kernels = visit(page, "GPU kernels").inner_text()
    assert "sgemm" in kernels
    assert "volta_h884gemm_fp16" in kernels
    assert "4.00" in kernels
    page.set_viewport_size({"width": 1000, "height": 1000})
    tops = (
        page.get_by_role("tabpanel", name="GPU kernels")
        .locator(".fig")
        .evaluate_all("all => all.map(one => one.offsetTop)")
    )
    rows = Counter(tops)
    assert rows[max(tops)] * 2 > rows[min(tops)], "no figure is left over in a row of its own"
    assert "Kernel launch" in visit(page, "Steps & input").inner_text()
    assert page.problems == []


def test_names_are_cut_where_rows_agree_and_wrap_on_demand(page, tmp_path):
    p = load("tests/data/xspace/tf_slow.xplane.pb")
    open_page(page, p.save(tmp_path / "report.html"), width=560, height=1000)
    names = visit(page, "Ops").locator("td.name code")
    names.locator(".gap").first.wait_for(state="attached")
    read = (
        "all => all.map(one => [one.textContent, one.innerHTML.includes('gap'), one.offsetHeight])"
    )
    short = names.evaluate_all(read)
    assert {name for name, *_ in short} <= set(p.ops.frame["op"]), (
        "the text has the whole name, to be searched and copied"
    )
    page.get_by_role("switch", name="Wrap names").click()
    wrapped = names.evaluate_all(read)
    assert all(
        after[2] > before[2] for before, after in zip(short, wrapped, strict=True) if before[1]
    )
    assert page.problems == []


def test_memory_of_a_compiled_program_by_mouse_and_keyboard(page, tmp_path):
    p = profile(
        tmp_path,
        xspace(
            metadata_plane(
                **{f"jit_large({EVIL})": (9, large(400, ident=9)), "jit_step(8)": (8, small())}
            )
        ),
    )
    asked = open_page(page, p.save(tmp_path / "report.html"), width=1000, height=1000)
    pane = visit(page, "Program memory")
    pane.get_by_label("Program", exact=True).select_option("1")
    told = pane.get_by_label("Buffer", exact=True)
    assert "16.0 KiB" in pane.inner_text()
    assert "padding: 30.5% of the peak" in pane.inner_text()
    assert "from point 1 to 2 of 3" in told.inner_text()
    bars = pane.get_by_role("img", name="3 buffers live at the peak")
    bars.hover(position={"x": 5, "y": 80})
    assert "Parameter" in told.inner_text(), "the first bar, while it is pointed at"
    page.mouse.move(0, 0)
    assert "jit(step)/mul" in told.inner_text()
    bars.focus()
    page.keyboard.press("End")
    assert "jit(step)/dot" in told.inner_text()
    assert "flat, Temporary, 4.0 KiB" in pane.get_by_role("status").all_inner_texts()
    chart = pane.get_by_role("img", name="Working set")
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert (
        "Program point 2, flat: 16.0 KiB, without padding 11.1 KiB."
        in pane.get_by_role("status").all_inner_texts()
    )
    pane.get_by_label("Memory space").select_option("1")
    assert "512 B" in pane.inner_text()
    assert page.problems == []
    assert page.evaluate("window.hacked") is None
    assert asked == []


def test_the_tree_of_the_op_profile_by_mouse_and_keyboard(page, tmp_path):
    p = fused(tmp_path, 40)
    asked = open_page(page, p.save(tmp_path / "report.html"), width=1300, height=1000)
    pane = visit(page, "Op profile")
    tree, card = (
        pane.get_by_role("treegrid", name="Op profile"),
        pane.get_by_role("region", name="Details"),
    )
    rows = tree.get_by_role("row")
    frame = p.op_profile.frame
    root = rows.nth(1).inner_text()
    assert f"{100 * frame['wasted_us'].iloc[0] / frame['time_us'].iloc[0]:.1f}%" in root
    # All programs, the program, its category, the largest 25 and a row for the others.
    assert rows.count() == 1 + 3 + 25 + 1
    pane.get_by_text("15 more").click()
    assert rows.count() == 1 + 3 + 40
    tree.focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    first = frame[frame["kind"] == "op"].iloc[0]
    inner = frame[frame["parent"] == first.name].iloc[0]
    assert inner["name"] in card.get_by_role("heading", level=4).inner_text()
    assert tree.get_attribute("aria-activedescendant") == tree.locator("tr.cur").get_attribute("id")
    page.keyboard.press("ArrowLeft")
    told = card.inner_text()
    assert first["name"] in told
    assert first["framework_op"] in told
    assert "padded to 32.0 KiB, 1.28 ×; dimension 1: 100 → 128" in told
    page.keyboard.press("ArrowLeft")
    assert rows.count() == 1 + 3 + 40, "closed again"
    page.keyboard.press("/")
    page.keyboard.type("block_7")
    assert tree.locator("tr.k-op").count() == 1
    page.keyboard.press("Escape")
    pane.get_by_role("radio", name="By framework op").click()
    assert "jit(train_step)/transpose(jvp(model))" in tree.inner_text()
    tree.focus()
    page.keyboard.press("Enter")
    assert "fusion_0" in visit(page, "Trace").inner_text()
    assert page.problems == []
    assert asked == []


def test_several_hosts_are_compared_step_by_step(page, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for host in ("host-a", "host-b"):
        (folder / f"{host}.xplane.pb").write_bytes(
            training_run(6).replace(b"host-a", host.encode())
        )
    p = load(folder)
    assert set(p.pods.frame["worker"]) == {"host-a", "host-b"}
    asked = open_page(page, p.save(tmp_path / "report.html"))
    pane = visit(page, "Pods")
    assert "All 2 workers take the same time" in pane.inner_text()
    first = pane.get_by_role("heading", name=" of 6").inner_text()
    slider = pane.get_by_role("slider", name="Step")
    slider.focus()
    page.keyboard.press("ArrowRight")
    second = pane.get_by_role("heading", name=" of 6").inner_text()
    assert first != second
    assert "Pods" in page.locator("[role=tab][aria-selected=true]").inner_text(), (
        "the arrow belongs to the slider"
    )
    pane.locator(".pod-canvas").hover()
    assert "Input" in page.locator(".card").first.inner_text()
    pane.get_by_role("radio", name="This step").click()
    assert "host-b" in pane.get_by_role("grid", name="Workers").inner_text()
    pane.get_by_role("group", name="Step time of workers by step").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert pane.get_by_role("heading", name="host-b").is_visible()
    picker = page.get_by_role("button", name="Host: host-b")
    assert "this view covers all hosts" in visit(page, "Ops").inner_text()
    picker.click()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert "6 steps," in visit(page, "Overview").inner_text()
    assert page.get_by_role("button", name="Host: host-a").is_visible()
    page.keyboard.press("Escape")
    assert "6 steps on 2 hosts" in page.locator("[role=tabpanel]:visible").inner_text()
    assert page.problems == []
    assert asked == []


def test_without_scripts_the_static_part_reads_well(browser, report):
    p, path = report
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.inner_text("body")
    assert p.overview["verdict"] in text
    assert "num_parallel_calls" in text
    assert "dense/MatMul" in text
    assert page.locator("img").first.is_visible()
    context.close()


def test_a_chart_follows_the_theme(browser, report):
    with closing(browser.new_context(color_scheme="light")) as context:
        page = context.new_page()
        page.goto(report[1].as_uri())
        chart = visit(page, "Memory").locator("canvas").first
        light = chart.evaluate("canvas => canvas.toDataURL()")
        board = page.locator(".nbp").first
        assert board.get_attribute("data-theme") == "light"
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(
            "([canvas, was]) => canvas.toDataURL() !== was", arg=[chart.element_handle(), light]
        )
        assert board.get_attribute("data-theme") == "dark"


def test_nothing_scrolls_the_page_sideways(page, report):
    open_page(page, report[1], width=1400, height=900)
    for width in (1400, 1000, 640, 320):
        page.set_viewport_size({"width": width, "height": 900})
        for tab in TABS:
            page.get_by_role("tab", name=tab).click()
            wait_until_drawn(page)
            scrolls = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert not scrolls, (tab, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_tab(browser, tmp_path, scheme):
    path = profile(tmp_path, gpu_run()).save(tmp_path / "report.html")
    # The policy of the report lets no script in from outside, the checker's neither.
    with closing(
        browser.new_context(
            viewport={"width": 1000, "height": 900}, color_scheme=scheme, bypass_csp=True
        )
    ) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        for tab in page.get_by_role("tab").all():
            tab.click()
            wait_until_drawn(page)
            assert violations(page) == [], tab.inner_text()


def test_on_paper_what_can_be_clicked_is_left_out(page, report):
    open_page(page, report[1])
    page.emulate_media(media="print")
    assert page.get_by_role("tab").or_(page.get_by_role("button", name="keys")).count() == 0
    # The bars and, outside of the plot, the numbers of their steps.
    chart = page.locator(".stepchart").first
    assert chart.locator(".axp").count() == 1
    assert chart.evaluate("element => getComputedStyle(element).breakInside") == "avoid"
    assert page.get_by_role("heading", name="Where a step goes").first.is_visible()


def test_a_dark_report_is_dark_on_white_on_paper_and_keeps_the_colours_that_tell_something(
    page, report
):
    page.emulate_media(color_scheme="dark")
    open_page(page, report[1])
    heading, bar = (
        page.get_by_role("heading", name="Where a step goes").first,
        page.locator(".stack i").first,
    )
    style = "(element, name) => getComputedStyle(element)[name]"
    on_screen = heading.evaluate(style, "color"), bar.evaluate(style, "backgroundColor")
    page.emulate_media(color_scheme="dark", media="print")
    on_paper = heading.evaluate(style, "color"), bar.evaluate(style, "backgroundColor")
    assert (on_screen[0], on_paper[0]) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    assert on_screen[1] != on_paper[1]
    assert bar.evaluate(style, "printColorAdjust") == "exact"
    page.emulate_media(color_scheme="light", media="screen")


def test_on_paper_no_code_is_cut(page, tmp_path):
    path = profile(tmp_path, gpu_run()).save(tmp_path / "report.html")
    open_page(page, path, width=420, height=900)
    code = page.locator(".fix pre")
    assert code.count()
    page.emulate_media(media="print")
    assert not any(code.evaluate_all("all => all.map(one => one.scrollWidth > one.clientWidth)"))


def test_without_scripts_the_figures_behind_a_long_name_are_on_the_page(browser, tmp_path):
    p = load("tests/data/xspace/tf_slow.xplane.pb")
    with closing(
        browser.new_context(viewport={"width": 420, "height": 900}, java_script_enabled=False)
    ) as context:
        page = context.new_page()
        page.goto(p.save(tmp_path / "report.html").as_uri())
        edges = (
            page.locator("table").filter(has=page.locator("samp")).locator("tr > :last-child").all()
        )
        assert edges
        assert max(box["x"] + box["width"] for edge in edges if (box := edge.bounding_box())) <= 420


def test_a_report_takes_keys_before_anything_is_clicked(page, report):
    open_page(page, report[1])
    page.keyboard.press("3")
    assert "Ops" in page.locator("[role=tab][aria-selected=true]").inner_text()
    page.locator(".nbp .foot").click(position={"x": 2, "y": 2})
    page.keyboard.press("1")
    assert "Overview" in page.locator("[role=tab][aria-selected=true]").inner_text()


def test_keys_switch_tabs_only_inside_the_dashboard(page, report, tmp_path):
    p, _ = report
    # As an output among others, in a notebook that was saved as a page.
    (tmp_path / "notebook.html").write_text(
        f"<!doctype html><meta charset=utf-8>{html.fragment(codec.pack(p.payload()), '', version='0')}"
    )
    open_page(page, tmp_path / "notebook.html")
    selected = page.locator("[role=tab][aria-selected=true]")
    page.keyboard.press("3")
    assert "Overview" in selected.inner_text()
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("3")
    assert "Ops" in selected.inner_text()
    page.keyboard.press("ArrowRight")
    assert "Memory" in selected.inner_text()
    page.keyboard.press("?")
    assert "this list" in page.locator(".nbp").inner_text()


def test_a_table_sorts_filters_and_downloads_what_it_shows(page, report):
    p, path = report
    open_page(page, path)
    pane = visit(page, "Ops")
    field = pane.get_by_placeholder("Filter operations")
    field.fill("MatMul")
    wait_until_drawn(page)
    with page.expect_download() as waiting:
        pane.get_by_role("button", name="Download CSV").click()
    rows = list(
        csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8-sig")))
    )
    expected = p.ops.frame[p.ops.frame["op"].str.contains("MatMul")]
    assert [r["op"] for r in rows] == expected["op"].tolist()
    assert [float(r["self_us"]) for r in rows] == pytest.approx(
        expected["self_us"].tolist(), rel=1e-6
    )
    field.fill("/(/")
    wait_until_drawn(page)
    assert "MatMul" in pane.inner_text(), "a bad expression keeps the last rows"


@pytest.mark.parametrize(
    "name",
    [
        "tf-gpu/rtx5000-cnn-batch64",
        "tf-gpu/v100x8-collectives",
        "jax/tpu-v6e-inference",
        "tf-cpu/prefetch-example",
    ],
)
def test_real_profiles_draw_in_every_tab(page, tmp_path, name):
    p = load(real(name))
    asked = open_page(page, p.save(tmp_path / "r.html"))
    tabs = [tab["label"] for tab in p.payload()["meta"]["tabs"]]
    assert page.get_by_role("tab").count() == len(tabs) > 5
    for tab in tabs:
        assert len(visit(page, tab).inner_text()) > 20, tab
    assert page.problems == []
    assert asked == []


def test_tables_of_memory_are_filtered_by_op(page, tmp_path):
    trace = Kineto()
    total = 0
    trace.step(0, 0, 1000)
    for number in range(20):
        size = (number + 1) * 1024
        total += size
        trace.op(f"aten::op{number}", 10 + 20 * number, 15)
        trace.memory(12 + 20 * number, size, (number + 1) << 20, total, total, device=0)
    open_page(page, of_torch(tmp_path, trace).save(tmp_path / "memory.html"))
    pane = visit(page, "Memory")
    for field, grid in (
        # The smallest is among those that are folded.
        ("Filter live ops", "Allocations live at the peak"),
        ("Filter ops", "What ops allocated and freed in GPU 0"),
    ):
        names = pane.get_by_role("grid", name=grid).locator("td.name")
        pane.get_by_label(field, exact=True).fill("op0")
        assert names.all_inner_texts() == ["aten::op0"]
        pane.get_by_label(field, exact=True).fill("")
        assert names.count() > 1
    assert page.problems == []


def test_calls_of_two_runs_are_one_flame_graph_that_is_used_by_keyboard(page, tmp_path):
    data = Path(__file__).resolve().parents[1] / "data" / "xspace"
    runs = [data / f"{name}.xplane.pb" for name in ("tf_slow", "tf_mended")]
    compared = nbprof.compare(*runs)
    open_page(page, compared.save(tmp_path / "compared.html"), width=420, height=800)
    graph = page.get_by_role("tree", name="Ops on host, after")
    graph.focus()
    current = graph.locator(".fb.cur")
    first = current.inner_text()
    assert graph.get_attribute("aria-activedescendant") == current.get_attribute("id")
    assert re.fullmatch(r"PyFunc −\d+\.\d\d", first)
    page.keyboard.press("ArrowRight")
    assert current.inner_text().startswith("Iterator::Root::Prefetch::ParallelMapV2 +")
    page.keyboard.press("Enter")
    assert graph.locator(".fb").count() == 1
    page.keyboard.press("Escape")
    assert graph.locator(".fb").count() > 1
    page.get_by_role("radio", name="As before").click()
    before = page.get_by_role("tree", name="Ops on host, before")
    assert "Iterator::Root::Map −" in before.inner_text()
    listed = page.get_by_role("grid", name="Ops on host: calls that changed most")
    row = listed.locator("tbody tr").first.locator("td").all_inner_texts()
    largest = compared.host_ops.iloc[0]
    assert row[0].split() == ["Iterator::Root::Map", "gone"]
    assert row[3] == f"−{-largest['self_change_ms']:.3f}"
    assert violations(page) == []
    assert page.problems == []


def test_memory_of_two_snapshots_is_compared(page, tmp_path):
    paths = []
    for name, logged in (("early", 2), ("late", 9)):
        device = Allocator()
        device.alloc(3 * MIB, WEIGHT)
        for _ in range(logged):
            device.alloc(MIB // 2, LOGGED)
        paths.append(tmp_path / f"{name}.pickle")
        paths[-1].write_bytes(pickle.dumps(snapshot(device)))
    open_page(page, nbprof.compare(*paths).save(tmp_path / "compared.html"))
    stacks = page.get_by_role("grid", name="Memory by stack")
    first = stacks.locator("tbody tr").first
    assert first.locator("td").all_inner_texts()[:4] == [
        "metrics.py:7 append",
        "1.00",
        "4.50",
        "+3.50",
    ]
    frames = page.locator("section", has=stacks).locator(".lines")
    assert frames.inner_text().splitlines() == ["metrics.py:7 append", "train.py:95 main"]
    stacks.locator("tbody tr").nth(1).click()
    assert frames.inner_text().splitlines()[-1] == "model.py:12 build"
    roles = page.get_by_role("grid", name="Memory by role").locator("tbody tr")
    assert roles.first.locator("td").first.inner_text() == "Unknown"
    assert page.problems == []
