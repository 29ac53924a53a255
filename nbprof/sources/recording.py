"""The result of a recording: a run folder, and information about how it was recorded."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from nbprof.activity.given_peaks import checked
from nbprof.core import remedies
from nbprof.core.errors import NbprofError
from nbprof.core.files import SourceFile
from nbprof.core.receipt import Level, Note, info
from nbprof.core.sidecar import (
    ALLOCATIONS_NOT_RECORDED,
    BATCHES_OF_KERAS,
    KERAS_STEPS,
    SIDECAR,
    of_rank,
)
from nbprof.sources.upload import Upload
from nbprof.sources.urls import public_url

_MOST_BYTES = 1 << 22
COSTLY = ("host_level", "memory", "python", "shapes", "stacks")
"""Options that lengthen recorded steps."""
SCRIPT = "script"
"""`CaptureInfo.by` of a program that `nbprof run` recorded."""
PROCESS = "process"
"""A process that a recorded program started, in sentences."""
RECORDED_EARLIER = "recorded_earlier"
"""Key of the notes of recorders that wrote only texts."""


class RankEnd(NamedTuple):
    """The end of a rank of a job.

    Attributes
    ----------
    rank : int
    error : str
        How it failed; "" if it did not.
    recorded : bool
        True if it has a file in the run.
    ended : float
        Unix time, in seconds; 0 while it runs.
    killed : bool
        True if it ended without a chance to say so itself.
    """

    rank: int
    error: str
    recorded: bool
    ended: float
    killed: bool = False


_OF_PROCESS = (
    "boundaries",
    "cells",
    "compiles",
    "contention",
    "host_memory",
    "lines",
    "loaders",
    "loops",
    "pools",
    "python",
    "step_times",
    "unrecorded",
)
"""What is of one process, so that it holds for no other rank of its job."""


@dataclass
class CaptureInfo:
    """Information about a recording; ``run.capture`` of a profile that was recorded by nbprof.

    Parameters
    ----------
    backend : str
        ``tensorflow``, ``jax``, ``torch`` or ``python``.
    framework : str
        Its versions, as ``TensorFlow 2.21.0, Keras 3.15.1`` or ``Python 3.11.7, NumPy 2.4.6``.
    started : str
        When, in ISO form with the time zone.
    elapsed_s : float
        How long the cell ran while it was recorded.
    cell_s : float
        How long the cell ran, recorded or not.
    ended_before : bool
        True if the recording had ended before the cell did.
    steps_seen : int
        Steps that ended, whether recorded or not.
    steps_marked : int
        Steps that carry a marker in the trace.
    cell_failed : bool
        True if the cell ended with an exception or was interrupted.
    error : str
        Then what happened and in which step, as ``cell failed in step 3, after 2 complete steps:
        ValueError: ...``.
    failed_at_step : int or None
        The step that was running then.
    notes : list of Note
        Facts for the receipt.
    warnings : list of Note
        What makes the figures less reliable than was asked for, such as a missing worker.
    label : str
        ``training [3]``, by notebook and cell; else ``run 7``: recordings are counted in each
        kernel.
    notebook : str
        File name of the notebook whose cell was recorded, where known.
    precision : str
        The dtype policy of Keras, where known.
    batch : str
        The batch size, where known.
    options : dict
        What was asked for.
    out_of_memory : bool
        True if the cell failed because memory could not be had.
    window : list of int
        First and last recorded step, counted from 1; empty where none was marked.
    group : str
        Not empty: runs with the same text are windows of one cell (``--every``).
    contention : dict
        What other processes took of the cores meanwhile, as `nbprof.capture.contention` measured
        it: `cores`, `own_cores`, `other_cores`, `waited_percent`; empty where it is not known.
    probe : dict
        What a second run without input gave (``--probe``): the sentences `text` and `detail`, and
        `measured_ms` and `predicted_ms` of a step, which may be None, and whether other processes
        `slowed` it; empty where there was none.
    tried : dict
        What experiments gave (``--try``): `text`, a sentence, and `rows`, the rows of `p.tried` as
        `nbprof.capture.experiments.engine.Tried` has them; empty where there were none.
    cells : dict
        Execution counts of the notebook's cells, by the stems of the files that stand for them in
        Python calls.
    lines : dict
        Which line of the cells ran when, as `nbprof.core.line_times` packs it; empty without
        ``--stacks`` or ``--python``.
    loops : dict
        When the iterations of the cell's loops ran, as `nbprof.core.loop_times` packs it; empty
        where no loop of a cell ran.
    python : dict
        Sampled Python stacks, as `nbprof.core.python_samples` packs them; empty with
        ``--no-sampling``.
    boundaries : list of dict
        Where in the loop epochs begin and evaluations ran that are no steps: `before` (the number
        of the next step), `kind` (``epoch`` or ``evaluation``) and, of an evaluation, its `batches`
        and `ms`.
    step_times : dict
        When each step of the cell ran, recorded or not, as `nbprof.core.step_times` packs it; empty
        where none was marked.
    loaders : dict
        What the program asked for its batches, as `nbprof.core.loader_uses` packs it; empty where
        it asked no loader that is known.
    workers : dict
        What happened in the workers of its loaders, as `nbprof.core.worker_times` packs it; empty
        where none reported.
    pools : dict
        What happened in the workers of process pools, as `nbprof.core.pool_times` packs it; empty
        where no task was sent to one.
    compiles : dict
        What was compiled in the cell, as `nbprof.core.compile_times` packs it; empty where nothing
        was.
    host_memory : dict
        Host memory of the process and its children over the cell, as `nbprof.core.host_memory`
        packs it; empty where it was not sampled.
    settings : dict
        Settings of the frameworks that advice names, as `nbprof.capture.settings` reads them.
    by : str
        ``cell`` of a notebook, ``block`` of a program or whole ``script``; empty where another
        recorder, or an earlier nbprof, wrote it.
    unrecorded : list of str
        What the framework ran that is not in the recording, as on other threads.
    machine : dict
        What bears on step times: `cpu`, `cores`, `python`, `driver`; empty where another machine
        recorded.
    ranks : list of dict
        Of a job of several processes that `nbprof run` recorded, how each of them ended, as
        `RankEnd` has it; empty otherwise.
    processes : int
        The number of its processes; 0 otherwise.
    """

    backend: str = ""
    framework: str = ""
    started: str = ""
    elapsed_s: float = 0.0
    steps_seen: int = 0
    steps_marked: int = 0
    cell_failed: bool = False
    error: str = ""
    failed_at_step: int | None = None
    notes: list[Note] = field(default_factory=list)
    label: str = ""
    notebook: str = ""
    precision: str = ""
    batch: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    out_of_memory: bool = False
    window: list[int] = field(default_factory=list)
    group: str = ""
    warnings: list[Note] = field(default_factory=list)
    contention: dict[str, float] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    tried: dict[str, Any] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)
    lines: dict[str, Any] = field(default_factory=dict)
    loops: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    unrecorded: list[str] = field(default_factory=list)
    boundaries: list[dict[str, Any]] = field(default_factory=list)
    by: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    loaders: dict[str, Any] = field(default_factory=dict)
    workers: dict[str, Any] = field(default_factory=dict)
    pools: dict[str, Any] = field(default_factory=dict)
    compiles: dict[str, Any] = field(default_factory=dict)
    host_memory: dict[str, Any] = field(default_factory=dict)
    step_times: dict[str, Any] = field(default_factory=dict)
    cell_s: float = 0.0
    ended_before: bool = False
    ranks: list[dict[str, Any]] = field(default_factory=list)
    processes: int = 0

    def of_any_rank(self) -> CaptureInfo:
        """The facts that hold for all ranks of the job."""
        empty = CaptureInfo()
        return replace(self, **{name: getattr(empty, name) for name in _OF_PROCESS})

    def note_failures(self) -> None:
        """Let the first rank that failed be the failure of the job."""
        failed = [row for row in self.ranks if row["error"]]
        self.cell_failed, self.error = bool(failed), ""
        if failed:
            first = min(failed, key=lambda row: float(row["ended"]))
            unit, _, how = first["error"].partition(" ")
            self.error = f"{unit} of rank {first['rank']} {how}"

    @property
    def costly_options(self) -> dict[str, str]:
        """The options that lengthen recorded steps, as text."""
        return {name: str(self.options[name]) for name in COSTLY if name in self.options}

    @property
    def warmup(self) -> int | None:
        """Number of first steps that are warm-up, if the option was given."""
        value = self.options.get("warmup")
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return None

    @property
    def peaks(self) -> dict[str, float]:
        """Peaks of the device that were given, if they are valid."""
        value = self.options.get("peaks")
        if not isinstance(value, dict):
            return {}
        try:
            return checked(value)
        except NbprofError:
            return {}

    @property
    def of_keras(self) -> bool:
        """True if the steps are batches of Keras, which runs the loop, on any backend."""
        return self.has_note(KERAS_STEPS)

    def has_note(self, key: str) -> bool:
        """Return whether one of the notes has this key."""
        return any(note.key == key for note in self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        # Not `asdict`, which copies every sample of a Python stack.
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("notes", "warnings"):
            values[name] = [{"key": note.key, "text": note.text} for note in getattr(self, name)]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CaptureInfo:
        """Return the info that `values` describe; unknown keys and values of a wrong type are left
        out.
        """
        empty = {**asdict(cls()), "failed_at_step": 0}
        fit: dict[str, Any] = {}
        for key in values.keys() & empty.keys():
            kind = type(empty[key])
            if isinstance(values[key], kind) or (kind is float and isinstance(values[key], int)):
                fit[key] = values[key]
        fit["notes"] = _notes(fit.get("notes", []), "info")
        fit["warnings"] = _notes(fit.get("warnings", []), "warning")
        fit["unrecorded"] = [text for text in fit.get("unrecorded", []) if isinstance(text, str)]
        contention = _of_kind(fit.get("contention", {}), (int, float))
        fit["contention"] = {k: float(v) for k, v in contention.items() if math.isfinite(v)}
        fit["probe"] = _probe(fit.get("probe", {}))
        fit["tried"] = _tried(fit.get("tried", {}))
        fit["cells"] = _of_kind(fit.get("cells", {}), int)
        fit["boundaries"] = list(filter(_is_boundary, fit.get("boundaries", [])))
        if fit.get("processes", 0) < 0:
            fit["processes"] = 0
        for key in ("machine", "settings"):
            fit[key] = _of_kind(fit.get(key, {}), str)
        fit["ranks"] = list(filter(_is_rank, fit.get("ranks", [])))
        window = fit.get("window", [])
        if len(window) != 2 or not all(isinstance(step, int) for step in window):
            fit["window"] = []
        return cls(**fit)

    @classmethod
    def of(cls, sidecar: SourceFile | None) -> CaptureInfo | None:
        """Return the content of a sidecar; None if there is none or it is invalid."""
        if sidecar is None:
            return None
        try:
            values = json.loads(sidecar.head(_MOST_BYTES))
        except (NbprofError, ValueError, RecursionError):
            return None
        return cls.from_dict(values) if isinstance(values, dict) else None

    @classmethod
    def read(cls, folder: Path, rank: int | None = None) -> CaptureInfo | None:
        """Return the content of the sidecar in a run folder, or of that of one rank; None if there
        is none.
        """
        name = SIDECAR if rank is None else of_rank(rank)
        try:
            values = json.loads((Path(folder) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cls.from_dict(values) if isinstance(values, dict) else None


def _notes(values: list[Any], level: Level) -> list[Note]:
    """Notes as stored: objects, or only texts in recordings of earlier versions."""
    notes = []
    for value in values:
        if isinstance(value, str):
            value = {"key": _key_of_earlier(value), "text": value}
        if not isinstance(value, dict):
            continue
        key, text = value.get("key"), value.get("text")
        if isinstance(key, str) and isinstance(text, str):
            notes.append(Note(level, text, key or RECORDED_EARLIER))
    return notes


def _key_of_earlier(text: str) -> str:
    """The key of a note of an earlier version: of the two that tables depend on, its own."""
    if text.startswith("steps: ") and text.endswith(BATCHES_OF_KERAS):
        return KERAS_STEPS
    if text == remedies.ALL_THREADS:
        return ALLOCATIONS_NOT_RECORDED
    return RECORDED_EARLIER


def _of_kind(values: dict[Any, Any], kind: type | tuple[type, ...]) -> dict[str, Any]:
    """The values of a type by name; a bool is no number."""
    result = {}
    for name, value in values.items():
        if isinstance(value, kind) and not isinstance(value, bool):
            result[str(name)] = value
    return result


_OF_PROBE: dict[str, Any] = {
    "text": str,
    "detail": str,
    "measured_ms": (float, type(None)),
    "predicted_ms": (float, type(None)),
    "slowed": bool,
}


def _probe(values: dict[str, Any]) -> dict[str, Any]:
    # Older recordings do not have `slowed`.
    probe = {"slowed": False, **values}
    if probe.keys() != _OF_PROBE.keys():
        return {}
    for name, kind in _OF_PROBE.items():
        if not isinstance(probe[name], kind):
            return {}
    return probe


def _tried(values: dict[str, Any]) -> dict[str, Any]:
    text, rows = values.get("text"), values.get("rows")
    if not isinstance(text, str) or not isinstance(rows, list):
        return {}
    return {"text": text, "rows": [row for row in rows if isinstance(row, dict)]}


_OF_BOUNDARY: dict[str, Any] = {"before": int, "kind": str, "batches": int, "ms": (int, float)}


def _is_boundary(values: object) -> bool:
    if not isinstance(values, dict) or values.keys() != _OF_BOUNDARY.keys():
        return False
    fits = all(
        isinstance(values[key], kind) and not isinstance(values[key], bool)
        for key, kind in _OF_BOUNDARY.items()
    )
    return fits and values["before"] >= 0 and values["batches"] >= 0 and math.isfinite(values["ms"])


def _is_rank(values: object) -> bool:
    if not isinstance(values, dict) or values.keys() != set(RankEnd._fields):
        return False
    kinds: dict[str, Any] = {
        "rank": int,
        "error": str,
        "recorded": bool,
        "ended": (int, float),
        "killed": bool,
    }
    fits = all(isinstance(values[name], kind) for name, kind in kinds.items())
    return fits and values["rank"] >= 0 and math.isfinite(values["ended"])


@dataclass
class Recording:
    """A finished recording: the location of its files and how it was recorded.

    Parameters
    ----------
    path : Path
        The run folder, ``<logdir>/plugins/profile/<run>``.
    info : CaptureInfo
        How it was made.
    temporary : Path or None
        The folder that is removed with the profile, if it should not be saved.
    others : list of Recording
        The other windows of the same cell (``--every``), in time order.
    upload : Upload or None
        Copies it to the URL that the logdir is, each time it is written.
    rank : int or None
        The rank of this process, if others of its job record into the same folder.
    """

    path: Path
    info: CaptureInfo
    temporary: Path | None = None
    others: list[Recording] = field(default_factory=list)
    upload: Upload | None = None
    rank: int | None = None

    @property
    def url(self) -> str:
        """The URL that it was copied to, without secrets; "" if it was not copied."""
        return self.upload.url_of(self.path) if self.upload is not None else ""

    @property
    def host_file(self) -> Path:
        """The trace file of this host."""
        # Imported late, because it imports numpy, which a recorded cell may not use.
        from nbprof.formats.register import FORMATS

        for form in FORMATS:
            if form.names is None:
                continue
            files = [file for file in self.path.glob("*") if form.names.search(file.name)]
            if files:
                return min(files)
        return self.path

    @property
    def partial(self) -> bool:
        """True if the cell did not finish."""
        return self.info.cell_failed

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "path": str(self.path),
            "host_file": str(self.host_file),
            "temporary": self.temporary is not None,
            **self.info.to_dict(),
        }

    def keep(self) -> None:
        """Write the info, if it can be written."""
        with contextlib.suppress(OSError):
            self.write()

    def write(self) -> None:
        """Write the info next to the trace files."""
        values = self.info.to_dict()
        # A line for each entry. With `indent`, json takes ten times as long.
        entries = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
        text = "{\n " + ",\n ".join(entries) + "\n}"
        name = SIDECAR if self.rank is None else of_rank(self.rank)
        (self.path / name).write_text(text, encoding="utf-8")
        if self.upload is not None:
            self.upload.put(self.path)

    def note_upload(self) -> None:
        """Add a note with the URL; if copying failed, keep the files and note the reason."""
        if self.upload is None:
            return
        if self.url:
            self.info.notes.append(info("run_uploaded", f"the run is in {self.url}"))
            return
        self.temporary = None
        text = (
            f"the run could not be copied to {public_url(self.upload.url)}"
            f" ({self.upload.trouble}); it is in {self.path}"
        )
        self.info.notes.append(info("run_not_uploaded", text))


def windows_of(folder: Path, info: CaptureInfo) -> list[tuple[Path, CaptureInfo]]:
    """The runs that are windows of the same cell as `folder`, in the order of their steps."""
    if not info.group:
        return [(folder, info)]
    windows = []
    for sidecar in folder.parent.glob(f"*/{SIDECAR}"):
        other = info if sidecar.parent == folder else CaptureInfo.read(sidecar.parent)
        if other is not None and other.group == info.group:
            windows.append((sidecar.parent, other))
    return sorted(windows, key=lambda each: (each[1].window or [2**62], each[0].name))
