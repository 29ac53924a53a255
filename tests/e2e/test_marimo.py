"""Profiles, figures and widgets in marimo, whose cells have no magics."""

from __future__ import annotations

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.notebooks import window
from tests.support.profiles import require

pytestmark = pytest.mark.browser

NOTEBOOK = """
import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import marimo as mo
    import nbprof
    return mo, nbprof


@app.cell
def _(nbprof):
    with nbprof.profile() as recorded:
        for step in nbprof.steps(range(30)):
            sum(range(50_000))
    recorded
    return


@app.cell
def _(nbprof):
    p = nbprof.load({path!r})
    p.steps.figure()
    return (p,)


@app.cell
def _(p):
    p.advice
    return


@app.cell
def _(mo, p):
    w = mo.ui.anywidget(p.steps.widget(selected=tuple(p.steps.frame.step.iloc[[-2, -1]].tolist())))
    w
    return (w,)


@app.cell
def _(mo, w):
    mo.md(f"selected {{w.selected}}")
    return


@app.cell
def _(p):
    p.memory
    return
"""


def environment(notebook):
    return {**os.environ, "XDG_CONFIG_HOME": str(notebook.parent), "PYTHONPATH": str(ROOT)}


@contextmanager
def served(notebook):
    """URL of a marimo that runs a notebook as an app, on the loopback address only."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "marimo", "--yes", "run", str(notebook), "--headless", "--no-token", f"--port={port}",
    ]  # fmt: skip
    log = (notebook.parent / "server.log").open("w")
    server = subprocess.Popen(
        command,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment(notebook),
        cwd=notebook.parent,
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(480):
            try:
                with urllib.request.urlopen(url, timeout=2):
                    break
            except OSError:
                if server.poll() is not None:
                    raise RuntimeError(
                        (notebook.parent / "server.log").read_text()[-2000:]
                    ) from None
                time.sleep(0.25)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    require("marimo")
    path = str(ROOT / "tests" / "data" / "xspace" / "tf_cpu.xplane.pb")
    file = tmp_path_factory.mktemp("marimo app") / "app.py"
    file.write_text(NOTEBOOK.format(path=path), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def shown(browser, notebook):
    """The app after all its cells have run, and the errors of its page."""
    with served(notebook) as url, window(browser) as page:
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        page.get_by_text("selected [").wait_for()
        yield page, errors


def test_a_recording_and_a_view_are_live_dashboards(shown):
    page, _ = shown
    dashboards = page.locator(".nbp")
    dashboards.nth(1).wait_for()
    first = dashboards.first
    first.get_by_role("tab").first.wait_for()
    assert first.get_by_role("tab").count() > 2
    assert first.bounding_box()["height"] > 300


def test_a_figure_is_drawn_without_a_network(shown):
    page, errors = shown
    page.frame_locator("iframe").first.locator(".bk-Figure").wait_for()
    assert not errors


def test_findings_are_those_alone(shown):
    page, _ = shown
    frame = page.frame_locator("iframe").nth(1)
    frame.locator(".nbp").wait_for()


def test_a_selection_is_a_value_of_other_cells(shown):
    page, _ = shown
    page.get_by_text(re.compile(r"selected \[\d+, \d+\]")).wait_for()


class Exported(http.server.SimpleHTTPRequestHandler):
    """A page beside the files of marimo's front end, which it has from a network otherwise."""

    page = b""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path != "/exported.html":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)


@contextmanager
def beside_front_end(text):
    """URL of an exported page."""
    import marimo

    handler = type("Handler", (Exported,), {"page": text.encode()})
    files = str(Path(marimo.__file__).parent / "_static")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=files))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/exported.html"
    finally:
        server.shutdown()
        server.server_close()


def test_an_exported_page_is_live_without_a_kernel(notebook, browser):
    target = notebook.with_suffix(".html")
    command = [sys.executable, "-m", "marimo", "--yes", "export", "html", str(notebook), "-o", str(target)]  # fmt: skip
    subprocess.run(
        command, check=True, env=environment(notebook), cwd=notebook.parent, capture_output=True
    )
    text = target.read_text(encoding="utf-8")
    text, replaced = re.subn(r"https://[^\"']*/@marimo-team/frontend@[^/]+/dist/", "/", text)
    assert replaced
    with beside_front_end(text) as url, window(browser) as page:
        page.goto(url)
        page.locator(".nbp").first.get_by_role("tab").nth(1).click()
        page.locator(".nbp [role=tab][aria-selected=true]", has_text="Steps").first.wait_for()
        page.frame_locator("iframe").first.locator(".bk-Figure").wait_for()
