"""The output of a profiled cell: one output in four mime types, each front end takes the best it
can show.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from nbprof.display import codec
from nbprof.profiles.live import files, registry
from nbprof.profiles.report.html import fragment
from nbprof.profiles.report.static import static_html
from nbprof.tools import register, text
from nbprof.tools.canvas import WIDTH
from nbprof.tools.dashboard import select

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

MIME = "application/vnd.nbprof.v1+json"


def saved(
    run: Run | None, packed: bytes, html: str, version: str, height: int | None
) -> dict[str, Any]:
    """What JupyterLab draws of. The data stand in the HTML of the same output, where it finds them,
    so that a notebook holds them once.
    """
    # Without a front end that was built there is no script in the HTML.
    own = {} if codec.to_text(packed) in html else {"data": base64.b64encode(packed).decode()}
    # What an output needs to have every event again: of the files only what lies below the
    # notebook.
    more = {} if run is None else {"key": registry.show(run), "files": files(run)}
    return {"v": 1, "version": version, **own, **({"height": height} if height else {}), **more}


def mimebundle(
    run: Run | None,
    payload: Payload,
    *,
    views: Iterable[str] | None = None,
    height: int | None = None,
    live: bool = True,
    drawn: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata for `display(..., raw=True)`.

    Parameters
    ----------
    run : Run, optional
        What the kernel has more of; None for an output that asks no kernel.
    payload : Payload
        Of this run.
    views : iterable of str, optional
        Tabs to show; all when left out.
    height : int, optional
        Height of the live view in px.
    live : bool
        False: HTML without script and data, picture and text only; a tenth of the size, and nothing
        to click.
    drawn : bool
        False: without the picture, which is of the steps, where the output is about something else.
    """
    if views:
        payload = select(payload, views)
    # Drawing and packing compress for most of their time, which needs no interpreter: side by side,
    # on one thread that fonts are used by.
    with ThreadPoolExecutor(1, "nbprof-picture") as aside:
        chart, picture = (
            aside.submit(draw, payload) if drawn else None
            for draw in (register.chart, register.picture)
        )
        packed = codec.pack(payload)
        version = payload.meta.version
        tabs = [tab.id for tab in payload.meta.tabs]
        static = static_html(payload, chart.result() if chart else None)
        html = fragment(packed, static, version=version, tabs=tabs, height=height or 0, live=live)
        png = picture.result() if picture else None
    data: dict[str, Any] = {MIME: saved(run, packed, html, version, height)} if live else {}
    data["text/html"] = html
    if png is not None:
        data["image/png"] = base64.b64encode(png).decode()
    data["text/plain"] = text.summary(payload)
    return data, {"image/png": {"width": WIDTH // 2}} if png is not None else {}


def early(payload: Payload, height: int | None) -> dict[str, Any]:
    """An output that the one of `mimebundle` takes the place of: for front ends that draw it, and
    as HTML without script.

    Parameters
    ----------
    payload : Payload
        As `nbprof.tools.dashboard.early` returns it.
    height : int, optional
        Height of the live view in px.
    """
    data = base64.b64encode(codec.pack(payload)).decode()
    return {
        MIME: {
            "v": 1,
            "version": payload.meta.version,
            "early": True,
            "data": data,
            **({"height": height} if height else {}),
        },
        "text/html": static_html(payload, register.chart(payload)),
        "text/plain": text.summary(payload),
    }
