"""What the header of a dashboard asks: its report as a file, which other runs there are, and the comparison with one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles.live import registry

if TYPE_CHECKING:
    from nbprof.run.run import Run

REPORT, RUNS, COMPARE = "report", "runs", "compare"


def reply(run: Run, request: dict[str, Any]) -> bytes:
    """The packed answer to one of the requests of this module.

    Raises
    ------
    NbprofError
        The run to compare with is not in this kernel any more.
    """
    asked = {REPORT: _report, RUNS: _runs, COMPARE: _compare}[request["ask"]]
    return codec.contain({"ok": True, **asked(run, request)})


def _report(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  it is of this run
    from nbprof.profiles.report import html
    from nbprof.tools import header
    from nbprof.tools.dashboard import dashboard

    page = html.page(run, dashboard(run)).encode()
    return {"name": file_name(header.label(run)), "page": np.frombuffer(page, np.uint8)}


def _runs(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  they are those beside this run
    from nbprof.profiles.comparison import labels
    from nbprof.tools import header

    others = registry.others(run)
    names = labels([run, *others])[1:]
    return {
        "runs": [
            {"key": other.source.content_key(), "label": name, "created": header.created(other)}
            for other, name in zip(others, names, strict=True)
        ]
    }


def _compare(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile

    wanted = request.get("with")
    other = registry.get(wanted) if isinstance(wanted, str) else None
    if other is None:
        raise NbprofError("That run is no longer in this kernel. Load it with nbprof.load(...) and try again.")
    packed = codec.pack(Comparison([Profile(other), Profile(run)]).payload())
    return {"payload": np.frombuffer(packed, np.uint8)}


def file_name(label: str) -> str:
    """What the report of a run is called as a file."""
    return "nbprof-" + (re.sub(r"[^\w.-]+", "-", label).strip("-.")[:80] or "report") + ".html"
