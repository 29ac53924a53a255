"""Profiles opened from the file browser of a real JupyterLab, with no kernel."""

from __future__ import annotations

import gzip
import json

import pytest

from nbprof.profiles import load
from tests.e2e.conftest import served
from tests.support.kineto import Kineto
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def profiles(lab):
    """(url, folder of profiles) with a file of each kind, and a broken one."""
    url, root = lab
    folder = root / "profiles"
    (folder / "run").mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(training_run(12))
    (folder / "run" / "host.xplane.pb").write_bytes(gpu_run())
    (folder / "broken.xplane.pb").write_bytes(b"this is no profile")
    trace = Kineto()
    for i in range(4):
        trace.step(i, i * 1000.0, 900.0)
        trace.launched("gemm", i * 1000.0 + 100, i * 1000.0 + 200, 300.0, trace.op("aten::mm", i * 1000.0 + 50, 100.0))
    (folder / "host.pt.trace.json").write_bytes(trace.encode())
    (folder / "rank0.json").write_bytes(trace.encode())
    (folder / "rank1.json.gz").write_bytes(gzip.compress(trace.encode()))
    return url, folder


@pytest.fixture
def guarded(tmp_path):
    """(url, token) of a JupyterLab as on a JupyterHub: below a prefix, with a token and the XSRF check."""
    (tmp_path / "host.xplane.pb").write_bytes(training_run(6))
    with served(tmp_path, "--IdentityProvider.token=only-a-test", prefix="/user/a%40b") as url:
        yield url, "only-a-test"


@pytest.fixture
def browse(page, profiles):
    """JupyterLab in the folder of profiles; gives (page, what was asked of the server)."""
    url, _ = profiles
    page.asked = []
    page.on("request", lambda r: page.asked.append((r.method, r.url)))
    page.goto(f"{url}/lab/tree/profiles?reset")
    item(page, "host.xplane.pb").wait_for(timeout=60_000)
    return page


def item(page, name):
    return page.locator(".jp-DirListing-item", has_text=name)


def dashboard(page):
    return page.locator(".nbprof-document:not(.lm-mod-hidden) .nbp")


def opened(page, name):
    item(page, name).dblclick()
    dashboard(page).get_by_role("tab", name="Overview").wait_for(timeout=60_000)
    return dashboard(page)


def test_a_double_click_opens_the_dashboard_without_a_kernel(browse, profiles):
    url, folder = profiles
    board = opened(browse, "host.xplane.pb")
    expected = load(folder / "host.xplane.pb").overview
    assert expected["verdict"] in board.inner_text()
    assert f"{expected['step_time_ms']:.2f}" in board.inner_text()
    browse.wait_for_function("() => document.querySelector('.nbprof-document .nbprof-host').dataset.live === 'live'")
    assert browse.request.get(f"{url}/api/kernels").json() == []
    assert browse.request.get(f"{url}/api/sessions").json() == []
    # What the file holds is for the server alone, and nothing is written beside it.
    assert not any("content=1" in asked for _, asked in browse.asked if "host.xplane.pb" in asked)
    assert not any("/files/" in asked for _, asked in browse.asked)
    assert not list(folder.glob(".ipynb_checkpoints/*"))
    assert browse.problems == []


def test_a_torch_trace_opens_as_a_profile_and_not_as_json(browse):
    assert "aten::mm" in visit(opened(browse, "host.pt.trace.json"), "Ops").inner_text()


@pytest.mark.parametrize("name", ["rank0.json", "rank1.json.gz"])
def test_any_json_opens_by_open_with_and_keeps_its_editor(browse, name):
    if name == "rank0.json":
        item(browse, name).dblclick()
        browse.locator(".jp-MainAreaWidget:visible .jp-RenderedJSON").wait_for(timeout=60_000)
        assert not browse.locator(".nbprof-document").count()
    item(browse, name).click(button="right")
    browse.locator(".lm-Menu-item", has_text="Open With").hover()
    browse.locator(".lm-Menu-item:visible", has_text="Profile (nbprof)").click()
    dashboard(browse).get_by_role("tab", name="Overview").wait_for(timeout=60_000)
    assert "aten::mm" in visit(dashboard(browse), "Ops").inner_text()


def visit(board, name):
    board.get_by_role("tab", name=name).click()
    pane = board.get_by_role("tabpanel", name=name)
    pane.wait_for()
    return pane


def test_it_is_there_again_after_a_reload(browse):
    opened(browse, "host.xplane.pb")
    browse.wait_for_timeout(2000)
    browse.goto(browse.url.split("?")[0])
    dashboard(browse).get_by_role("tab", name="Overview").wait_for(timeout=60_000)
    assert browse.problems == []


def test_a_broken_file_says_what_is_wrong_and_opens_when_it_is_whole(browse, profiles):
    _, folder = profiles
    item(browse, "broken.xplane.pb").dblclick()
    alert = browse.locator(".nbprof-document [role=alert]:visible")
    alert.wait_for(timeout=30_000)
    text = alert.inner_text()
    assert "could not be opened" in text
    assert "profiles/broken.xplane.pb" in text
    assert str(folder) not in text
    (folder / "broken.xplane.pb").write_bytes(training_run(6))
    alert.get_by_role("button", name="Open again").click()
    dashboard(browse).get_by_role("tab", name="Overview").wait_for(timeout=30_000)
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
    bar.wait_for(timeout=30_000)
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
    dashboard(browse).get_by_role("tab", name="Overview").wait_for(timeout=30_000)


def test_a_run_folder_opens_by_its_context_menu(browse):
    item(browse, "run").click(button="right")
    browse.get_by_role("menuitem", name="Open as Profile").click()
    dashboard(browse).get_by_role("tab", name="GPU kernels").wait_for(timeout=30_000)
    browse.wait_for_timeout(2000)
    browse.goto(browse.url.split("?")[0])
    dashboard(browse).get_by_role("tab", name="GPU kernels").wait_for(timeout=60_000)


def test_it_follows_the_theme(browse):
    browse.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    browse.wait_for_function("() => document.body.dataset.jpThemeLight === 'false'")
    opened(browse, "host.xplane.pb")
    browse.wait_for_function("() => document.querySelector('.nbprof-document .nbprof-host').dataset.theme === 'dark'")
    browse.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    browse.wait_for_function("() => document.querySelector('.nbprof-document .nbprof-host').dataset.theme === 'light'")


def test_it_works_behind_a_prefix_with_a_token_and_xsrf(page, guarded):
    url, token = guarded
    page.goto(f"{url}/lab?reset&token={token}")
    item(page, "host.xplane.pb").wait_for(timeout=60_000)
    opened(page, "host.xplane.pb")
    page.wait_for_function("() => document.querySelector('.nbprof-document .nbprof-host').dataset.live === 'live'")
    assert page.request.post(f"{url}/nbprof/api/open", data=json.dumps({"path": "host.xplane.pb"})).status == 403
    assert page.problems == []
