"""The runs of a logdir as a table, without reading them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from nbprof.core.files import LocalFile, RunFiles
from nbprof.sources.locate import OpenOptions, Source
from nbprof.sources.locate import runs as find_runs
from nbprof.sources.recording import CaptureInfo

# Limit of pandas, which counts nanoseconds.
_LAST_S = 2**63 / 1e9


def runs(
    source: Source,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """The runs that are in a logdir, an archive or at a URL, newest first, without reading them.

    Parameters
    ----------
    source : str, path or list
        Path to pass to `nbprof.load`.
    storage_options : dict, optional
        For fsspec.
    progress : callable, optional
        Called with a message when a remote place is listed.

    Returns
    -------
    DataFrame
        One row per run: `run`, its name, for `load(source, run=...)`; `hosts`, the number of files
        of hosts or ranks; `format`, `xspace`, `chrome`, `msprof` or `torch_memory`; `bytes` of its
        files as stored, missing if unknown; `modified`, local time of the recording or, if unknown,
        of the last change of its files; `path`, which `load` also accepts; `label`, the name of the
        recording such as `training [3]` by notebook and cell: empty unless nbprof recorded it, and
        for runs behind a URL.

    Raises
    ------
    ReadError
        The place does not exist, or may not be read. For a place without runs the table is empty.

    Examples
    --------
    >>> nbprof.runs("logs/")                              # doctest: +SKIP
    >>> nbprof.load(nbprof.runs("logs/").path[1])         # doctest: +SKIP
    """
    located = find_runs(source, OpenOptions(storage_options or {}, progress=progress))
    # The path of a folder opens the run only if there is no other run in or below it.
    above: Counter[str] = Counter()
    for run in located:
        above.update(_above(str(run.folder)))
    rows = []
    for run in located:
        path = str(run.folder)
        if above[path] > 1 and len(run.files) == 1:
            path = run.files[0].label
        row = {
            "run": run.name,
            "hosts": len(run.files),
            "format": run.format,
            "bytes": _bytes(run),
            "modified": _when(run.modified),
            "label": _label(run),
            "path": path,
        }
        rows.append(row)
    frame = pd.DataFrame(
        rows, columns=["run", "label", "hosts", "format", "bytes", "modified", "path"]
    )
    return frame.astype({"hosts": "int64", "bytes": "Int64", "modified": "datetime64[ns]"})


def _when(seconds: float) -> Any:
    """Local time; missing if unknown or out of range."""
    try:
        if 0 < seconds < _LAST_S:
            return pd.Timestamp.fromtimestamp(int(seconds))
        return pd.NaT
    except (OverflowError, ValueError, OSError):
        return pd.NaT


def _label(run: RunFiles) -> str:
    """The label of the recording. It is only read on local disks: elsewhere it costs a request."""
    if not isinstance(run.sidecar, LocalFile):
        return ""
    info = CaptureInfo.of(run.sidecar)
    return "" if info is None else info.label


def _above(folder: str) -> list[str]:
    """A folder and all folders around it."""
    return [folder[: separator.start()] for separator in re.finditer(r"!?[/\\]|$", folder)]


def _bytes(run: RunFiles) -> int | None:
    sizes = [f.size for f in run.files]
    return None if None in sizes else sum(s for s in sizes if s is not None)
