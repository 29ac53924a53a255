"""The static part of a report: plain HTML of each tool, with a header and a footer."""

from __future__ import annotations

from collections.abc import Callable

from nbprof.core.guard import Failures, collecting, guarded
from nbprof.display import markup, wording
from nbprof.tools import register
from nbprof.tools.common import unit_in
from nbprof.tools.header import UNFINISHED
from nbprof.tools.parts import Meta
from nbprof.tools.payloads import Payload

_STEPS_WIDTH = 445
"""Points."""


def static_html(payload: Payload, picture: bytes | None = None) -> str:
    """The report as plain HTML, without scripts.

    Parameters
    ----------
    payload : Payload
    picture : bytes, optional
        A PNG to show below the verdict, of the steps.
    """
    only = register.only(payload)
    tools = [only] if only else list(register.tools().values())
    failed: list[str] = []
    with collecting(Failures(failed.append)):
        leads = [_part(tool.lead, payload) for tool in tools]
        bodies = [_part(tool.static, payload) for tool in tools]
    parts = [_header(payload.meta), *leads]
    if picture and not only:
        alt = f"Chart of {unit_in(payload.meta).time} by category"
        parts.append(markup.picture(picture, alt, _STEPS_WIDTH))
    parts += [
        *bodies,
        *(markup.paragraph(markup.text(sentence)) for sentence in failed),
        _footer(payload.meta),
    ]
    font = "font:13px/20px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
    return f'<div style="{font};max-width:1000px;text-align:left">{"".join(parts)}</div>'


def _part(write: Callable[[Payload], str], payload: Payload) -> str:
    return guarded("A part of this report", lambda: write(payload), lambda _: "")


def _header(meta: Meta) -> str:
    facts = " · ".join(["", *meta.facts])
    label = f"<b>nbprof</b> &nbsp; <b>{markup.text(meta.label)}</b>"
    html = (
        f'<p style="margin:0 0 8px">{label}<span'
        f' style="{markup.SOFT}">{markup.text(facts)}</span></p>'
    )
    if meta.pending:
        html += markup.paragraph(
            f"<b>{UNFINISHED}</b> When it finishes, the rest appears here; otherwise nbprof.load"
            " opens the recording."
        )
    notice = meta.notice
    if notice:
        html += markup.paragraph(f"<b>{markup.text(notice.title)}</b> {markup.text(notice.text)}")
        html += markup.code_block(notice.code or "")
    return html


def _footer(meta: Meta) -> str:
    foot = meta.footer
    size = "" if foot.bytes is None else f", {wording.size(foot.bytes)}"
    text = (
        f"{wording.plural(foot.events, 'event')}, {foot.dropped:,} dropped · {foot.file}{size} ·"
        f" nbprof {meta.version}"
    )
    warnings = ""
    for line in meta.receipt:
        if line.level == "warning":
            warnings += f"<br>! {markup.text(line.text)}"
    return (
        '<p style="font-size:11px;line-height:16px;margin:16px 0'
        f' 0;{markup.SOFT}">{markup.text(text)}{warnings}</p>'
    )
