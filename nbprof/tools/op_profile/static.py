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
    """The time by category; if the tab was requested and is empty, the reason."""
    profile = payload.op_profile
    if profile.empty and any(tab.id == "op_profile" for tab in payload.meta.tabs):
        return markup.heading("Op profile", "") + markup.paragraph(markup.text(profile.empty.text))
    rows = [_row(sums) for sums in op_profile.by_category(profile, _ROWS)]
    if not rows:
        return ""
    heads = ["Category", "Ops", "", "% of the time", "Wasted", "FLOPS", "Memory bandwidth"]
    scope = "ops of compiled programs by category, self time"
    html = markup.table("Op profile", scope, heads, rows, "lrlrrrr")
    for note in [profile.statement, *profile.notes]:
        if note:
            html += markup.paragraph(markup.marked(note))
    return html


def _row(sums: op_profile.CategorySums) -> list[str]:
    fractions = (sums.share, sums.wasted, sums.flops, sums.bytes)
    return [
        markup.text(sums.name),
        wording.number(sums.ops, 0),
        markup.bar(100 * sums.share, DEVICE),
        *(_percent(fraction, sums.unknown) for fraction in fractions),
    ]


def _percent(fraction: float | None, unknown: float) -> str:
    if fraction is None:
        return "unknown" if unknown else wording.MISSING
    return wording.percent(100 * fraction)
