"""The report as HTML: a static part, and a script that replaces it with the live view."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from nbprof.display import codec, wording
from nbprof.profiles.report import bundle
from nbprof.profiles.report.static import static_html
from nbprof.tools import register
from nbprof.tools.parts import Meta, Notice

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

_LOADER = """
const key = KEY, version = VERSION, options = OPTIONS;
const code = "CODE";
const data = "DATA";
// As fromText of js/lib/codec.ts, which is not here yet.
const place = [];
[...LETTERS].forEach((letter, value) => { place[letter.charCodeAt(0)] = value; });
const bytes = (text) => {
  const out = new DataView(new ArrayBuffer(Math.ceil(text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let value = 0;
    for (let j = i; j < i + 5; j++)
      value = value * 85 + (j < text.length ? place[text.charCodeAt(j)] : 84);
    out.setUint32((i / 5) * 4, value);
  }
  return new Uint8Array(out.buffer, 0, out.byteLength - ((5 - (text.length % 5)) % 5));
};
const slot = Symbol.for("nbprof@" + version);
async function load() {
  // On paper, a dashboard that rests out of view is its picture.
  const resting = "[data-nbprof]:has([data-nbprof-resting]) > ";
  const style = document.createElement("style");
  style.textContent = `@media print { ${resting}div { display: none !important }
    ${resting}[data-nbprof-static] { display: block !important } }`;
  document.head.append(style);
  const stream = new Blob([bytes(code)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  // A page may let scripts run that stand in it, as this one, and import none. Then the module is
  // made one of them, and says when it has run (js/hosts/page.ts).
  const inline = () => new Promise((done, failed) => {
    setTimeout(() => failed(new Error("the page runs no scripts of nbprof")), 10000);
    addEventListener(version, () => done(globalThis[Symbol.for("nbprof.module")]), { once: true });
    const script = document.createElement("script");
    script.type = "module";
    script.text = `${text};dispatchEvent(new Event("${version}"))`;
    document.head.append(script);
  });
  try {
    return await import(url).catch(inline);
  } catch (error) {
    delete globalThis[slot];
    throw error;
  } finally {
    URL.revokeObjectURL(url);
  }
}
const waiting = '[data-nbprof="' + key + '"]:not([data-nbprof-state])';
for (const root of document.querySelectorAll(waiting)) {
  // The same output may be there twice: the script of the other one has come to this one meanwhile.
  if (root.dataset.nbprofState) continue;
  root.dataset.nbprofState = "loading";
  const still = root.querySelector("[data-nbprof-static]");
  const live = document.createElement("div");
  live.dataset.lmSuppressShortcuts = "true";
  // Laid out at its real width but taking no room until it is drawn: one swap, no jump in between.
  live.style.cssText = "height:0;overflow:hidden;visibility:hidden";
  try {
    const { mount } = await (globalThis[slot] ??= load());
    root.append(live);
    await mount(live, bytes(data), options);
    still.style.display = "none";
    live.style.cssText = "";
    root.dataset.nbprofState = "live";
  } catch (error) {
    live.remove();
    root.dataset.nbprofState = "static";
    console.warn("nbprof: the interactive view could not start, the static report stays.", error);
  }
}
"""

# Without comments and indentation, as each output contains it.
_LOADER = "\n".join(
    line.strip() for line in _LOADER.splitlines() if line and not line.strip().startswith("//")
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src SCRIPTS; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="nbprof VERSION">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; --jp-layout-color0: #fff; --jp-ui-font-color0: #000;
  --jp-ui-font-color1: rgba(0,0,0,.87); --jp-ui-font-color2: rgba(0,0,0,.6);
  --jp-ui-font-color3: rgba(0,0,0,.38); --jp-brand-color1: #1976d2; --jp-error-color1: #d32f2f;
  --jp-success-color1: #388e3c }
@media (prefers-color-scheme: dark) {
  :root { --jp-layout-color0: #111; --jp-ui-font-color0: #fff;
    --jp-ui-font-color1: rgba(255,255,255,.87); --jp-ui-font-color2: rgba(255,255,255,.6);
    --jp-ui-font-color3: rgba(255,255,255,.38); --jp-brand-color1: #42a5f5;
    --jp-error-color1: #f44336; --jp-success-color1: #4caf50 }
}
body { margin: 0; padding: 16px; background: var(--jp-layout-color0);
  color: var(--jp-ui-font-color1) }
main { max-width: 1400px; margin: 0 auto }
h1 { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap }
STYLE</style>
</head>
<body data-nbprof-page>
<main>
<h1>TITLE</h1>
BODY
</main>
</body>
</html>
"""


def fragment(
    packed: bytes,
    static: str,
    *,
    version: str,
    tabs: Collection[str] | None = None,
    height: int = 0,
    live: bool = True,
) -> str:
    """The HTML of a cell's output: complete in itself, live where scripts run, static elsewhere.

    Parameters
    ----------
    packed : bytes
        The payload from `nbprof.display.codec.pack`.
    static : str
        From `static_html`.
    version : str
        Outputs of one version on a page share one copy of the running module.
    tabs : collection of str, optional
        The tabs that are drawn; the script is smaller without rare ones.
    height : int
        Height of the live view in px; 0 for the natural height.
    live : bool
        False: the static part alone.
    """
    module = bundle.module(tabs) if live else None
    inner = f'<div data-nbprof-static="">{static}</div>'
    if module is None:
        return inner
    key = hashlib.sha256(packed).hexdigest()[:16]
    options: dict[str, Any] = {"live": False}
    if height:
        options["height"] = height
    script = _LOADER
    slot = f"{version} {module.kind}".strip()
    # Only our own letters and JSON of our own words: nothing foreign gets into the script.
    for name, value in (
        ("LETTERS", _js(codec.LETTERS)),
        ("KEY", _js(key)),
        ("VERSION", _js(slot)),
        ("OPTIONS", _js(options)),
    ):
        script = script.replace(name, value, 1)
    # The last placeholder first: the inserted data may contain the other words.
    script = script.replace("DATA", codec.to_text(packed), 1).replace("CODE", module.text, 1)
    return f'<div data-nbprof="{key}">{inner}<script type="module">{script}</script></div>'


def page(run: Run, payload: Payload) -> str:  # noqa: ARG001  called like every display of a profile
    """One self-contained HTML document: opened from a file, it makes no network request.

    Parameters
    ----------
    run : Run
    payload : Payload
        Of this run.
    """
    meta = payload.meta
    if meta.notice is None:
        payload = replace(payload, meta=replace(meta, notice=_static_notice(meta)))
    static = static_html(payload, register.chart(payload))
    title = f"{meta.label} · {payload.overview.verdict.word} · nbprof"
    return document(
        codec.pack(payload),
        static,
        title=title,
        version=meta.version,
        tabs=[tab.id for tab in meta.tabs],
    )


def document(
    packed: bytes, static: str, *, title: str, version: str, tabs: Collection[str] | None = None
) -> str:
    """One self-contained HTML document of what `fragment` takes; `title` is foreign text."""
    body = fragment(packed, static, version=version, tabs=tabs)
    return shell(body, title=title, version=version, scripts="'unsafe-inline' blob:")


def shell(body: str, *, title: str, version: str, scripts: str, style: str = "") -> str:
    """An HTML document of nbprof around its content.

    Parameters
    ----------
    body : str
        HTML.
    title : str
        Foreign text.
    version : str
        Of nbprof.
    scripts : str
        The sources of scripts that the page allows, and further directives of its content security
        policy.
    style : str
        More CSS.
    """
    return (
        _PAGE.replace("BODY", body, 1)
        .replace("STYLE", style, 1)
        .replace("TITLE", escape(wording.one_line(title)), 2)
        .replace("VERSION", escape(version), 1)
        .replace("SCRIPTS", scripts, 1)
    )


def _static_notice(meta: Meta) -> Notice:
    when = f", recorded {meta.created[:16]}" if meta.created else ""
    text = f"{meta.label}{when}. Every tab works without a kernel."
    return Notice(kind="static", title="Static report:", text=text)


def _js(value: object) -> str:
    """A JavaScript literal that cannot end the script element."""
    return (
        json.dumps(value)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
