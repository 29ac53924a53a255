"""Executed outputs on a page of prose, as Quarto, Jupyter Book and Sphinx make it: with a style
sheet for tables, pictures and code of its own, in light and dark, and on paper.
"""

from __future__ import annotations

import pytest

from tests.e2e.notebooks import wait_until_drawn, window
from tests.support.build import profile
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

BARE = """
body { margin: 0 auto; width: 900px; background: #fff; color: #000 }
[data-theme=dark] body { background: #121212; color: #ddd }
"""
PROSE = """
:root { font-size: 19px; line-height: 1.9; letter-spacing: .4px }
body { font-family: serif; word-spacing: 0 }
.cell-output { text-align: center; text-indent: 2em; text-transform: uppercase }
table { width: 100%; display: block; border: 3px solid teal; margin: 2em 0; font-size: 1.2rem }
th, td { padding: 1rem 2rem; border: 2px solid teal; text-align: center; font-style: italic }
tbody tr:nth-child(odd) { background: rgba(120, 120, 120, .3) }
img, svg, canvas { max-width: 100%; border: 5px solid teal; display: block; margin: 1em auto }
pre, code, samp { padding: 1em; font-size: 1.3rem; background: #ddd; white-space: pre-wrap }
p, ul, ol, dl, h2, h3, h4 { margin: 2em; max-width: 30em }
button, input, select { padding: 1em; border-radius: 9px; font-size: 2rem }
"""
LOOKS = """() => [...document.querySelectorAll(".nbprof-host")].map(host =>
    [...host.shadowRoot.querySelectorAll(".nbp *")].map(element => {
        const look = getComputedStyle(element);
        return [element.localName, look.fontSize, look.fontStyle, look.lineHeight, look.textAlign, look.textIndent,
            look.textTransform, look.letterSpacing, look.whiteSpace, look.paddingLeft, look.marginTop, look.borderTopWidth,
            look.backgroundColor, look.color].join(" ");
    }))"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    made = [profile(folder, training_run(24), "cpu"), profile(folder, gpu_run(), "gpu")]
    return [p.mimebundle()[0]["text/html"] for p in made]


def write(path, style, outputs, theme="light"):
    cells = "<p>Prose between.</p>".join(f"<div class=cell-output>{html}</div>" for html in outputs)
    path.write_text(
        f"<!doctype html><html data-theme={theme}><meta charset=utf-8><style>{style}</style>{cells}",
        encoding="utf-8",
    )
    return path.as_uri()


def opened(page, url):
    page.goto(url)
    page.wait_for_function(
        "() => document.querySelectorAll('[data-nbprof-state=live]').length === 2"
    )
    # Its buttons change their colours in a transition.
    page.wait_for_function(
        "() => [...document.querySelectorAll('.nbprof-host')]"
        ".every(host => host.shadowRoot.getAnimations().length === 0)"
    )
    wait_until_drawn(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dashboards_look_the_same_whatever_the_page_says(browser, outputs, tmp_path, theme):
    with window(browser) as page:
        opened(page, write(tmp_path / "bare.html", BARE, outputs, theme))
        assert page.locator(f".nbp[data-theme={theme}]").count() == 2
        bare = page.evaluate(LOOKS)
        opened(page, write(tmp_path / "prose.html", BARE + PROSE, outputs, theme))
        prose = page.evaluate(LOOKS)
        different = [
            pair for one, other in zip(bare, prose, strict=True) for pair in zip(one, other, strict=True)
            if pair[0] != pair[1]
        ]  # fmt: skip
        assert sum(map(len, bare)) > 300
        assert different == []
        idents = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
        assert len(idents) == len(set(idents))
        # And what stands around them is the page's.
        prose_size = page.get_by_text("Prose between.").evaluate(
            "p => getComputedStyle(p).fontSize"
        )
        assert prose_size == "19px"
        assert page.problems == []


def test_on_paper_both_are_there_without_what_can_be_clicked(browser, outputs, tmp_path):
    with window(browser) as page:
        opened(page, write(tmp_path / "prose.html", BARE + PROSE, outputs))
        page.emulate_media(media="print")
        assert page.get_by_role("tab").count() == 0
        assert page.locator(".nbp:visible, [data-nbprof-static]:visible").count() == 2
        page.emulate_media(media="screen")


def test_without_scripts_no_table_and_no_picture_is_wider_than_the_page(browser, outputs, tmp_path):
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(write(tmp_path / "prose.html", BARE + PROSE, outputs, "dark"))
        for table in page.locator("table").all():
            assert table.bounding_box()["width"] <= 900
            assert table.locator("thead th").first.is_visible()
        for picture in page.locator("img").all():
            assert 200 < picture.bounding_box()["width"] <= 900
        # Code is as the page writes it, in its lines.
        code = page.locator("p > samp").first
        assert len(code.inner_text().split("\n")) > 1
    finally:
        context.close()
