"""How a comparison is shared: as the output of a cell, and as one HTML file."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from nbprof.analysis.compare.compare import STEP
from nbprof.analysis.compare.verdict import signed
from nbprof.display import codec, markup, wording
from nbprof.display.categories import BY_KEY, HEAP
from nbprof.profiles.report import html
from nbprof.profiles.report.mimebundle import MIME, saved
from nbprof.tools.canvas import WIDTH
from nbprof.tools.compare import picture as compare_picture
from nbprof.tools.compare import text as words
from nbprof.tools.overview import static as overview_static

if TYPE_CHECKING:
    from nbprof.run.run import Run

_ROWS = 10


def page(payload: dict[str, Any]) -> str:
    """One self-contained HTML document: opened from a file, it makes no network request.

    Parameters
    ----------
    payload : dict
        What `Comparison.payload` gives.
    """
    meta, part = payload["meta"], payload["compare"]
    before, after = (words.name(part, part["pairs"][0][side]) for side in ("before", "after"))
    if meta["notice"] is None:
        text = f"{before} and {after}. The other tabs show {part['runs'][part['home']]['label']}; all work without a kernel."
        payload = {**payload, "meta": {**meta, "notice": {"kind": "static", "title": "Static report:", "text": text}}}
    title = f"{before} → {after} · {part['pairs'][0]['headline']} · nbprof"
    still = static_html(payload, compare_picture.png(payload))
    return html.document(codec.pack(payload), still, title=title, version=meta["version"])


def mimebundle(
    run: Run | None, payload: dict[str, Any], *, height: int | None = None, live: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata for `display(..., raw=True)`.

    Parameters
    ----------
    run : Run, optional
        The one whose dashboard the comparison stands in; None for an output that asks no kernel.
    payload : dict
        What `Comparison.payload` gives.
    height : int, optional
        Height of the live view in px.
    live : bool
        False: HTML without script and data, picture and text only.
    """
    packed = codec.pack(payload)
    version = payload["meta"]["version"]
    png = compare_picture.png(payload)
    page = html.fragment(packed, static_html(payload, png), version=version, height=height or 0, live=live)
    data: dict[str, Any] = {MIME: saved(run, packed, page, version, height)} if live else {}
    data["text/html"] = page
    data["image/png"] = base64.b64encode(png).decode()
    data["text/plain"] = words.plain(payload)
    return data, {"image/png": {"width": WIDTH // 2}}


def static_html(payload: dict[str, Any], picture: bytes | None = None) -> str:
    """The first pair as plain HTML: verdict, evidence, picture, figures, categories, ops and kernels, the next step."""
    part = payload["compare"]
    pair = part["pairs"][0]
    runs = " → ".join(markup.text(words.name(part, pair[side])) for side in ("before", "after"))
    evidence = "<br>".join(("✓ " if item["ok"] else "– ") + markup.text(item["text"]) for item in pair["evidence"])
    parts = [
        f'<p style="margin:0 0 8px"><b>nbprof</b> &nbsp; <b>{runs}</b></p>',
        f'<p style="font-size:20px;line-height:28px;font-weight:600;margin:0 0 4px">{markup.text(pair["headline"])}</p>',
        markup.paragraph(markup.text(pair["detail"])) if pair["detail"] else "",
        markup.paragraph(f'<b>{markup.text(pair["title"])}</b><br><span style="{markup.SOFT}">{evidence}</span>'),
        markup.picture(picture, f"Comparison of two runs. {pair['headline']}") if picture else "",
        _figures(pair),
        _categories(pair),
        *(_changed(pair, kind) for kind in ("ops", "kernels")),
        _findings(pair),
        _next_step(part, pair),
    ]
    font = "font:13px/20px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
    return f'<div style="{font};max-width:1000px;text-align:left">{"".join(parts)}</div>'


def _figures(pair: dict[str, Any]) -> str:
    rows = [[markup.text(f["label"]), f"<b>{markup.text(words.values(f))}</b>", markup.text(f["note"])] for f in pair["figures"]]
    return markup.table("Key figures", "", ["Figure", "Before → after", ""], rows, "lrl")


def _categories(pair: dict[str, Any]) -> str:
    unit = words.unit_of(pair)
    shown = [*words.by_change(pair), *(row for row in pair["categories"] if row["key"] == STEP and row["after_ms"] is not None)]
    rows = [
        [
            markup.swatch(BY_KEY[row["key"]].colour if row["key"] in BY_KEY else HEAP) + markup.text(words.label(row, unit)),
            *(words.ms(row, key, pair) for key in ("before_ms", "after_ms")),
            words.change(row["change_ms"], pair["digits"]),
            words.change(row["change_percent"], 1),
        ]
        for row in shown
    ]
    return markup.table("By category", f"ms {unit.per}", ["Category", "Before", "After", "Change", "%"], rows, "lrrrr")


def _changed(pair: dict[str, Any], kind: str) -> str:
    name = "op" if kind == "ops" else "kernel"
    rows = [
        [
            markup.name(row[name], 90) if name == "op" else markup.kernel(row[name]),
            markup.text(_state(row)),
            *(wording.number(row[key], 1) for key in ("before_us", "after_us")),
            signed(row["change_us"], 1),
        ]
        for row in words.changed(pair, kind, _ROWS)
    ]
    title = "Ops that changed most" if name == "op" else "GPU kernels that changed most"
    return markup.table(title, f"µs{words.per(pair)}", [name.capitalize(), "", "Before", "After", "Change"], rows, "llrrr")


def _state(row: dict[str, Any]) -> str:
    return words.note({"before_op": "", **row}).strip(" ()")


def _findings(pair: dict[str, Any]) -> str:
    rows = [[markup.text(one["title"]), markup.text(one["state"]), *words.gains(one)] for one in pair["findings"]]
    if not rows:
        return ""
    text = markup.paragraph(markup.marked(pair["findings_text"])) if pair["findings_text"] else ""
    heads = ["Finding", "State", "Before", "After"]
    return markup.table("Advice before and after", f"predicted gain {words.unit_of(pair).per}", heads, rows, "llrr") + text


def _next_step(part: dict[str, Any], pair: dict[str, Any]) -> str:
    run = part["runs"][pair["after"]]
    item = {"advice": run["advice"], "no_advice": run["no_advice"]}
    return overview_static.advice(item).replace("Next steps", f"Next step for {markup.text(run['label'])}", 1)
