"""Profiles opened from the file browser of a real JupyterLab, with no kernel."""

from __future__ import annotations

import gzip
import json
import os
import re
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from nbprof.profiles.load import load
from tests.e2e.conftest import served
from tests.e2e.notebooks import (
    begin_again,
    command,
    dashboards,
    open_notebook,
    wait_for_layout,
    wait_until_drawn,
    window,
    write_notebook,
)
from tests.support import msprof
from tests.support.kineto import Kineto
from tests.support.xspace import PlaneWriter, gpu_run, training_run, xspace

pytestmark = pytest.mark.browser
US = 1_000_000


@pytest.fixture(scope="module")
def profiles(lab):
    """(url, folder of profiles) with a file of each kind, and a broken one."""
    url, root = lab
    folder = root / "profiles"
    (folder / "run").mkdir(parents=True)
    for i, name in enumerate(("first", "second")):
        (folder / "logs" / name).mkdir(parents=True)
        (folder / "logs" / name / "host.xplane.pb").write_bytes(training_run(5 + i))
        os.utime(folder / "logs" / name / "host.xplane.pb", (1_700_000_000 + i,) * 2)
    tasks, marks = msprof.training(5)
    msprof.prof(folder / "PROF_000001_20230818142704322_ABC", tasks, marks)
    (folder / "host.xplane.pb").write_bytes(training_run(12))
    (folder / "run" / "host.xplane.pb").write_bytes(gpu_run())
    (folder / "broken.xplane.pb").write_bytes(b"this is no profile")
    trace = Kineto()
    for i in range(4):
        trace.step(i, i * 1000.0, 900.0)
        trace.launched(
            "gemm",
            i * 1000.0 + 100,
            i * 1000.0 + 200,
            300.0,
            trace.op("aten::mm", i * 1000.0 + 50, 100.0),
        )
    (folder / "host.pt.trace.json").write_bytes(trace.encode())
    (folder / "rank0.json").write_bytes(trace.encode())
    (folder / "rank1.json.gz").write_bytes(gzip.compress(trace.encode()))
    return url, folder


@contextmanager
def offline(browse):
    """Takes the server away until the end of the block.

    JupyterLab opens dialogs about requests that fail, in front of everything, some with a button to
    accept and some with one to close. The last button of each is clicked inside the page as it
    opens: on a busy machine the next one is there before anybody outside has seen the last one go.
    """
    closing = """() => {
        const close = () => {
            for (const dialog of document.querySelectorAll('.jp-Dialog')) {
                [...dialog.querySelectorAll('.jp-Dialog-button')].at(-1).click();
            }
        };
        window.closing = new MutationObserver(close);
        window.closing.observe(document.body, { childList: true });
        close();
    }"""
    browse.evaluate(closing)
    browse.context.set_offline(True)
    try:
        yield
    finally:
        browse.context.set_offline(False)
        browse.wait_for_function("() => !document.querySelector('.jp-Dialog')")
        browse.evaluate("() => window.closing.disconnect()")


@pytest.fixture
def guarded(tmp_path):
    """(url, token) of a JupyterLab as on a JupyterHub: below a prefix, with a token and the XSRF
    check.
    """
    (tmp_path / "host.xplane.pb").write_bytes(training_run(6))
    write_notebook(tmp_path / "shown.ipynb", "import nbprof\nnbprof.load('host.xplane.pb')")
    with served(tmp_path, "--IdentityProvider.token=only-a-test", prefix="/user/a%40b") as url:
        yield url, "only-a-test"


@pytest.fixture(scope="module")
def page(browser):
    """One for all tests: a page that has had JupyterLab before loads it in half the time. What is
    `asked` of servers is noted.
    """
    with window(browser) as page:
        page.asked = []
        page.on("request", lambda r: page.asked.append((r.method, r.url)))
        page.on("dialog", lambda dialog: dialog.accept())
        yield page


@pytest.fixture
def browse(page, profiles):
    """JupyterLab in the folder of profiles, with nothing open."""
    url, _ = profiles
    page.unroute_all()
    if page.url.startswith(url):
        begin_again(page, "profiles")
    else:
        page.goto(f"{url}/lab/tree/profiles?reset")
    item(page, "host.xplane.pb").wait_for()
    page.asked.clear()
    page.problems.clear()
    return page


