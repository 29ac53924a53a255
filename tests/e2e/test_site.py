"""The page of `nbprof.page`: opens saved reports in the browser, from a file and from a server."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import re
import threading
from contextlib import closing, contextmanager

import nbformat.v4 as v4
import pytest
from playwright.sync_api import expect

import nbprof
from nbprof.display import codec
from tests.e2e.axe import violations
from tests.e2e.notebooks import wait_until_drawn
from tests.e2e.test_trace import View, recording
from tests.support.build import profile
from tests.support.kineto import profile as of_torch
from tests.support.saved import packed_of
from tests.support.xspace import training_run

pytestmark = pytest.mark.browser
EVIL = "</script><img src=x onerror=window.hacked=1>/evil:Evil"
KERNEL = "volta_sgemm_128x64_nn"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Open(Quiet):
    """Lets pages of other sites read its files."""

    def end_headers(self):
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


@contextmanager
def serving(folder, kind=Quiet):
    """URL of the folder on a plain web server."""
    handler = functools.partial(kind, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A site with a report and a comparison, and files beside it."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "torch").mkdir()
    slow = profile(folder, training_run(24, evil=EVIL), name="slow")
    fast = profile(folder, training_run(12), name="fast")
    torch = of_torch(folder / "torch", recording())
    torch.save(folder / "torch.html")
    slow.save(folder / "slow.html")
    nbprof.compare(slow, fast).save(folder / "compared.html")
    nbprof.page(folder / "site", [folder / "torch.html", folder / "compared.html"])
    outputs = [v4.new_output("display_data", data=p.mimebundle()[0]) for p in (slow, fast)]
    cells = [v4.new_code_cell("p", outputs=[output]) for output in outputs]
    cells[0].execution_count = 3
    text = json.dumps(v4.new_notebook(cells=cells))
    (folder / "two.ipynb").write_text(text)
    (folder / "site" / "two.ipynb").write_text(text)
    tracks = torch.run.timeline.tracks
    return folder, (tracks.end - tracks.origin) / 1e9


@pytest.fixture(scope="module")
def url(files):
    with serving(files[0] / "site") as address:
        yield address


@pytest.fixture
def page(browser):
    context = browser.new_context(
        viewport={"width": 1300, "height": 1000},
        permissions=["clipboard-read", "clipboard-write"],
    )
    with closing(context):
        page = context.new_page()
        page.set_default_timeout(60_000)
        problems, asked = [], []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.asked = asked
        yield page
        assert problems == []


def start(page, files):
    page.goto((files[0] / "site" / "index.html").as_uri())


def choose(page, *paths):
    page.set_input_files("input[type=file]", [str(path) for path in paths])


def drop(page, *files):
    """Drops files, each a name and bytes, on the page."""
    transfer = page.evaluate_handle(
        """files => {
            const transfer = new DataTransfer();
            for (const [name, bytes] of files)
                transfer.items.add(new File([new Uint8Array(bytes)], name));
            return transfer;
        }""",
        [[name, list(content)] for name, content in files],
    )
    page.dispatch_event("main", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("main", "drop", {"dataTransfer": transfer})


def said(page):
    return page.locator("[data-nbprof-site] .status")


def wrong(page):
    return page.locator("[data-nbprof-site] .problems")


def shown_tab(page):
    return page.get_by_role("tab", selected=True)


def test_keys_alone_open_a_report_which_is_announced_and_leaves_the_machine_to_nobody(page, files):
    start(page, files)
    page.context.set_offline(True)
    wait_until_drawn(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Open a report…")).to_be_focused()
    # The browser asks for a file when a person's key has clicked the input. Playwright misses the
    # first dialog of a browser now and then.
    page.evaluate(
        """() => document.querySelector("input[type=file]").addEventListener("click", event => {
            window.asks = navigator.userActivation.isActive;
            event.preventDefault();
        })"""
    )
    page.keyboard.press("Enter")
    page.wait_for_function("() => window.asks")
    choose(page, files[0] / "slow.html")
    expect(said(page)).to_have_text("slow.html: slow.")
    assert said(page).get_attribute("role") == "status"
    expect(shown_tab(page)).to_contain_text("Overview")
    assert page.title() == "slow · nbprof"
    # From where the focus was, the tabs follow.
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(shown_tab(page)).to_contain_text("Steps & input")
    assert not any(url.startswith("http") for url in page.asked)
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [600, 1300])
def test_it_fits_and_is_accessible_before_and_after_a_report(browser, files, scheme, width):
    with closing(
        browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
        )
    ) as context:
        page = context.new_page()
        start(page, files)
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert page.evaluate(fits)
        assert violations(page) == []
        choose(page, files[0] / "two.ipynb", files[0] / "site" / "index.html")
        expect(shown_tab(page)).to_be_visible()
        expect(wrong(page)).to_contain_text("index.html is an HTML page without")
        assert page.evaluate(fits)
        assert violations(page) == []
        assert page.locator(".nbp").get_attribute("data-theme") == scheme


def test_each_dashboard_of_a_notebook_can_be_picked(page, files, url):
    page.goto(f"{url}/#tab=ops")
    expect(said(page)).to_contain_text("This link leads to a place in a report")
    drop(page, ("two.ipynb", (files[0] / "two.ipynb").read_bytes()))
    picker = page.get_by_label("Dashboard", exact=True)
    expect(picker.locator("option")).to_have_text(
        ["slow (two.ipynb [3])", "fast (two.ipynb cell 2)"]
    )
    expect(said(page)).to_have_text("two.ipynb [3]: slow.")
    expect(shown_tab(page)).to_contain_text("Ops")
    picker.select_option("1")
    expect(said(page)).to_have_text("two.ipynb cell 2: fast.")
    expect(page.locator(".run-id")).to_contain_text("fast · 12 steps")
    # The place was in the other one.
    expect(shown_tab(page)).to_contain_text("Overview")
    assert page.url == f"{url}/?output=2"
    page.get_by_role("tab", name="Ops").click()
    page.wait_for_function("() => location.hash === '#tab=ops'")
    choose(page, files[0] / "slow.html")
    expect(said(page)).to_have_text("slow.html: slow.")
    expect(shown_tab(page)).to_contain_text("Overview")
    assert page.url == f"{url}/"
    page.goto(f"{url}/?report=two.ipynb&output=2#tab=memory")
    expect(said(page)).to_have_text("two.ipynb cell 2: fast.")
    expect(shown_tab(page)).to_contain_text("Memory")


def test_a_comparison_opens_at_compare_and_reports_of_the_site_are_links(page, files, url):
    start(page, files)
    choose(page, files[0] / "compared.html")
    expect(said(page)).to_have_text("compared.html: slow → fast.")
    expect(shown_tab(page)).to_contain_text("Compare")
    page.get_by_role("link", name="Start page").click()
    assert page.get_by_role("navigation").get_by_role("link").count() == 2
    page.get_by_role("link", name="slow → fast").click()
    expect(shown_tab(page)).to_contain_text("Compare")
    assert page.url.startswith((files[0] / "site" / "reports").as_uri())
    page.goto(url)
    page.get_by_role("link", name="slow → fast").click()
    expect(shown_tab(page)).to_contain_text("Compare")


def test_markup_and_scripts_of_a_hostile_file_never_get_into_the_page(page, files):
    """A report whose HTML attacks, and one whose data does."""
    start(page, files)
    text = (files[0] / "slow.html").read_text()
    attack = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    drop(page, ("attack.html", text.replace("<main>", f"<main>{attack}").encode()))
    expect(said(page)).to_have_text("attack.html: slow.")
    payload = codec.unpack(packed_of(text))

    def spoilt(value):
        if isinstance(value, str) and not re.fullmatch(r"[a-z_0-9]+|", value):
            return f"{EVIL}{value}javascript:window.hacked=3"
        if isinstance(value, dict):
            return {key: spoilt(item) for key, item in value.items()}
        if isinstance(value, list):
            return [spoilt(item) for item in value]
        return value

    payload = spoilt(payload)
    payload["meta"]["label"] = EVIL
    packed = codec.contain(payload)
    drop(page, ("data.html", f'<p>const data = "{codec.to_text(packed)}";'.encode()))
    expect(said(page)).to_contain_text("data.html: </script><img")
    for number in range(page.get_by_role("tab").count()):
        page.get_by_role("tab").nth(number).click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 2


def test_what_is_no_report_is_named_with_its_remedy_and_what_is_open_stays(page, files):
    start(page, files)
    choose(page, files[0] / "slow.html")
    expect(said(page)).to_have_text("slow.html: slow.")
    good = (files[0] / "slow.html").read_text()
    data = re.search(r'const data = "([^"]*)"', good)[1]
    cases = {
        "trace.json": (b'{"traceEvents": []}', "recorded profiles are not decoded here"),
        "trace.json.gz": (gzip.compress(b"{}"), "nbprof.load(…)"),
        "empty.html": (b"", "empty.html is empty"),
        "page.html": (b"<!doctype html><p>", "an HTML page without the data"),
        "cut.html": (good.replace(data, data[:9000]).encode(), "cut.html is damaged"),
        "none.ipynb": (b'{"cells": [], "nbformat": 4}', "has no nbprof dashboard"),
    }
    for name, (content, remedy) in cases.items():
        drop(page, (name, content))
        expect(wrong(page)).to_contain_text(remedy)
        expect(wrong(page)).to_contain_text(name)
        assert wrong(page).get_attribute("role") == "alert"
        expect(page.locator(".run-id")).to_contain_text("slow · 24 steps")
    # One that is damaged does not keep the other from being opened.
    drop(page, ("cut.html", cases["cut.html"][0]), ("good.html", good.encode()))
    expect(said(page)).to_have_text("good.html: slow.")
    expect(wrong(page)).to_contain_text("cut.html is damaged")


def test_payloads_that_are_not_of_this_version_say_so_or_fail_as_a_sentence(page, files):
    start(page, files)
    payload = codec.unpack(packed_of((files[0] / "slow.html").read_text()))
    payload["meta"]["version"] = "9.9"

    def as_page(value):
        return f'<p>const data = "{codec.to_text(codec.contain(value))}";'.encode()

    drop(page, ("later.html", as_page(payload)))
    expect(said(page)).to_contain_text(f"written by nbprof 9.9, this page by {nbprof.__version__}")
    drop(page, ("odd.html", as_page({"meta": {"version": "9.9", "label": "odd"}})))
    expect(wrong(page)).to_contain_text("odd.html could not be drawn")
    drop(page, ("less.html", as_page({"no": "meta"})))
    expect(wrong(page)).to_contain_text("less.html is damaged")


def test_links_to_reports_open_them_or_say_why_not(page, files, url):
    page.goto(f"{url}/?report=reports/nothing.html")
    expect(wrong(page)).to_contain_text(f"{url}/reports/nothing.html: the server answered 404")
    for address, reason in (
        ("javascript:window.hacked=1", "is no address of a web server"),
        ("http://[", "is no address"),
        ("data:text/html,<p>", "is no address of a web server"),
    ):
        page.goto(f"{url}/?report={address}")
        expect(wrong(page)).to_contain_text(reason)
    with serving(files[0]) as other:
        page.goto(f"{url}/?report={other}/slow.html")
        expect(wrong(page)).to_contain_text("does not let other sites read its files (CORS)")
    with serving(files[0], Open) as other:
        page.goto(f"{url}/?report={other}/slow.html&report=two.ipynb#tab=ops")
        # A reader sees whose report it is.
        expect(said(page)).to_have_text(f"{other}/slow.html: slow.")
        expect(shown_tab(page)).to_contain_text("Ops")
        expect(page.get_by_label("Dashboard", exact=True).locator("option")).to_have_count(3)
    page.goto((files[0] / "site" / "index.html").as_uri() + "?report=reports/x.html")
    expect(wrong(page)).to_contain_text("Open the report itself, or choose it here")
    assert page.evaluate("window.hacked") is None
    # A file that is chosen then takes the place of the link.
    choose(page, files[0] / "slow.html")
    expect(said(page)).to_have_text("slow.html: slow.")
    assert "report=" not in page.url


def copied(page):
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    return page.evaluate("navigator.clipboard.readText()")


def report_addresses(files, url):
    (name,) = [
        path.name for path in (files[0] / "site/reports").iterdir() if "slow" not in path.name
    ]
    return {
        "file": (files[0] / "torch.html").as_uri(),
        "site": f"{url}/?report=reports/{name}",
        "served": f"{url}/reports/{name}",
    }


@pytest.mark.parametrize("way", ["file", "site", "served"])
def test_a_copied_link_opens_tab_step_range_and_kernel_again(page, files, url, way):
    address = report_addresses(files, url)[way]
    page.goto(address)
    page.get_by_role("tab", name="GPU kernels").click()
    table = page.get_by_role("group", name="GPU kernels, table")
    table.focus()
    page.keyboard.press("ArrowDown")
    marked = table.locator("tr[aria-selected=true]")
    expect(marked).to_contain_text("sgemm")
    link = copied(page)
    assert link == f"{address}#tab=kernels&kernel={KERNEL}"
    # Rows that are filtered, with none marked, are a place, too.
    page.get_by_label("Filter by kernel name").fill("elementwise")
    assert copied(page) == f"{address}#tab=kernels&kernel=elementwise"
    page.goto("about:blank")
    page.goto(link)
    expect(marked).to_contain_text("sgemm")
    expect(table.locator("tbody tr")).to_have_count(1)
    page.get_by_role("tab", name="Ops").click()
    page.get_by_label("Filter operations").fill("aten::linear")
    assert copied(page) == f"{address}#tab=ops&op=aten::linear"
    page.goto("about:blank")
    page.goto(f"{address}#tab=trace&step=3&t=28ms..38ms&range=31ms..35ms")
    view = View(page, files[1])
    expect(view.range).to_contain_text("31.000–35.000 ms, 4.00 ms")
    assert view.window() == 10.0
    assert copied(page) == f"{address}#tab=trace&step=3&t=28ms..38ms&range=31ms..35ms"
