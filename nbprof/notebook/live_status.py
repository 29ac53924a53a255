"""The live status: what a profiled cell is doing, shown in its output while it runs, and the button
that stops the recording.

A thread of its own looks at the recording and writes one output over and over. JupyterLab draws it
with nbprof's extension and sends the button back over a comm, which it answers beside the running
cell; other front ends show the same as a line of text.
"""

from __future__ import annotations

import contextlib
import contextvars
import html
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nbprof.capture.detect import either
from nbprof.capture.meters import Meters, Reading
from nbprof.capture.pace import Pace
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.capture.session import Session

MIME_TYPE = "application/vnd.nbprof.strip.v1+json"
TARGET = "nbprof-strip"
"""The comm target of the button. It has a separate name so that no request about a trace is
answered first.
"""

PRESSED = "Stop and analyse was pressed"

_METERS_S = 1.0
"""How often the process and its GPUs are read: often enough to follow them, at a tenth of the cost
of drawing.
"""

_MOST_FAULTS = 3


class Place(Protocol):
    """Where the strip is shown."""

    def draw(self, data: dict[str, Any]) -> None:
        """Show a mime bundle in place of the one before, from any thread."""

    def move(self, text: str) -> None:
        """Leave a line of text there; what is shown next comes last among the outputs."""


@dataclass(frozen=True)
class Item:
    """One item of the live status.

    Parameters
    ----------
    text : str
        As part of a line of text, such as ``12.4 ms per step``.
    name, value : str
        The same in two parts, as ``step time`` and ``12.4 ms``.
    share : float or None
        0 to 1, where there is a bar for it.
    about : str
        What it means, in a sentence.
    """

    text: str
    name: str
    value: str
    share: float | None = None
    about: str = ""

    def packed(self) -> dict[str, Any]:
        """As the page gets it."""
        share = {} if self.share is None else {"share": round(self.share, 3)}
        return {"name": self.name, "value": self.value, "about": self.about, **share}


def phase(session: Session, stopping: bool = False) -> tuple[str, str]:
    """What the recording does: ``wait``, ``record``, ``end`` or ``over``, and that in words."""
    windows, clock = session.windows, session.clock
    if windows.recording:
        return (
            ("end", "ending the recording after this step") if stopping else ("record", "recording")
        )
    failed = bool(session.failure or windows.failure)
    if windows.recordings and windows.over:
        window = windows.recordings[-1].info.window
        if not window:
            return "over", "recorded; the cell continues"
        steps = (
            f"step {window[0]:,}"
            if window[0] == window[1]
            else f"steps {window[0]:,} to {window[1]:,}"
        )
        return "over", f"recorded {steps}; the cell continues"
    if failed:
        return "over", "not recording; the cell continues"
    if windows.over:
        return "end", "writing the recording"
    if windows.backend is None:
        return "wait", f"waiting for {either(session.awaited, 'or')}"
    if windows.options.steps is not None:
        unit = "batch" if clock.batches_of else "step"
        return "wait", f"waiting for {unit} {clock.first:,}"
    return "wait", "waiting"


def items(session: Session, pace: Pace, reading: Reading, elapsed: float) -> list[Item]:
    """What the live status says besides the phase; unknown values are omitted."""
    clock = session.clock
    said = []
    if clock.seen:
        said.append(
            Item(
                f"step {clock.seen:,}",
                "step",
                f"{clock.seen:,}",
                about="Steps completed in this cell.",
            )
        )
    if (ms := pace.step_ms()) is not None:
        value = wording.millis(ms)
        said.append(
            Item(f"{value} per step", "step time", value, about="The median of the recent steps.")
        )
    if (waiting := pace.waiting_share()) is not None:
        value = "now" if pace.waits_now() else f"{waiting:.0%}".replace("%", " %")
        text = "waiting for input" if value == "now" else f"{value} waiting for input"
        about = "Share of recent step time spent waiting for the next batch."
        said.append(Item(text, "input", value, 1.0 if value == "now" else waiting, about))
    if reading.cpu is not None:
        cores = os.cpu_count() or 1
        value = f"{reading.cpu * 100:.0f} %"
        said.append(
            Item(
                f"CPU {value}", "CPU", value, about=f"This process; 100 % is one of {cores} cores."
            )
        )
    if reading.memory is not None:
        value = wording.size(reading.memory)
        said.append(
            Item(f"{value} memory", "memory", value, about="Resident memory of this process.")
        )
    if (gpu := reading.gpu) is not None:
        name = "GPU" if gpu.count == 1 else f"{gpu.count} GPUs"
        memory = f"{wording.size(gpu.used)} of {wording.size(gpu.total)}"
        value = memory if gpu.busy is None else f"{gpu.busy * 100:.0f} %, {memory}"
        about = "Share of time with a kernel running, and memory in use, from NVML" + (
            ": of all of them together." if gpu.count > 1 else "."
        )
        said.append(Item(f"{name} {value}", name, value, about=about))
    if (full := session.windows.full) is not None:
        value = f"{full:.0%}".replace("%", " %")
        about = (
            "Growth of the process during the recording, as a share of --limit; at 100 % the"
            " recording ends."
        )
        said.append(Item(f"buffer {value} full", "buffer", value, min(full, 1.0), about))
    value = wording.duration(elapsed)
    said.append(Item(value, "", value, about="Since the cell started."))
    return said


