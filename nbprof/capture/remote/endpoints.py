"""Record vLLM and SGLang through the ``/start_profile`` and ``/stop_profile`` endpoints.

These endpoints start and stop PyTorch's profiler in all processes of the server, which write their
traces to a folder of the server. vLLM's is that of its own configuration; SGLang takes one with the
request.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import shutil
import socket
import time
import zlib
from pathlib import Path

from nbprof.capture.remote.addresses import SGLANG
from nbprof.capture.remote.calls import Outcome, Received, ThreadCall
from nbprof.capture.remote.client import CONNECT_MS, Refusal
from nbprof.capture.remote.failures import TOLD
from nbprof.capture.remote.torch_wire import TORCH_SUFFIX
from nbprof.core.errors import CaptureError

START, STOP = "/start_profile", "/stop_profile"
KEY_VARIABLE = "NBPROF_API_KEY"
"""Environment variable with the API key of the server, where it has one."""
QUIET_S = 2.0
"""Time without a change after which a server has written all traces."""
_LOOK_S = 0.25
_HEAD_BYTES = 1 << 16
_WORLD = re.compile(rb'"world_size":\s*(\d{1,6})')
_MOST_TEXT = 2000
_MOST_FILES = 4096


class EndpointCall(ThreadCall):
    """Starts the profiler of a server, stops it, and takes the traces that it has written."""

    def record(self) -> Outcome:
        """Record for the duration, on the thread of the call."""
        if not self.order.written_to:
            return Refusal(TOLD, "--folder DIR is missing: the folder that it writes its traces to")
        folder = Path(self.order.written_to).expanduser().absolute()
        if not folder.is_dir():
            return Refusal(TOLD, f"there is no folder {folder} here, which it would write to")
        before = traces(folder)
        # An answer that is lost may be that of a server that records.
        may_record, started = True, False
        try:
            self._ask(START, folder)
            started = True
            self.stopping.wait(self.order.request.duration_ms / 1000)
        except CaptureError as error:
            may_record = False
            return Refusal(TOLD, str(error))
        except (OSError, http.client.HTTPException) as error:
            may_record = not isinstance(error, ConnectionRefusedError)
            return _refusal(error, connected=started)
        finally:
            # Also where it was given up: it would record until its memory is full.
            stopped = self._stop(folder) if may_record else None
        return stopped or self._written(folder, before)

    def _stop(self, folder: Path) -> Refusal | None:
        try:
            self._ask(STOP, folder)
        except CaptureError as error:
            return Refusal(TOLD, str(error))
        except (OSError, http.client.HTTPException) as error:
            return _refusal(error, connected=True)
        return None

    def _ask(self, path: str, folder: Path) -> None:
        """Call an endpoint.

        Raises
        ------
        CaptureError
            It refuses.
        OSError, http.client.HTTPException
        """
        address = self.order.address
        body = b""
        headers = {}
        if address.scheme == SGLANG and path == START:
            body = json.dumps({"output_dir": str(folder)}).encode()
            headers["Content-Type"] = "application/json"
        if token := os.environ.get(KEY_VARIABLE):
            headers["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection(
            address.host.strip("[]"), address.port, timeout=CONNECT_MS / 1000
        )
        with contextlib.closing(connection):
            connection.connect()
            assert connection.sock is not None
            # vLLM answers when all processes have written their traces.
            connection.sock.settimeout(self.order.timeout_s)
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            text = response.read(_MOST_TEXT).decode("utf-8", "replace")
        if response.status == 404:
            raise CaptureError(
                f"the server has no {path}: was it started with a folder for traces"
                " (VLLM_TORCH_PROFILER_DIR or --profiler-config of vLLM,"
                " SGLANG_TORCH_PROFILER_DIR of SGLang)?"
            )
        if response.status in (401, 403):
            raise CaptureError(f"it wants its API key in the environment variable {KEY_VARIABLE}")
        if not 200 <= response.status < 300:
            raise CaptureError(f"{path} answered {response.status}: {' '.join(text.split())}")

    def _written(self, folder: Path, before: dict[Path, tuple[int, int]]) -> Outcome:
        """Wait until the traces are complete, and copy them."""
        until = time.monotonic() + self.order.timeout_s
        last: dict[Path, tuple[int, int]] = {}
        changed = time.monotonic()
        while not self.cancelled.is_set():
            now = traces(folder)
            written = {path: state for path, state in now.items() if before.get(path) != state}
            if written != last:
                last, changed = written, time.monotonic()
            is_late = time.monotonic() > until
            quiet = is_late or time.monotonic() - changed >= QUIET_S
            complete = written and quiet and all(map(is_complete, written))
            # Ranks write at different times, and some may be on other machines.
            if complete and (is_late or len(written) >= max(map(ranks, written))):
                return self._copied(sorted(written))
            if is_late:
                return Refusal(
                    TOLD,
                    f"it wrote no complete trace to {folder}: does the server see that folder under"
                    " the same path?",
                )
            self.cancelled.wait(_LOOK_S)
        return Refusal("CANCELLED", "")

    def _copied(self, files: list[Path]) -> Received:
        targets = []
        for file in files:
            stem = file.name.partition(".pt.trace.json")[0].partition(".trace.json")[0]
            target = self.order.folder / f"{stem}{TORCH_SUFFIX}"
            if file.suffix == ".gz":
                shutil.copyfile(file, target)
            else:
                with file.open("rb") as source, gzip.open(target, "wb", 3) as packed:
                    shutil.copyfileobj(source, packed, 1 << 20)
            targets.append(target)
        return Received(targets[0])


def traces(folder: Path) -> dict[Path, tuple[int, int]]:
    """The traces in a folder and in those directly below it, with their size and time."""
    states: dict[Path, tuple[int, int]] = {}
    for pattern in ("*.trace.json", "*.trace.json.gz"):
        for path in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")):
            # A file may go meanwhile.
            with contextlib.suppress(OSError):
                status = path.stat()
                states[path] = status.st_size, status.st_mtime_ns
            if len(states) >= _MOST_FILES:
                return states
    return states


def is_complete(path: Path) -> bool:
    """Return whether a trace ends as JSON does."""
    opened = gzip.open if path.suffix == ".gz" else Path.open
    last = b""
    try:
        with opened(path, "rb") as file:
            while chunk := file.read(1 << 20):
                last = (last + chunk)[-64:]
    except (OSError, EOFError, zlib.error):
        return False
    return last.rstrip().endswith((b"}", b"]"))


def ranks(path: Path) -> int:
    """The number of ranks that a complete trace states at its beginning; 1 if it states none."""
    opened = gzip.open if path.suffix == ".gz" else Path.open
    with opened(path, "rb") as file:
        stated = _WORLD.search(file.read(_HEAD_BYTES))
    return int(stated[1]) if stated is not None else 1


def _refusal(error: Exception, *, connected: bool) -> Refusal:
    if isinstance(error, socket.gaierror):
        return Refusal("UNAVAILABLE", "name not known")
    if isinstance(error, TimeoutError):
        return Refusal("DEADLINE_EXCEEDED" if connected else "UNAVAILABLE", "timed out")
    if isinstance(error, ConnectionRefusedError):
        return Refusal("UNAVAILABLE", "Connection refused")
    if isinstance(error, http.client.HTTPException) and not connected:
        return Refusal(TOLD, "the server on this port does not speak HTTP")
    return Refusal("UNAVAILABLE", "Socket closed")
