"""What GitHub, GitLab, Gitea and nbviewer show of an executed notebook."""

from __future__ import annotations

import base64

import pytest

from tests.e2e.notebooks import window
from tests.support.build import profile
from tests.support.viewers import GITEA, GITHUB, GITLAB
from tests.support.xspace import training_run

pytestmark = pytest.mark.browser

GITHUB_STYLE = """
body { font: 16px/1.5 sans-serif; margin: 16px }
table { border-collapse: collapse; display: block; overflow: auto }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px }
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A profile with findings, and the data of its output."""
    p = profile(tmp_path_factory.mktemp("profile"), training_run(24))
    return p, p.mimebundle()[0]


@pytest.fixture(scope="module")
def github(browser, shown):
    """The output as GitHub's list of elements leaves it."""
    _, data = shown
    html = GITHUB.sanitizer.clean(data[GITHUB.choose(data)])
    with window(browser) as page:
        page.set_content(f"<!doctype html><style>{GITHUB_STYLE}</style><main>{html}</main>")
        yield page


def texts(locator):
    return [text.strip() for text in locator.all_inner_texts()]


def test_github_shows_the_answer_first_and_nothing_twice(github, shown):
    overview = shown[0].overview
    text = github.inner_text("main")
    parts = [
        overview["verdict"], "Confidence", "Key figures", "Where a step goes", "Next steps",
        "num_parallel_calls", "Top ops on host", "events, 0 dropped",
    ]  # fmt: skip
    places = [text.find(part) for part in parts]
    assert -1 not in places, dict(zip(parts, places, strict=True))
    assert places == sorted(places)
    assert text.count(overview["verdict"]) == 1
    assert text.count(overview["verdict_text"]) == 1
    # What a reader of the page has in place of the picture says what it was.
    assert github.locator("img").get_attribute("alt") == "Chart of step time by category"


def test_github_shows_no_source_text_of_scripts_and_styles(github):
    text = github.inner_text("main")
    for source in ("const ", "=>", "function", "px", "margin", "style=", "{", "<div"):
        assert source not in text, source
    assert len(text) < 20_000
    assert github.locator("script, style, [style], [class], [id]").count() == 1  # of this page


def test_github_shows_tables_with_heads_and_bars_of_characters(github, shown):
    tables = github.locator("table")
    assert tables.count() > 3
    for table in tables.all():
        heads = texts(table.locator("thead th"))
        assert heads[0]
        assert sum(map(bool, heads)) >= 2
        assert len(heads) == table.locator("tbody tr").first.locator("td").count()
    bars = texts(
        github.locator("table", has_text="Category").first.locator("tbody td:nth-child(3)")
    )
    summary = shown[0].steps.summary
    largest = summary["mean_ms"].max() / summary["mean_ms"].sum()
    assert max(bar.count("█") for bar in bars) == round(10 * largest)
    assert all(set(bar) <= set("█▏▎▍▌▋▊▉") for bar in bars)


def test_github_shows_code_in_its_lines_and_what_changes_in_it(github):
    code = github.locator("p > samp").first
    assert "monospace" in code.evaluate("element => getComputedStyle(element).fontFamily")
    lines = code.inner_text().split("\n")
    assert len(lines) > 1
    added, removed = github.locator("p > samp ins"), github.locator("p > samp del")
    assert "num_parallel_calls" in " ".join(texts(added))
    line = "element => getComputedStyle(element).textDecorationLine"
    assert added.first.evaluate(line) == "underline"
    if removed.count():
        assert removed.first.evaluate(line) == "line-through"


def test_github_shows_no_empty_boxes(github):
    empty = github.evaluate(
        """() => [...document.querySelectorAll("main :is(p, table, thead, tbody, tr, div)")]
            .filter(element => !element.innerText.trim() && !element.querySelector("img"))
            .map(element => element.outerHTML.slice(0, 200))"""
    )
    assert empty == []
    # Without its address a picture is its text, in a line.
    assert github.locator("img").bounding_box()["height"] < 40


@pytest.mark.parametrize("viewer", [GITLAB, GITEA], ids=["GitLab", "Gitea"])
def test_viewers_that_prefer_pictures_show_the_whole_picture(browser, shown, viewer):
    _, data = shown
    mime = viewer.choose(data)
    assert mime == "image/png"
    base64.b64decode(data[mime], validate=True)
    with window(browser) as page:
        page.set_content(f'<img src="data:{mime};base64,{data[mime]}">')
        page.wait_for_function("() => document.images[0].complete")
        assert page.evaluate("document.images[0].naturalWidth") == 1050
        # Verdict, figures, steps, breakdown, ops and what to do stand below one another.
        assert page.evaluate("document.images[0].naturalHeight") > 1000


def test_nbviewer_shows_the_dashboard(browser, shown, tmp_path):
    """nbviewer converts by nbconvert, leaves HTML and scripts as they are, and forbids requests."""
    import nbformat.v4 as v4
    from nbconvert.exporters import HTMLExporter

    p, data = shown
    output = v4.new_output("display_data", data=data)
    notebook = v4.new_notebook(cells=[v4.new_code_cell("p", outputs=[output])])
    html, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    policy = "<meta http-equiv='Content-Security-Policy' content=\"connect-src 'none'\">"
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{policy}{html}", encoding="utf-8")
    with window(browser) as page:
        page.context.set_offline(True)
        page.goto(path.as_uri())
        page.get_by_role("tab", name="Ops").click()
        assert "Host, by op" in page.get_by_role("tabpanel", name="Ops").inner_text()
        assert p.overview["verdict"] in page.locator(".nbp").first.text_content()
        assert page.problems == []
