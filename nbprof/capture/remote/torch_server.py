"""HTTP server in a PyTorch program that records the program on request.

PyTorch has no profiler server. This one runs on threads of its own in the program, and records as a
cell is recorded, by a `Session`; see `nbprof.capture.remote.torch_wire` for its messages.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import json
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

from nbprof.capture import torch_npu, torch_trace
from nbprof.capture.auto import ran
from nbprof.capture.options import ALL, Options
from nbprof.capture.remote import torch_wire
from nbprof.capture.remote.torch_wire import RecordRequest
from nbprof.capture.session import Session, active
from nbprof.capture.torch import records_all_threads
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.frameworks.register import PYTORCH
from nbprof.sources.recording import Recording

MOST_CONNECTIONS = 8
"""At a time; further ones are closed."""
_LOOK_S = 0.05
"""How often a recording looks whether it is to end."""
_STEP_S = 10.0
"""Time beyond the duration for a step to end, where recording begins and ends with steps."""
_SEND_S = 60.0
"""How long a client may read nothing of its answer."""
_EXIT_S = 20.0
"""Time for a recording to be sent when the program ends."""


class BusyError(CaptureError):
    """Something else records in the program."""


class Recorder:
    """Records this process, one recording at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._unsent = 0
        self._sent = threading.Condition()
        self._session = ""
        self._leaving = False

    def stop(self, session: str) -> bool:
        """End the recording of this name; False if it does not run."""
        if session != self._session:
            return False
        self._stop.set()
        return True

    def leave(self) -> None:
        """The program ends: end a recording, and wait until it has been sent."""
        self._leaving = True
        self._stop.set()
        with self._sent:
            self._sent.wait_for(lambda: not self._unsent, _EXIT_S)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """The program does not end before the answer of this block has been sent."""
        with self._sent:
            self._unsent += 1
        try:
            yield
        finally:
            with self._sent:
                self._unsent -= 1
                self._sent.notify_all()

    @contextlib.contextmanager
    def reserved(self, session: str) -> Iterator[None]:
        """Hold the profiler for the recording `session`.

        Raises
        ------
        BusyError
        """
        if self._leaving or not self._lock.acquire(blocking=False):
            raise BusyError("another recording is running in this program")
        try:
            if not self._leaving:
                self._stop.clear()
            self._session = session
            yield
        finally:
            self._session = ""
            self._lock.release()

    def record(
        self, request: RecordRequest, folder: Path, is_wanted: Callable[[], bool]
    ) -> Recording | None:
        """Record into `folder`; None if nothing ran or nobody wants it any more.

        Parameters
        ----------
        request : RecordRequest
        folder : Path
        is_wanted : callable
            Returns whether the client still waits.

        Raises
        ------
        BusyError
            The program itself is recording.
        CaptureError
            PyTorch's profiler refuses.
        """
        if not self._wait(lambda: time.time_ns() >= request.start_ns, is_wanted):
            return None
        if self._stop.is_set():
            return None
        if active() is not None:
            raise BusyError("the program itself is recording with nbprof")
        if torch_npu.module() is not None:
            raise CaptureError("programs on an NPU of Ascend cannot be recorded from elsewhere")
        at_steps = not records_all_threads()
        options = Options(
            backend=PYTORCH.name,
            # If only one thread is recorded, the training thread starts the profiler at a step.
            steps=(1, None) if at_steps else ALL,
            memory=at_steps,
            python=request.python,
            logdir=str(folder),
        )
        session = Session(options, joined=True)
        try:
            session.start()
        except CaptureError as error:
            kind = BusyError if str(error) == remedies.OWN_PROFILER else CaptureError
            raise kind(str(error)) from error
        except Exception as error:
            session.stop()
            raise CaptureError(
                f"the recording did not start ({type(error).__name__}: {error})"
            ) from error
        recording = self._finished(session, request, at_steps=at_steps, is_wanted=is_wanted)
        backend = session.backend
        if recording is None or backend is None or not is_wanted() or not ran(backend, folder):
            return None
        return recording

    def _finished(
        self,
        session: Session,
        request: RecordRequest,
        *,
        at_steps: bool,
        is_wanted: Callable[[], bool],
    ) -> Recording | None:
        """The recording of a session, once its time is over."""
        try:
            windows, seconds = session.windows, request.duration_ms / 1000
            if at_steps:
                until = time.monotonic() + seconds + _STEP_S
                self._wait(lambda: windows.recording or time.monotonic() > until, is_wanted)
                if not windows.recording:
                    return None
            end = time.monotonic() + seconds
            self._wait(lambda: windows.over or time.monotonic() >= end, is_wanted)
            if at_steps:
                session.ends_here("the recording was over")
        finally:
            recording = session.stop()
        if recording is None:
            raise CaptureError(session.failure)
        return recording

    def _wait(self, is_over: Callable[[], bool], is_wanted: Callable[[], bool]) -> bool:
        """Wait for a moment, or to be stopped; False if nobody waits for the recording."""
        while not is_over() and is_wanted():
            if self._stop.wait(_LOOK_S):
                break
        return is_wanted()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = "nbprof", ""
    timeout = torch_wire.MOST_HEADER_S

    def setup(self) -> None:
        """Bound the time of the complete request, not only that of each of its parts."""
        super().setup()
        self._limit = threading.Timer(torch_wire.MOST_HEADER_S, self._hang_up)
        self._limit.name = "nbprof-request"
        self._limit.daemon = True
        self._limit.start()

    def finish(self) -> None:
        """The connection is over."""
        self._limit.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the output is the program's."""

    def do_POST(self) -> None:
        """Record, or end a recording early."""
        try:
            body = self._body()
            if body is None:
                return
            self._limit.cancel()
            if self.path == torch_wire.RECORD:
                self._record(torch_wire.parse(body))
            elif self.path == torch_wire.STOP:
                if self.server.recorder.stop(torch_wire.session(body)):
                    self._answer(200, "")
                else:
                    self._answer(404, "no such recording")
            else:
                self._answer(404, "there are /record and /stop")
        except BusyError as error:
            self._answer(409, str(error))
        except CaptureError as error:
            self._answer(400, str(error))
        except OSError:
            # The client has gone, or the disk is full: then it sees that the connection ended.
            self.close_connection = True

    def _body(self) -> bytes | None:
        """The body of a request that may be made; None if it was refused."""
        length = self.headers.get("Content-Length", "")
        refusal = self._refusal(length)
        if refusal is not None:
            self._answer(*refusal)
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._answer(400, "the request is truncated")
            return None
        return body

    def _refusal(self, length: str) -> tuple[int, str] | None:
        """The status and reason if a request may not be made."""
        token = self.server.token
        if token and not torch_wire.same_token(self.headers.get("Authorization", ""), token):
            return 401, "a token is needed, or it is a wrong one"
        # A web page that resolves its own name to this machine is not to record it.
        if not token and not is_loopback(self.headers.get("Host", "").rpartition(":")[0]):
            return 403, "this server is for programs of its own machine"
        if self.headers.get("Content-Type") != torch_wire.TYPE:
            return 415, f"the Content-Type must be {torch_wire.TYPE}"
        if not (length.isascii() and length.isdigit()):
            return 411, "the Content-Length must be given"
        if len(length) > 9 or int(length) > torch_wire.MOST_REQUEST:
            return 413, f"a request has at most {torch_wire.MOST_REQUEST} bytes"
        return None

    def _answer(self, status: int, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self._head(status, "text/plain; charset=utf-8", len(data))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header(torch_wire.MARK, torch_wire.VERSION)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()

    def _record(self, request: RecordRequest) -> None:
        recorder = self.server.recorder
        with recorder.answering(), _scratch() as folder:
            archive = folder / "answer.zip"
            with recorder.reserved(request.session):
                recording = recorder.record(request, folder, self._client_waits)
                if recording is not None:
                    _pack(recording, archive)
            if not self._client_waits():
                self.close_connection = True
                return
            if recording is None:
                self._head(204, "text/plain", 0)
                return
            self.connection.settimeout(_SEND_S)
            self._head(200, "application/zip", archive.stat().st_size)
            with archive.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _client_waits(self) -> bool:
        """Return whether the client has not closed the connection; it sends nothing more."""
        try:
            # Unlike select.select, it takes descriptors above 1,023.
            with selectors.DefaultSelector() as selector:
                selector.register(self.connection, selectors.EVENT_READ)
                readable = selector.select(0)
            return not readable or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


class Server(ThreadingMixIn, HTTPServer):
    """Listens at an address of this machine, on background threads.

    Parameters
    ----------
    host : str
    port : int
        0 takes a free one.
    token : str
        Needed by each request; empty on loopback only.

    Raises
    ------
    OSError
        The address cannot be used.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, token: str) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.token = token
        self.recorder = Recorder()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, name="nbprof-serve", daemon=True)
        self._process = os.getpid()

    def start(self) -> int:
        """Listen from now on; returns the port."""
        self._thread.start()
        atexit.register(self._leave)
        if hasattr(os, "register_at_fork"):
            # A child would hold the port after this process has ended, and answer nobody.
            os.register_at_fork(after_in_child=self.socket.close)
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without asking for the name of the machine, which may take long."""
        # On Windows another program could share the port.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name != "nt"))
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request, on the thread of the connection."""
        threading.current_thread().name = "nbprof-answer"
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the output is the program's, which has not failed."""

    def _leave(self) -> None:
        if self._process == os.getpid():
            self.recorder.leave()


def is_loopback(host: str) -> bool:
    """Return whether a name or address is that of this machine for itself."""
    if host.strip("[]").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="nbprof-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pack(recording: Recording, archive: Path) -> None:
    """Write the files of a recording that are sent."""
    values = {**recording.info.to_dict(), "worker": torch_trace.worker()}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, strict_timestamps=False) as target:
        target.write(recording.host_file, torch_wire.TRACE)
        target.writestr(torch_wire.INFO, json.dumps(values), zipfile.ZIP_DEFLATED)
