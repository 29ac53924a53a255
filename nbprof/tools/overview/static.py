"""The answer in plain HTML: verdict, figures, breakdown, what to do next, top ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.display import markup, wording
from nbprof.display.categories import BY_KEY, DEVICE, HOST
from nbprof.tools.common import unit_in
from nbprof.tools.overview.text import Row, breakdown, figure_text, where_it_goes

_ROWS = 10


def lead(payload: dict[str, Any]) -> str:
    """What stands above the picture."""
    return "" if payload["overview"].get("only") else _verdict(payload["overview"])


def html(payload: dict[str, Any]) -> str:
    """What stands below it."""
    overview = payload["overview"]
    if overview.get("only") == "advice":
        return advice(overview)
    if overview.get("plain"):
        return markup.table("Run", "", ["", ""], [[markup.text(label), markup.text(value)] for label, value in overview["run"]], "ll")
    parts = [_figures(overview["figures"]), _breakdown(payload), _ranges(overview.get("ranges"), unit_in(payload)), advice(overview)]
    return "".join([*parts, _code(overview.get("code")), _top_ops(overview)])


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
    rows = [_breakdown_row(row) for row in breakdown(payload)]
    unit = unit_in(payload)
    scope = "" if unit.whole else f"mean of all {unit.plural}"
    return markup.table(where_it_goes(unit), scope, ["Category", "ms", "", unit.reword("% of step")], rows, "lrlr")


def _breakdown_row(row: Row) -> list[str]:
    name = markup.text(row.label)
    label = f'<span style="padding-left:18px;{markup.SOFT}">{name}</span>' if row.part else markup.swatch(row.colour) + name
    bar = "" if row.part else markup.bar(row.percent, row.colour)
    return [label, wording.number(row.ms, 2), bar, wording.percent(row.percent)]


def _ranges(ranges: dict[str, Any] | None, unit: Unit) -> str:
    """Ranges of the program as a tree, with their time on the host and on devices."""
    if not ranges:
        return ""
    table = ranges["table"]
    columns = table["columns"]
    titles = {group["row"]: group["title"] for group in ranges["groups"] if len(ranges["groups"]) > 1}
    rows = []
    for row in range(table["rows"]):
        if row in titles:
            rows.append([f"<b>{markup.text(titles[row])}</b>", *[""] * (len(columns) - 1)])
        rows.append([_range_cell(table, head, row) for head in columns])
    align = "".join("l" if head["key"] in ("name", "top") else "r" for head in columns)
    html = markup.table("Your ranges", "" if unit.whole else f"mean {unit.per}", [head["label"] for head in columns], rows, align)
    return html + "".join(markup.paragraph(markup.text(note)) for note in ranges["notes"])


def _range_cell(table: dict[str, Any], head: dict[str, Any], row: int) -> str:
    key = head["key"]
    value = markup.cell(table, key, row)
    if key == "name":
        indent = 18 * int(markup.cell(table, "_depth", row))
        name = markup.name(value, 60)
        return f'<span style="padding-left:{indent}px">{name}</span>' if indent else name
    if key == "top":
        return markup.name(value, 60) if value else ""
    return "" if np.isnan(value) else wording.number(value, int(head.get("digits", 2)))


def advice(overview: dict[str, Any]) -> str:
    """What to change, with its evidence and the code."""
    html = markup.heading("Next steps", "largest expected gain first; gains do not add up" if overview["advice"] else "")
    if overview.get("contention"):
        html += markup.paragraph(f"<b>{markup.text(overview['contention'])}</b>")
    if probe := overview.get("probe"):
        detail = f'<br><span style="{markup.SOFT}">{markup.text(probe["detail"])}</span>' if probe["detail"] else ""
        html += markup.paragraph(f"<b>{markup.text(probe['text'])}</b>{detail}")
    if not overview["advice"]:
        return html + markup.paragraph(markup.text(overview["no_advice"]))
    for item in overview["advice"]:
        saved = wording.gain(item)
        gain = f' <span style="{markup.SOFT}">{saved}</span>' if saved else ""
        title = f"<b>{markup.text(item['severity'].capitalize())}: {markup.text(item['title'])}</b>"
        sure = f'<br><span style="{markup.SOFT}">{markup.text(certainty(item))}</span>' if item["certainty"] else ""
        html += markup.paragraph(f"{title}{gain}<br>{markup.marked(item['evidence'])}{sure}")
        html += markup.diff(item["fix"])
    return html


def certainty(item: dict[str, Any]) -> str:
    """`Measured. Wrong if the step takes as long …`."""
    return f"{item['certainty'].capitalize()}." + (f" Wrong if {item['refuted_by']}." if item["refuted_by"] else "")


def _top_ops(overview: dict[str, Any]) -> str:
    table, where = overview["top_ops"], overview["top_ops_where"]
    colour = DEVICE if where == "device" else HOST
    label = {head["key"]: head["label"] for head in table["columns"]}
    rows = [
        [
            markup.name(markup.cell(table, "op", i), 90),
            markup.name(markup.cell(table, "type", i), 40),
            wording.number(markup.cell(table, "ms_per_step", i), 3),
            markup.bar(markup.cell(table, "percent", i), colour),
            wording.percent(markup.cell(table, "percent", i)),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    heads = ["Operation", label["type"], label["ms_per_step"], "", f"% of {where}"]
    return markup.table(f"Top ops on {where}", "self time, idle excluded", heads, rows, "llrlr")


def _code(code: dict[str, Any] | None) -> str:
    """The lines with the most time, in the order of the cells."""
    if not code:
        return ""
    lines = [(cell["title"], cell["table"], row) for cell in code["cells"] for row in range(cell["table"]["rows"])]
    keys = [key for key in ("host_ms", "device_ms", "program_ms") if key in code["cells"][0]["table"]["data"]]
    known = [one for one in lines if any(markup.cell(one[1], key, one[2]) > 0 for key in keys)]
    largest = sorted(known, key=lambda one: -max(np.nan_to_num(markup.cell(one[1], key, one[2])) for key in keys))[:_ROWS]
    label = {head["key"]: head["label"] for head in code["cells"][0]["table"]["columns"]}
    rows = [
        [
            *(wording.number(markup.cell(table, key, row), 2) for key in keys),
            f"{markup.text(title)}:{markup.cell(table, 'line', row):g}",
            markup.name(markup.cell(table, "code", row).strip(), 90),
        ]
        for title, table, row in known
        if any(table is at and row == line for _, at, line in largest)
    ]
    scope = "the lines with the most time" if len(known) > len(rows) else "time of each line"
    return markup.table("Your code", scope, [*(label[key] for key in keys), "Line", "Code"], rows, "r" * len(keys) + "ll")