@pytest.fixture
def anew(browse, profiles):
    """The same, loaded anew."""
    browse.goto(f"{profiles[0]}/lab/tree/profiles?reset")
    item(browse, "host.xplane.pb").wait_for()
    return browse


def item(page, name):
    return page.locator(".jp-DirListing-item", has_text=name)


def dashboard(page):
    return page.locator(".nbprof-document:visible .nbp")


def live(page):
    page.locator(".nbprof-document:visible .nbprof-host[data-live='live']").first.wait_for()


def opened(page, name):
    item(page, name).dblclick()
    dashboard(page).get_by_role("tab", name="Overview").wait_for()
    return dashboard(page)


def test_a_double_click_opens_the_dashboard_without_a_kernel(browse, profiles):
    url, folder = profiles
    # Those of other tests on this server.
    before = {
        what: browse.request.get(f"{url}/api/{what}").json() for what in ("kernels", "sessions")
    }
    board = opened(browse, "host.xplane.pb")
    expected = load(folder / "host.xplane.pb").overview
    assert expected["verdict"] in board.inner_text()
    assert f"{expected['step_time_ms']:.2f}" in board.inner_text()
    # A sentence goes on in the next line; none is cut.
    assert (
        visit(board, "Steps & input")
        .locator("p.said")
        .evaluate("e => getComputedStyle(e).whiteSpace")
        == "normal"
    )
    browse.wait_for_function(
        "() => document.querySelector('.nbprof-document .nbprof-host').dataset.live === 'live'"
    )
    for what, known in before.items():
        assert len(browse.request.get(f"{url}/api/{what}").json()) <= len(known), what
    # What the file holds is for the server alone, and nothing is written beside it.
    assert not any("content=1" in asked for _, asked in browse.asked if "host.xplane.pb" in asked)
    assert not any("/files/" in asked for _, asked in browse.asked)
    assert not list(folder.glob(".ipynb_checkpoints/*"))
    assert browse.problems == []


def test_keys_work_as_soon_as_a_double_click_has_opened_it(browse):
    board = opened(browse, "host.xplane.pb")
    live(browse)
    browse.keyboard.press("3")
    assert "Ops" in board.locator("[role=tab][aria-selected=true]").inner_text()
    # Also after a click on nothing in particular, and when the tab is come back to.
    board.locator(".foot").click(position={"x": 2, "y": 2})
    browse.keyboard.press("1")
    assert "Overview" in board.locator("[role=tab][aria-selected=true]").inner_text()
    opened(browse, "host.pt.trace.json")
    browse.locator(".lm-TabBar-tabLabel", has_text="host.xplane.pb").click()
    board = dashboard(browse)
    board.get_by_role("tab", name="Overview", selected=True).wait_for()
    browse.keyboard.press("3")
    board.get_by_role("tab", name="Ops", selected=True).wait_for()
    assert browse.problems == []


def test_an_opened_profile_is_compared_with_another_of_its_folder(browse):
    board = opened(browse, "host.xplane.pb")
    live(browse)
    board.get_by_role("button", name="Compare with another run").click()
    menu = board.get_by_role("menu", name="Compare with")
    menu.wait_for()
    assert "second" in menu.inner_text()
    menu.get_by_role("menuitem", name="second").click()
    board = dashboard(browse)
    board.locator(".compare-head h2").wait_for()
    assert "second" in board.locator(".compare-bar").inner_text()
    assert browse.problems == []


def test_a_torch_trace_opens_as_a_profile_and_not_as_json(browse):
    assert "aten::mm" in visit(opened(browse, "host.pt.trace.json"), "Ops").inner_text()


@pytest.mark.parametrize("name", ["rank0.json", "rank1.json.gz"])
def test_any_json_opens_by_open_with_and_keeps_its_editor(browse, name):
    if name == "rank0.json":
        item(browse, name).dblclick()
        browse.locator(".jp-MainAreaWidget:visible .jp-RenderedJSON").wait_for()
        assert not browse.locator(".nbprof-document").count()
    item(browse, name).click(button="right")
    browse.locator(".lm-Menu-item", has_text="Open With").hover()
    browse.locator(".lm-Menu-item:visible", has_text="Profile (nbprof)").click()
    dashboard(browse).get_by_role("tab", name="Overview").wait_for()
    assert "aten::mm" in visit(dashboard(browse), "Ops").inner_text()


