"""Shareable forms of a comparison: the output of a cell, and one HTML file."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from nbprof.analysis.compare.compare import STEP
from nbprof.analysis.compare.verdict import signed
from nbprof.display import codec, markup, wording
from nbprof.display.categories import BY_KEY, HEAP
from nbprof.profiles.report import html
from nbprof.profiles.report.mimebundle import MIME, saved
from nbprof.tools.canvas import WIDTH
from nbprof.tools.compare import picture as compare_picture
from nbprof.tools.compare import text as words
from nbprof.tools.compare.parts import Compare, ComparedCalls, ComparedRun, Pair
from nbprof.tools.overview import static as overview_static
from nbprof.tools.parts import Notice
from nbprof.tools.payloads import Payload

if TYPE_CHECKING:
    from nbprof.run.run import Run

_ROWS = 10


def page(payload: Payload) -> str:
    """One self-contained HTML document: opened from a file, it makes no network request.

    Parameters
    ----------
    payload : Payload
        As `Comparison.payload` returns it.
    """
    meta, part = payload.meta, _tab(payload)
    pair = part.pairs[0]
    before, after = part.runs[pair.before].label, part.runs[pair.after].label
    if meta.notice is None:
        text = (
            f"{before} and {after}. The other tabs show {part.runs[part.home].label}; all work"
            " without a kernel."
        )
        payload = replace(
            payload,
            meta=replace(meta, notice=Notice(kind="static", title="Static report:", text=text)),
        )
    title = f"{before} → {after} · {pair.headline} · nbprof"
    still = static_html(part, compare_picture.png(part, meta))
    return html.document(codec.pack(payload), still, title=title, version=meta.version)


def mimebundle(
    run: Run | None, payload: Payload, *, height: int | None = None, live: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata for `display(..., raw=True)`.

    Parameters
    ----------
    run : Run, optional
        The run whose dashboard has the comparison; None for an output without requests to a kernel.
    payload : Payload
        As `Comparison.payload` returns it.
    height : int, optional
        Height of the live view in px.
    live : bool
        False: HTML without script and data, picture and text only.
    """
    packed, part = codec.pack(payload), _tab(payload)
    version = payload.meta.version
    png = compare_picture.png(part, payload.meta)
    page = html.fragment(
        packed, static_html(part, png), version=version, height=height or 0, live=live
    )
    data: dict[str, Any] = {}
    if live:
        data[MIME] = saved(run, packed, page, version, height)
    data["text/html"] = page
    data["image/png"] = base64.b64encode(png).decode()
    data["text/plain"] = words.plain(part)
    return data, {"image/png": {"width": WIDTH // 2}}


def _tab(payload: Payload) -> Compare:
    """The tab Compare of the payload of a comparison."""
    if payload.compare is None:
        raise ValueError("this payload is of a single run")
    return payload.compare


def static_html(part: Compare, picture: bytes | None = None) -> str:
    """The first pair as plain HTML."""
    pair = part.pairs[0]
    before, after = part.runs[pair.before], part.runs[pair.after]
    runs = f"{markup.text(before.label)} → {markup.text(after.label)}"
    evidence = []
    for item in pair.evidence:
        mark = "✓" if item.ok else "–"
        evidence.append(f"{mark} {markup.text(item.text)}")
    parts = [
        f'<p style="margin:0 0 8px"><b>nbprof</b> &nbsp; <b>{runs}</b></p>',
        markup.headline(markup.text(pair.headline)),
        pair.detail and markup.paragraph(markup.text(pair.detail)),
        markup.paragraph(
            f'<b>{markup.text(pair.title)}</b><br><span style="{markup.SOFT}">'
            f"{'<br>'.join(evidence)}</span>"
        ),
        markup.picture(picture, "Chart of both runs by category") if picture else "",
        _figures(pair),
        _categories(pair),
        _changed(pair, "ops"),
        _changed(pair, "kernels"),
        *(_calls(pair, tree) for tree in pair.calls),
        _memory(pair),
        _findings(pair),
        _next_step(after),
    ]
    font = "font:13px/20px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
    return f'<div style="{font};max-width:1000px;text-align:left">{"".join(parts)}</div>'


def _figures(pair: Pair) -> str:
    rows = [
        [markup.text(f.label), f"<b>{markup.text(words.values(f))}</b>", markup.text(f.note)]
        for f in pair.figures
    ]
    return markup.table("Key figures", "", ["Figure", "Before → after", ""], rows, "lrl")


def _categories(pair: Pair) -> str:
    unit = words.unit_of(pair)
    total = [row for row in pair.categories if row.key == STEP and row.after_ms is not None]
    rows = []
    for row in [*words.by_change(pair), *total]:
        cells = [
            markup.swatch(_colour(row.key)) + markup.text(words.label(row, unit)),
            words.ms(row.before_ms, pair),
            words.ms(row.after_ms, pair),
            words.change(row.change_ms, pair.digits),
            words.change(row.change_percent, 1),
        ]
        rows.append(cells)
    return markup.table(
        "By category",
        f"ms {unit.per}{words.recorded(pair)}",
        ["Category", "Before", "After", "Change", "%"],
        rows,
        "lrrrr",
    )


def _colour(category: str) -> str:
    return BY_KEY[category].colour if category in BY_KEY else HEAP


def _changed(pair: Pair, kind: Literal["ops", "kernels"]) -> str:
    title, name, shown_name = "GPU kernels that changed most", "Kernel", markup.kernel
    if kind == "ops":
        title, name, shown_name = "Ops that changed most", "Op", partial(markup.name, limit=90)
    rows = []
    for row in words.changed(pair, kind, _ROWS):
        cells = [
            shown_name(row.name),
            markup.text(words.note(row).strip(" ()")),
            wording.number(row.before_us, 1),
            wording.number(row.after_us, 1),
            signed(row.change_us, 1),
        ]
        rows.append(cells)
    return markup.table(
        title, f"µs{words.per(pair)}", [name, "", "Before", "After", "Change"], rows, "llrrr"
    )


def _calls(pair: Pair, tree: ComparedCalls) -> str:
    """The frames of a tree whose self time changed most, with their callers."""
    rows = []
    for call in words.calls(tree, _ROWS):
        path = markup.name(" › ".join(call.path), 90)
        rows.append([path, markup.text(call.state), *call.cells])
    scope = "self time, ms in the profile"
    if tree.per_step:
        scope = f"self time, ms {words.unit_of(pair).per}"
    head = ["Frame", "", "Before", "After", "Change", "± (95%)"]
    return markup.table(f"{tree.label}: calls that changed most", scope, head, rows, "llrrrr")


def _memory(pair: Pair) -> str:
    """Memory by role and by stack, and why some of it is missing."""
    text = ""
    for title, note, head, changes in (
        ("Memory by role", pair.memory.moment, "Role", words.by_role(pair)),
        ("Memory by stack", "at the snapshot", "Allocated at", words.by_stack(pair, _ROWS)),
    ):
        rows = [[markup.name(change.name, 90), *change.cells] for change in changes]
        if rows:
            text += markup.table(title, note, [head, "Before", "After", "Change"], rows, "lrrr")
    for reason in filter(None, (pair.memory.reason, pair.memory.stacks_reason)):
        text += markup.paragraph(markup.text(reason))
    return text


def _findings(pair: Pair) -> str:
    rows = [
        [markup.text(finding.title), markup.text(finding.state), *words.gains(finding)]
        for finding in pair.findings
    ]
    if not rows:
        return ""
    html_text = markup.table(
        "Advice before and after",
        f"predicted gain {words.unit_of(pair).per}",
        ["Finding", "State", "Before", "After"],
        rows,
        "llrr",
    )
    if pair.findings_text:
        html_text += markup.paragraph(markup.marked(pair.findings_text))
    return html_text


def _next_step(run: ComparedRun) -> str:
    note, text = "", markup.paragraph(markup.text(run.no_advice))
    if run.advice:
        note = "largest expected gain first; gains do not add up"
        text = overview_static.findings(run.advice)
    heading = markup.heading("Next steps", note)
    return heading.replace("Next steps", f"Next step for {markup.text(run.label)}", 1) + text
