"""Record many workers at the same time, and ask again those that were not ready."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nbprof.capture.remote.addresses import GRPC, KINETO, TORCH, Address
from nbprof.capture.remote.calls import Call, Order, Received
from nbprof.capture.remote.client import Refusal, profile
from nbprof.capture.remote.failures import IDLE, Failure, explain, shared
from nbprof.capture.remote.messages import ProfileRequest, ProfileResponse
from nbprof.capture.remote.progress import REPAINT_S, Tell
from nbprof.capture.remote.sampling import Sampling
from nbprof.capture.shield import shielded
from nbprof.core.errors import ReadError
from nbprof.core.units import size_text
from nbprof.core.wire import LENGTH, fields
from nbprof.sources.recording import CaptureInfo

SLACK_S = 60.0
"""Minimum time for a worker to collect and send its recording; for a long recording, as long again
as it lasted.
"""
RETRY_S = 0.25
"""Before an unreachable worker is asked again; twice as long each time."""
BUSY_S = 1.0
"""Before a worker that is being recorded by someone else is asked again; twice as long each
time.
"""
MAX_WAIT_S = 30.0
"""The longest time before a worker is asked again."""


@dataclass(frozen=True)
class State:
    """The state of a worker.

    Parameters
    ----------
    address : str
    state : str
        ``asked``: it will begin; ``recording``; ``sending``: its recording is awaited; ``again``:
        it will be asked again; ``recorded``; or ``failed``.
    text : str
        Details: why it failed or is asked again, or the size of its recording.
    """

    address: str
    state: str
    text: str = ""


@dataclass
class Worker:
    """One worker and its recording.

    Parameters
    ----------
    address : Address
    file : Path or None
        Its recording.
    hostname : str
        The name of its machine, or of its process in a job, from the recording.
    info : CaptureInfo or None
        How it was recorded, if nbprof recorded it there.
    started_ns : int
        When its recording began, in ns since 1970 by our clock.
    bytes : int
        Size of its recording.
    failures : list of Failure
        The failed attempts.
    """

    address: Address
    file: Path | None = None
    hostname: str = ""
    started_ns: int = 0
    bytes: int = 0
    info: CaptureInfo | None = None
    failures: list[Failure] = field(default_factory=list)
    given_up: bool = False
    _call: Call | None = None
    _asked: float = 0.0
    _due: float = 0.0

    @property
    def open(self) -> bool:
        """True while a recording may still arrive."""
        return self.file is None and not self.given_up

    @property
    def reason(self) -> str:
        """Why it has no recording."""
        if not self.failures:
            return "it was not asked"
        last, first = self.failures[-1], self.failures[0]
        tries = ""
        if len(self.failures) > 1:
            tries = f" ({len(self.failures)} tries)"
        if first.reason != last.reason:
            return f"{first.reason}; then {last.reason}{tries}"
        return f"{last.reason}{tries}"


class Workers:
    """Records workers, from `run` to its end.

    Everything happens on the caller's thread; gRPC's own threads only wake it. Ctrl-C asks the
    workers to end the recording and to send it; a second one ends the wait.

    Parameters
    ----------
    addresses : list of Address
    sampling : Sampling
        The options.
    folder : Path
        Receives the files. It is `<root>/<session>`, as servers require that write their file
        themselves.
    tell : callable
        Called with progress messages.
    watch : callable, optional
        Called with these workers after possible changes, at least four times a second. It may
        raise: a KeyboardInterrupt acts as Ctrl-C, any other exception ends the recording and
        discards it.

    Attributes
    ----------
    all : list of Worker
        In the order of the addresses.
    stopped_after_s : float or None
        How long the recording had lasted when it was ended by Ctrl-C.
    """

    def __init__(
        self,
        addresses: list[Address],
        sampling: Sampling,
        folder: Path,
        tell: Tell,
        watch: Watch | None = None,
    ) -> None:
        self.all = [Worker(address) for address in addresses]
        self.stopped_after_s: float | None = None
        self._sampling = sampling
        self._folder = folder
        self._tell = tell
        self._watch = watch
        self._news = threading.Event()
        self._delay_s = sampling.delay_for(len(addresses)) / 1000
        self._duration_s = sampling.duration_ms / 1000
        self._begins_ns = 0

    @property
    def recorded(self) -> list[Worker]:
        """Those that sent a recording."""
        return [worker for worker in self.all if worker.file is not None]

    def run(self) -> None:
        """Record until all workers have sent their recording or failed."""
        self._begins_ns = time.time_ns() + round(self._delay_s * 1e9)
        try:
            while any(worker.open for worker in self.all):
                try:
                    self._turn()
                except KeyboardInterrupt:
                    if self.stopped_after_s is not None:
                        break
                    try:
                        self._stop()
                    except KeyboardInterrupt:
                        # Pressed twice at once.
                        break
        finally:
            for worker in self.all:
                if worker._call is not None:
                    worker._call.cancel()
                    worker.failures.append(
                        Failure("it had not answered when the recording was abandoned")
                    )
                    worker._call, worker.given_up = None, True
        if self._watch is not None:
            with contextlib.suppress(KeyboardInterrupt):
                self._watch(self)

    def states(self) -> list[State]:
        """The state of each worker, in the order of the addresses."""
        return [self._state_of(worker) for worker in self.all]

    def _state_of(self, worker: Worker) -> State:
        address = str(worker.address)
        if worker.file is not None:
            return State(address, "recorded", size_text(worker.bytes))
        if worker.given_up:
            return State(address, "failed", worker.reason)
        if worker.failures:
            attempts = f"attempt {len(worker.failures) + 1} of {self._sampling.retries + 1}"
            return State(address, "again", f"{worker.failures[-1].reason} ({attempts})")
        passed_s = (time.time_ns() - self._begins_ns) / 1e9
        if self.stopped_after_s is not None or passed_s >= self._duration_s:
            return State(address, "sending")
        if passed_s < 0:
            return State(address, "asked")
        return State(address, "recording")

    def _turn(self) -> None:
        with shielded():
            self._news.clear()
            for worker in self.all:
                if worker._call is not None and worker._call.done:
                    self._take(worker, worker._call)
            for worker in self.all:
                if worker.open and worker._call is None and worker._due <= time.monotonic():
                    self._ask(worker)
        if self._watch is not None:
            self._watch(self)
        if any(worker.open for worker in self.all):
            self._tell(self._state())
            wait_s = REPAINT_S
            for worker in self.all:
                if worker.open and worker._call is None:
                    wait_s = min(wait_s, worker._due - time.monotonic())
            self._news.wait(max(0.0, wait_s))

    def _ask(self, worker: Worker) -> None:
        # All begin together; a worker that is asked again begins at once.
        start_ns = 0
        if self._delay_s and not worker.failures:
            start_ns = self._begins_ns
        sampling = self._sampling
        request = ProfileRequest(
            sampling.duration_ms,
            sampling.host_level,
            sampling.device_level,
            sampling.python_level,
            start_ns,
            root=str(self._folder.parent),
            session=self._folder.name,
            host=worker.address.file_stem,
        )
        worker._asked = time.monotonic()
        worker.started_ns = start_ns or time.time_ns()
        limit_s = self._duration_s + max(SLACK_S, self._duration_s)
        if start_ns:
            limit_s += self._delay_s
        order = Order(worker.address, request, self._folder, limit_s, sampling.folder)
        worker._call = _caller(worker.address.scheme)(order, self._news.set)

    def _take(self, worker: Worker, call: Call) -> None:
        """Save the recording that a worker has sent, or decide whether to ask it again."""
        worker._call = None
        outcome = call.outcome()
        if isinstance(outcome, Received):
            worker.file, worker.bytes = outcome.path, outcome.path.stat().st_size
            worker.hostname, worker.info = outcome.worker, outcome.info
            return
        if isinstance(outcome, Refusal):
            waited_s = time.monotonic() - worker._asked
            failure: Failure | None = explain(
                outcome, worker.address, str(self._folder.parent), waited_s
            )
        else:
            failure = self._save(worker, outcome)
        if failure is None:
            return
        worker.failures.append(failure)
        tries = len(worker.failures)
        if not failure.again or tries > self._sampling.retries or self.stopped_after_s is not None:
            worker.given_up = True
            return
        wait_s = RETRY_S
        if failure.busy:
            wait_s = BUSY_S
        if failure.reason == IDLE:
            # The duration of the recording was a wait already.
            wait_s = 0.0
        worker._due = time.monotonic() + min(wait_s * 2 ** (tries - 1), MAX_WAIT_S)

    def _save(self, worker: Worker, response: ProfileResponse) -> Failure | None:
        path = self._folder / f"{worker.address.file_stem}.xplane.pb"
        if response.empty:
            path.unlink(missing_ok=True)
            return Failure(IDLE, again=True)
        try:
            if response.xspace is not None:
                worker.hostname = hostname(response.xspace)
                _write(path, response.xspace)
            elif path.is_file() and path.stat().st_size:
                # Of an older server, on this machine or on a disk that it shares.
                worker.hostname = hostname(memoryview(path.read_bytes()))
            else:
                return Failure(
                    f"this older server wrote its file to {path.parent} on its own machine:"
                    f" {shared()}"
                )
        except ReadError as error:
            return Failure(f"its recording is damaged ({error})", again=True)
        except OSError as error:
            size = size_text(len(response.xspace or b""))
            return Failure(
                f"its {size} could not be written to {path.parent} ({error.strerror}): choose"
                " another location with --logdir DIR"
            )
        worker.file, worker.bytes = path, path.stat().st_size
        return None

    def _stop(self) -> None:
        """End the recording early; workers send what they have recorded."""
        with shielded():
            now = time.time_ns()
            self.stopped_after_s = max(0.0, (now - self._begins_ns) / 1e9)
            for worker in (w for w in self.all if w.open):
                if worker._call is not None and now > worker.started_ns:
                    worker._call.terminate(self._folder.name)
                    continue
                if worker._call is not None:
                    worker._call.cancel()
                    worker._call = None
                if not worker.failures:
                    worker.failures.append(Failure("the recording was stopped before it began"))
                worker.given_up = True

    def _state(self) -> str:
        missing = [worker for worker in self.all if worker.open]
        came = sum(worker.file is not None for worker in self.all)
        count = f"{len(self.all)} workers"
        if len(self.all) == 1:
            count = str(self.all[0].address)
        passed_s = (time.time_ns() - self._begins_ns) / 1e9
        again = [worker for worker in missing if worker.failures]
        if self.stopped_after_s is not None:
            status = "stopping"
        elif again and len(again) == len(missing):
            worker = again[0]
            why = worker.failures[-1].reason.partition(":")[0].partition(";")[0]
            status = (
                f"asking {worker.address} again, {len(worker.failures)} of"
                f" {self._sampling.retries}: {why}"
            )
        elif passed_s < 0:
            status = f"recording {count} starts in {-passed_s:.1f} s"
        elif passed_s < self._duration_s:
            status = f"recording {count} · {passed_s:.1f} of {self._duration_s:.1f} s"
        else:
            status = f"waiting for {missing[0].address} · {passed_s - self._duration_s:.0f} s"
        if came:
            status += f" · {came} of {len(self.all)} came"
        return status


Watch = Callable[[Workers], None]


def _grpc(order: Order, done: Callable[[], None]) -> Call:
    return profile(order.address, order.request.encode(), order.timeout_s, done)


def _caller(scheme: str) -> Callable[[Order, Callable[[], None]], Call]:
    """The kind of call for addresses of a scheme."""
    if scheme == GRPC:
        return _grpc
    from nbprof.capture.remote.endpoints import EndpointCall
    from nbprof.capture.remote.kineto import KinetoCall
    from nbprof.capture.remote.torch_client import TorchCall

    return {TORCH: TorchCall, KINETO: KinetoCall}.get(scheme, EndpointCall)


def hostname(xspace: memoryview) -> str:
    """The name of the machine in an XSpace; empty if it has none.

    Raises
    ------
    ReadError
        It is not an XSpace, or is truncated.
    """
    name = ""
    for number, kind, value, end in fields(xspace, 0, len(xspace)):
        if number == 4 and kind == LENGTH and not name:
            name = bytes(xspace[value:end]).decode("utf-8", "replace")
    return name


def _write(path: Path, data: memoryview) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise
