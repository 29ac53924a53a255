"""Unfinished recordings: each is in a hidden folder of its logdir, with a file that identifies it.

If its process is killed, the folder remains with the files that the profiler had written by then;
most profilers write only at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRATCH = ".recording-"
"""Prefix of the names of these folders."""
MARK = ".started.json"
_LONGEST = 1 << 16
_SHOWN = "What its profiler had written so far is shown."


@dataclass(frozen=True)
class Unfinished:
    """A recording that is not finished.

    Attributes
    ----------
    folder : Path
    facts : dict
        What the file says: `pid`, `machine`, `started` (in seconds since 1970), `notebook`,
        `display` (the id of the output that shows its status); empty for a recording of an older
        version.
    written : bool
        Whether the profiler has written any file.
    """

    folder: Path
    facts: dict[str, Any] = field(default_factory=dict)
    written: bool = False

    @property
    def running(self) -> bool:
        """True if its process is alive, or may be alive on another machine."""
        pid = self.facts.get("pid")
        if not isinstance(pid, int) or pid <= 0:
            return False
        if not self.is_here:
            return True
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True

    @property
    def is_here(self) -> bool:
        """True if its process is, or was, on this machine: then its number says whether it runs."""
        return self.facts.get("machine") == _machine()

    @property
    def started(self) -> float:
        """Start time in seconds since 1970; 0 if unknown."""
        started = self.facts.get("started")
        return float(started) if isinstance(started, (int, float)) else 0.0

    @property
    def sentence(self) -> str:
        """Its state, for the user."""
        recording = f"The recording{self._when}{self._where}"
        if self.running:
            return (
                f"{recording} is not finished: its process, {self.facts['pid']}, is still running,"
                " and its run appears when it finishes."
            )
        if not self.facts:
            return (
                f"{self.folder.name} is left over from an unfinished recording and contains no"
                " profile."
            )
        how = f"its process, {self.facts['pid']}, ended before the recording did"
        if self.written:
            return f"{recording} was not finished: {how}. {_SHOWN}"
        return (
            f"{recording} was not finished: {how}, before its profiler wrote anything, so there is"
            " nothing to read. With --steps 10:20 a recording is written as soon as these steps"
            " have run."
        )

    @property
    def listed(self) -> str:
        """The same for a list of runs, which cannot open hidden folders; empty while the recording
        may go on.
        """
        if self.running or not self.facts:
            return ""
        return self.sentence.replace(
            _SHOWN, "nbprof.load of its logdir opens what its profiler had written by then."
        )

    @property
    def _when(self) -> str:
        if not self.started:
            return ""
        with contextlib.suppress(ValueError, OverflowError, OSError):
            return time.strftime(" that began on %Y-%m-%d at %H:%M", time.localtime(self.started))
        return ""

    @property
    def _where(self) -> str:
        notebook = self.facts.get("notebook")
        if isinstance(notebook, str) and notebook.isprintable() and notebook:
            return f" in {notebook}"
        return ""


def _machine() -> str:
    """Identifies the process namespace: containers of the same name can have different ones."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def mark(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the process and other facts into the folder of a recording. Never raises."""
    with contextlib.suppress(OSError, TypeError, ValueError):
        process = {"pid": os.getpid(), "machine": _machine(), "started": time.time()}
        (folder / MARK).write_text(json.dumps({**process, **facts}), encoding="utf-8")


def look(folder: Path) -> Unfinished:
    """The recording in a folder whose name begins with `SCRATCH`."""
    facts: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        with (folder / MARK).open(encoding="utf-8") as file:
            read = json.loads(file.read(_LONGEST))
        facts = read if isinstance(read, dict) else {}
    written = False
    with contextlib.suppress(OSError):
        written = any(path.stat().st_size for path in _written_files(folder))
    return Unfinished(folder, facts, written)


def _written_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.name != MARK:
            yield path


def unfinished(logdir: Path) -> list[Unfinished]:
    """The unfinished recordings in a logdir, the oldest first."""
    with contextlib.suppress(OSError):
        recordings = [look(folder) for folder in logdir.glob(f"{SCRATCH}*") if folder.is_dir()]
        return sorted(
            recordings,
            key=lambda recording: (str(recording.facts.get("started", "")), recording.folder.name),
        )
    return []