def visit(board, name):
    board.get_by_role("tab", name=name).click()
    pane = board.get_by_role("tabpanel", name=name)
    pane.wait_for()
    return pane


def test_it_is_there_again_after_a_reload(browse):
    board = opened(browse, "host.xplane.pb")
    with browse.expect_response(
        lambda r: "/api/workspaces/" in r.url and '"tab":"memory"' in (r.request.post_data or "")
    ):
        visit(board, "Memory")
    browse.goto(browse.url.split("?")[0])
    dashboard(browse).get_by_role("tab", name="Memory", selected=True).wait_for()
    assert browse.problems == []


def test_a_broken_file_says_what_is_wrong_and_opens_when_it_is_whole(browse, profiles):
    _, folder = profiles
    item(browse, "broken.xplane.pb").dblclick()
    alert = browse.locator(".nbprof-document [role=alert]:visible")
    alert.wait_for()
    text = alert.inner_text()
    assert "could not be opened" in text
    assert "profiles/broken.xplane.pb" in text
    assert str(folder) not in text
    (folder / "broken.xplane.pb").write_bytes(training_run(6))
    alert.get_by_role("button", name="Open again").click()
    dashboard(browse).get_by_role("tab", name="Overview").wait_for()
    (folder / "broken.xplane.pb").write_bytes(b"this is no profile")


def test_a_file_deleted_under_an_open_tab_is_told_and_the_picture_stays(browse, profiles):
    _, folder = profiles
    (folder / "gone.xplane.pb").write_bytes(training_run(6))
    browse.evaluate("() => window.jupyterapp.commands.execute('filebrowser:refresh')")
    item(browse, "gone.xplane.pb").wait_for()
    board = opened(browse, "gone.xplane.pb")
    live = "() => document.querySelector('.nbprof-document .nbprof-host').dataset.live"
    browse.wait_for_function(f"{live} === 'live'")
    (folder / "gone.xplane.pb").unlink()
    visit(board, "Trace")
    bar = browse.locator(".nbprof-bar:visible")
    bar.wait_for()
    assert "deleted" in bar.inner_text()
    assert browse.evaluate(live) == "lost"
    assert board.get_by_role("tabpanel", name="Trace").locator("canvas").count() >= 1
    bar.get_by_role("button", name="Open again").click()
    alert = browse.locator(".nbprof-document [role=alert]:visible")
    alert.wait_for()
    assert "profiles/gone.xplane.pb" in alert.inner_text()


def test_cancel_stops_and_offers_to_open_again(browse):
    def hold(route):
        browse.held = route

    browse.route("**/nbprof/api/open*", hold)
    item(browse, "host.xplane.pb").dblclick()
    browse.locator(".nbprof-state").get_by_role("button", name="Cancel").click()
    assert "was not opened" in browse.locator(".nbprof-state").inner_text()
    browse.unroute("**/nbprof/api/open*")
    browse.locator(".nbprof-state").get_by_role("button", name="Open again").click()
    dashboard(browse).get_by_role("tab", name="Overview").wait_for()


