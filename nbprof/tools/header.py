"""The lines above the tabs: name of the run, its facts, and the one notice."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from nbprof.activity.activity import LOST_KERNELS
from nbprof.analysis.steps import step_count
from nbprof.display import wording
from nbprof.tools import register
from nbprof.tools.common import unit_of
from nbprof.tools.parts import Notice
from nbprof.tools.steps import payload as steps

if TYPE_CHECKING:
    from nbprof.core.receipt import Receipt
    from nbprof.run.run import Run
    from nbprof.sources.recording import CaptureInfo

UNFINISHED = "The analysis had not finished when this was written."
"""Shown in a first picture that was never replaced, because the analysis did not end."""
_LOST = "lost during recording"
"""In reasons of the receipt: the recorder had no room for these events."""
_DATED = re.compile(r"\d{4}(_\d\d){5}(_\d+)?(-steps-\d+-\d+)?")
"""Names of the folders of runs by TensorFlow and JAX, and by nbprof."""


def label(run: Run) -> str:
    """The name of the run: that of its folder, or of its file without suffixes; "training [3]" if
    nobody gave it another name.
    """
    return name_of(str(run.source.name or "run"), run.capture)


def name_of(name: str, capture: CaptureInfo | None) -> str:
    """The label that nbprof recorded if the name is only a date, else the name."""
    if capture is not None and capture.label and _DATED.fullmatch(name):
        name = capture.label
    return wording.one_line(name)


def facts(run: Run) -> list[str]:
    """The facts behind the label: steps, length, device, time of day, and the recorded label if the
    file has another name.
    """
    if (alone := register.alone(run)) and alone.facts:
        return [*alone.facts, device(run)]
    result = [_steps(run)]
    if (length := seconds(run)) is not None:
        result.append(wording.duration(length))
    result.append(device(run))
    if clock := re.search(r"\d\d:\d\d(:\d\d)?", created(run)):
        result.append(clock[0])
    if run.capture is not None:
        recorded = wording.one_line(run.capture.label)
        if recorded not in ("", label(run)):
            result.append(recorded)
    return result


def _steps(run: Run) -> str:
    """`24 steps`, or `24 steps of 2,000` where others ran without the profiler."""
    text, capture = step_count.format_count(run.steps, len(run.hosts), unit_of(run)), run.capture
    if capture is None or len(run.hosts) != 1 or capture.steps_marked != len(run.steps):
        return text
    if capture.steps_seen <= capture.steps_marked:
        return text
    return f"{text} of {capture.steps_seen:,}"


def created(run: Run) -> str:
    """Start of the recording in local time, as `2026-11-21 14:02:31`; "" for a file that states no
    date.
    """
    started = ""
    if run.capture is not None:
        started = run.capture.started
    clock = (run.first_answer.get("environment") or {}).get("start_time")
    if not started and clock:
        started = datetime.fromisoformat(str(clock)).astimezone().isoformat()
    return started.replace("T", " ")[:19]


def device(run: Run) -> str:
    """`Tesla T4`, `8 × Tesla V100` or `CPU`."""
    count = len(run.devices)
    if not count:
        if LOST_KERNELS in run.activity.traits:
            return "device not recorded"
        alone = register.alone(run)
        if alone and alone.device:
            return alone.device
        return "CPU"
    kind = wording.one_line(str(run.first_answer.get("device_kind") or "device"))
    if count == 1:
        return kind
    return f"{count} × {kind}"


def seconds(run: Run) -> float | None:
    """The length of the recording: from its start to the end of the last event; of several hosts
    the longest.
    """
    return run.recorded_s


def notice(run: Run) -> Notice | None:
    """The one notice line, the gravest first: failed, partial, no steps."""
    error = ""
    if run.capture is not None:
        error = wording.one_line(run.capture.error).strip()
    if _cell_failed(run):
        return _failed_cell(run, error)
    if error:
        return Notice(
            kind="failed",
            title="The recording differs from what you requested.",
            text=f"{error} Your cell itself finished without an error.",
        )
    read = run.as_read.receipt
    if read.dropped:
        return _partial(read)
    if run.steps.empty and register.alone(run) is None:
        empty = steps.no_steps(run)
        return Notice(kind="no_steps", title=empty.title, text=empty.text, code=empty.code)
    return None


def _failed_cell(run: Run, error: str) -> Notice:
    title = _failure(error)
    if not title.endswith("…"):
        title = f"{title.rstrip('.')}."
    recorded = step_count.format_count(run.steps, len(run.hosts), unit_of(run))
    if run.capture is not None and run.capture.ended_before:
        text = f"The recording had ended before, so the cause is not in it; it has {recorded}."
    elif out_of_memory(run):
        text = _at_the_peak(run)
    else:
        text = f"Recorded up to that point: {recorded}."
    return Notice(kind="partial", title=title, text=text)


def _partial(read: Receipt) -> Notice:
    """The notice of a file of which events were dropped."""
    damaged = sum(count for reason, count in read.skipped.items() if "damaged" in reason)
    if read.dropped == damaged:
        return Notice(
            kind="partial",
            title=f"{wording.plural(read.dropped, 'event')} could not be read.",
            text=(
                "The file is damaged; the numbers cover its intact part. See the receipt for the"
                " location of the damage. Copy the file again, or record again."
            ),
        )
    dropped = wording.plural(
        read.dropped,
        f"of {wording.plural(read.events + read.dropped, 'event')} was dropped.",
        f"of {wording.plural(read.events + read.dropped, 'event')} were dropped.",
    )
    return Notice(
        kind="partial",
        title=dropped,
        text=f"The numbers cover the events that were kept. {_dropped(read.skipped)}",
    )


def _dropped(skipped: dict[str, int]) -> str:
    """The most frequent reason, and a remedy if the recorder had no room."""
    count, reason = max((count, reason) for reason, count in skipped.items())
    text = f"{wording.plural(count, 'event')} {reason}"
    if len(skipped) > 1:
        more = wording.plural(len(skipped) - 1, "more reason")
        text = f"{text.rstrip('.')}, and {more} in the receipt."
    if any(_LOST in reason for reason in skipped):
        text += " Use a larger recorder buffer or a shorter recording to keep more."
    return text


def _failure(error: str) -> str:
    """The cause of the failure of the cell, or of a loop in it, as a sentence without its end."""
    if error.startswith(("cell ", "script ", "process ")):
        return f"The {error}"
    if " was ended by an exception" in error:
        # Of a loop, where the exception itself is not known.
        return f"{error[0].upper()}{error[1:]}"
    if not error:
        return "The cell stopped with an error"
    return f"The cell stopped with an error: {error}"


def _at_the_peak(run: Run) -> str:
    """A hint at the peak of memory for a run that ran out of memory."""
    summary = run.known_memory
    if not len(summary):
        return "Memory ran out, and no allocations had been recorded."
    largest = summary.sort_values("peak_bytes", kind="stable").iloc[-1]
    allocator = wording.one_line(str(largest["memory_id"]))
    return (
        f"Memory ran out. The recorded peak up to that point is"
        f" {wording.size(largest['peak_bytes'])} on {allocator}; the tab Memory shows what was live"
        " at that peak."
    )


def out_of_memory(run: Run) -> bool:
    """True if memory ran out while the cell was recorded."""
    capture = run.capture
    return capture is not None and capture.out_of_memory and not capture.ended_before


def _cell_failed(run: Run) -> bool:
    return run.capture is not None and run.capture.cell_failed
