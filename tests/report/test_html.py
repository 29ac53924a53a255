from __future__ import annotations

import base64
import gzip
import re
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from nbprof.display import codec
from nbprof.profiles.report import bundle, html, mimebundle
from nbprof.profiles.report.static import static_html
from nbprof.tools import dashboard as payload
from nbprof.tools import text
from nbprof.tools.overview import picture
from tests.support.saved import payload_of
from tests.views import fake

FORBIDDEN = {"script", "style", "svg", "iframe", "link", "object", "embed", "form", "noscript"}
ALLOWED = {"style", "src", "alt", "width", "title", "aria-hidden"}
VOID = {"br", "img", "meta"}


class Reader(HTMLParser):
    """Elements, attributes and text of a document; complains about elements that do not close."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.words, self.open, self.scripts = [], [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def text(self):
        return "".join(self.words)


@pytest.fixture
def built(monkeypatch, tmp_path):
    """A front end, so that these tests do not need Node: the smallest module with the interface."""
    path = tmp_path / "dashboard.js"
    path.write_text(
        "export async function mount(el, packed) { el.textContent = packed.length }\n"
        + "// filler DATA CODE KEY\n" * 50
    )
    monkeypatch.setattr(bundle, "PATH", path)
    return path


def whole(**changes):
    return payload.dashboard(fake.run(**changes))


@pytest.mark.parametrize(
    "changes", [{}, {"device": False}, {"steps": 0}], ids=["gpu", "cpu", "no steps"]
)
def test_the_static_part_is_plain_elements_with_style_attributes(changes):
    made = whole(**changes)
    read = Reader(static_html(made, picture.png(made)))
    assert not FORBIDDEN & set(read.tags)
    assert {name for _, name, _ in read.attributes} <= ALLOWED
    assert all(
        value.startswith("data:image/png;base64,")
        for _, name, value in read.attributes
        if name == "src"
    )
    assert not any(
        "url(" in value or "position" in value
        for _, name, value in read.attributes
        if name == "style"
    )


def test_foreign_names_are_shown_and_do_nothing():
    run = fake.run()
    run.source.name = fake.HOSTILE_ATTRIBUTE
    run.source.file = fake.HOSTILE_STYLE
    run.first_answer["verdict"] = run.first_answer["verdict_text"] = fake.HOSTILE
    run.first_answer["confidence_evidence"] = [(True, fake.HOSTILE_STYLE)]
    made = payload.dashboard(run)
    read = Reader(static_html(made, picture.png(made)))
    assert not FORBIDDEN & set(read.tags)
    assert read.tags.count("img") == 1
    assert {name for _, name, _ in read.attributes} <= ALLOWED
    for name in (fake.HOSTILE, fake.HOSTILE_ATTRIBUTE, fake.HOSTILE_STYLE):
        assert name in read.text


def test_the_static_part_holds_the_answer_and_the_numbers():
    words = re.sub(r"\s+", " ", Reader(static_html(whole())).text.replace("\u00a0", " "))
    for said in (
        "Input-bound: 51% of step time is spent waiting for data",
        "Average step8.16 ms ± 0.44median 8.00, p95 9.25, range 8.00–9.25",
        "Input4.16█████▏51.0%",
        "Run Dataset.map in parallel about −4.16 ms per step",
        "Map takes 25.2 ms of the 33.2 ms spent in the pipeline",
        "ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)",
        "wgrad_alg0_engine<__half, 512>8,000.081,000.0",
        "GPU_0_bfc11.81 MiB16.00 GiB20.0",
        "177 events, 0 dropped · worker-0.xplane.pb, 1.70 MiB",
    ):
        assert said in words


def test_no_steps_shows_the_line_to_add_with_its_indentation():
    words = Reader(static_html(whole(steps=0))).text
    assert "\u00a0\u00a0\u00a0\u00a0with nbprof.step():" in words


def test_the_fragment_carries_module_and_data_and_nothing_foreign_in_the_script(built):
    made = whole()
    packed = codec.pack(made)
    fragment = html.fragment(packed, static_html(made), version="1.2.3", height=600)
    read = Reader(fragment)
    assert read.tags.count("script") == 1
    (script,) = read.scripts
    assert "onerror" not in script
    assert 'version = "1.2.3"' in script
    assert 'options = {"live": false, "height": 600}' in script
    code, data = (
        codec.from_text(re.search(rf'const {name} = "([^"]*)"', script)[1])
        for name in ("code", "data")
    )
    assert gzip.decompress(code) == built.read_bytes()
    assert data == packed
    key = re.search(r'const key = "(\w+)"', script)[1]
    assert ("div", "data-nbprof", key) in read.attributes
    assert fragment.index("data-nbprof-static") < fragment.index("<script")


def test_a_report_of_usual_tabs_has_the_smaller_module_and_any_other_the_whole(built):
    (built.parent / "usual.js").write_text("export const usual = 1")

    def held(*tabs):
        script = html.fragment(b"", "", version="1.2.3", tabs=tabs)
        code, version = (
            re.search(rf'{name} = "([^"]*)"', script)[1] for name in ("const code", "version")
        )
        return gzip.decompress(codec.from_text(code)), version

    small, whole_one = (built.parent / "usual.js").read_bytes(), built.read_bytes()
    # Outputs of both kinds may be on one page.
    assert held("overview", "trace") == (small, "1.2.3 usual")
    assert held("overview", "hlo", "trace") == held("compare") == (whole_one, "1.2.3")
    (built.parent / "usual.js").unlink()
    assert held("overview", "trace") == (whole_one, "1.2.3")


def test_a_module_that_the_build_compressed_is_held_as_it_is(built):
    def held():
        script = html.fragment(b"", "", version="1.2.3")
        return codec.from_text(re.search(r'const code = "([^"]*)"', script)[1])

    bundle._packed.cache_clear()
    packed = built.with_name("dashboard.js.gz")
    packed.write_bytes(gzip.compress(built.read_bytes(), 1, mtime=0))
    assert held() == packed.read_bytes()
    # One of an earlier build is not.
    bundle._packed.cache_clear()
    packed.write_bytes(gzip.compress(built.read_bytes() + b"// older", 1, mtime=0))
    assert gzip.decompress(held()) == built.read_bytes()


def test_two_outputs_have_two_keys(built):
    keys = {
        re.search(
            r'data-nbprof="(\w+)"', html.fragment(codec.pack(whole(steps=n)), "", version="1")
        )[1]
        for n in (3, 4)
    }
    assert len(keys) == 2


def test_without_a_front_end_the_report_is_static(monkeypatch, tmp_path):
    monkeypatch.setattr(bundle, "PATH", tmp_path / "nothing.js")
    made = whole()
    assert "<script" not in html.fragment(codec.pack(made), static_html(made), version="1")
    data, _ = mimebundle.mimebundle(fake.run(), made)
    assert "Input-bound" in data["text/html"]


def test_the_page_is_one_document_that_may_ask_for_nothing(built):
    run = fake.run()
    run.source.name = "</title>" + fake.HOSTILE
    made = payload.dashboard(run)
    page = html.page(run, made)
    read = Reader(page)
    assert page.startswith("<!doctype html>")
    assert ("meta", "charset", "utf-8") in read.attributes
    assert (
        read.tags.count("script")
        == read.tags.count("title")
        == read.tags.count("style")
        == read.tags.count("img")
        == 1
    )
    (policy,) = [
        value
        for tag, name, value in read.attributes
        if tag == "meta" and name == "content" and "default-src" in value
    ]
    assert policy.startswith("default-src 'none'; script-src 'unsafe-inline' blob:;")
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "http:" not in page
    assert "https:" not in page
    notice = payload_of(read.scripts[0])["meta"]["notice"]
    assert notice["kind"] == "static"
    # The time is that of the recording; when the report was saved is another.
    assert made["meta"]["created"]
    assert notice["text"].startswith(
        f"{made['meta']['label']}, recorded {made['meta']['created'][:16]}."
    )
    assert made["meta"]["notice"] is None


def test_a_graver_notice_stays_on_the_page(built):
    run = fake.run(steps=0)
    page = html.page(run, payload.dashboard(run))
    assert payload_of(page)["meta"]["notice"]["kind"] == "no_steps"


def test_one_output_in_four_mime_types(built):
    run = fake.run()
    made = payload.dashboard(run)
    data, metadata = mimebundle.mimebundle(run, made)
    assert list(data) == ["application/vnd.nbprof.v1+json", "text/html", "image/png", "text/plain"]
    own = data["application/vnd.nbprof.v1+json"]
    assert (own["v"], set(own)) == (1, {"v", "version", "key", "files"})
    assert (own["key"], own["files"]) == (made["trace"]["key"], [])
    assert payload_of(data)["meta"]["label"] == "run 7"
    with Image.open(BytesIO(base64.b64decode(data["image/png"]))) as image:
        assert 2 * image.width == 3 * metadata["image/png"]["width"]
    assert data["text/plain"] == text.summary(made)
    assert "application/vnd.jupyter.widget-view+json" not in data


def test_a_first_picture_that_stays_says_that_it_is_one(monkeypatch):
    monkeypatch.setattr(payload, "MANY_EVENTS", 0)
    run = fake.run()
    data = mimebundle.early(payload.early(run), None)
    said = "The analysis had not finished when this was written."
    assert said in Reader(data["text/html"]).text
    assert data["text/plain"].splitlines()[1] == said
    assert len(data["text/plain"].splitlines()) <= 10
    whole, _ = mimebundle.mimebundle(run, payload.dashboard(run))
    assert not any(said in whole[mime] for mime in ("text/html", "text/plain"))


def test_views_and_height_reach_the_output(built):
    run = fake.run()
    data, _ = mimebundle.mimebundle(run, payload.dashboard(run), views=["memory"], height=480)
    own = data["application/vnd.nbprof.v1+json"]
    assert own["height"] == 480
    assert [tab["id"] for tab in payload_of(data)["meta"]["tabs"]] == ["memory"]


def test_not_live_is_picture_and_text_only(built):
    run = fake.run()
    data, _ = mimebundle.mimebundle(run, payload.dashboard(run), live=False)
    assert list(data) == ["text/html", "image/png", "text/plain"]
    assert "<script" not in data["text/html"]


def test_a_run_of_the_size_of_the_quickstart_stays_within_its_budget(built):
    """30 steps, 60,000 events in uneven times: 300 kB of data."""
    import numpy as np

    steps, per_step = 30, 1000
    noise = np.random.default_rng(1).integers(0, 1_000_000, 2 * steps * (per_step + 1)).tolist()
    run = fake.traced(steps, per_step, longer=noise)
    packed = codec.pack(payload.dashboard(run))
    assert len(run.trace.events) > 60_000
    assert len(packed) < 300_000
