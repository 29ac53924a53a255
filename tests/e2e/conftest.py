"""Chromium for the browser tests, and a JupyterLab that serves a folder of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.notebooks import window
from tests.support.profiles import needed

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A page in the process of one that has had JupyterLab before loads it in two thirds of the
    # time.
    "--process-per-site",
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        needed("Chromium is not installed and could not be installed by this user")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        running = p.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield running
        running.close()


@pytest.fixture
def page(browser):
    with window(browser) as opened:
        yield opened


@contextmanager
def served(folder, *options, prefix=""):
    """URL of a JupyterLab of a folder, on the loopback address only."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        f"--notebook-dir={folder}", "--ServerApp.password=", "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=",
        "--JupyterNotebookApp.expose_app_in_browser=True",
        f"--ServerApp.base_url={prefix}/", *options,
    ]  # fmt: skip
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=folder)
    url = f"http://127.0.0.1:{port}{prefix}"
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"{url}/api", timeout=2):
                    break
            except OSError:
                if server.poll() is not None:
                    raise RuntimeError((folder / "server.log").read_text()[-2000:]) from None
                time.sleep(0.25)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            # A thread of anyio's that served a request of Jupyter's own may be waited for without
            # end.
            server.kill()
            server.wait()
        log.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """(url, folder) of a JupyterLab without tokens."""
    folder = tmp_path_factory.mktemp("lab")
    with served(folder, "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True") as url:
        yield url, folder
