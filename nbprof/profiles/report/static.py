"""The part of a report that needs nothing: what stands around what each tool writes as plain HTML."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from nbprof.display import markup, wording
from nbprof.display.categories import BY_KEY, DEVICE, HOST
from nbprof.tools import register
from nbprof.tools.overview.text import figure_text, means, verdict

_ROWS = 10


def static_html(payload: dict[str, Any], picture: bytes | None = None) -> str:
    """The report as plain HTML: what each tool has to say without scripts.

    Parameters
    ----------
    payload : dict
        What `nbprof.tools.dashboard.dashboard` gives.
    picture : bytes, optional
        A PNG to show below the verdict.
    """
    only = register.only(payload)
    tools = {"": only} if only else register.tools()
    parts = [
        _header(payload["meta"]),
        *(tool.lead(payload) for tool in tools.values()),
        "" if only else _verdict(payload["overview"]),
        "" if only else _picture(picture, payload),
        *((_HERE.get(tab) or tool.static)(payload) for tab, tool in tools.items()),
        _footer(payload["meta"]),
    ]
    font = "font:13px/20px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
    return f'<div style="{font};max-width:1000px;text-align:left">{"".join(parts)}</div>'


def _header(meta: dict[str, Any]) -> str:
    facts = " · ".join(["", *meta["facts"]])
    label = f"<b>nbprof</b> &nbsp; <b>{markup.text(meta['label'])}</b>"
    html = f'<p style="margin:0 0 8px">{label}<span style="{markup.SOFT}">{markup.text(facts)}</span></p>'
    if notice := meta["notice"]:
        html += markup.paragraph(f"<b>{markup.text(notice['title'])}</b> {markup.text(notice['text'])}")
        html += markup.code_block(notice.get("code", ""))
    return html


def _picture(picture: bytes | None, payload: dict[str, Any]) -> str:
    if not picture:
        return ""
    data = base64.b64encode(picture).decode()
    alt = markup.text("Summary of the profile. " + verdict(payload["overview"]))
    return (
        f'<p style="margin:8px 0"><img src="data:image/png;base64,{data}" width="700" alt="{alt}" style="max-width:100%;height:auto"></p>'
    )


def _overview(payload: dict[str, Any]) -> str:
    overview = payload["overview"]
    return _figures(overview["figures"]) + _breakdown(payload) + _advice(overview) + _top_ops(overview)


def _verdict(overview: dict[str, Any]) -> str:
    said = overview["verdict"]
    colour = f";color:{BY_KEY[overview['bound']].colour}" if overview["bound"] else ""
    word = f'<span style="font-weight:600{colour}">{markup.text(said["word"])}{":" if said["text"] else ""}</span>'
    html = f'<p style="font-size:20px;line-height:28px;font-weight:600;margin:0 0 4px">{word} {markup.text(said["text"])}</p>'
    html += markup.paragraph(markup.text(said["detail"])) if said["detail"] else ""
    level = overview["confidence"]["level"]
    if level == "none":
        return html
    evidence = " · ".join(("✓ " if item["ok"] else "– ") + item["text"] for item in overview["confidence"]["evidence"])
    return html + markup.paragraph(f'<b>Confidence: {markup.text(level)}</b> <span style="{markup.SOFT}">{markup.text(evidence)}</span>')


def _figures(figures: list[dict[str, Any]]) -> str:
    rows = [[markup.text(f["label"]), f"<b>{markup.text(figure_text(f))}</b>", markup.text(f["note"])] for f in figures]
    return markup.table("Key figures", "", ["Figure", "Value", ""], rows, "lrl")


def _breakdown(payload: dict[str, Any]) -> str:
    rows = [
        [
            markup.swatch(category.colour) + markup.text(category.label),
            wording.number(ms, 2),
            markup.bar(percent, category.colour),
            wording.percent(percent),
        ]
        for category, ms, percent in means(payload)
    ]
    return markup.table("Where a step goes", "mean of all steps", ["Category", "ms", "", "% of step"], rows, "lrlr")


def _advice(overview: dict[str, Any]) -> str:
    html = markup.heading("Next steps", "largest expected gain first; gains do not add up" if overview["advice"] else "")
    if not overview["advice"]:
        return html + markup.paragraph(markup.text(overview["no_advice"]))
    for item in overview["advice"]:
        most = "" if item["gain_ms"] is None else f"up to {wording.number(-item['gain_ms'], 2)} ms a step"
        gain = f' <span style="{markup.SOFT}">{most}</span>' if most else ""
        title = f"<b>{markup.text(item['severity'].capitalize())}: {markup.text(item['title'])}</b>"
        html += markup.paragraph(f"{title}{gain}<br>{markup.marked(item['evidence'])}")
        html += markup.diff(item["fix"])
    return html


def _top_ops(overview: dict[str, Any]) -> str:
    table, where = overview["top_ops"], overview["top_ops_where"]
    colour = DEVICE if where == "device" else HOST
    rows = [
        [
            markup.name(markup.cell(table, "op", i), 90),
            wording.number(markup.cell(table, "ms_per_step", i), 3),
            markup.bar(markup.cell(table, "percent", i), colour),
            wording.percent(markup.cell(table, "percent", i)),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    return markup.table(
        f"Top ops on {where}", "self time, idle excluded", ["Operation", table["columns"][2]["label"], "", f"% of {where}"], rows, "lrlr"
    )


def _footer(meta: dict[str, Any]) -> str:
    foot = meta["footer"]
    size = "" if foot["bytes"] is None else f", {wording.size(foot['bytes'])}"
    text = f"{foot['events']:,} events, {foot['dropped']:,} dropped · {foot['file']}{size} · nbprof {meta['version']}"
    warnings = "".join(f"<br>! {markup.text(line['text'])}" for line in meta["receipt"] if line["level"] == "warning")
    return f'<p style="font-size:11px;line-height:16px;margin:16px 0 0;{markup.SOFT}">{markup.text(text)}{warnings}</p>'


_HERE: dict[str, Callable[[dict[str, Any]], str]] = {
    "overview": _overview,
}
"""What has not moved to its tool yet."""
