"""What the header of a dashboard asks: its report as a file, which other runs there are, and the
comparison with one of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles.live import registry

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile
    from nbprof.run.run import Run

REPORT, RUNS, COMPARE = "report", "runs", "compare"


def reply(run: Run, request: dict[str, Any]) -> bytes:
    """The packed answer to one of the requests of this module.

    Raises
    ------
    NbprofError
        The run to compare with is neither in this kernel nor in the folder of the run any more.
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
    from nbprof.profiles.neighbours import neighbours
    from nbprof.tools import header

    others = registry.others(run)
    names = labels([run, *others])[1:]
    opened = [
        {"key": other.source.content_key(), "label": name, "created": header.created(other)}
        for other, name in zip(others, names, strict=True)
    ]
    unread = [
        {"key": each.key, "label": each.label, "created": each.created}
        for each in neighbours(run, others)
    ]
    return {"runs": opened + unread}


def _compare(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile

    wanted = request.get("with")
    other = registry.get(wanted) if isinstance(wanted, str) else None
    before = Profile(other) if other is not None else _read(run, wanted)
    packed = codec.pack(Comparison([before, Profile(run)]).payload())
    return {"payload": np.frombuffer(packed, np.uint8)}


def _read(run: Run, wanted: object) -> Profile:
    """A run in the folder of this one, which is looked for anew: a page names none of the files of
    this machine.
    """
    from nbprof.profiles.load import read
    from nbprof.profiles.neighbours import neighbours

    for each in (
        neighbours(run, registry.others(run))
        if isinstance(wanted, str) and wanted.startswith("folder-")
        else []
    ):
        if each.key == wanted:
            return read(each.files, whole=True)
    raise NbprofError(
        "That run is no longer in this kernel or in the folder of this run. Load it with"
        " nbprof.load(...) and try again."
    )


def file_name(label: str) -> str:
    """What the report of a run is called as a file."""
    return "nbprof-" + (re.sub(r"[^\w.-]+", "-", label).strip("-.")[:80] or "report") + ".html"
