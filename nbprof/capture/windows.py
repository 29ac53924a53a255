"""The windows of a cell in which the framework's profiler runs, one or several."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nbprof.capture import describe, notes
from nbprof.capture.child_processes import ChildProcesses
from nbprof.capture.clock import Marker, StepClock
from nbprof.capture.contention import Contention
from nbprof.capture.enough import EVENTS, Enough
from nbprof.capture.loops import Recorder, Snapshot
from nbprof.capture.machine import machine
from nbprof.capture.options import Options
from nbprof.capture.other_profilers import OtherProfilers
from nbprof.capture.place import Member, RunFolder
from nbprof.capture.pools.watch import PoolWatch
from nbprof.capture.reserve import Reserve
from nbprof.capture.settings import settings
from nbprof.capture.shield import shielded
from nbprof.core import loader_uses, remedies
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.core.units import size_text
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import named
from nbprof.sources.recording import CaptureInfo, Recording

if TYPE_CHECKING:
    from pathlib import Path

    from nbprof.capture.bounds import Bounds
    from nbprof.capture.lines import LineClock
    from nbprof.capture.patches import Patches
    from nbprof.capture.python_samples import PythonSampler
    from nbprof.core.loop_times import LoopTimes

WAIT_S = 2.0
"""Minimum time that the current step has to finish when a limit is reached."""

_numbers = itertools.count(1)


class Since(NamedTuple):
    """The beginning of a recording.

    Attributes
    ----------
    time : float
        `time.perf_counter()`.
    seen, marked : int
        Steps that had ended and been marked by then.
    """

    time: float = 0.0
    seen: int = 0
    marked: int = 0


class Backend(Protocol):
    """Records with the profiler of a framework.

    `start` and `stop` are called once for each window. A backend that can be stopped only on the
    thread that started it has an attribute ``ends_anywhere`` that is False; one that learns more
    while it records has a method ``notes()`` that returns those; one that can mark waiting for
    input has a method ``open_wait()`` that returns a `Span`; one whose recording may begin later
    than the window has an attribute ``since``, a `Since`; one that holds Python calls in memory
    until it is stopped has an attribute ``bytes_per_call``; one that holds events in the memory of
    the process has ``bytes_per_event``, one that records the whole cell in any case
    ``records_all``, one that a process which is forked meanwhile cannot use
    ``is_lost_in_forks``, and one that would go on in such a process has a method ``forget()``.
    """

    @property
    def name(self) -> str:
        """Its name among the options."""

    @property
    def title(self) -> str:
        """Its name in sentences."""

    def start(self, folder: Path, options: Options) -> list[Note]:
        """Start recording into `folder`; returns notes for the user."""

    def stop(self) -> None:
        """End the recording and write its files."""

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span that may become step `number`."""

    def versions(self) -> str:
        """Versions that matter for reading the run."""

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Report the framework's steps to `clock`, and `give_way` to the user's own profiler."""


def backend_class(framework: Framework) -> Any:
    """The class that records a framework."""
    module, _, name = framework.recorder.backend.partition(":")
    return getattr(importlib.import_module(module), name)


def _nothing() -> None:
    """In place of a method that a backend does not have."""


class Windows:
    """Starts and stops the profiler, and saves each window as a separate run.

    A file of a profiler has one clock and one beginning, and TensorBoard takes several files of a
    run for several machines; so consecutive windows are several runs.

    Parameters
    ----------
    options : Options
    clock : StepClock
        Counts the steps; it is given the markers of the framework while the profiler runs.
    trains : bool
        True if the cell is known to train.

    Attributes
    ----------
    recordings : list of Recording
        The windows that were recorded, in time order.
    companion_runs : dict of Path to list of Path
        By the folder of a window, the runs of further frameworks that were recorded at the same
        time.
    notes : list of Note
        For the receipt.
    failure : str
        Why the last attempted window was not recorded.
    recording : bool
        True while the profiler runs.
    ended_before : bool
        True if the recording had ended before the cell did.
    """

    def __init__(self, options: Options, clock: StepClock, *, trains: bool = False) -> None:
        self.options = options
        self.clock = clock
        self.backend: Backend | None = None
        self.folder: RunFolder | None = None
        self.recordings: list[Recording] = []
        self.companion_runs: dict[Path, list[Path]] = {}
        self.notes: list[Note] = []
        self.failure = ""
        self.recording = self.ended_before = False
        self._trains = trains
        self._enough: Enough | None = None
        self._ran_by_then: dict[str, int] = {}
        """Number of steps of each kind when enough was known."""
        # Bounds are watched on another thread, while the cell's thread may begin or end a window.
        self._change = threading.RLock()
        self._over = False
        self._ended = threading.Event()
        self._late_end_note: Note | None = None
        """The note if a bound was reached, but no step ended afterwards."""
        self._bounds: Bounds | None = None
        self._started_at = datetime.now().astimezone()
        self._since = Since()
        self._contention: Contention | None = None
        self._reserve: Reserve | None = None
        self._lines: LineClock | None = None
        self._sampler: PythonSampler | None = None
        self._child_processes: ChildProcesses | None = None
        self.pools = PoolWatch()
        """The process pools that the cell sends tasks to."""
        self._other_profilers = OtherProfilers(displaced=False)
        self._code_began = self._code_ended = 0
        self._thread = 0
        """The thread that began the window."""
        self._calls_limit = 0.0
        """Bytes that Python calls may take when the profiler stops."""
        self.loops = Recorder()
        self.label = self.notebook = self.display = ""
        """Name of the recording, the notebook, and the id of the output that shows the status."""
        self.member: Member | None = None
        """This process as a rank of a job whose recordings are one run."""
        self.by = "block"
        """The recorded unit: a block of a program, or a cell."""
        self._start_notes: list[Note] = []
        self._group = uuid.uuid4().hex if options.every else ""

    def begin(self) -> None:
        """Start the framework's profiler, unless it runs or all windows are over. Never raises."""
        with self._change, shielded(soon=True):
            if self.recording or self._over or self.backend is None:
                return
            try:
                self._started_at = datetime.now().astimezone()
                if self.folder is None:
                    self.folder = RunFolder(self.options)
                    self.folder.member = self.member
                    self.notes += self.folder.notes
                else:
                    self.folder.renew()
                self.mark()
                self.clock.times.window_begins()
                lines = _line_clock(self.options, self._called)
                self._calls_limit = self._limit_of_calls() if lines is not None else 0.0
                self._other_profilers = OtherProfilers(
                    displaced=self.options.python or self.options.stacks
                )
                start_notes = self.backend.start(self.folder.scratch, self.options)
                self._other_profilers.started()
                self.recording = True
                self._thread = threading.get_ident()
            except Exception as error:
                self._fail(error)
                self.clock.times.window_ends()
                return
            self._start_notes = [note for note in start_notes if note not in self.notes]
            self.notes += self._start_notes
            self.clock.open_wait = getattr(self.backend, "open_wait", None)
            self.clock.open_marker = self.backend.open_marker
            if self.options.until_enough:
                self._enough = Enough(self.options.warmup, trains=self._trains)
                self.clock.recorded_step = self._stepped
            self._contention = Contention()
            self.clock.waits.loaders.workers.samples = self.options.sampling
            self.clock.waits.loaders.begin()
            self.pools.samples = self.options.sampling
            self.pools.begin()
            self._reserve = Reserve()
            if lines is not None:
                self._lines = lines.start()
                if lines.trouble is not None and lines.trouble not in self.notes:
                    self._start_notes.append(lines.trouble)
                    self.notes.append(lines.trouble)
            self._begin_sampling()
            self._child_processes = ChildProcesses()
            self.clock.first_step = self._first_step_ended
            self._since = Since(time.perf_counter(), self.clock.seen, self.clock.marked)
            self.loops.begin_window()
            self.code_begins()
        if self._bounds is None:
            from nbprof.capture.bounds import Bounds

            self._bounds = Bounds(
                self.options.seconds,
                self.options.limit_gb,
                lambda: self.clock.marked > 0,
                self.end_soon,
                lambda note: self.notes.append(note),
                self._grew,
            )
            self._bounds.look = self._look
            self._bounds.start()

    def _look(self) -> None:
        if self._child_processes is not None:
            self._child_processes.look()

    def _note_waiting(self) -> None:
        """Say what the program waited for, if that is all it did here."""
        children, self._child_processes = self._child_processes, None
        if children is None or self.clock.marked > self._since.marked:
            return
        with contextlib.suppress(Exception):
            if children.waited_with_ray():
                self.notes.append(notes.ray_workers_not_recorded())
            recorded = getattr(self.member, "follows", False)
            if not recorded and (names := children.waited_for()):
                self.notes.append(notes.children_not_recorded(names, self.by))

    def _grew(self, grown: int) -> None:
        """The process has grown by so many bytes since the first recorded step."""
        # No profiler counts its events, and what the program itself needs grows, too: there are at
        # most so many.
        enough, each = self._enough, getattr(self.backend, "bytes_per_event", 0)
        if enough is not None and each and grown >= each * EVENTS:
            enough.grown = grown

    def _stepped(self, kind: str, start_ns: int, end_ns: int) -> None:
        """A recorded step has ended: end the recording with it once enough is known."""
        try:
            is_enough = self._enough is not None and self._enough.stepped(kind, start_ns, end_ns)
        except Exception:
            # A fault must not break the user's loop: the cell is recorded whole.
            self.clock.recorded_step, is_enough = None, False
        if not is_enough or not self.ends_here:
            return
        with self._change:
            if not self.recording or getattr(self.backend, "records_all", False):
                return
            self._over, self._late_end_note = True, None
            self._ran_by_then = dict(self.clock.times.by_kind)
            self.end()
        self._ended.set()

    def about_rest(self) -> list[Note]:
        """The note on the steps after the recording, if it ended because enough was known."""
        if self._enough is None or not self._ran_by_then:
            return []
        later = {}
        for kind, count in self.clock.times.by_kind.items():
            if count > self._ran_by_then.get(kind, 0):
                later[kind] = count - self._ran_by_then.get(kind, 0)
        first, last = self._since.seen + 1, sum(self._ran_by_then.values())
        return [notes.recorded_enough((first, last), self._enough.why, later, self.by)]

    def _limit_of_calls(self) -> float:
        from nbprof.capture.bounds import GB, free_bytes

        if self.options.limit_gb is not None:
            return self.options.limit_gb * GB
        return free_bytes() / 2

    def _called(self, calls: int) -> None:
        """End the window after more Python calls than the profiler can hold. Never raises."""
        bytes_per_call = getattr(self.backend, "bytes_per_call", 0)
        if not bytes_per_call or calls * bytes_per_call <= self._calls_limit:
            return
        if not self.recording or threading.get_ident() != self._thread:
            return
        with contextlib.suppress(Exception):
            size = f"about {size_text(calls * bytes_per_call)}"
            self._end_by(
                f"{calls:,} Python functions were called, whose recording takes {size} when it is"
                " stopped (--limit)"
            )

    @property
    def _hides(self) -> bool:
        """True if a backend hides that it replaced another profiler of Python calls."""
        backends = getattr(self.backend, "frameworks", [self.backend])
        return any(
            backend is not None and named(backend.name).recorder.hides_python
            for backend in backends
        )

    def mark(self) -> None:
        """Leave a trace of this recording, in case the process is killed. Never raises."""
        if self.folder is not None:
            self.folder.mark(notebook=self.notebook, display=self.display)

    def code_begins(self) -> None:
        """All is set up: the user's code runs from here on. Never raises."""
        self._code_began, self._code_ended = time.time_ns(), 0
        self.loops.code_begins()
        self._notify_backend("code_begins")

    def code_ends(self) -> None:
        """The user's code has ended; only the first call of a window counts. Never raises."""
        if self._code_ended or not self.recording:
            return
        self._code_ended = time.time_ns()
        self.loops.code_ends()
        self._notify_backend("code_ends")

    def _notify_backend(self, method: str) -> None:
        notify = getattr(self.backend, method, None)
        if notify is not None and self.recording:
            with contextlib.suppress(Exception):
                notify()

    def restart(self) -> None:
        """Restart the profiler without the recording so far: a device is new. Never raises."""
        if self._drop():
            self.begin()

    def _drop(self) -> bool:
        """Stop the profiler, and drop what it has recorded; returns whether it ran."""
        with self._change, shielded(soon=True):
            if not self.recording or self.backend is None or self.folder is None:
                return False
            self.recording = False
            self.clock.open_marker = self.clock.open_wait = self.clock.recorded_step = None
            self._line_times()
            self._end_sampling()
            self._release()
            with contextlib.suppress(Exception), self._other_profilers.given_back([], self._hides):
                self.backend.stop()
            self.clock.times.window_ends()
            self.folder.discard()
            self.notes = [note for note in self.notes if note not in self._start_notes]
        return True

    @contextlib.contextmanager
    def paused_for_fork(self) -> Iterator[None]:
        """Stop the profiler of a program that has recorded no step while it forks a process.

        A process that is forked while some profilers run cannot start one itself.
        """
        paused = False
        if self.clock.marked == self._since.marked and self.ends_here:
            backends = getattr(self.backend, "frameworks", [self.backend])
            if any(getattr(backend, "is_lost_in_forks", False) for backend in backends):
                paused = self._drop()
        try:
            yield
        finally:
            # Not in the forked process, which has forgotten this recording.
            if paused and not self._over:
                self.begin()

    def end(self) -> None:
        """Stop the framework's profiler, and move its files to the logdir. Never raises."""
        with self._change, shielded(soon=True):
            self.clock.open_marker = self.clock.open_wait = self.clock.recorded_step = None
            if not self.recording or self.backend is None or self.folder is None:
                return
            self.recording = False
            self._over = self._over or not self.options.every
            ended = time.perf_counter()
            loops = self.loops.snapshot()
            if self._over:
                self.loops.stop()
            lines, sampler = self._line_times(), self._end_sampling()
            contention = self._contention.measured() if self._contention is not None else {}
            workers, pools = self._worker_times(), self._pool_times()
            self._note_waiting()
            self._release()
            try:
                self.folder.secure()
                with self._other_profilers.given_back(self.notes, self._hides):
                    self.backend.stop()
                info = self._describe(
                    self.backend, ended, contention, lines, self._samples(sampler)
                )
                loops_packed = self._packed(loops)
                self._settle(
                    self.folder, replace(info, loops=loops_packed, workers=workers, pools=pools)
                )
            except Exception as error:
                self._fail(error)
            self.clock.times.window_ends()
            if self._over and self._bounds is not None:
                self._bounds.cancel()

    def close(self) -> None:
        """The cell ends, and with it the current window; no other begins any more."""
        self.ended_before = bool(self.recordings) and not self.recording
        self._over = True
        self._ended.set()
        bounds, self._bounds = self._bounds, None
        if bounds is not None:
            bounds.stop()
        if self._late_end_note and self.recording:
            self.notes.append(self._late_end_note)
        self.end()

    def _worker_times(self) -> dict[str, Any]:
        """Times of the workers of loaders, as the info stores it."""
        try:
            workers, missing = self.clock.waits.loaders.workers.taken()
            self.notes += [note for note in notes.workers(missing) if note not in self.notes]
            return workers
        except Exception as error:
            self.notes.append(notes.workers_not_recorded(error))
            return {}

    def _pool_times(self) -> dict[str, Any]:
        """Times of the tasks of process pools, as the info stores it."""
        try:
            pools, missing = self.pools.taken()
            self.notes += [note for note in notes.pools(missing) if note not in self.notes]
            return pools
        except Exception as error:
            self.notes.append(notes.pools_not_recorded(error))
            return {}

    def _release(self) -> None:
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            reserve.release()

    def _line_times(self) -> dict[str, Any]:
        """The times of lines of cells, as the info stores them; ends the timing."""
        lines, self._lines = self._lines, None
        if lines is None:
            return {}
        try:
            times = lines.stop()
            return times.packed() if times is not None else {}
        except Exception as error:
            self.notes.append(notes.lines_not_timed(error))
            return {}

    def _begin_sampling(self) -> None:
        if not self.options.sampling:
            return
        from nbprof.capture.python_samples import PythonSampler

        try:
            thread = threading.current_thread()
            if self.clock.joined:
                thread = threading.main_thread()
            self._sampler = PythonSampler().start(thread)
        except Exception as error:
            self._no_samples(error)

    def _first_step_ended(self) -> None:
        sampler = self._sampler
        if sampler is not None:
            sampler.allow_more()

    def _end_sampling(self) -> PythonSampler | None:
        sampler, self._sampler = self._sampler, None
        return sampler.stop() if sampler is not None else None

    def _samples(self, sampler: PythonSampler | None) -> dict[str, Any]:
        """The sampled Python stacks as the info stores them."""
        if sampler is None:
            return {}
        try:
            samples = sampler.samples()
            if sampler.trouble is not None:
                self.notes.append(sampler.trouble)
            if samples is None:
                return {}
            # Without setting up the recording and showing a traceback, which run in the cell, too.
            code_ended = self._code_ended or time.time_ns()
            return samples.within(self._code_began, code_ended).packed()
        except Exception as error:
            self._no_samples(error)
            return {}

    def _no_samples(self, error: Exception) -> None:
        self.notes.append(notes.stacks_not_sampled(error))

    def _packed(self, loops: Snapshot) -> dict[str, Any]:
        """The times of the loops of the cell in this window, as the info stores them."""
        try:
            times = loops.times()
            return self._from_joining(times).packed() if times is not None else {}
        except Exception as error:
            self.notes.append(notes.loops_not_timed(error))
            return {}

    def _from_joining(self, loops: LoopTimes) -> LoopTimes:
        """Limit loops to the recording, which a framework joins once the cell has imported it."""
        since = getattr(self.backend, "since", None)
        if since is None:
            return loops
        joined = time.time_ns() - round((time.perf_counter() - since.time) * 1e9)
        # The window must include all iterations.
        first = int(loops.asked.min(initial=min(joined, loops.end_ns)))
        return replace(loops, begin_ns=max(loops.begin_ns, first))

    def main_recording(self) -> Recording:
        """The window to show, with all others: the last with all its steps, else the last."""
        first, last = self.options.window or (1, None)
        steps = 0
        if last is not None and not self.clock.batches_of:
            steps = last - first + 1
        main = self.recordings[-1]
        for recording in self.recordings:
            if recording.info.steps_marked >= steps:
                main = recording
        main.others = [recording for recording in self.recordings if recording is not main]
        return main

    def abandon(self) -> None:
        """Do nothing any more and touch nothing (after a fork)."""
        self._over, self.recording = True, False
        self.loops.stop()
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.stop()
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.abandon()
        for backend in getattr(self.backend, "frameworks", [self.backend]):
            with contextlib.suppress(Exception):
                getattr(backend, "forget", _nothing)()

    def _settle(self, folder: RunFolder, capture: CaptureInfo) -> None:
        if self._group and not capture.window and self.recordings:
            # Windows without a gap: the last one begins before it is known that no step will come.
            folder.discard()
            return
        if self.member is not None and not self.member.joins(capture.steps_marked):
            folder.discard()
            return
        suffix = ""
        if self._group and capture.window:
            suffix = f"-steps-{capture.window[0]}-{capture.window[-1]}"
        temporary = folder.logdir if folder.temporary else None
        path = folder.settle(suffix, self._started_at)
        rank = None
        if folder.member is not None and temporary is None:
            rank = folder.member.rank
        recording = Recording(path, capture, temporary=temporary, upload=folder.upload, rank=rank)
        self.recordings.append(recording)
        self.companion_runs[recording.path] = folder.companion_runs
        self.notes += [note for note in folder.notes if note not in self.notes]
        # Already now: a cell that never ends, or a machine that goes down, leaves complete runs.
        with contextlib.suppress(OSError):
            recording.write()
            if folder.member is not None and rank is not None:
                folder.member.state(recording.info, over=False)

    def _describe(
        self,
        backend: Backend,
        ended: float,
        contention: dict[str, float],
        lines: dict[str, Any],
        python: dict[str, Any],
    ) -> CaptureInfo:
        clock = self.clock
        since = getattr(backend, "since", None) or self._since
        marked = clock.marked - since.marked
        self.label = self.label or f"run {next(_numbers)}"
        return CaptureInfo(
            backend=backend.name,
            framework=backend.versions(),
            started=self._started_at.isoformat(timespec="seconds"),
            elapsed_s=ended - since.time,
            steps_seen=clock.seen,
            steps_marked=marked,
            notes=[*describe.how_steps_were_found(clock), *self.notes, *self.about_rest()],
            label=self.label,
            notebook=self.notebook,
            precision=describe.precision(),
            options=asdict(self.options),
            window=[since.seen + 1, clock.seen] if marked else [],
            boundaries=list(clock.boundaries),
            group=self._group,
            contention=contention,
            # Without Python calls no name in the recording is that of a cell.
            cells=describe.cells() if self.options.stacks or self.options.python or python else {},
            lines=lines,
            python=python,
            machine=machine(),
            settings=settings(),
            loaders=loader_uses.packed(clock.waits.loaders.taken()),
            by=self.by,
        )

    def _fail(self, error: Exception) -> None:
        # The user's cell goes on in any case.
        message = str(error)
        if not isinstance(error, (CaptureError, OSError)):
            message = f"the recording failed: {type(error).__name__}: {error}"
        self.failure = message + remedies.disk_remedy(message)
        if self.folder is not None:
            self.folder.discard()
            if not self.recordings:
                self.folder.remove()

    @property
    def over(self) -> bool:
        """True if no window runs or will begin any more."""
        return self._over and not self.recording

    @property
    def full(self) -> float | None:
        """Growth of the process as a share of its limit; None if nothing is recorded."""
        bounds = self._bounds
        if bounds is None or not self.recording or not bounds.limit:
            return None
        return max(bounds.grown, 0) / bounds.limit

    def end_soon(self, why: str) -> None:
        """End at the end of the current step, or now if none runs; no window begins any more.

        It is called on another thread than the cell's, and may wait there.

        Parameters
        ----------
        why : str
            A bound that was reached, or what the user did: the beginning of a sentence that goes
            into the notes.
        """
        with self._change:
            if not self.recording:
                if not self._over:
                    self._over = True
                    self.notes.append(notes.no_further_window(why))
                return
            clock, anywhere = self.clock, getattr(self.backend, "ends_anywhere", True)
            waits = clock.in_step or not anywhere
            if not anywhere:
                title = getattr(self.backend, "title", "")
                self._late_end_note = notes.recording_not_ended(why, title)
            if waits:
                wait_s = self._longest_wait()
                clock.after_step(lambda: self._end_by(why))
        if not waits:
            self._end_by(why)
        elif anywhere and not self._ended.wait(wait_s):
            self._end_by(f"{why}, and no step ended in the {wait_s:.0f} s after it")

    def _longest_wait(self) -> float:
        """Seconds in which the current step should end."""
        marked = self.clock.marked - self._since.marked
        if not marked:
            return WAIT_S
        return max(WAIT_S, 3 * (time.perf_counter() - self._since.time) / marked)

    @property
    def ends_here(self) -> bool:
        """True if this thread can end the current window."""
        anywhere = getattr(self.backend, "ends_anywhere", True)
        return bool(anywhere) or not self.recording or threading.get_ident() == self._thread

    def end_there(self, why: str) -> bool:
        """End on the thread that began, at the end of its step; False if none ended in time."""
        thread, given_up = self._thread, threading.Event()

        def end() -> None:
            if given_up.is_set():
                return
            if threading.get_ident() == thread:
                self._end_by(why)
            else:
                self.clock.after_step(end)

        wait_s = self._longest_wait()
        self.clock.after_step(end)
        self._ended.wait(wait_s)
        given_up.set()
        return not self.recording

    def _end_by(self, why: str) -> None:
        with self._change:
            self._over, self._late_end_note = True, None
            if self.recording:
                clock = self.clock
                self.notes.append(notes.recording_ended(why, clock.seen, in_step=clock.in_step))
                self.end()
        self._ended.set()


def _line_clock(options: Options, called: Callable[[int], None]) -> LineClock | None:
    """Follows the lines of cells, if stacks are to be recorded."""
    if not (options.stacks or options.python):
        return None
    # Late, for it imports numpy, and a cell may be recorded that does not.
    from nbprof.capture.lines import LineClock

    return LineClock(called)
