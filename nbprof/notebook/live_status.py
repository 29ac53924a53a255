"""The live status of a profiled cell, in its output, with the button that stops the recording.

A thread reads the state of the recording and updates one output. JupyterLab draws it with nbprof's
extension and sends the button over a comm, which is answered while the cell runs; other front ends
show the same as a line of text.
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

from nbprof.capture.meters import Gpu, Meters, Reading
from nbprof.capture.pace import Pace
from nbprof.core.receipt import info
from nbprof.display import wording

if TYPE_CHECKING:
    from nbprof.capture.session import Session

MIME_TYPE = "application/vnd.nbprof.strip.v1+json"
TARGET = "nbprof-strip"
"""The comm target of the button, separate from that of traces so that it is answered first."""

PRESSED = "Stop and analyse was pressed"

_METERS_S = 1.0
"""Seconds between readings of the process and its GPUs, at a tenth of the cost of drawing."""

_MAX_FAULTS = 3


class Output(Protocol):
    """The output that shows the strip."""

    def draw(self, data: dict[str, Any]) -> None:
        """Show a mime bundle in place of the previous one, from any thread."""

    def move(self, text: str) -> None:
        """Replace it with a line of text, and show the next bundle below all other outputs."""


@dataclass(frozen=True)
class Item:
    """One item of the live status.

    Parameters
    ----------
    text : str
        As part of a line of text, such as ``12.4 ms per step``.
    name, value : str
        The same in two parts, such as ``step time`` and ``12.4 ms``.
    share : float or None
        0 to 1, if it has a bar.
    about : str
        Its meaning, in a sentence.
    """

    text: str
    name: str
    value: str
    share: float | None = None
    about: str = ""

    def packed(self) -> dict[str, Any]:
        """As JSON for the page."""
        packed: dict[str, Any] = {"name": self.name, "value": self.value, "about": self.about}
        if self.share is not None:
            packed["share"] = round(self.share, 3)
        return packed


def phase(session: Session, stopping: bool = False) -> tuple[str, str]:
    """The phase of the recording: ``wait``, ``record``, ``end`` or ``over``, and that in words."""
    windows, clock = session.windows, session.clock
    if windows.recording:
        if stopping:
            return "end", "ending the recording after this step"
        return "record", "recording"
    if windows.recordings and windows.over:
        window = windows.recordings[-1].info.window
        if not window:
            return "over", "recorded; the cell continues"
        first, last = window
        steps = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
        return "over", f"recorded {steps}; the rest runs without the profiler"
    if session.failure or windows.failure:
        return "over", "not recording; the cell continues"
    if windows.over:
        return "end", "writing the recording"
    if windows.backend is None:
        return "wait", f"waiting for {wording.listed(session.awaited, 'or')}"
    if windows.options.window is not None:
        unit = "batch" if clock.batches_of else "step"
        return "wait", f"waiting for {unit} {clock.first:,}"
    return "wait", "waiting"


def items(session: Session, pace: Pace, reading: Reading, elapsed: float) -> list[Item]:
    """The items of the live status besides the phase; unknown values are omitted."""
    items = [
        _step_count(session.clock.seen),
        _step_time(pace),
        _input_wait(pace),
        _cpu(reading),
        _memory(reading),
        _gpu(reading.gpu),
        _buffer(session.windows.full),
    ]
    value = wording.duration(elapsed)
    items.append(Item(value, "", value, about="Since the cell started."))
    return [item for item in items if item is not None]


def _step_count(seen: int) -> Item | None:
    if not seen:
        return None
    return Item(f"step {seen:,}", "step", f"{seen:,}", about="Steps completed in this cell.")


def _step_time(pace: Pace) -> Item | None:
    step_ms = pace.step_ms()
    if step_ms is None:
        return None
    value = wording.millis(step_ms)
    return Item(f"{value} per step", "step time", value, about="The median of the recent steps.")


def _input_wait(pace: Pace) -> Item | None:
    share = pace.waiting_share()
    if share is None:
        return None
    about = "Share of recent step time spent waiting for the next batch."
    if pace.waits_now():
        return Item("waiting for input", "input", "now", 1.0, about)
    value = _percent(share)
    return Item(f"{value} waiting for input", "input", value, share, about)


def _cpu(reading: Reading) -> Item | None:
    if reading.cpu is None:
        return None
    value = f"{reading.cpu * 100:.0f} %"
    about = f"This process; 100 % is one of {os.cpu_count() or 1} cores."
    return Item(f"CPU {value}", "CPU", value, about=about)


def _memory(reading: Reading) -> Item | None:
    if reading.memory is None:
        return None
    value = wording.size(reading.memory)
    return Item(f"{value} memory", "memory", value, about="Resident memory of this process.")


def _gpu(gpu: Gpu | None) -> Item | None:
    if gpu is None:
        return None
    name = "GPU" if gpu.count == 1 else f"{gpu.count} GPUs"
    value = f"{wording.size(gpu.used)} of {wording.size(gpu.total)}"
    if gpu.busy is not None:
        value = f"{gpu.busy * 100:.0f} %, {value}"
    about = "Share of time with a kernel running, and memory in use, from NVML"
    about += ": of all of them together." if gpu.count > 1 else "."
    return Item(f"{name} {value}", name, value, about=about)


def _buffer(full: float | None) -> Item | None:
    if full is None:
        return None
    value = _percent(full)
    about = (
        "Growth of the process during the recording, as a share of --limit; at 100 % the"
        " recording ends."
    )
    return Item(f"buffer {value} full", "buffer", value, min(full, 1.0), about)


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def line(head: str, items: list[Item]) -> str:
    """The phase and the items as one line."""
    return " · ".join(["nbprof: " + head, *(item.text for item in items)])


_STYLE = "font-size:12px;line-height:20px;opacity:.75;font-variant-numeric:tabular-nums"


def bundle(ident: str, kind: str, head: str, items: list[Item], *, stops: bool) -> dict[str, Any]:
    """The output for nbprof's extension of JupyterLab, as HTML without script, and as text."""
    text = line(head, items)
    return {
        MIME_TYPE: {
            "v": 1,
            "id": ident,
            "kind": kind,
            "head": head,
            "items": [item.packed() for item in items],
            "stops": stops,
            "text": text,
        },
        "text/html": f'<div style="{_STYLE}">{html.escape(text)}</div>',
        "text/plain": text,
    }


