"""Record a process that was started with ``KINETO_USE_DAEMON=1``, by Kineto's own on-demand road.

Kineto, PyTorch's recorder, asks a daemon of its machine every few seconds what to record. Its
messages are datagrams of Unix sockets: 8 bytes with the length of the body and 32 with its kind, in
the order of bytes of the machine, then the body. ``ctxt`` registers a process and is answered with
the number of those that are; ``req`` holds three numbers (the kinds that may be recorded now, how
many processes follow, the job) and the ids of the process and its ancestors, and is answered with a
configuration, empty for nothing. The daemon is usually dynolog; here it is nbprof, while it
records. The trace is a file that Kineto writes where the configuration says.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import psutil

from nbprof.capture import torch_trace
from nbprof.capture.auto import contains
from nbprof.capture.remote.calls import Outcome, Received, ThreadCall
from nbprof.capture.remote.client import Refusal
from nbprof.capture.remote.failures import NO_DAEMON, TOLD
from nbprof.capture.remote.messages import ProfileResponse
from nbprof.capture.remote.torch_wire import TORCH_SUFFIX
from nbprof.frameworks.register import PYTORCH

_NAME = "dynolog"
"""The name of the daemon's socket, which Kineto has built in."""
_HEAD = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")
_ACTIVITIES = 2
"""In the kinds of a request: a recording may begin now."""
_MOST_BYTES = 1 << 16
_MOST_PROCESSES = 1000
ASKS_S = 15.0
"""Time for a process to ask; it does every 5 s."""
_LOOK_S = 0.1
_SOCKETS = "KINETO_IPC_SOCKET_DIR"
"""Environment variable with the folder of the sockets; without it they have abstract names."""
_TRACES = "KINETO_ONDEMAND_TRACE_DIR"
"""Environment variable with the folder that traces may be written to; without it ``/tmp``."""
_END = b'"traceName"'
"""In the last line of a complete trace."""


class _Waiting:
    """A process that is to be recorded.

    Attributes
    ----------
    config : bytes
    asked, busy, sent : threading.Event
        It asked; when it last did, it was recording; and it received the configuration.
    """

    def __init__(self, config: bytes) -> None:
        self.config = config
        self.asked = threading.Event()
        self.busy = threading.Event()
        self.sent = threading.Event()


class Daemon:
    """Answers processes of this machine, while at least one is to be recorded.

    Parameters
    ----------
    folder : str
        Of the sockets; empty where they have abstract names.

    Raises
    ------
    OSError
        Another daemon is there.
    """

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{_NAME}" if folder else ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._bind()
        except OSError:
            self._socket.close()
            raise
        # The kernel says which process has sent a message.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.settimeout(_LOOK_S)
        self._waiting: dict[int, _Waiting] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nbprof-kineto", daemon=True)
        self._thread.start()

    def _bind(self) -> None:
        if not self._path:
            # Kineto's names end with a zero.
            self._socket.bind(f"\0{_NAME}\0")
            return
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._socket.connect(self._path)
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path = Path(self._path)
        # The socket of a daemon that was killed; what else has its name stays, and is in the way.
        if path.is_socket() and not path.is_symlink():
            path.unlink(missing_ok=True)
        # Processes of other users connect. A chmod afterwards could follow a link.
        before = os.umask(0)
        try:
            self._socket.bind(self._path)
        finally:
            os.umask(before)

    def close(self) -> None:
        """Answer nobody any more."""
        self._over.set()
        self._thread.join()
        self._socket.close()
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    def add(self, pid: int, config: bytes) -> _Waiting:
        """Give a process this configuration when it asks."""
        waiting = self._waiting[pid] = _Waiting(config)
        return waiting

    def remove(self, pid: int) -> bool:
        """Give a process nothing any more; True if no other is waited for."""
        self._waiting.pop(pid, None)
        return not self._waiting

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                data, ancillary, _, sender = self._socket.recvmsg(
                    _MOST_BYTES, socket.CMSG_SPACE(struct.calcsize("3i"))
                )
            except TimeoutError:
                continue
            except OSError:
                return
            pid = _sender(ancillary)
            # The sender may have gone.
            with contextlib.suppress(OSError, struct.error):
                self._answer(data, pid, sender)

    def _answer(self, data: bytes, pid: int, sender: str) -> None:
        size, kind = _HEAD.unpack_from(data)
        kind, body = kind.rstrip(b"\0"), data[_HEAD.size :]
        if not sender or size != len(body):
            return
        if kind == b"ctxt":
            self._send(kind, struct.pack("=i", 1), sender)
            return
        if kind != b"req":
            return
        kinds, count, _ = _REQUEST.unpack_from(body)
        if not 0 < count <= _MOST_PROCESSES:
            return
        process = struct.unpack_from("=i", body, _REQUEST.size)[0]
        waiting = self._waiting.get(process)
        # Nobody else may take the place of the process.
        if waiting is None or process != pid or waiting.sent.is_set():
            self._send(kind, b"", sender)
            return
        waiting.asked.set()
        if not kinds & _ACTIVITIES:
            waiting.busy.set()
            self._send(kind, b"", sender)
            return
        self._send(kind, waiting.config, sender)
        waiting.sent.set()

    def _send(self, kind: bytes, body: bytes, to: str) -> None:
        self._socket.sendto(_HEAD.pack(len(body), kind) + body, to)


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The process that has sent a message, as the kernel says; 0 if it does not."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == getattr(socket, "SCM_CREDENTIALS", 2):
            return int(struct.unpack("3i", data[:12])[0])
    return 0


