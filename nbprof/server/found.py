"""What the search for runs finds, and the lines that report it to a front end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbprof.activity.unit import STEP
from nbprof.formats.register import by_name

if TYPE_CHECKING:
    from nbprof.sources.recording import CaptureInfo


@dataclass(frozen=True)
class OnDisk:
    """A run, as far as its files and what lies beside them tell.

    Attributes
    ----------
    path : str
        As the file browser calls the file or the folder that opens as this run.
    real : Path
        The same on the disk.
    name : str
    modified : float
        Seconds since 1970.
    bytes : int
    format : str
        Name of their `Format`.
    files : tuple of Path
        Those of its hosts or ranks.
    state : tuple
        Of each file and of the sidecar: device, inode, size, time. Another one when the run has
        changed; moving leaves it.
    sidecar : Path or None
        What nbprof wrote beside it.
    capture : CaptureInfo or None
        What that says.
    """

    path: str
    real: Path
    name: str
    modified: float
    bytes: int
    format: str
    files: tuple[Path, ...]
    state: tuple[tuple[int, ...], ...]
    sidecar: Path | None = None
    capture: CaptureInfo | None = None
    hosts: int | None = None
    """How many recorded, if that differs from the number of files."""

    def lines(self, facts: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """What is sent of it: with what `nbprof.server.summary` knows, or {"message": ...} where it
        could not be analysed.
        """
        if facts is not None and "message" in facts:
            return [{"run": self._told({})}, *Problem(self.path, str(facts["message"])).lines()]
        return [{"run": self._told(facts or {})}]

    def _told(self, facts: dict[str, Any]) -> dict[str, Any]:
        capture = self.capture
        framework_of_capture = capture.framework if capture is not None else ""
        form = by_name(self.format)
        by_name_alone = (
            framework.title for framework in map(form.framework, self.files) if framework.known
        )
        return {
            "path": self.path,
            "name": self.name,
            "modified": iso(self.modified),
            "bytes": self.bytes,
            "kind": "xplane" if form.by_folder else "trace",
            "format": self.format,
            "hosts": self.hosts or len(self.files),
            "framework": framework_of_capture
            or facts.get("framework")
            or next(by_name_alone, None),
            "steps": facts["steps"]
            if facts
            else (capture.steps_marked or None)
            if capture is not None
            else None,
            "unit": facts.get("unit", STEP),
            "step_ms": facts.get("step_ms"),
            "verdict": facts.get("verdict"),
            "device": facts.get("device"),
            "recorded": facts.get("recorded")
            or (capture.started or None if capture is not None else None),
            "known": bool(facts),
            "label": capture.label if capture is not None else "",
            "notebook": capture.notebook if capture is not None else "",
            "times_ms": facts.get("times_ms") or [],
            "spread": facts.get("spread") or [],
            "failed": capture.error if capture is not None and capture.cell_failed else "",
            "notes": [*capture.warnings, *capture.notes] if capture is not None else [],
        }


@dataclass(frozen=True)
class Problem:
    """Something that could not be looked at, and the sentence that says so; `gone` where it is not
    there.
    """

    path: str
    message: str
    gone: bool = False

    def lines(self) -> list[dict[str, Any]]:
        """What is sent of it."""
        return [{"problem": {"path": self.path, "message": self.message, "gone": self.gone}}]


def iso(seconds: float) -> str | None:
    """A time in UTC; None where it is none that a file can have."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None