class Strip:
    """Shows a recording until `end`. Nothing here raises, and the cell never waits for it.

    Parameters
    ----------
    session : Session
        The recording; one that has failed to start has nothing to show.
    output : Output
        Shows the strip.
    meters, now : optional
        For tests.
    """

    def __init__(
        self,
        session: Session,
        output: Output,
        meters: Meters | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ident = uuid.uuid4().hex
        self._session = session
        self._output = output
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
        # Held while the output is drawn: nothing is drawn after `end`.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.cpu_s = 0.0
        """CPU time of the thread."""

    def begin(self) -> None:
        """Draw the first picture on the thread of the cell, and go on from another thread."""
        try:
            self._began = self._now()
            self._meters = self._meters or Meters()
            _running[self.ident] = self
            self.paint()
            # The kernel finds the cell of an output by the context.
            context = contextvars.copy_context()
            thread = threading.Thread(
                target=context.run, args=(self._run,), name="nbprof-strip", daemon=True
            )
            # Without threads, as in a browser's Python, it is painted when a step ends.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        except Exception as error:
            self._trouble(error)

    def last_line(self) -> str:
        """The line that remains once the cell has ended."""
        steps, took = self._session.clock.seen, wording.duration(self._now() - self._began)
        if not steps:
            return f"nbprof: the cell ran for {took}"
        return f"nbprof: the cell ran {wording.plural(steps, 'step')} in {took}"

    def say(self, stage: str) -> None:
        """The cell has ended: show what nbprof does now, below the outputs of the cell."""
        if self._stage is not None:
            self._stage = stage
            return
        with self._lock:
            self._output.move(self.last_line())
            self._began, self._stage = self._now(), stage
        self.paint()

    def stepped(self) -> None:
        """A step has ended, on the thread that calls this."""
        self.pace.stepped()
        if self._thread is not None or self._over.is_set():
            return
        if self._now() - self._painted >= self.period:
            self.paint()

    def end(self) -> None:
        """Stop drawing."""
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
        """True if there is a recording to end."""
        if self._stage is not None or self._stopping:
            return False
        windows = self._session.windows
        return not windows.over and (windows.recording or bool(windows.recordings))

    def stop(self) -> bool:
        """End the recording, not the cell, at the end of the current step.

        Returns at once; False if there is no recording to end.
        """
        if not self.stops:
            return False
        self._stopping = True
        # The thread waits for the step, and then writes files.
        threading.Thread(target=self._end_recording, name="nbprof-stop", daemon=True).start()
        return True

    def _end_recording(self) -> None:
        try:
            self._session.windows.end_soon(PRESSED)
        except Exception as error:
            text = f"Stop and analyse had no effect: {type(error).__name__}: {error}"
            self._session.windows.notes.append(info("stop_without_effect", text))

    @property
    def period(self) -> float:
        """Seconds between two pictures: a quarter, or a full second after a minute."""
        options = self._session.options
        # A recording of Python calls includes those of this thread.
        slow = options.python or options.stacks or self._now() - self._began > 60
        return 1.0 if slow else 0.25

    def paint(self) -> None:
        """Draw the current state."""
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
        elapsed = now - self._began
        if self._stage is None:
            kind, head = phase(session, self._stopping)
            status = items(session, self.pace, self._reading, elapsed)
        else:
            kind, head = "end", self._stage
            value = wording.duration(elapsed)
            status = [Item(value, "", value, about="Since the cell ended.")]
        data = bundle(self.ident, kind, head, status, stops=self.stops)
        if data != self._last:
            self._last = data
            self._output.draw(data)

    def _run(self) -> None:
        try:
            # A recording that another one has superseded shows nothing more.
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
        if self._faults == _MAX_FAULTS:
            self._over.set()
        if self._faults == 1:
            text = f"the live status was not shown correctly: {type(error).__name__}: {error}"
            self._session.windows.notes.append(info("live_status_failed", text))


_running: dict[str, Strip] = {}


def listen(shell: Any) -> None:
    """Register the comm target of the strips of this kernel."""
    with contextlib.suppress(Exception):
        manager = shell.kernel.comm_manager
        if TARGET not in manager.targets:
            manager.register_target(TARGET, open_comm)


def open_comm(comm: Any, message: Any) -> None:
    """A page that shows a strip asks for its button, and gets it while the strip exists.

    In JupyterLab 4.4 and later this runs on another thread while the cell runs.
    """
    ident = _ident(message)

    def received(message: Any) -> None:
        # The kernel prints exceptions of this function below the current cell.
        with contextlib.suppress(Exception):
            data = message["content"]["data"]
            if isinstance(data, dict) and data.get("ask") == "stop":
                # Looked up each time: a page that is gone closes nothing, and must not keep the
                # recording alive.
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
