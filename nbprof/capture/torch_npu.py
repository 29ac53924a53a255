"""Record an NPU of Ascend with ``torch_npu.profiler``, which replaces PyTorch's profiler there."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nbprof.capture import notes, torch_trace
from nbprof.capture.options import AIC_METRICS, POINTS, Options
from nbprof.capture.torch_steps import Mark
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note, info

MODULE = "torch_npu"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
TRACE = "trace_view.json"

_SAID = re.compile(r"\[(?:W\w*|E\w*)\]\s*(.*)", re.IGNORECASE)
_STAMP = re.compile(r"^(?:\[\d+\]|[\w.]+\.py:|\S*\d{2}:\d{2}:\d{2}\S*)\s*")
_LONGEST = 300
_MOST = 3


def module() -> Any:
    """``torch_npu`` if it is imported already and an NPU can be used; else None."""
    torch_npu = sys.modules.get(MODULE)
    if torch_npu is None:
        return None
    try:
        usable = torch_npu.npu.is_available() and hasattr(torch_npu.profiler, "profile")
    except Exception:
        # It is being imported, or its driver fails, which PyTorch reports when the NPU is used.
        return None
    return torch_npu if usable else None


class NpuProfile:
    """A profile by ``torch_npu.profiler``: begun when it is made.

    It records the thread that begins it, with the backward passes of that thread, and the NPU that
    this thread uses then.

    Parameters
    ----------
    torch_npu : module
    run : Path
        Folder that receives ``<worker>_<time>_ascend_pt``.
    options : Options

    Attributes
    ----------
    notes : list of Note
        On how it was started.

    Raises
    ------
    CaptureError
        It did not begin.
    """

    def __init__(self, torch_npu: Any, run: Path, options: Options) -> None:
        self._run = run
        self.notes = _unsupported(torch_npu.profiler, options)
        if not _in_use(torch_npu):
            self.notes.append(info("npu_not_in_use", remedies.NPU_NOT_IN_USE))
        profiler = torch_npu.profiler
        run.mkdir(parents=True, exist_ok=True)
        with _messages() as messages:
            try:
                kinds = profiler.ProfilerActivity
                self._profile = profiler.profile(
                    activities=[kinds.NPU] if options.host_level == 0 else [kinds.CPU, kinds.NPU],
                    on_trace_ready=profiler.tensorboard_trace_handler(
                        str(run), torch_trace.worker()
                    ),
                    record_shapes=options.shapes,
                    profile_memory=options.memory,
                    with_stack=options.stacks,
                    with_modules=options.python,
                    experimental_config=_experimental(profiler, options),
                )
                self._profile.start()
            except Exception as error:
                raise CaptureError(f"torch_npu's profiler did not start: {error}") from error
        # Its methods print errors and raise nothing.
        if not self._folders():
            raise CaptureError(
                "torch_npu's profiler did not start"
                + "".join(f": {line}" for line in messages[-1:])
            )
        self.notes += notes.torch_npu_messages(messages)

    def end(self, marks: Sequence[Mark]) -> list[Note]:
        """End it, have the data analysed, and add the steps; returns notes for the user.

        Raises
        ------
        CaptureError
            Nothing was written.
        """
        method = multiprocessing.get_start_method(allow_none=True)
        try:
            with _messages() as messages:
                self._profile.stop()
        finally:
            # It analyses in forked processes, and changes the start method of this program for it.
            if multiprocessing.get_start_method(allow_none=True) != method:
                multiprocessing.set_start_method(method, force=True)
        folders = self._folders()
        if not folders or not any(folders[-1].iterdir()):
            raise CaptureError(
                "torch_npu's profiler wrote no file"
                + "".join(f": {line}" for line in messages[-1:])
            )
        about_end = notes.torch_npu_messages(messages)
        traces = [folder / OUTPUT / TRACE for folder in folders]
        if not (folders[-1] / OUTPUT).is_dir():
            text = remedies.NPU_NOT_ANALYSED.format(folder=folders[-1].name)
            about_end.append(info("npu_not_analysed", text))
        elif marks and not any(insert(trace, marks) for trace in traces):
            text = "torch_npu wrote no timeline that steps could be added to"
            about_end.append(info(notes.STEPS_NOT_ADDED, text))
        return about_end

    def _folders(self) -> list[Path]:
        return sorted(self._run.glob("*_ascend_pt"))


def insert(trace: Path, marks: Sequence[Mark]) -> bool:
    """Add steps to ``trace_view.json``, as ``torch_npu.profiler`` marks them.

    Its times are µs of Unix time, as text.

    Returns
    -------
    bool
        False if the file is not a list of events.
    """
    try:
        with trace.open("rb") as source:
            head = source.read(64)
            begin = head.find(b"[")
            if begin < 0 or head[:begin].strip(b"\xef\xbb\xbf \r\n\t"):
                return False
            source.seek(begin + 1)
            is_empty = head[begin + 1 :].lstrip().startswith(b"]")
            part = trace.with_name(f".{trace.name}.part")
            with part.open("wb") as target:
                target.write(b"[" + json.dumps(_step_events(marks))[1:-1].encode())
                if not is_empty:
                    target.write(b", ")
                while piece := source.read(torch_trace.CHUNK):
                    target.write(piece)
        part.replace(trace)
    except OSError:
        return False
    return True


def _step_events(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    process = os.getpid()
    # The process is named once more: a recording without the host has no name of it.
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "Python"}}
    ]
    for mark in marks:
        step = {
            "ph": "X",
            "name": f"ProfilerStep#{mark.number}",
            "pid": process,
            "tid": mark.thread,
            "ts": f"{mark.start // 1000}.{mark.start % 1000:03d}",
            "dur": max(mark.end - mark.start, 0) / 1000,
            "cat": "cpu_op",
            "args": {},
        }
        events.append(step)
    return events


def somebody_records(torch_npu: Any) -> bool:
    """Return whether a ``torch_npu`` profiler of the user's is recording now."""
    kind = getattr(torch_npu.profiler, "profile", None)
    if kind is None:
        return False
    for instance in gc.get_referrers(kind):
        if type(instance) is not kind or getattr(instance, "stopped", True) is not False:
            continue
        action = getattr(getattr(instance, "current_action", None), "name", "")
        if action.startswith("RECORD"):
            return True
    return False


