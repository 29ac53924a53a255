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
    from nbprof.run.run import Run
    from nbprof.sources.recording import CaptureInfo

UNFINISHED = "The analysis had not finished when this was written."
"""What a first picture is to those who find it in a notebook: where the analysis ends, the whole
takes its place.
"""
_LOST = "lost during recording"
"""What the receipt says of events for which the recorder had no room."""
_DATED = re.compile(r"\d{4}(_\d\d){5}(_\d+)?(-steps-\d+-\d+)?")
"""How TensorFlow and JAX, and nbprof after them, name the folder of a run."""


def label(run: Run) -> str:
    """The name of the run: that of its folder, or of its file without suffixes; "training [3]" if
    nobody gave it another name.
    """
    return name_of(str(run.source.name or "run"), run.capture)


def name_of(name: str, capture: CaptureInfo | None) -> str:
    """The label that nbprof recorded if the name is only a date, else the name."""
    recorded = capture.label if capture is not None else ""
    return wording.one_line(recorded if recorded and _DATED.fullmatch(name) else name)


def facts(run: Run) -> list[str]:
    """The facts behind the label: steps, length, device, time of day, and the recorded label if the
    file has another name.
    """
    if (alone := register.alone(run)) and alone.facts:
        return [*alone.facts, device(run)]
    result = [step_count.format_count(run.steps, len(run.hosts), unit_of(run))]
    if (length := seconds(run)) is not None:
        result.append(wording.duration(length))
    result.append(device(run))
    if clock := re.search(r"\d\d:\d\d(:\d\d)?", created(run)):
        result.append(clock[0])
    recorded = wording.one_line(run.capture.label if run.capture is not None else "")
    if recorded not in ("", label(run)):
        result.append(recorded)
    return result


def created(run: Run) -> str:
    """Start of the recording in local time, as `2026-11-21 14:02:31`; "" for a file that states no
    date.
    """
    started = run.capture.started if run.capture is not None else ""
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
        return (alone.device if alone else "") or "CPU"
    kind = wording.one_line(str(run.first_answer.get("device_kind") or "device"))
    return kind if count == 1 else f"{count} × {kind}"


def seconds(run: Run) -> float | None:
    """The length of the recording: from its start to the end of the last event; of several hosts
    the longest.
    """
    return run.recorded_s


def notice(run: Run) -> Notice | None:
    """The one notice line, the gravest first: failed, partial, no steps."""
    error = wording.one_line(run.capture.error if run.capture is not None else "").strip()
    if _cell_failed(run):
        seen = step_count.format_count(run.steps, len(run.hosts), unit_of(run))
        title = _said(error)
        return Notice(
            kind="partial",
            title=title if title.endswith("…") else f"{title.rstrip('.')}.",
            text=(
                f"The dashboard shows what was recorded up to that point: {seen}."
                if not out_of_memory(run)
                else _at_the_peak(run)
            ),
        )
    if error:
        return Notice(
            kind="failed",
            title="The recording differs from what you requested.",
            text=f"{error} Your cell itself finished without an error.",
        )
    read = run.as_read.receipt
    if read.dropped and read.dropped == sum(
        count for why, count in read.skipped.items() if "damaged" in why
    ):
        return Notice(
            kind="partial",
            title=f"{wording.plural(read.dropped, 'event')} could not be read.",
            text=(
                "The file is damaged; the numbers cover its intact part. See the receipt for the"
                " location of the damage. Copy the file again, or record again."
            ),
        )
    if read.dropped:
        return Notice(
            kind="partial",
            title=(
                f"{read.dropped:,} of {wording.plural(read.events + read.dropped, 'event')}"
                f" {'was' if read.dropped == 1 else 'were'} dropped."
            ),
            text=f"The numbers cover the events that were kept. {_dropped(read.skipped)}",
        )
    if run.steps.empty and register.alone(run) is None:
        empty = steps.no_steps(run)
        return Notice(kind="no_steps", title=empty.title, text=empty.text, code=empty.code)
    return None


def _dropped(skipped: dict[str, int]) -> str:
    """Why events were left out, most of them first, and what helps against it; only the recorder
    can lose them for want of room.
    """
    count, reason = max((count, reason) for reason, count in skipped.items())
    text = f"{wording.plural(count, 'event')} {reason}"
    if len(skipped) > 1:
        text = (
            f"{text.rstrip('.')}, and {wording.plural(len(skipped) - 1, 'more reason')} in the"
            " receipt."
        )
    lost = any(_LOST in why for why in skipped)
    return (
        f"{text} Use a larger recorder buffer or a shorter recording to keep more."
        if lost
        else text
    )


def _said(error: str) -> str:
    """The cause of the failure of the cell, or of a loop in it, as a sentence without its end."""
    if error.startswith("cell "):
        return f"The {error}"
    if " was ended by an exception" in error:
        # Of a loop, where the exception itself is not known.
        return f"{error[0].upper()}{error[1:]}"
    return "The cell stopped with an error" + (f": {error}" if error else "")


def _at_the_peak(run: Run) -> str:
    """A hint at the peak of memory for a run that ran out of memory."""
    summary = run.known_memory
    if not len(summary):
        return "Memory ran out, and no allocations had been recorded."
    largest = summary.sort_values("peak_bytes", kind="stable").iloc[-1]
    peak, allocator = (
        wording.size(largest["peak_bytes"]),
        wording.one_line(str(largest["memory_id"])),
    )
    return (
        f"Memory ran out. The recorded peak up to that point is {peak} on {allocator}; the tab"
        " Memory shows what was live at that peak."
    )


def out_of_memory(run: Run) -> bool:
    """True if memory ran out in the cell."""
    return run.capture is not None and run.capture.out_of_memory


def _cell_failed(run: Run) -> bool:
    return run.capture is not None and run.capture.cell_failed
