"""`nbprof.page` and `nbprof report --site`: the folder, its start page, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

import nbprof
from nbprof.cli.main import BAD
from tests.cli.support import SLOW, call
from tests.support.build import profile
from tests.support.xspace import training_run


@pytest.fixture(scope="module")
def p(tmp_path_factory):
    return profile(tmp_path_factory.mktemp("run"), training_run(4))


def names(folder):
    return sorted(path.name for path in (folder / "reports").iterdir())


class Page(HTMLParser):
    """The scripts, links and policy of a page, as a browser reads them."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.links, self.policy, self._inside = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")
        if tag == "a":
            self.links.append(attrs["href"])
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._inside = False


def test_the_start_page_runs_its_own_scripts_only_and_fetches_none(tmp_path):
    index = nbprof.page(tmp_path / "new" / "site")
    assert index == tmp_path / "new" / "site" / "index.html"
    page = Page(index.read_text())
    allowed = re.search(r"script-src ([^;]*);", page.policy)[1].split()
    digests = [hashlib.sha256(script.encode()).digest() for script in page.scripts]
    assert allowed == [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    assert len(digests) == 2
    assert "<script src" not in index.read_text()
    assert page.links == []


def test_reports_are_added_and_listed_and_none_is_lost(tmp_path, p):
    site = tmp_path / "site"
    nbprof.page(site, [p, nbprof.compare(p, p)])
    label = p.payload().meta.label
    assert len(names(site)) == 2
    before = {name: (site / "reports" / name).read_bytes() for name in names(site)}
    # The same report again is there already; one of the same name is another.
    nbprof.page(site, p)
    assert names(site) == sorted(before)
    index = nbprof.page(site, [p], events=0)
    assert len(names(site)) == 3
    assert all((site / "reports" / name).read_bytes() == text for name, text in before.items())
    assert Page(index.read_text()).links == [f"reports/{name}" for name in names(site)]
    assert f"{label} · {p.overview['verdict']}" in index.read_text()
    # A report that was deleted, or a file that is none, is not listed.
    (site / "reports" / names(site)[0]).unlink()
    (site / "reports" / "other.html").write_text("<p>")
    assert len(Page(nbprof.page(site).read_text()).links) == 2


def test_a_saved_report_is_added_as_it_is(tmp_path, p):
    saved = p.save(tmp_path / "mine & yours.html")
    nbprof.page(tmp_path / "site", [str(saved)])
    (name,) = names(tmp_path / "site")
    assert (tmp_path / "site" / "reports" / name).read_bytes() == saved.read_bytes()
    with pytest.raises(nbprof.NbprofError, match=r"mine & yours.html is a saved report.*recording"):
        nbprof.page(tmp_path / "site", [saved], redact=True)


def test_names_are_replaced_in_titles_and_file_names_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "secretmodel").mkdir()
    p = profile(tmp_path / "secretmodel", training_run(4), name="secretmodel")
    index = nbprof.page(tmp_path / "site", [p], redact=True)
    assert "secretmodel" in p.payload().meta.label
    (name,) = names(tmp_path / "site")
    texts = [name, index.read_text(), (index.parent / "reports" / name).read_text()]
    assert not any("secretmodel" in text for text in texts)


def test_a_hostile_label_stays_text(tmp_path):
    label = 'a"><img src=x onerror=alert(1)>&amp;'
    p = profile(tmp_path, training_run(4), name=label)
    index = nbprof.page(tmp_path / "site", [p])
    text = index.read_text()
    assert "<img" not in text.partition("<script")[0]
    assert (
        label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
        in text
    )
    (link,) = Page(text).links
    assert re.fullmatch(r"reports/[\w.%-]+\.html", link)


def test_a_foreign_page_is_not_replaced_and_nothing_is_written(tmp_path, p):
    (tmp_path / "index.html").write_text("<p>mine")
    with pytest.raises(nbprof.NbprofError, match=r"index.html exists and is not a page of nbprof"):
        nbprof.page(tmp_path, [p])
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(nbprof.NbprofError, match=r"could not be created.*Choose another folder"):
        nbprof.page(tmp_path / "file" / "site")
    with pytest.raises(nbprof.ReadError, match="nowhere"):
        nbprof.page(tmp_path / "site", [p, tmp_path / "nowhere"])
    assert not (tmp_path / "site").exists()


def test_the_command_writes_it_too(tmp_path):
    site, saved = tmp_path / "site", tmp_path / "saved.html"
    assert call("report", "--site", site).stdout == f"{site / 'index.html'}\n"
    assert names(site) == []
    call("report", SLOW, "--events", 0, "-o", saved)
    call("report", "--site", site, saved, SLOW, "--events", 0)
    assert len(Page((site / "index.html").read_text()).links) == 2
    assert "exclude each other" in call("report", "--site", site, "-o", saved, code=BAD).stderr
    assert "PATH..." in call("report", code=BAD).stderr
