"""Requests of the header of a dashboard: a report, other runs, and a comparison with one."""

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
        The run to compare with is no longer in this kernel or in the folder of the run.
    """
    compute = {REPORT: _report, RUNS: _runs, COMPARE: _compare}[request["ask"]]
    return codec.contain({"ok": True, **compute(run, request)})


def _report(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  it is of this run
    from nbprof.profiles.report import html
    from nbprof.tools import header
    from nbprof.tools.dashboard import dashboard

    page = html.page(run, dashboard(run)).encode()
    return {"name": file_name(header.label(run)), "page": np.frombuffer(page, np.uint8)}


def _runs(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  they follow from the run
    from nbprof.profiles.comparison import labels
    from nbprof.profiles.neighbours import neighbours
    from nbprof.tools import header

    other_runs = registry.others(run)
    names = labels([run, *other_runs])[1:]
    opened = [
        {"key": other.source.content_key(), "label": name, "created": header.created(other)}
        for other, name in zip(other_runs, names, strict=True)
    ]
    unread = [
        {"key": neighbour.key, "label": neighbour.label, "created": neighbour.created}
        for neighbour in neighbours(run, other_runs)
    ]
    return {"runs": opened + unread}


def _compare(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile

    key = request.get("with")
    other = registry.get(key) if isinstance(key, str) else None
    before = Profile(other) if other is not None else _read(run, key)
    packed = codec.pack(Comparison([before, Profile(run)]).payload())
    return {"payload": np.frombuffer(packed, np.uint8)}


def _read(run: Run, key: object) -> Profile:
    """A run in the folder of this one, by its key: pages never name files of this machine."""
    from nbprof.profiles.load import read
    from nbprof.profiles.neighbours import neighbours

    if isinstance(key, str) and key.startswith("folder-"):
        for neighbour in neighbours(run, registry.others(run)):
            if neighbour.key == key:
                return read(neighbour.files, read_all=True)
    raise NbprofError(
        "That run is no longer in this kernel or in the folder of this run. Load it with"
        " nbprof.load(...) and try again."
    )


def file_name(label: str) -> str:
    """The file name of the report of a run."""
    name = re.sub(r"[^\w.-]+", "-", label).strip("-.")[:80]
    return f"nbprof-{name or 'report'}.html"
