"""Results of the search for runs, and the lines that report them to a front end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.activity.unit import STEP
from nbprof.formats.register import by_name

if TYPE_CHECKING:
    from nbprof.sources.recording import CaptureInfo


State = tuple[int, ...]
"""Device, inode, size and time of a file."""


def state_key(state: os.stat_result) -> State:
    """The parts of the state of a file that change when the file changes, not when it is moved."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


@dataclass(frozen=True)
class OnDisk:
    """A run, known from its files without reading them.

    Attributes
    ----------
    path : str
        Path in the file browser of the file or folder that opens as this run.
    real : Path
        The same on the disk.
    name : str
    modified : float
        Seconds since 1970.
    bytes : int
    format : str
        Name of its `Format`.
    files : tuple of Path
        Files of its hosts or ranks.
    state : tuple of State
        Of each file and of the sidecar.
    sidecar : Path or None
        The file that nbprof wrote next to it.
    capture : CaptureInfo or None
        The content of the sidecar.
    """

    path: str
    real: Path
    name: str
    modified: float
    bytes: int
    format: str
    files: tuple[Path, ...]
    state: tuple[State, ...]
    sidecar: Path | None = None
    capture: CaptureInfo | None = None
    hosts: int | None = None
    """Number of hosts, if that differs from the number of files."""

    def lines(self, facts: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Lines to send: with the facts of `nbprof.server.summary`, or {"message": ...} if it could
        not be analysed.
        """
        if facts is not None and "message" in facts:
            return [{"run": self._run_line({})}, *Problem(self.path, str(facts["message"])).lines()]
        return [{"run": self._run_line(facts or {})}]

    def _run_line(self, facts: dict[str, Any]) -> dict[str, Any]:
        from nbprof.sources.recording import CaptureInfo

        capture = self.capture or CaptureInfo()
        form = by_name(self.format)
        framework = capture.framework or facts.get("framework")
        if not framework:
            by_file_name = map(form.framework, self.files)
            framework = next((each.title for each in by_file_name if each.is_supported), None)
        return {
            "path": self.path,
            "name": self.name,
            "modified": iso(self.modified),
            "bytes": self.bytes,
            "kind": "xplane" if form.by_folder else "trace",
            "format": self.format,
            "hosts": self.hosts or len(self.files),
            "framework": framework,
            "steps": facts.get("steps", capture.steps_marked or None),
            "unit": facts.get("unit", STEP),
            "step_ms": facts.get("step_ms"),
            "verdict": facts.get("verdict"),
            "device": facts.get("device"),
            "recorded": facts.get("recorded") or capture.started or None,
            "known": bool(facts),
            "label": capture.label,
            "notebook": capture.notebook,
            "times_ms": facts.get("times_ms") or [],
            "spread": facts.get("spread") or [],
            "bare": facts.get("bare") or [],
            "failed": capture.error if capture.cell_failed else "",
            "notes": [note.text for note in (*capture.warnings, *capture.notes)],
        }


@dataclass(frozen=True)
class Problem:
    """A path that could not be examined, with a message; `gone` if it does not exist."""

    path: str
    message: str
    gone: bool = False

    def lines(self) -> list[dict[str, Any]]:
        """Lines to send."""
        return [{"problem": {"path": self.path, "message": self.message, "gone": self.gone}}]


def iso(seconds: float) -> str | None:
    """A time in UTC; None if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None
