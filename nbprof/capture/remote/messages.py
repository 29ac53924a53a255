"""Messages of ``tensorflow.ProfilerService``, which TensorFlow, JAX and PyTorch/XLA implement.

The few fields that are needed are written by hand, so that neither TensorFlow nor protobuf has to
be installed. Field numbers are those of ``tsl/profiler/protobuf/profiler_service.proto`` and
``profiler_options.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbprof.core.wire import LENGTH, VARINT, bytes_field, fields, number_field

PROFILE = "/tensorflow.ProfilerService/Profile"
TERMINATE = "/tensorflow.ProfilerService/Terminate"

TOOL = "xplane.pb"
# Read by servers of TensorFlow 2.2 and older only; the number is what TensorFlow's own client
# sends.
_MAX_EVENTS = 1_000_000
_OPTIONS_VERSION = 1


@dataclass(frozen=True)
class ProfileRequest:
    """Asks a worker to record.

    Parameters
    ----------
    duration_ms : int
        How long.
    host_level, device_level, python_level : int
        As `host_tracer_level`, `device_tracer_level` and `python_tracer_level` of TensorFlow and
        JAX.
    start_ns : int
        When to begin, in ns since 1970 by the worker's clock; 0 at once.
    root, session, host : str
        A server that cannot send its recording writes it to ``<root>/<session>/<host>.xplane.pb``.
        `session` also names the recording that is to be ended early.
    """

    duration_ms: int
    host_level: int = 2
    device_level: int = 1
    python_level: int = 0
    start_ns: int = 0
    root: str = ""
    session: str = ""
    host: str = ""

    def encode(self) -> bytes:
        """The message on the wire."""
        options = b"".join(
            (
                number_field(1, 1),  # include_dataset_ops
                number_field(2, self.host_level),
                number_field(3, self.device_level),
                number_field(4, self.python_level),
                number_field(5, _OPTIONS_VERSION),
                number_field(7, 1),  # enable_hlo_proto
                number_field(8, self.start_ns),
                number_field(9, self.duration_ms),
            )
        )
        return b"".join(
            (
                number_field(1, self.duration_ms),
                number_field(2, _MAX_EVENTS),
                text(3, TOOL),
                bytes_field(4, options),
                text(5, self.root),
                text(6, self.session),
                text(7, self.host),
                number_field(9, 1),  # emit_xspace: the recording comes in the answer
            )
        )


@dataclass(frozen=True)
class ProfileResponse:
    """The answer of a worker.

    Parameters
    ----------
    xspace : memoryview or None
        The recording; None where the server wrote it to a file itself.
    empty : bool
        Nothing happened while it recorded.
    """

    xspace: memoryview | None = None
    empty: bool = False

    @classmethod
    def decode(cls, data: bytes) -> ProfileResponse:
        """The answer of these bytes; `xspace` is a part of them, not a copy.

        Raises
        ------
        ReadError
            They are no protobuf message.
        """
        message = memoryview(data)
        xspace: memoryview | None = None
        empty = False
        tool: memoryview | None = None
        for number_, kind, value, end in fields(data, 0, len(data)):
            if number_ == 7 and kind == VARINT:
                empty = bool(value)
            elif number_ == 8 and kind == LENGTH:
                xspace = message[value:end]
            elif number_ == 6 and kind == LENGTH:
                tool = _tool(message, value, end) or tool
        if xspace is None:
            xspace = tool
        return cls(xspace, empty)


def _tool(data: memoryview, start: int, end: int) -> memoryview | None:
    """The content of a file in the answer (`ProfileToolData`), if it is the recording."""
    name, content = b"", None
    for number_, kind, value, stop in fields(data, start, end):
        if kind == LENGTH and number_ == 1:
            name = bytes(data[value:stop])
        elif kind == LENGTH and number_ == 2:
            content = data[value:stop]
    if not name.endswith(TOOL.encode()):
        return None
    return content


@dataclass(frozen=True)
class TerminateRequest:
    """Asks a worker to end the recording `session` now and to answer with what it has."""

    session: str = field(default="")

    def encode(self) -> bytes:
        """The message on the wire."""
        return text(1, self.session)


def text(field_: int, value: str) -> bytes:
    """A text field, omitted if it is empty; bytes that are not Unicode are replaced."""
    return bytes_field(field_, value.encode("utf-8", "replace")) if value else b""
