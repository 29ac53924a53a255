"""Messages between `nbprof.serve` of a PyTorch program and `nbprof capture torch://…`.

``POST /record`` with JSON (`parse`) is answered when the recording is over: 200 with a ZIP archive
of `TRACE` and `INFO`; 204 if nothing ran; else an error with a sentence. ``POST /stop`` with
``{"session": …}`` ends a recording early. Neither can hold code or a path, and both have
a `Content-Type` that a web page may not send to another site.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Any

from nbprof.capture.remote.sampling import MOST_MS
from nbprof.core.errors import CaptureError

RECORD, STOP = "/record", "/stop"
TRACE, INFO = "trace.json.gz", "nbprof.json"
TORCH_SUFFIX = ".pt.trace.json.gz"
"""Of the files of traces of PyTorch."""
MARK = "X-Nbprof"
"""Header of all answers, with `VERSION`."""
VERSION = "1"
TYPE = "application/json"
MOST_REQUEST = 4096
"""Bytes of a request."""
MOST_INFO = 1 << 28
"""Bytes of `INFO`."""
MOST_HEADER_S = 10.0
"""Time for a request to arrive."""
TOKEN_VARIABLE = "NBPROF_TOKEN"  # noqa: S105 - a name, no secret
"""Environment variable with the token, in the program and where it is recorded from."""


@dataclass(frozen=True)
class RecordRequest:
    """The content of ``POST /record``.

    Attributes
    ----------
    session : str
        Names the recording for ``POST /stop``.
    duration_ms : int
    start_ns : int
        When to begin, in ns since 1970 by the clock of the program; 0 at once.
    python : bool
        Record every Python call.
    """

    session: str
    duration_ms: int
    start_ns: int = 0
    python: bool = False

    def encode(self) -> bytes:
        """The body of the request."""
        return json.dumps(vars(self)).encode()


def parse(body: bytes) -> RecordRequest:
    """The request in a body.

    Raises
    ------
    CaptureError
        It is none, or a value is out of bounds.
    """
    values = _object(body)
    if values.keys() - RecordRequest.__dataclass_fields__.keys():
        raise CaptureError("unknown fields: are both sides of the same version of nbprof?")
    duration, start = values.get("duration_ms"), values.get("start_ns", 0)
    if type(duration) is not int or not 1 <= duration <= MOST_MS:
        raise CaptureError("the duration must be 1 ms to 3,600,000 ms (an hour)")
    if type(start) is not int or not 0 <= start < 1 << 63:
        raise CaptureError("the start must be a time in ns since 1970")
    python = values.get("python", False)
    if type(python) is not bool:
        raise CaptureError("whether to record Python calls must be true or false")
    return RecordRequest(session(body), duration, start, python)


def session(body: bytes) -> str:
    """The name of a recording in a body.

    Raises
    ------
    CaptureError
        There is none.
    """
    name = _object(body).get("session")
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise CaptureError("the recording needs a name of up to 200 characters")
    return name


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CaptureError("the request is not a JSON object")
    return values


def same_token(authorization: str, token: str) -> bool:
    """Return whether a header `Authorization` holds the token, in a time that tells nothing."""
    return hmac.compare_digest(authorization.encode("utf-8", "replace"), f"Bearer {token}".encode())
