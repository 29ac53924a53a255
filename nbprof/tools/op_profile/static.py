"""The op profile in plain HTML: by category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import DEVICE
from nbprof.tools.op_profile import payload as op_profile

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """By category; where the tab was asked for and is empty, why."""
    profile, asked = payload.op_profile, any(tab.id == "op_profile" for tab in payload.meta.tabs)
    if asked and profile.empty:
        return markup.heading("Op profile", "") + markup.paragraph(markup.text(profile.empty.text))
    rows = [
        [
            markup.text(row.name),
            wording.number(row.ops, 0),
            markup.bar(100 * row.share, DEVICE),
            *(
                _percent(value, row.unknown)
                for value in (row.share, row.wasted, row.flops, row.bytes)
            ),
        ]
        for row in op_profile.by_category(profile, _ROWS)
    ]
    heads = ["Category", "Ops", "", "% of the time", "Wasted", "FLOPS", "Memory bandwidth"]
    html = markup.table(
        "Op profile", "ops of compiled programs by category, self time", heads, rows, "lrlrrrr"
    )
    notes = "".join(
        markup.paragraph(markup.marked(text))
        for text in [profile.statement, *profile.notes]
        if text
    )
    return html + notes if rows else ""


def _percent(fraction: float | None, unknown: float) -> str:
    if fraction is None:
        return "unknown" if unknown else wording.MISSING
    return wording.percent(100 * fraction)