def line(head: str, said: list[Item]) -> str:
    """All of it as one line."""
    return " · ".join(["nbprof: " + head, *(item.text for item in said)])


_STYLE = "font-size:12px;line-height:20px;opacity:.75;font-variant-numeric:tabular-nums"


def bundle(ident: str, kind: str, head: str, said: list[Item], *, stops: bool) -> dict[str, Any]:
    """The output as front ends take it: for nbprof's extension of JupyterLab, as HTML without
    script, as text.
    """
    text = line(head, said)
    return {
        MIME_TYPE: {
            "v": 1,
            "id": ident,
            "kind": kind,
            "head": head,
            "items": [item.packed() for item in said],
            "stops": stops,
            "text": text,
        },
        "text/html": f'<div style="{_STYLE}">{html.escape(text)}</div>',
        "text/plain": text,
    }


class Strip:
    """Shows a recording until it is told to end. Nothing here raises, and the cell waits for
    nothing here.

    Parameters
    ----------
    session : Session
        The recording; one that has failed to start has nothing to show.
    place : Place
        Where to show it.
    meters, now : optional
        For tests.
    """

    def __init__(
        self,
        session: Session,
        place: Place,
        meters: Meters | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ident = uuid.uuid4().hex
        self._session = session
        self._place = place
        self._now = now
        self._meters = meters
        self._reading = Reading()
        self._read = float("-inf")
        self._painted = float("-inf")
        self._last: dict[str, Any] = {}
        self.pace = Pace(session.clock.waits)
        self._began = now()
        self._over = threading.Event()
        self._stopping = False
        self._stage: str | None = None
        self._faults = 0
        # Held while something is shown: nothing is after `end`.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.cpu_s = 0.0
        """CPU time of the thread."""

    def begin(self) -> None:
        """Show the first of it, on the thread of the cell, and go on from a thread of its own."""
        try:
            self._began = self._now()
            self._meters = self._meters or Meters()
            _running[self.ident] = self
            self.paint()
            # The kernel keeps in the context whose output it is.
            context = contextvars.copy_context()
            thread = threading.Thread(
                target=context.run, args=(self._run,), name="nbprof-strip", daemon=True
            )
            # There may be no threads, as in a browser's Python: then it is painted when a step
            # ends.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        except Exception as error:
            self._trouble(error)

    def last_line(self) -> str:
        """What is left of it once the cell has ended."""
        steps, took = self._session.clock.seen, wording.duration(self._now() - self._began)
        return (
            f"nbprof: the cell ran {wording.plural(steps, 'step')} in {took}"
            if steps
            else f"nbprof: the cell ran for {took}"
        )

    def say(self, stage: str) -> None:
        """The cell has ended: show what nbprof does now, below what the cell has shown, from the
        next picture on.
        """
        if self._stage is not None:
            self._stage = stage
            return
        with self._lock:
            self._place.move(self.last_line())
            self._began, self._stage = self._now(), stage
        self.paint()

    def stepped(self) -> None:
        """A step has ended, on the thread that calls this."""
        self.pace.stepped()
        if (
            self._thread is None
            and not self._over.is_set()
            and self._now() - self._painted >= self.period
        ):
            self.paint()

    def end(self) -> None:
        """Show nothing any more."""
        self._over.set()
        _running.pop(self.ident, None)
        if os.getpid() != self._pid:
            # A forked process has neither the thread nor, maybe, the lock in a usable state.
            return
        thread = self._thread
        # A front end that takes no message must not keep the cell from ending.
        if self._lock.acquire(timeout=2):
            self._lock.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    @property
    def stops(self) -> bool:
        """Whether there is a recording to end."""
        windows = self._session.windows
        return (
            self._stage is None
            and not self._stopping
            and not windows.over
            and (windows.recording or bool(windows.recordings))
        )

    def stop(self) -> bool:
        """End the recording, at the end of the step that runs, and not the cell. Returns at once;
        False where there is none to end.
        """
        if not self.stops:
            return False
        self._stopping = True
        # It waits for the step, and then writes files.
        threading.Thread(target=self._end_recording, name="nbprof-stop", daemon=True).start()
        return True

    def _end_recording(self) -> None:
        try:
            self._session.windows.end_soon(PRESSED)
        except Exception as error:
            self._session.windows.notes.append(
                f"Stop and analyse had no effect: {type(error).__name__}: {error}"
            )

    @property
    def period(self) -> float:
        """Seconds between two pictures: a quarter first, and a whole one in a long run, where
        nobody counts along.
        """
        options = self._session.options
        # Where every Python call is recorded, those of this thread are too.
        return 1.0 if self._now() - self._began > 60 or options.python or options.stacks else 0.25

    def paint(self) -> None:
        """Show how things stand."""
        with self._lock:
            if self._over.is_set():
                return
            try:
                self._paint()
            except Exception as error:
                self._trouble(error)

    def _paint(self) -> None:
        now = self._now()
        self._painted = now
        if self._meters is not None and now - self._read >= _METERS_S:
            self._read = now
            self._reading = self._meters.read()
        session = self._session
        if self._stage is None:
            kind, head = phase(session, self._stopping)
            said = items(session, self.pace, self._reading, now - self._began)
        else:
            value = wording.duration(now - self._began)
            kind, head, said = (
                "end",
                self._stage,
                [Item(value, "", value, about="Since the cell ended.")],
            )
        data = bundle(self.ident, kind, head, said, stops=self.stops)
        if data != self._last:
            self._last = data
            self._place.draw(data)

    def _run(self) -> None:
        try:
            # A recording that ended by itself, as when another one began, has nothing more to say
            # than the cell's end does.
            while not self._over.wait(self.period) and not self._session.superseded:
                self.paint()
                self.cpu_s = time.thread_time()
        finally:
            self.cpu_s = time.thread_time()
            if self._meters is not None:
                with contextlib.suppress(Exception):
                    self._meters.close()

    def _trouble(self, error: Exception) -> None:
        self._faults += 1
        if self._faults == _MOST_FAULTS:
            self._over.set()
        if self._faults == 1:
            self._session.windows.notes.append(
                f"the live status was not shown correctly: {type(error).__name__}: {error}"
            )


_running: dict[str, Strip] = {}


def listen(shell: Any) -> None:
    """Let pages reach the strips of this kernel."""
    with contextlib.suppress(Exception):
        manager = shell.kernel.comm_manager
        if TARGET not in manager.targets:
            manager.register_target(TARGET, open_comm)


def open_comm(comm: Any, message: Any) -> None:
    """A page that shows a strip asks for its button. It gets it by the answer, while the strip is
    there.

    In JupyterLab 4.4 and later this runs on a thread of its own while the cell runs.
    """
    ident = _ident(message)

    def received(message: Any) -> None:
        # What is raised here the kernel prints below the cell that runs.
        with contextlib.suppress(Exception):
            data = message["content"]["data"]
            if isinstance(data, dict) and data.get("ask") == "stop":
                # Looked up each time: a page that is gone closes nothing, and must not keep what
                # was recorded.
                strip = _running.get(ident)
                comm.send({"stopping": strip is not None and strip.stop()})

    with contextlib.suppress(Exception):
        if ident not in _running:
            comm.close()
            return
        comm.on_msg(received)
        comm.send({"ready": True})


def _ident(message: Any) -> str:
    data = message["content"].get("data")
    ident = data.get("id") if isinstance(data, dict) else None
    return ident if isinstance(ident, str) else ""
