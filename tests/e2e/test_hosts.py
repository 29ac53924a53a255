"""The host and the device that are chosen in the header of a saved report, in every tab."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from tests.support.kineto import Kineto, profile

pytestmark = pytest.mark.browser

DEVICES = 2
NAMES = ("first.pt.trace.json", "second.pt.trace.json")


def recording(length):
    """Steps with a kernel on each device: `length` µs on the first, twice as long on the second."""
    trace = Kineto(deviceProperties=[{"id": device, "name": "GPU"} for device in range(DEVICES)])
    for i in range(4):
        start = 10_000.0 * i
        trace.step(i, start, 9_000.0)
        op = trace.op("aten::mm", start + 100, 500.0)
        for device in range(DEVICES):
            trace.launched(
                "gemm",
                start + 200 + 10 * device,
                start + 1_000,
                length * (1 + device),
                op,
                device=device,
                stream=7 + device,
            )
    return trace


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    p = profile(folder, recording(1_000.0), recording(3_000.0), names=NAMES)
    assert len(p.hosts) == DEVICES
    return p.save(folder / "report.html"), p


@pytest.fixture
def board(browser, report):
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(120_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(report[0].as_uri())
    yield page.locator(".nbp")
    assert problems == []
    context.close()


def choose(board, host):
    board.get_by_role("button", name=re.compile("^Host: ")).click()
    board.get_by_role("option", name=host, exact=True).click()


def show(board, tab):
    board.get_by_role("tab", name=tab).click()
    return board.get_by_role("tabpanel", name=tab)


def sections(pane):
    return [text.split("\n")[0].lstrip("▾▸") for text in pane.locator(".tlab.p").all_inner_texts()]


def wait_for_sections(pane, hold):
    """The sections, as soon as they are as they must be: the trace is drawn in the next frame."""
    until = time.monotonic() + 30
    while not hold(shown := sections(pane)):
        assert time.monotonic() < until, shown
        pane.page.wait_for_timeout(50)
    return shown


def test_device_time_and_trace_show_the_host_and_the_device_that_are_chosen(board, report):
    _, p = report
    first, second = p.hosts
    time = p.device_time.frame
    of_recording = time[time["step"].isna()]
    pane = show(board, "Device time")
    rows = pane.locator(".dt-bars .dt-row")
    expect(rows).to_have_count(2 * DEVICES)
    device = board.get_by_label("Device", exact=True)
    expect(device).to_have_count(0)
    choose(board, second)
    expect(rows).to_have_count(DEVICES)
    expect(pane).to_contain_text(
        f"These figures are of all devices of all hosts. Below, bars, curves and tables are of {second};"
    )
    device.select_option("1")
    expect(rows).to_have_count(1)
    row = of_recording[(of_recording["host"] == second) & (of_recording["device"] == 1)].iloc[0]
    assert f"Compute {row['compute_ms']:.2f} ms" in rows.first.get_attribute("title")
    trace = show(board, "Trace")
    expect(trace.locator(".whole-note")).to_be_hidden()
    shown = wait_for_sections(
        trace,
        lambda names: (
            any("GPU 1" in name for name in names)
            and not any("GPU 0" in name or first in name for name in names)
        ),
    )
    device.select_option("")
    wait_for_sections(
        trace,
        lambda names: {name.rpartition("GPU ")[2] for name in names if "GPU" in name} == {"0", "1"},
    )
    choose(board, first)
    wait_for_sections(trace, lambda names: names and all(first in name for name in names))
    board.press("Escape")
    wait_for_sections(trace, lambda names: len(names) > len(shown))


def test_a_tab_of_all_hosts_or_devices_says_so(board, report):
    _, p = report
    choose(board, p.hosts[0])
    note = show(board, "Ops").locator(".whole-note")
    expect(note).to_contain_text(f"{p.hosts[0]} is selected, but this view covers all hosts.")
    board.get_by_label("Device", exact=True).select_option("0")
    overview = show(board, "Overview").locator(".whole-note")
    expect(overview).to_contain_text(
        f"Device 0 is selected, but this view covers all devices of {p.hosts[0]}."
    )
    overview.get_by_text("all devices").click()
    expect(overview).to_be_hidden()
    expect(board.get_by_label("Device", exact=True)).to_have_value("")


def test_a_range_sums_up_the_lanes_of_the_host_that_is_chosen(board, report):
    _, p = report
    pane = show(board, "Trace")
    canvas = pane.locator(".scroller canvas")
    canvas.focus()
    board.page.keyboard.press("0")
    box = canvas.bounding_box()
    board.page.keyboard.down("Shift")
    board.page.mouse.move(box["x"] + 1, box["y"] + 10)
    board.page.mouse.down()
    board.page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 10, steps=3)
    board.page.mouse.up()
    board.page.keyboard.up("Shift")
    count = pane.locator(".details .range tr", has_text="gemm").locator("td").nth(2)
    expect(count).to_have_text("16")
    choose(board, p.hosts[0])
    expect(count).to_have_text("8")
    board.get_by_label("Device", exact=True).select_option("1")
    expect(count).to_have_text("4")
