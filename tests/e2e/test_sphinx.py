"""An executed notebook in a book that Sphinx makes with MyST-NB, as web pages and for LaTeX."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

from tests.e2e.notebooks import wait_until_drawn, window
from tests.support.build import profile
from tests.support.xspace import gpu_run

pytest.importorskip("myst_nb")
pytestmark = pytest.mark.browser

CONF = """
project = "Book"
extensions = ["myst_nb"]
nb_execution_mode = "off"
suppress_warnings = ["mystnb.unknown_mime_type"]
"""
LIMIT_S = 600
"""For a machine that is busy."""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A folder with a notebook; warnings are errors, as in many builds of documentation."""
    folder = tmp_path_factory.mktemp("book")
    bundle = profile(folder, gpu_run(), "gpu").mimebundle()[0]
    output = nbformat.v4.new_output("display_data", bundle)
    cell = nbformat.v4.new_code_cell("p", outputs=[output], execution_count=1)
    prose = nbformat.v4.new_markdown_cell("# Book\n\nProse between.")
    notebook = nbformat.v4.new_notebook(cells=[prose, cell])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    source = folder / "source"
    source.mkdir()
    nbformat.write(notebook, source / "index.ipynb")
    (source / "conf.py").write_text(CONF)
    return folder


def built(folder, builder):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", builder, "source", builder]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return folder / builder


def test_a_page_of_the_book_has_the_dashboard(browser, book):
    page_file = built(book, "html") / "index.html"
    with window(browser) as page:
        page.goto(page_file.as_uri())
        page.wait_for_selector("[data-nbprof-state=live]")
        wait_until_drawn(page)
        assert page.get_by_role("tab", name="Trace").is_visible()
        assert page.get_by_text("Prose between.").is_visible()
        assert page.problems == []


def test_without_scripts_the_page_has_the_report(browser, book):
    page_file = built(book, "html") / "index.html"
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(page_file.as_uri())
        assert page.get_by_text("Average step").first.is_visible()
        assert page.locator("table").first.is_visible()
    finally:
        context.close()


def test_the_book_for_latex_has_the_picture(book):
    folder = built(book, "latex")
    assert "sphinxincludegraphics" in (folder / "book.tex").read_text()
    assert list(folder.glob("*.png"))
