"""One call to the server that `nbprof.serve` starts in a program of PyTorch."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import re
import shutil
import socket
import threading
import zipfile
from pathlib import Path

from nbprof.capture.remote import torch_wire
from nbprof.capture.remote.addresses import Address
from nbprof.capture.remote.calls import Outcome, Received, ThreadCall
from nbprof.capture.remote.client import CONNECT_MS, Refusal
from nbprof.capture.remote.failures import NOT_WRITTEN, TOLD
from nbprof.capture.remote.messages import ProfileResponse
from nbprof.core.errors import ReadError
from nbprof.sources.recording import CaptureInfo

_WORKER = re.compile(r"[\w.-]{1,200}", re.ASCII)
_CODES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 409: "ALREADY_EXISTS"}
_MOST_TEXT = 10_000


class TorchCall(ThreadCall):
    """Asks a program of PyTorch to record, and receives what it has recorded."""

    _connection: http.client.HTTPConnection | None = None

    def terminate(self, session: str) -> None:
        """Ask the worker to end the recording early; the answer to this call comes sooner then."""
        super().terminate(session)
        threading.Thread(target=self._stop, args=(session,), daemon=True).start()

    def cancel(self) -> None:
        """Give up: the worker stops recording and sends nothing."""
        super().cancel()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def record(self) -> Outcome:
        """Ask for the recording and write it to a file, on the thread of the call."""
        request = self.order.request
        body = torch_wire.RecordRequest(
            request.session, request.duration_ms, request.start_ns, bool(request.python_level)
        ).encode()
        try:
            with _connected(self.order.address) as connection:
                self._connection = connection
                assert connection.sock is not None
                connection.sock.settimeout(self.order.timeout_s)
                return self._received(_asked(connection, torch_wire.RECORD, body))
        except TimeoutError:
            if self._connection is None:
                return Refusal("UNAVAILABLE", "timed out")
            return Refusal("DEADLINE_EXCEEDED", "")
        except socket.gaierror as error:
            return Refusal("UNAVAILABLE", f"name not known ({error.strerror})")
        except (http.client.IncompleteRead, ConnectionError) as error:
            return Refusal("UNAVAILABLE", _lost(error))
        except http.client.HTTPException:
            return _foreign()
        except OSError as error:
            return Refusal("UNAVAILABLE", error.strerror or str(error))

    def _received(self, response: http.client.HTTPResponse) -> Outcome:
        if response.headers.get(torch_wire.MARK) != torch_wire.VERSION:
            return _foreign()
        if response.status == 204:
            return ProfileResponse(empty=True)
        if response.status != 200:
            text = response.read(_MOST_TEXT).decode("utf-8", "replace")
            return Refusal(_CODES.get(response.status, TOLD), text)
        stem = self.order.address.file_stem
        archive = self.order.folder / f".{stem}.zip"
        try:
            _download(response, archive)
            return _unpack(archive, self.order.folder / f"{stem}{torch_wire.TORCH_SUFFIX}")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                return Refusal(NOT_WRITTEN, error.strerror or "")
            raise
        except (ReadError, zipfile.BadZipFile, ValueError, KeyError, RuntimeError) as error:
            return Refusal("DATA_LOSS", str(error))
        finally:
            archive.unlink(missing_ok=True)

    def _stop(self, session: str) -> None:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            _connected(self.order.address) as connection,
        ):
            _asked(connection, torch_wire.STOP, json.dumps({"session": session}).encode())


def _connected(address: Address) -> contextlib.closing[http.client.HTTPConnection]:
    """A connection to a worker, without the proxies of web pages.

    Raises
    ------
    OSError
    """
    connection = http.client.HTTPConnection(
        address.host.strip("[]"), address.port, timeout=CONNECT_MS / 1000
    )
    connection.connect()
    return contextlib.closing(connection)


def _asked(
    connection: http.client.HTTPConnection, path: str, body: bytes
) -> http.client.HTTPResponse:
    headers = {"Content-Type": torch_wire.TYPE}
    token = os.environ.get(torch_wire.TOKEN_VARIABLE)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request("POST", path, body, headers)
    return connection.getresponse()


def _foreign() -> Refusal:
    return Refusal("UNIMPLEMENTED", "not nbprof.serve")


def _lost(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused"
    return "Socket closed"


def _download(response: http.client.HTTPResponse, archive: Path) -> None:
    """Write the body of an answer to a file.

    Raises
    ------
    http.client.IncompleteRead
        The worker has gone.
    """
    expected = response.length
    with archive.open("wb") as file:
        shutil.copyfileobj(response, file, 1 << 20)
        size = file.tell()
    if expected is None or size < expected:
        raise http.client.IncompleteRead(b"", None)


def _unpack(archive: Path, target: Path) -> Received:
    """Take the two known files out of an answer; nothing else in it is looked at.

    Raises
    ------
    ReadError
        It lacks one, or they are not what they should be.
    """
    with zipfile.ZipFile(archive) as packed:
        entry = packed.getinfo(torch_wire.INFO)
        if entry.file_size > torch_wire.MOST_INFO:
            raise ReadError(f"{torch_wire.INFO} has {entry.file_size:,} bytes")
        values = json.loads(packed.read(entry))
        trace = packed.getinfo(torch_wire.TRACE)
        if trace.compress_type != zipfile.ZIP_STORED:
            raise ReadError(f"{torch_wire.TRACE} is compressed once more")
        with packed.open(trace) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    if not isinstance(values, dict):
        raise ReadError(f"{torch_wire.INFO} is not a JSON object")
    worker = values.get("worker")
    if not isinstance(worker, str) or not _WORKER.fullmatch(worker):
        worker = ""
    return Received(target, worker, CaptureInfo.from_dict(values))
