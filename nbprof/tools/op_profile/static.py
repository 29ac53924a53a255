"""The op profile in plain HTML: by category."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording
from nbprof.display.categories import DEVICE
from nbprof.tools.op_profile import payload as op_profile

_ROWS = 10
_SHOWN = ("share", "wasted", "flops", "bytes")


def html(payload: dict[str, Any]) -> str:
    """By category; where the tab was asked for and is empty, why."""
    profile, asked = payload["op_profile"], any(tab["id"] == "op_profile" for tab in payload["meta"]["tabs"])
    if asked and profile["empty"]:
        return markup.heading("Op profile", "") + markup.paragraph(markup.text(profile["empty"]["text"]))
    rows = [
        [
            markup.text(row["name"]),
            wording.number(row["ops"], 0),
            markup.bar(100 * row["share"], DEVICE),
            *("unknown" if _unknown(row, key) else wording.percent(None if row[key] is None else 100 * row[key]) for key in _SHOWN),
        ]
        for row in op_profile.by_category(profile, _ROWS)
    ]
    heads = ["Category", "Ops", "", "% of the time", "Wasted", "FLOPS", "Memory bandwidth"]
    html = markup.table("Op profile", "ops of compiled programs by category, self time", heads, rows, "lrlrrrr")
    said = "".join(markup.paragraph(markup.marked(text)) for text in [profile["statement"], *profile["notes"]] if text)
    return html + said if rows else ""


def _unknown(row: dict[str, Any], key: str) -> bool:
    return bool(row[key] is None and row["unknown"])
