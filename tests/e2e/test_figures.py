"""A Bokeh figure at the end of a cell: shown as the figure, without a network."""

from __future__ import annotations

import pytest

from tests.support.build import profile
from tests.support.xspace import training_run

pytestmark = pytest.mark.browser


def test_a_figure_is_shown_as_it_was_changed_and_asks_no_host(page, tmp_path, monkeypatch):
    figure = profile(
        tmp_path, training_run(6, evil="</script><img src=x onerror=window.hacked=1>/evil:Evil")
    ).steps.figure()
    figure.title.text = "</script><b>mine</b>"
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    figure._ipython_display_()
    (data,) = shown
    (tmp_path / "cell.html").write_text(
        f"<!doctype html><meta charset=utf-8>{data['text/html'] * 2}"
    )
    asked = []
    page.context.set_offline(True)
    page.on(
        "request",
        lambda r: (
            asked.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        ),
    )
    page.goto((tmp_path / "cell.html").as_uri())
    page.locator(".bk-Figure canvas").first.wait_for()
    titles = page.evaluate("() => Bokeh.documents.map((each) => each.roots()[0].title.text)")
    assert set(titles) == {"</script><b>mine</b>"}
    assert asked == []
    assert page.problems == []
    assert page.evaluate("window.hacked") is None
