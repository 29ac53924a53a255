"""Requests of a dashboard's buttons: a report, other runs, a comparison with one, experiments."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles.live import registry

if TYPE_CHECKING:
    from nbprof.run.run import Run

REPORT, RUNS, COMPARE, TRY, EDITED = "report", "runs", "compare", "try", "edited"
_BUDGET_S = 60.0
_INTERRUPTED = "It was interrupted."
_NO_CELL = "The changed cell is not known any more. Try it again."
tell: ContextVar[Callable[[str], object]] = ContextVar("tell", default=lambda _: None)
"""Receives what a long request does, as a phrase."""


def reply(run: Run, request: dict[str, Any]) -> bytes:
    """The packed answer to one of the requests of this module.

    Raises
    ------
    NbprofError
        The run to compare with is no longer in this kernel or in the folder of the run. Or the
        program of the run cannot run again.
    """
    compute = {
        REPORT: _report,
        RUNS: _runs,
        COMPARE: _compare,
        TRY: _try,
        EDITED: _edited,
    }[request["ask"]]
    return codec.contain({"ok": True, **compute(run, request)})


def _report(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  it is of this run
    from nbprof.profiles.report import html
    from nbprof.tools import header
    from nbprof.tools.dashboard import dashboard

    page = html.page(run, dashboard(run)).encode()
    return {"name": file_name(header.label(run)), "page": np.frombuffer(page, np.uint8)}


def _runs(run: Run, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  they follow from the run
    from nbprof.profiles.neighbours import neighbours
    from nbprof.profiles.sides import labels
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
    from nbprof.profiles.sides import sides
    from nbprof.tools.compare import payload
    from nbprof.tools.dashboard import dashboard

    key = request.get("with")
    before = registry.get(key) if isinstance(key, str) else None
    if before is None:
        before = _read(run, key)
    runs = [before, run]
    packed = codec.pack(payload.attach(dashboard(run), payload.payload(runs, sides(runs), home=1)))
    return {"payload": np.frombuffer(packed, np.uint8)}


def _try(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """Run the experiments of a rule, and draw the run with their results."""
    from nbprof.profiles import trials
    from nbprof.tools.dashboard import dashboard

    if run.origin is not None and (refusal := run.origin.refusal or run.origin.busy()):
        raise NbprofError(refusal)
    report = tell.get()
    try:
        with trials.interruptible():
            trials.attempt(run, str(request.get("rule")), _BUDGET_S, report)
    except KeyboardInterrupt:
        raise NbprofError(_INTERRUPTED) from None
    return {"payload": np.frombuffer(codec.pack(dashboard(run)), np.uint8)}


def _edited(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """The cell with the change of an experiment."""
    rows = run.capture.tried.get("rows", []) if run.capture is not None else []
    for row in rows:
        if row.get("experiment") == request.get("experiment") and row.get("edited"):
            return {"text": str(row["edited"])}
    raise NbprofError(_NO_CELL)


def _read(run: Run, key: object) -> Run:
    """A run in the folder of this one, by its key: pages never name files of this machine."""
    from nbprof.profiles.neighbours import neighbours
    from nbprof.profiles.read import read_run

    if isinstance(key, str) and key.startswith("folder-"):
        for neighbour in neighbours(run, registry.others(run)):
            if neighbour.key == key:
                return read_run(neighbour.files, read_all=True)
    raise NbprofError(
        "That run is no longer in this kernel or in the folder of this run. Load it with"
        " nbprof.load(...) and try again."
    )


def file_name(label: str) -> str:
    """The file name of the report of a run."""
    name = re.sub(r"[^\w.-]+", "-", label).strip("-.")[:80]
    return f"nbprof-{name or 'report'}.html"