def test_a_million_events_open_while_the_server_answers_others(browse, profiles):
    url, folder = profiles
    threads, calls = 100, 10_000
    host = PlaneWriter("/host:CPU")
    # In an order that does not repeat: there are no steps beside them.
    events = [host.event(f"op {i * 7919 % 10007 % 97}", i * US, US // 2) for i in range(calls)]
    for thread in range(threads):
        host.line(f"worker {thread}", events, line_id=thread + 1)
    (folder / "million.xplane.pb").write_bytes(xspace(host))
    command(browse, "filebrowser:refresh")
    item(browse, "million.xplane.pb").wait_for()
    item(browse, "million.xplane.pb").dblclick()
    reading = browse.locator(".nbprof-document:visible .nbprof-state")
    reading.wait_for()
    assert browse.request.get(f"{url}/api/status").ok
    dashboard(browse).get_by_role("tab", name="Trace").wait_for()
    trace = visit(dashboard(browse), "Trace")
    trace.get_by_text(f"All {threads * calls:,} events.").wait_for()
    assert browse.problems == []


def test_a_folder_opens_by_its_context_menu_and_a_logdir_has_its_runs(browse):
    open_folder(browse, "run")
    dashboard(browse).get_by_role("tab", name="GPU kernels").wait_for()
    assert not browse.locator(".nbprof-choice:visible").count()
    open_folder(browse, "logs")
    browse.get_by_text("6 steps").first.wait_for()
    runs = browse.get_by_role("combobox", name="Run")
    assert [text.split(" (")[0] for text in runs.locator("option").all_inner_texts()] == [
        "second",
        "first",
    ]
    runs.focus()
    browse.keyboard.press("ArrowDown")
    browse.get_by_text("5 steps").first.wait_for()
    assert browse.evaluate("document.activeElement.tagName") == "SELECT"
    browse.locator(".lm-TabBar-tab", has_text="logs › first").wait_for()
    live(browse)
    wait_for_layout(browse, '"run":"first"')
    browse.asked.clear()
    browse.goto(browse.url.split("?")[0])
    browse.get_by_text("5 steps").first.wait_for()
    assert browse.locator(".lm-TabBar-tab", has_text="run").count()
    opens = [asked for _, asked in browse.asked if "nbprof/api/open" in asked]
    assert len(opens) == 1, "a tab that nobody looks at reads nothing"
    assert browse.problems == []


def open_folder(page, name):
    item(page, name).click(button="right")
    page.get_by_role("menuitem", name="Open as Profile").click()


def test_output_of_ascend_opens(browse):
    open_folder(browse, "PROF_000001")
    browse.get_by_text("5 steps").first.wait_for()
    assert "Device-bound" in visit(dashboard(browse), "Ascend").inner_text()
    assert "Cube" in visit(dashboard(browse), "NPU kernels").inner_text()
    visit(dashboard(browse), "Trace").locator("canvas").first.wait_for()


def test_views_of_a_file_share_it_and_follow_it(anew, profiles):
    """Beside each other, renamed, replaced, and with the server away for a while."""
    browse, (_, folder) = anew, profiles
    (folder / "a.xplane.pb").write_bytes(training_run(6))
    command(browse, "filebrowser:refresh")
    opened(browse, "a.xplane.pb")
    live(browse)
    command(browse, "docmanager:clone")
    browse.wait_for_function(
        "() => document.querySelectorAll(\".nbprof-host[data-live='live']\").length === 2"
    )
    boxes = [board.bounding_box() for board in browse.locator(".nbprof-document:visible").all()]
    assert len({box["x"] for box in boxes}) == 2, "beside each other"
    browse.evaluate(
        "() => jupyterapp.serviceManager.contents.rename('profiles/a.xplane.pb', 'profiles/b.xplane.pb')"
    )
    browse.wait_for_function(
        "() => document.querySelectorAll('.nbprof-document .nbprof-state').length === 0"
    )
    browse.wait_for_function(
        "() => document.querySelectorAll(\".nbprof-host[data-live='live']\").length === 2"
    )
    assert browse.locator(".lm-TabBar-tab:visible", has_text="b.xplane.pb").count() == 2
    with offline(browse):
        board = dashboard(browse).first
        visit(board, "Trace")
        browse.locator(".nbprof-host[data-live='lost']").first.wait_for()
        assert board.get_by_role("tabpanel", name="Trace").locator("canvas").count() >= 1
    browse.wait_for_function(
        "() => document.querySelectorAll(\".nbprof-host[data-live='live']\").length === 2"
    )
    (folder / "b.xplane.pb").write_bytes(training_run(9))
    browse.evaluate("() => window.dispatchEvent(new Event('focus'))")
    bar = browse.locator(".nbprof-bar:visible").first
    assert "changed" in bar.inner_text()
    bar.get_by_role("button", name="Open again").click()
    browse.get_by_text("9 steps").first.wait_for()
    (folder / "b.xplane.pb").unlink()


def test_it_follows_the_theme(browse):
    browse.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    browse.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    opened(browse, "host.xplane.pb")
    browse.wait_for_function(
        "() => document.querySelector('.nbprof-document .nbprof-host').dataset.theme === 'dark'"
    )
    browse.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})"
    )
    browse.wait_for_function(
        "() => document.querySelector('.nbprof-document .nbprof-host').dataset.theme === 'light'"
    )