_daemons: dict[str, Daemon] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def _registered(folder: str, pid: int, config: bytes) -> Iterator[_Waiting]:
    """Give a process a configuration; all that are recorded at a time share a daemon."""
    with _lock:
        daemon = _daemons.get(folder)
        if daemon is None:
            daemon = _daemons[folder] = Daemon(folder)
        waiting = daemon.add(pid, config)
    try:
        yield waiting
    finally:
        with _lock:
            if daemon.remove(pid):
                del _daemons[folder]
                daemon.close()


class KinetoCall(ThreadCall):
    """Records a process of this machine; Kineto ends a recording by its duration alone."""

    def record(self) -> Outcome:
        """Give the process a configuration, and wait for its trace."""
        if not hasattr(socket, "SO_PASSCRED"):
            return Refusal(TOLD, "Kineto asks a daemon on Linux only")
        pid = self.order.address.port
        try:
            process = psutil.Process(pid)
            owner = process.uids().effective
            environment = _environment(process)
        except psutil.NoSuchProcess:
            return Refusal(TOLD, "there is no such process on this machine")
        if os.geteuid() not in (0, owner):
            return Refusal(TOLD, "the process belongs to another user")
        try:
            with _trace_folder(environment.get(_TRACES) or "/tmp", owner) as folder:  # noqa: S108
                config = self._config(folder / "trace.json")
                with _registered(environment.get(_SOCKETS, ""), pid, config) as waiting:
                    if (refusal := self._accepted(waiting, process)) is not None:
                        return refusal
                    return self._received(folder / f"trace_{pid}.json", process)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Refusal(TOLD, NO_DAEMON)
            return Refusal(TOLD, f"{error.strerror or error}: {error.filename or 'the socket'}")

    def _config(self, file: Path) -> bytes:
        request = self.order.request
        python = "true" if request.python_level else "false"
        lines = (
            f"ACTIVITIES_LOG_FILE={file}",
            f"ACTIVITIES_DURATION_MSECS={request.duration_ms}",
            "ACTIVITIES_WARMUP_PERIOD_SECS=0",
            "PROFILE_REPORT_INPUT_SHAPES=true",
            f"PROFILE_WITH_STACK={python}",
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def _accepted(self, waiting: _Waiting, process: psutil.Process) -> Refusal | None:
        """Wait until the process has its configuration; why it does not take one."""
        until = time.monotonic() + ASKS_S
        while not waiting.sent.wait(_LOOK_S):
            if self.stopping.is_set():
                return Refusal("CANCELLED", "")
            if not process.is_running():
                return Refusal("UNAVAILABLE", "Socket closed")
            if time.monotonic() > until and waiting.busy.is_set():
                return Refusal("ALREADY_EXISTS", "")
            if time.monotonic() > until:
                return Refusal(
                    TOLD,
                    f"it did not ask for a recording within {ASKS_S:.0f} s: was it started with"
                    " KINETO_USE_DAEMON=1, and has it imported PyTorch?",
                )
        return None

    def _received(self, trace: Path, process: psutil.Process) -> Outcome:
        """Wait for the trace, and pack it."""
        until = time.monotonic() + self.order.timeout_s
        while not _is_complete(trace):
            if self.cancelled.wait(_LOOK_S):
                return Refusal("CANCELLED", "")
            if not process.is_running() and not _is_complete(trace):
                return Refusal("UNAVAILABLE", "Socket closed")
            if time.monotonic() > until:
                return Refusal("DEADLINE_EXCEEDED", "")
        if not contains(trace, PYTORCH.recorder.signs):
            return ProfileResponse(empty=True)
        target = self.order.folder / f"{self.order.address.file_stem}{TORCH_SUFFIX}"
        with _opened(trace) as source, gzip.open(target, "wb", torch_trace.LEVEL) as packed:
            shutil.copyfileobj(source, packed, 1 << 20)
        return Received(target, socket.gethostname())


def _environment(process: psutil.Process) -> dict[str, str]:
    """The environment that a process was started with; this process's own if it is not readable."""
    try:
        return dict(process.environ())
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return dict(os.environ)


@contextlib.contextmanager
def _trace_folder(parent: str, owner: int) -> Iterator[Path]:
    """A folder that the process may write to, and nobody else."""
    folder = Path(tempfile.mkdtemp(prefix="nbprof-", dir=parent))
    try:
        if owner != os.geteuid():
            os.chown(folder, owner, -1, follow_symlinks=False)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opened(trace: Path) -> BinaryIO:
    """A file that the process wrote; OSError for a link or a pipe in its place."""
    descriptor = os.open(trace, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(trace))
    return os.fdopen(descriptor, "rb")


def _is_complete(trace: Path) -> bool:
    """Return whether a trace has been written to its end."""
    try:
        with _opened(trace) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            tail = file.read().rstrip()
    except OSError:
        return False
    return tail.endswith(b"}") and _END in tail
