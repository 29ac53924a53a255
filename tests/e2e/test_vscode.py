"""Outputs by the rules of VS Code's notebook renderer, which its forks have too: all outputs of a
notebook are in one page, HTML is set as inner HTML, and its scripts are made again and run. The
page paints no background, and says its theme in classes and variables.
"""

from __future__ import annotations

import base64

import pytest

from tests.e2e.notebooks import window
from tests.support.build import profile
from tests.support.viewers import VSCODE, VSCODE_REOPENED, VSCODE_RESTRICTED, WIDGET
from tests.support.xspace import gpu_run, training_run

pytestmark = pytest.mark.browser

POLICIES = {
    "as it is set": "",
    # Scripts may stand in the page, and import none. There is a setting for it.
    "with a policy": "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval';"
    " style-src 'unsafe-inline'; img-src https: http: data:; connect-src https:",
}
THEMES = {
    "vscode-dark": {"background": "rgb(31, 31, 31)", "foreground": "rgb(204, 204, 204)"},
    "vscode-light": {"background": "rgb(255, 255, 255)", "foreground": "rgb(59, 59, 59)"},
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{policy}
<style>
body {{ margin: 0; background-color: transparent; color: var(--vscode-editor-foreground) }}
.output {{ padding: 8px }}
</style>
</head>
<body>
<div id="container"></div>
<script>
window.setTheme = (name, colours) => {{
  document.body.className = name;
  document.body.dataset.vscodeThemeKind = name;
  for (const [key, value] of Object.entries(colours))
    document.documentElement.style.setProperty(`--vscode-editor-${{key}}`, value);
}};
window.show = (id, html, run) => {{
  const output = document.createElement("div");
  output.className = "output";
  output.id = id;
  const element = document.createElement("div");
  element.innerHTML = html;
  output.append(element);
  document.getElementById("container").append(output);
  if (!run) return;
  for (const found of [...element.getElementsByTagName("script")]) {{
    const script = document.createElement("script");
    script.text = found.innerText;
    if (found.type) script.setAttribute("type", found.type);
    element.appendChild(script).remove();
  }}
}};
</script>
</body>
</html>
"""

WIDGET_OF = """async ({ esm, packed }) => {
    const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
    const state = { packed: new DataView(bytes.buffer), selected: [], views: [], height: 0 };
    const model = {
        get: name => state[name], set: (name, value) => { state[name] = value },
        on() {}, off() {}, send() {}, save_changes() { window.selected = state.selected },
    };
    const el = document.createElement("div");
    el.id = "widget";
    document.getElementById("container").append(el);
    widget.render({ model, el });
}"""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    return profile(folder, training_run(24), "cpu"), profile(folder, gpu_run(), "gpu")


def open_page(page, folder, policy=""):
    """The page of a notebook in the dark theme; requests to a network are noted."""
    asked = []
    page.on(
        "request",
        lambda r: (
            asked.append(r.url) if not r.url.startswith(("file:", "blob:", "data:")) else None
        ),
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    path = folder / "webview.html"
    path.write_text(PAGE.format(policy=meta), encoding="utf-8")
    page.goto(path.as_uri())
    set_theme(page, "vscode-dark")
    return asked


def set_theme(page, name):
    page.evaluate("([name, colours]) => setTheme(name, colours)", [name, THEMES[name]])


def show(page, ident, html, run=True):
    page.evaluate("([id, html, run]) => show(id, html, run)", [ident, html, run])


def test_it_chooses_what_runs_and_pictures_where_nothing_may(profiles):
    p = profiles[0]
    output, widget = p.mimebundle()[0], p.widget()._repr_mimebundle_()[0]
    assert VSCODE.choose(output) == VSCODE_REOPENED.choose(output) == "text/html"
    assert VSCODE.choose(widget) == WIDGET
    assert VSCODE_REOPENED.choose(widget) == "text/html"
    assert VSCODE_RESTRICTED.choose(output) == VSCODE_RESTRICTED.choose(widget) == "image/png"


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_outputs_of_one_page_are_live_beside_each_other(browser, profiles, tmp_path, policy):
    cpu, gpu = (p.mimebundle()[0]["text/html"] for p in profiles)
    with window(browser) as page:
        asked = open_page(page, tmp_path, policy)
        for ident, html in (("first", cpu), ("second", gpu), ("again", cpu)):
            show(page, ident, html)
        page.wait_for_function(
            "() => document.querySelectorAll('[data-nbprof-state=live]').length === 3"
        )
        page.locator("#second").get_by_role("tab", name="GPU kernels").click()
        assert "sgemm" in page.locator("#second").get_by_role("tabpanel").inner_text()
        page.locator("#again").get_by_role("tab", name="Ops").click()
        chosen = page.locator("[role=tab][aria-selected=true]").all_inner_texts()
        assert [text.split("\n")[0] for text in chosen] == ["Overview", "GPU kernels", "Ops"]
        idents = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
        assert len(idents) == len(set(idents))
        # The part without scripts has given its place to the dashboard.
        assert page.locator("[data-nbprof-static]:visible").count() == 0
        assert page.problems == []
        assert asked == []


def test_it_follows_the_theme_that_the_page_names(browser, profiles, tmp_path):
    with window(browser) as page:
        open_page(page, tmp_path)
        show(page, "output", profiles[0].mimebundle()[0]["text/html"])
        board = page.locator(".nbp")
        for name in ("vscode-dark", "vscode-light", "vscode-dark"):
            set_theme(page, name)
            page.locator(f".nbp[data-theme={name.removeprefix('vscode-')}]").wait_for()
            background = board.evaluate("element => getComputedStyle(element).backgroundColor")
            assert background == THEMES[name]["background"]


def test_the_widget_is_drawn_by_its_module_and_selects(browser, profiles, tmp_path):
    widget = profiles[0].widget()
    with window(browser) as page:
        open_page(page, tmp_path)
        packed = base64.b64encode(widget.packed).decode()
        page.evaluate(WIDGET_OF, {"esm": widget._esm, "packed": packed})
        page.locator("#widget .nbp[data-theme=dark]").wait_for()
        page.locator("#widget").get_by_role("group").first.focus()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+ArrowRight")
        page.wait_for_function("() => window.selected?.length === 2")
        assert page.problems == []


def test_where_scripts_do_not_run_the_text_is_as_bright_as_that_of_the_page(
    browser, profiles, tmp_path
):
    p = profiles[0]
    with window(browser) as page:
        open_page(page, tmp_path)
        show(page, "output", p.mimebundle()[0]["text/html"], run=False)
        assert p.overview["verdict"] in page.inner_text("#output")
        colours = page.locator("#output :is(p, b, th, td, samp, ins, del, span)").evaluate_all(
            "all => [...new Set(all.filter(one => one.innerText.trim()).map(one => getComputedStyle(one).color))]"
        )
        assert colours == [THEMES["vscode-dark"]["foreground"]]


def test_the_live_status_is_a_line_of_text(browser, tmp_path):
    from nbprof.display.slot import _line

    with window(browser) as page:
        open_page(page, tmp_path)
        show(
            page, "status", _line("nbprof: recording · step 12 · 8.2 ms <per step>")[0]["text/html"]
        )
        assert page.inner_text("#status") == "nbprof: recording · step 12 · 8.2 ms <per step>"