def _in_use(torch_npu: Any) -> bool:
    is_initialized = getattr(torch_npu.npu, "is_initialized", None)
    return is_initialized is None or bool(is_initialized())


def _experimental(profiler: Any, options: Options) -> Any:
    """The options of this version: counters of the AI Cores, tasks with shapes, files of text."""
    levels, metrics = profiler.ProfilerLevel, profiler.AiCMetrics
    arguments = {
        "profiler_level": levels.Level2 if options.host_level == 3 else levels.Level1,
        "aic_metrics": getattr(metrics, options.aic_metrics, metrics.PipeUtilization),
    }
    if hasattr(profiler, "ExportType"):
        arguments["export_type"] = profiler.ExportType.Text
    try:
        return profiler._ExperimentalConfig(**arguments)
    except TypeError:
        arguments.pop("export_type", None)
        return profiler._ExperimentalConfig(**arguments)


def _unsupported(profiler: Any, options: Options) -> list[Note]:
    """Notes on options that ``torch_npu.profiler`` does not have."""
    texts = []
    if options.host_level == 1:
        texts.append(
            "torch_npu's profiler has no --host-level 1: recorded with 2 (0 leaves out the host, 3"
            " adds calls of CANN's runtime)"
        )
    if not hasattr(profiler.AiCMetrics, options.aic_metrics):
        texts.append(
            f"this torch_npu has no counters {options.aic_metrics}: recorded with {AIC_METRICS[0]}"
        )
    points = options.given_for_npu(*POINTS)
    if points:
        texts.append(
            f"torch_npu's profiler uses the program's steps: {' and '.join(points)} had no effect"
        )
    return notes.infos(notes.WITHOUT_EFFECT, texts)


@contextlib.contextmanager
def _messages() -> Iterator[list[str]]:
    """Collect warnings and errors of torch_npu in the block, and drop its other output."""
    lines: list[str] = []
    caught = io.StringIO()
    try:
        with contextlib.redirect_stdout(caught):
            yield lines
    finally:
        for line in caught.getvalue().splitlines():
            match = _SAID.search(line)
            if match:
                text = match[1]
                while text != (text := _STAMP.sub("", text)):
                    pass
                if text and text not in lines:
                    lines.append(text[:_LONGEST])
        del lines[_MOST:]


def stamp() -> str:
    """The name of a run that begins now."""
    return time.strftime("%Y_%m_%d_%H_%M_%S")
