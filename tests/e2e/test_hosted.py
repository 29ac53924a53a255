"""Outputs as Colab and Databricks show them: each in a frame of its own that has no origin, without
nbprof's extension and without a network.
"""

from __future__ import annotations

from html import escape

import pytest

from tests.e2e.notebooks import window
from tests.support.build import profile
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

DARK = "<style>body { background: transparent; color: #e3e3e3 }</style>"


def frame(name, html, attributes="", head=""):
    """A frame in which an output is a document, as a host writes it."""
    page = f"<!doctype html><html {attributes}><meta charset=utf-8>{head}<body>{html}</body></html>"
    return f'<iframe id={name} sandbox="allow-scripts" width=1000 height=700 srcdoc="{escape(page)}"></iframe>'


@pytest.fixture(scope="module")
def hosted(browser, tmp_path_factory):
    """A page with frames."""
    folder = tmp_path_factory.mktemp("hosted")
    cpu = profile(folder, training_run(24), "cpu").mimebundle()[0]["text/html"]
    gpu = profile(folder, gpu_run(), "gpu").mimebundle()[0]["text/html"]
    frames = [
        frame("colab", cpu, "theme=dark", DARK),
        frame("colab-light", cpu, "theme=light"),
        frame("databricks", gpu),
    ]
    path = folder / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{''.join(frames)}", encoding="utf-8")
    with window(browser) as page:
        page.context.set_offline(True)
        page.goto(path.as_uri())
        yield page


@pytest.mark.parametrize(
    ("name", "theme", "tab"),
    [
        ("colab", "dark", "Ops"),
        ("colab-light", "light", "Ops"),
        ("databricks", "light", "GPU kernels"),
    ],
)
def test_a_frame_without_an_origin_has_a_live_dashboard_in_its_theme(hosted, name, theme, tab):
    inside = hosted.frame_locator(f"#{name}")
    inside.locator(f".nbp[data-theme={theme}]").wait_for()
    assert inside.locator("body").evaluate("() => origin") == "null"
    inside.get_by_role("tab", name=tab).click()
    inside.get_by_role("tabpanel", name=tab).locator("table").first.wait_for()
    # A host makes its frame as high as the page in it: that has an end.
    assert 300 < inside.locator("html").evaluate("element => element.scrollHeight") < 5000
    assert hosted.problems == []
