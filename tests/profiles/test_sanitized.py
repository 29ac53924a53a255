"""A notebook exported by nbconvert with sanitized HTML: the dashboards in it read well."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import nbformat
import pytest
from nbconvert.exporters import HTMLExporter

from nbprof.display import markup
from nbprof.profiles import load
from nbprof.profiles.report import sanitized
from tests.support.xspace import training_run

HOSTILE = '<img src=x onerror="alert(1)">&<script>alert(2)</script>'


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("sanitized") / "host.xplane.pb"
    path.write_bytes(training_run(8))
    return load.load(path)


def notebook(*outputs):
    cell = nbformat.v4.new_code_cell("%%nbprof\ntrain()", outputs=list(outputs))
    return nbformat.v4.new_notebook(cells=[cell])


def display(bundle, kind="display_data"):
    data, metadata = bundle
    more = {"execution_count": 1} if kind == "execute_result" else {}
    return nbformat.v4.new_output(kind, data, metadata=metadata, **more)


def export(book, *, sanitize=True):
    exporter = HTMLExporter(sanitize_html=sanitize, preprocessors=[sanitized.NAME])
    return exporter.from_notebook_node(book)[0]


class Text(HTMLParser):
    """The text of the outputs of a page, and the number of pictures and table cells in them."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.counts, self.hidden = [], {}, 0
        self.feed(page[page.index("<main") :])

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.texts.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.texts))


@pytest.mark.parametrize("kind", ["display_data", "execute_result"])
def test_a_live_dashboard_becomes_its_picture_and_its_report(profile, kind):
    output = display(profile.mimebundle(), kind)
    page = export(notebook(output))
    shown = Text(page)
    overview = profile.overview
    assert overview["verdict"] in shown.text
    assert f"{overview['step_time_ms']:.2f}" in shown.text
    assert shown.counts["img"] == 1
    assert re.search(r"Category +ms +% of step\n", "".join(shown.texts)), "a table"
    # No markup is shown as text, and nothing of the script is left.
    assert not re.search(r"</?[a-z]+[ >]", shown.text)
    assert "decompress" not in page.lower()


def test_a_report_without_scripts_and_a_widget_are_static_too(profile):
    data, metadata = profile.mimebundle(live=False)
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, **data}
    for bundle in ((data, metadata), (widget, metadata)):
        page = export(notebook(display(bundle)))
        assert "widget-view" not in page
        assert profile.overview["verdict"] in Text(page).text


def test_other_outputs_and_exports_that_do_not_sanitize_stay_as_they_are(profile):
    other = nbformat.v4.new_output("display_data", {"text/html": f"<b>mine</b>{HOSTILE}"})
    book = notebook(
        other, nbformat.v4.new_output("stream", text="said"), display(profile.mimebundle())
    )
    kept, _ = sanitized.static_outputs(book, {"should_sanitize_html": True})
    assert kept.cells[0].outputs[:2] == book.cells[0].outputs[:2]
    before = notebook(display(profile.mimebundle()))
    after, _ = sanitized.static_outputs(notebook(display(profile.mimebundle())), {})
    assert after.cells[0].outputs == before.cells[0].outputs


def test_elements_that_are_not_allowed_become_ones_that_are():
    html = (
        "<p>before</p><div data-nbprof-static=''><p style='font-weight:600'>Head</p>"
        "<p><b>one</b><br><span>two<br>three</span></p>"
        f"{markup.code_block('a = 1' + chr(10) + '  b')}"
        "<table><thead><tr><th>Name</th><th>ms</th></tr></thead><tbody><tr><td>x<br><b>y&lt;</b></td>"
        "<td>12.50</td></tr><tr><td>z</td><td>3.00</td></tr></tbody></table>"
        f"<samp title='long'>f&lt;int&gt;</samp><img src='data:,'>{'<style>p{}</style>'}</div>"
        "<script>const data = 1;</script>after"
    )
    assert sanitized.allowed(html) == (
        "<div><b>Head</b></div>"
        "<div><b>one</b></div><div><span>two</span></div><div><span>three</span></div>"
        "<div><pre><code>a = 1\n\xa0\xa0b</code></pre></div>"
        "<pre><code>Name     ms\nx y&lt;  12.50\nz      3.00</code></pre>"
        "<code>f&lt;int&gt;</code>"
    )


def test_headings_stand_apart_and_trees_are_indented():
    rows = [[markup.text("train"), "9"], [markup.indented(markup.text("step"), 1), "8"]]
    html = markup.paragraph("said") + markup.table("Ranges", "", ["Name", "ms"], rows, "lr")
    text = sanitized.allowed(f"<div data-nbprof-static=''>{html}</div>")
    assert "<div>&nbsp;</div>" in text.partition("Ranges")[0]
    lines = re.sub(r"</?\w+>", "\n", text).splitlines()
    assert [line.rstrip(" 89") for line in lines if line[-1:] in ("8", "9")] == [
        "train",
        3 * "\u2007" + "step",
    ]


def test_names_stay_text():
    html = f"<div data-nbprof-static=''><p>{HOSTILE.replace('<', '&lt;')}</p></div>"
    page = export(notebook(nbformat.v4.new_output("display_data", {"text/html": html})))
    assert "alert(1)" in Text(page).text
    assert "<img src=x" not in page


def test_lines_of_a_diff_are_marked():
    fix = [
        markup.FixLine(kind="same", text="def f():"),
        markup.FixLine(kind="removed", text="    slow()"),
        markup.FixLine(kind="added", text="    fast()"),
    ]
    text = sanitized.allowed(f"<div data-nbprof-static=''>{markup.diff(fix)}</div>")
    plain = re.sub(r"</?\w+>", "", text).replace("\xa0", " ")
    assert plain.splitlines() == ["def f():", "-     slow()", "+     fast()"]