def test_it_works_behind_a_prefix_with_a_token_and_xsrf(browser, guarded):
    """Documents, the trace over HTTP, a kernel's answers, and a report that is read again."""
    url, token = guarded
    with window(browser, fresh=True) as page:
        page.goto(f"{url}/lab?reset&token={token}")
        item(page, "host.xplane.pb").wait_for()
        opened(page, "host.xplane.pb")
        live(page)
        assert (
            page.request.post(
                f"{url}/nbprof/api/open", data=json.dumps({"path": "host.xplane.pb"})
            ).status
            == 403
        )
        fetched = page.evaluate(
            "async url => (await (await fetch(url)).arrayBuffer()).byteLength",
            f"{url}/nbprof/api/download?path=host.xplane.pb",
        )
        assert fetched == len(training_run(6))
        open_notebook(page, url, "shown.ipynb")
        page.wait_for_function(
            "() => jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
        )
        command(page, "notebook:run-all-cells")
        tab = dashboards(page).get_by_role("tab", name="Trace")
        tab.wait_for()
        tab.click()
        page.locator(".jp-OutputArea .nbprof-host[data-live='live']").wait_for()
        assert page.problems == []
    with window(browser, fresh=True) as stranger:
        answer = stranger.request.post(
            f"{url}/nbprof/api/open", data=json.dumps({"path": "host.xplane.pb"})
        )
        assert answer.status == 403


SHELL = "lab/api/settings/@jupyterlab/application-extension:shell"

# How much JupyterLab has zoomed its panels.
ZOOMED = "() => [...document.querySelectorAll('.jp-zoom-target')].map(each => each.style.zoom).filter(Boolean)"


def turn_wheel(page, element, *, times=1):
    """Ctrl+wheel over the middle of an element."""
    element.hover()
    page.keyboard.down("Control")
    for _ in range(times):
        page.mouse.wheel(0, -300)
    page.keyboard.up("Control")


def test_ctrl_and_wheel_zoom_the_trace_or_else_the_panel_under_the_pointer(browse, profiles):
    url, _ = profiles
    browse.request.put(f"{url}/{SHELL}", data=json.dumps({"raw": '{"zoomOnWheel": true}'}))
    try:
        browse.goto(f"{url}/lab/tree/profiles?reset")
        opened(browse, "host.xplane.pb")
        live(browse)
        board = dashboard(browse)
        board.get_by_role("tab", name="Trace").click()
        canvas, shown = board.locator(".scroller canvas"), board.locator(".strips small")
        canvas.focus()
        browse.keyboard.press("0")
        complete = shown.inner_text()
        turn_wheel(browse, canvas)
        expect(shown).not_to_have_text(complete)
        assert browse.evaluate(ZOOMED) == []
        browse.keyboard.press("0")
        expect(shown).to_have_text(complete)
        turn_wheel(browse, board.get_by_role("tab", name="Overview"), times=3)
        browse.wait_for_function(f"() => ({ZOOMED})().length > 0")
        (zoom,) = browse.evaluate(ZOOMED)
        assert float(zoom) == pytest.approx(1.3)
        expect(shown).to_have_text(complete)
        # Where the pointer is, is also known in a panel that is zoomed.
        wait_until_drawn(browse)
        box = canvas.bounding_box()
        y = box["y"] + 60
        browse.keyboard.down("Shift")
        browse.mouse.move(box["x"] + box["width"] * 0.2, y)
        browse.mouse.down()
        browse.mouse.move(box["x"] + box["width"] * 0.7, y, steps=3)
        browse.mouse.up()
        browse.keyboard.up("Shift")
        marked = board.locator(".details .range h3")
        expect(marked).to_contain_text("ms,")
        start, end = map(float, re.search(r"([\d.]+)–([\d.]+) ms", marked.inner_text()).groups())
        length = float(complete.split()[0])
        assert (start / length, end / length) == pytest.approx((0.2, 0.7), abs=0.02)
        turn_wheel(browse, canvas)
        expect(shown).not_to_have_text(complete)
        assert browse.evaluate(ZOOMED) == [zoom]
    finally:
        browse.request.put(f"{url}/{SHELL}", data=json.dumps({"raw": "{}"}))
        # A page that has not read the setting.
        browse.goto("about:blank")
