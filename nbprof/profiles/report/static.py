"""The part of a report that needs nothing: no script, no style sheet, no SVG, so that every viewer keeps it.

Code hosts and untrusted notebooks strip all but plain elements and `style=` attributes; what is here must be good alone.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np

from nbprof.display import wording
from nbprof.display.categories import BY_KEY, DEVICE, HEAP, HOST, OTHER
from nbprof.profiles.report import static_allocator, static_ascend
from nbprof.tools import register
from nbprof.tools.op_profile import payload as op_profile
from nbprof.tools.overview.text import figure_text, means, verdict

_ROWS = 10
_CODE = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px"
_CELL = "padding:3px 12px 3px 0;border:0;border-bottom:1px solid rgba(128,128,128,.25);vertical-align:top;background:transparent"
_SOFT = "opacity:.7"


def static_html(payload: dict[str, Any], picture: bytes | None = None) -> str:
    """The report as plain HTML: verdict, figures, breakdown, advice, top ops and kernels, compiled programs, memory, workers.

    Parameters
    ----------
    payload : dict
        What `nbprof.tools.dashboard.dashboard` gives.
    picture : bytes, optional
        A PNG to show below the verdict.
    """
    overview = payload["overview"]
    parts = [
        _header(payload["meta"]),
        _verdict(overview),
        _picture(picture, overview),
        _figures(overview["figures"]),
        _breakdown(payload),
        _advice(overview),
        _top_ops(overview),
        _op_profile(payload["op_profile"], "op_profile" in {tab["id"] for tab in payload["meta"]["tabs"]}),
        _roofline(payload),
        _kernels(payload["kernels"]),
        _device_time(payload["device_time"]),
        static_ascend.html(payload["ascend"], _table, _paragraph, _text),
        _memory(payload["memory"]),
        static_allocator.html(payload["allocator"], _table, _paragraph, _text),
        _programs(payload["memory_viewer"]),
        _pods(payload["pods"]),
        _cores(payload["pods"].get("cores")),
        _footer(payload["meta"]),
    ]
    if register.only(payload):
        parts = [parts[0], static_allocator.html(payload["allocator"], _table, _paragraph, _text), parts[-1]]
    font = "font:13px/20px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
    return f'<div style="{font};max-width:1000px;text-align:left">{"".join(parts)}</div>'


def _header(meta: dict[str, Any]) -> str:
    facts = " · ".join(["", *meta["facts"]])
    html = f'<p style="margin:0 0 8px"><b>nbprof</b> &nbsp; <b>{_text(meta["label"])}</b><span style="{_SOFT}">{_text(facts)}</span></p>'
    if notice := meta["notice"]:
        html += _paragraph(f"<b>{_text(notice['title'])}</b> {_text(notice['text'])}") + _code_block(notice.get("code", ""))
    return html


def _verdict(overview: dict[str, Any]) -> str:
    said = overview["verdict"]
    colour = f";color:{BY_KEY[overview['bound']].colour}" if overview["bound"] else ""
    word = f'<span style="font-weight:600{colour}">{_text(said["word"])}{":" if said["text"] else ""}</span>'
    html = f'<p style="font-size:20px;line-height:28px;font-weight:600;margin:0 0 4px">{word} {_text(said["text"])}</p>'
    html += _paragraph(_text(said["detail"])) if said["detail"] else ""
    level = overview["confidence"]["level"]
    if level == "none":
        return html
    evidence = " · ".join(("✓ " if item["ok"] else "– ") + item["text"] for item in overview["confidence"]["evidence"])
    return html + _paragraph(f'<b>Confidence: {_text(level)}</b> <span style="{_SOFT}">{_text(evidence)}</span>')


def _picture(picture: bytes | None, overview: dict[str, Any]) -> str:
    if not picture:
        return ""
    data = base64.b64encode(picture).decode()
    alt = _text(f"Summary of the profile. {verdict(overview)}")
    return (
        f'<p style="margin:8px 0"><img src="data:image/png;base64,{data}" width="700" alt="{alt}" style="max-width:100%;height:auto"></p>'
    )


def _figures(figures: list[dict[str, Any]]) -> str:
    rows = [[_text(f["label"]), f"<b>{_text(figure_text(f))}</b>", _text(f["note"])] for f in figures]
    return _table("Key figures", "", ["Figure", "Value", ""], rows, "lrl")


def _breakdown(payload: dict[str, Any]) -> str:
    rows = [
        [_swatch(category.colour) + _text(category.label), wording.number(ms, 2), _bar(percent, category.colour), wording.percent(percent)]
        for category, ms, percent in means(payload)
    ]
    return _table("Where a step goes", "mean of all steps", ["Category", "ms", "", "% of step"], rows, "lrlr")


def _advice(overview: dict[str, Any]) -> str:
    html = _heading("Next steps", "largest expected gain first; gains do not add up" if overview["advice"] else "")
    if not overview["advice"]:
        return html + _paragraph(_text(overview["no_advice"]))
    for item in overview["advice"]:
        gain = "" if item["gain_ms"] is None else f' <span style="{_SOFT}">up to {wording.number(-item["gain_ms"], 2)} ms a step</span>'
        html += _paragraph(f"<b>{_text(item['severity'].capitalize())}: {_text(item['title'])}</b>{gain}<br>{_marked(item['evidence'])}")
        html += _diff(item["fix"])
    return html


def _top_ops(overview: dict[str, Any]) -> str:
    table, where = overview["top_ops"], overview["top_ops_where"]
    colour = DEVICE if where == "device" else HOST
    rows = [
        [
            _name(_cell(table, "op", i), 90),
            wording.number(_cell(table, "ms_per_step", i), 3),
            _bar(_cell(table, "percent", i), colour),
            wording.percent(_cell(table, "percent", i)),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    return _table(
        f"Top ops on {where}", "self time, idle excluded", ["Operation", table["columns"][2]["label"], "", f"% of {where}"], rows, "lrlr"
    )


def _op_profile(profile: dict[str, Any], asked: bool) -> str:
    if asked and profile["empty"]:
        return _heading("Op profile", "") + _paragraph(_text(profile["empty"]["text"]))
    rows = [
        [
            _text(row["name"]),
            wording.number(row["ops"], 0),
            _bar(100 * row["share"], DEVICE),
            *(wording.percent(None if row[key] is None else 100 * row[key]) for key in ("share", "wasted", "flops", "bytes")),
        ]
        for row in op_profile.by_category(profile, _ROWS)
    ]
    heads = ["Category", "Ops", "", "% of the time", "Wasted", "FLOPS", "Memory bandwidth"]
    html = _table("Op profile", "ops of compiled programs by category, self time", heads, rows, "lrlrrrr")
    said = "".join(_paragraph(_marked(text)) for text in [profile["statement"], *profile["notes"]] if text)
    return html + said if rows else ""


def _roofline(payload: dict[str, Any]) -> str:
    """Ops of compiled programs, and how near each comes to the roof; where the tab was asked for and is empty, why."""
    part = payload["hlo"]
    table = part["table"]
    if part["empty"]:
        asked = any(tab["id"] == "hlo" for tab in payload["meta"]["tabs"])
        return _paragraph(_text(part["empty"]["text"])) if asked else ""
    rows = []
    for i in range(min(table["rows"], _ROWS)):
        percent = _cell(table, "self_percent", i)
        bound = _text(_cell(table, "bound_by", i)) or "–"
        numbers = [wording.number(_cell(table, "self_us", i), 1), _bar(percent, DEVICE), wording.percent(percent)]
        names = [_name(_cell(table, "op", i), 60), _text(_cell(table, "category", i))]
        rows.append([*names, *numbers, bound, wording.percent(_cell(table, "roof_percent", i))])
    heads = ["Op", "Category", "Self µs", "", "% of ops", "Bound by", "Of roof"]
    note = _paragraph(_text(part["missing"])) + _code_block(part["code"]) if part["missing"] and rows else ""
    return _table("Top ops of compiled programs", part["device"], heads, rows, "llrlrlr") + note


def _kernels(kernels: dict[str, Any]) -> str:
    table = kernels["table"]
    rows = []
    for i in range(min(table["rows"], _ROWS)):
        full = _cell(table, "kernel", i)
        name = f'<code style="{_CODE}" title="{_text(full[:300])}">{_text(wording.kernel(full, 80))}</code>'
        rows.append(
            [name, *(wording.number(_cell(table, key, i), digits) for key, digits in (("total_us", 1), ("occurrences", 0), ("avg_us", 1)))]
        )
    return _table(f"Top {_text(kernels.get('chip') or 'GPU')} kernels", "", ["Kernel", "Total µs", "Count", "Avg µs"], rows, "lrrr")


def _device_time(part: dict[str, Any]) -> str:
    """What the devices did, in percent of their time, and the sentence on why they stood still."""
    devices = part["devices"][:_ROWS]
    if not devices:
        return ""
    rows = []
    for name, times in zip(devices, np.asarray(part["parts_ms"], np.float64).reshape(-1, 4), strict=False):
        whole = float(np.nansum(times))
        rows.append([_text(name), *(wording.percent(100 * float(ms) / whole) if whole else "–" for ms in times)])
    more = len(part["devices"]) - len(devices)
    scope = "percent of their time" + (f"; {more:,} more devices" if more else "")
    said = _paragraph(_marked(part["statement"]))
    return said + _table("What devices did", scope, ["Device", "Compute", "Communication", "Memory", "Idle"], rows, "lrrrr")


def _memory(memory: dict[str, Any]) -> str:
    rows = [
        [
            _name(one["memory_id"], 60),
            wording.size(one["peak_bytes"]),
            wording.size(one["capacity_bytes"]),
            wording.number(one["peak_time_ms"], 1),
        ]
        for one in memory["ids"][:_ROWS]
    ]
    html = _table("Peak memory", "", ["Memory", "Peak", "Capacity", "At ms"], rows, "lrrr")
    if not memory["ids"]:
        return html
    first = memory["ids"][0]
    table = first["peak"]
    alive = [
        [
            _name(_cell(table, "op", i), 80),
            _text(_cell(table, "shape", i)),
            wording.size(_cell(table, "allocated_bytes", i)),
            _bar(_cell(table, "percent", i), HEAP),
            wording.percent(_cell(table, "percent", i)),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    return html + _table("Live at the peak", first["memory_id"], ["Op", "Shape", "Allocated", "", "% of peak"], alive, "llrlr")


def _programs(viewer: dict[str, Any]) -> str:
    rows = []
    for one in viewer["modules"][:_ROWS]:
        main = one["spaces"][0]
        padding = 100 * (1 - main["unpadded_bytes"] / main["peak_bytes"]) if main["peak_bytes"] else None
        sizes = [wording.size(main[key]) for key in ("peak_bytes", "unpadded_bytes", "throughout_bytes")]
        rows.append([_name(one["name"], 80), *sizes[:2], wording.percent(padding), sizes[2]])
    heads = ["Program", "Peak", "Without padding", "Padding", "Live throughout"]
    html = _table("Memory of compiled programs", "as the compiler planned it", heads, rows, "lrrrr")
    if not rows:
        return ""
    module, space = viewer.get("chosen") or (0, 0)
    first = viewer["modules"][module]
    table = first["spaces"][space]["buffers"]
    most = max((_cell(table, "size_bytes", i) for i in range(table["rows"])), default=0.0)
    order = sorted(range(table["rows"]), key=lambda i: -_cell(table, "size_bytes", i))[:_ROWS]
    alive = [
        [
            _name(_cell(table, "framework_op", i) or _cell(table, "buffer", i), 70),
            _text(_cell(table, "category", i)),
            _text(wording.one_line(_cell(table, "shape", i))[:60]),
            wording.size(_cell(table, "size_bytes", i)),
            _bar(100 * _cell(table, "size_bytes", i) / most if most else 0.0, HEAP),
            wording.number(_cell(table, "padding_ratio", i), 2),
        ]
        for i in order
    ]
    heads = ["Buffer", "", "Shape", "Size", "", "Expansion"]
    return html + _table("Alive at the peak", first["name"], heads, alive, "lllrlr")


def _pods(pods: dict[str, Any]) -> str:
    table = pods["table"]
    worst = [_cell(table, "mean_step_ms", i) for i in range(min(table["rows"], _ROWS))]
    most = max((ms for ms in worst if ms == ms), default=0.0)
    rows = [
        [
            _name(_cell(table, "worker", i), 60),
            wording.number(ms, 2),
            _bar(100 * ms / most if most else 0.0, OTHER),
            wording.percent(_cell(table, "over_median_percent", i)),
            wording.number(_cell(table, "times_slowest", i)),
        ]
        for i, ms in enumerate(worst)
    ]
    if not rows:
        return ""
    scope = "slowest first" if table["rows"] <= _ROWS else f"the {_ROWS} slowest of {pods['total']:,}"
    html = _table("Workers", scope, ["Worker", "Step ms", "", "Over the median", "Slowest in"], rows, "lrlrr")
    return html + _paragraph(_marked(pods["statement"]))


def _cores(cores: dict[str, Any] | None) -> str:
    if not cores:
        return ""
    table, labels = cores["table"], {head["key"]: head["label"] for head in cores["heads"]}
    rows = [
        [
            _name(_cell(table, "worker", i), 60),
            wording.number(_cell(table, "chip", i)),
            *(wording.number(_cell(table, key, i), 2) for key in ("mean_step_ms", *cores["kinds"])),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    scope = "means over the steps that averages use, ms" + (f"; {_ROWS} of {table['rows']:,} cores" if table["rows"] > _ROWS else "")
    return _table(
        "TPU cores",
        scope,
        ["Core", "Chip", "Step ms", *(labels[key] for key in cores["kinds"])],
        rows,
        "lr" + "r" * (1 + len(cores["kinds"])),
    )


def _footer(meta: dict[str, Any]) -> str:
    foot = meta["footer"]
    size = "" if foot["bytes"] is None else f", {wording.size(foot['bytes'])}"
    text = f"{foot['events']:,} events, {foot['dropped']:,} dropped · {foot['file']}{size} · nbprof {meta['version']}"
    warnings = "".join(f"<br>! {_text(line['text'])}" for line in meta["receipt"] if line["level"] == "warning")
    return f'<p style="font-size:11px;line-height:16px;margin:16px 0 0;{_SOFT}">{_text(text)}{warnings}</p>'


def _table(title: str, scope: str, heads: list[str], rows: list[list[str]], align: str) -> str:
    """A table whose cells are HTML already; nothing when it has no rows."""
    if not rows:
        return ""
    sides = [f"{_CELL};text-align:{'right' if side == 'r' else 'left'}" for side in align]
    head = "".join(f'<th style="{side};font-weight:600">{_text(text)}</th>' for side, text in zip(sides, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td style="{side}">{cell}</td>' for side, cell in zip(sides, row, strict=True)) + "</tr>" for row in rows
    )
    style = "border-collapse:collapse;border:0;margin:0;font-size:12px;line-height:18px"
    return f'{_heading(title, scope)}<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _heading(title: str, scope: str) -> str:
    small = f' <span style="font-weight:400;{_SOFT}">{_text(scope)}</span>' if scope else ""
    return f'<p style="font-weight:600;margin:18px 0 4px">{_text(title)}{small}</p>'


def _paragraph(html: str) -> str:
    return f'<p style="margin:0 0 8px;max-width:760px">{html}</p>'


def _diff(lines: list[dict[str, str]]) -> str:
    if not lines:
        return ""
    looks = {"removed": f"text-decoration:line-through;{_SOFT}", "added": "background:rgba(35,137,106,.18)", "same": ""}
    body = "<br>".join(f'<span style="{looks[line["kind"]]}">{_code(line["text"])}</span>' for line in lines)
    return _block(body)


def _code_block(code: str) -> str:
    return _block("<br>".join(_code(line) for line in code.splitlines())) if code else ""


def _block(body: str) -> str:
    return f'<p style="{_CODE};line-height:18px;margin:0 0 12px;padding:6px 10px;background:rgba(128,128,128,.1)">{body}</p>'


def _code(line: str) -> str:
    """One line of code with its indentation, in an element that viewers do not reformat."""
    line = wording.one_line(line.replace("\t", "    "))
    indent = len(line) - len(line.lstrip(" "))
    return "&nbsp;" * indent + _text(line.lstrip(" ")) or "&nbsp;"


def _name(name: str, most: int) -> str:
    return f'<code style="{_CODE}" title="{_text(name[:300])}">{_text(wording.tail(name, most))}</code>'


def _swatch(colour: str) -> str:
    return f'<span style="display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;background:{colour}"></span>'


def _bar(percent: float, colour: str) -> str:
    width = round(min(max(wording.real(percent) or 0.0, 0.0), 100.0), 1)
    track = "display:inline-block;width:100px;height:8px;background:rgba(128,128,128,.18)"
    return f'<span style="{track}"><span style="display:block;width:{width}%;height:8px;background:{colour}"></span></span>'


def _cell(table: dict[str, Any], key: str, row: int) -> Any:
    column = table["data"][key]
    return column["values"][int(column["codes"][row])] if isinstance(column, dict) else float(column[row])


def _marked(text: str) -> str:
    return "".join(f"<b>{_text(part)}</b>" if bold else _text(part) for bold, part in wording.bold_parts(text))


def _text(text: object) -> str:
    return escape(wording.one_line(str(text)), quote=True)
