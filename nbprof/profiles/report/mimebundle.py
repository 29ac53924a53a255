"""The output of a profiled cell in four mime types; each front end shows the best that it can."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nbprof.core.garbage import collection_paused
from nbprof.core.quiet import thread_pool
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
    """The data from which JupyterLab draws.

    The payload itself is in the HTML of the same output, so that a notebook has it once.
    """
    data: dict[str, Any] = {"v": 1, "version": version}
    # The HTML has no script if the front end was not built.
    if codec.to_text(packed) not in html:
        data["data"] = base64.b64encode(packed).decode()
    if height:
        data["height"] = height
    if run is not None:
        # To find the run again with every event: its key, and its files below the notebook.
        data |= {"key": registry.show(run), "files": files(run)}
    return data


@collection_paused()
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
        The run in the kernel; None for an output without requests to a kernel.
    payload : Payload
        Of this run.
    views : iterable of str, optional
        Tabs to show; all by default.
    height : int, optional
        Height of the live view in px.
    live : bool
        False: HTML without script and data, picture and text only: a tenth of the size, and not
        interactive.
    drawn : bool
        False: without the picture of the steps, for an output about something else.
    """
    if views:
        payload = select(payload, views)
    # Drawing and packing mostly compress, which releases the interpreter lock; fonts must be used
    # by a single thread.
    with thread_pool(1, "nbprof-picture") as drawing:
        chart = drawing.submit(register.chart, payload) if drawn else None
        picture = drawing.submit(register.picture, payload) if drawn else None
        packed = codec.pack(payload)
        version = payload.meta.version
        tabs = [tab.id for tab in payload.meta.tabs]
        static = static_html(payload, chart.result() if chart else None)
        html = fragment(packed, static, version=version, tabs=tabs, height=height or 0, live=live)
        png = picture.result() if picture else None
    data: dict[str, Any] = {}
    if live:
        data[MIME] = saved(run, packed, html, version, height)
    data["text/html"] = html
    metadata = {}
    if png is not None:
        data["image/png"] = base64.b64encode(png).decode()
        metadata["image/png"] = {"width": WIDTH // 2}
    data["text/plain"] = text.summary(payload)
    return data, metadata


def early(payload: Payload, height: int | None) -> dict[str, Any]:
    """An output that `mimebundle` replaces: for front ends that draw it, and as static HTML.

    Parameters
    ----------
    payload : Payload
        As `nbprof.tools.dashboard.early` returns it.
    height : int, optional
        Height of the live view in px.
    """
    live: dict[str, Any] = {
        "v": 1,
        "version": payload.meta.version,
        "early": True,
        "data": base64.b64encode(codec.pack(payload)).decode(),
    }
    if height:
        live["height"] = height
    return {
        MIME: live,
        "text/html": static_html(payload, register.chart(payload)),
        "text/plain": text.summary(payload),
    }
