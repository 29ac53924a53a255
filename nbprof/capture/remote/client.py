"""One call to one worker over gRPC, without generated code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbprof.capture.remote.addresses import Address
from nbprof.capture.remote.messages import PROFILE, TERMINATE, ProfileResponse, TerminateRequest
from nbprof.core.errors import CaptureError, ReadError

CONNECT_MS = 5_000
"""Time limit for a machine to accept a connection."""

_OPTIONS = (
    # A recording has 100 MB and more; gRPC refuses over 4 MB by default.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The workers of a cluster are no web pages: a proxy that is set for those does not know them.
    ("grpc.enable_http_proxy", 0),
    # Else a try that failed makes the next one fail at once, unasked.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
)


@dataclass(frozen=True)
class Refusal:
    """A failed call: the name of gRPC's status code, and its message."""

    code: str
    details: str


class GrpcCall:
    """A request on its way; `outcome` once it is `done`."""

    def __init__(self, channel: Any, future: Any) -> None:
        self._channel = channel
        self._future = future
        # A call that nobody holds is cancelled.
        self._held: Any = None

    @property
    def done(self) -> bool:
        """True when there is an answer, or will be none."""
        return bool(self._future.done())

    def outcome(self) -> ProfileResponse | Refusal:
        """The answer, or why there is none; only when `done`. The connection is closed then."""
        grpc = library()
        try:
            return ProfileResponse.decode(self._future.result())
        except ReadError as error:
            return Refusal("DATA_LOSS", str(error))
        except grpc.FutureCancelledError:
            return Refusal("CANCELLED", "")
        except grpc.RpcError:
            code = self._future.code()
            return Refusal(getattr(code, "name", str(code)), str(self._future.details() or ""))
        finally:
            self._channel.close()

    def terminate(self, session: str, timeout_s: float = 5.0) -> None:
        """Ask the worker to end the recording early; the answer to this call comes sooner then."""
        ask = self._channel.unary_unary(
            TERMINATE, request_serializer=TerminateRequest.encode, response_deserializer=bytes
        )
        self._held = ask.future(TerminateRequest(session), timeout=timeout_s)

    def cancel(self) -> None:
        """Give up: the worker stops recording and sends nothing."""
        self._future.cancel()
        self._channel.close()


def profile(
    address: Address, request: bytes, timeout_s: float, done: Callable[[], None]
) -> GrpcCall:
    """Ask a worker to record.

    Parameters
    ----------
    address : Address
    request : bytes
        A `ProfileRequest`.
    timeout_s : float
        After which it is given up.
    done : callable
        Called from another thread when the call is over.
    """
    grpc = library()
    channel = grpc.insecure_channel(str(address), options=_OPTIONS)
    future = channel.unary_unary(
        PROFILE, request_serializer=bytes, response_deserializer=bytes
    ).future(request, timeout=timeout_s)
    future.add_done_callback(lambda _: done())
    return GrpcCall(channel, future)


def library() -> Any:
    """grpcio, imported when it is needed.

    Raises
    ------
    CaptureError
        It is not installed.
    """
    try:
        import grpc
    except ImportError as error:
        raise CaptureError(
            f"sampling workers needs grpcio, which is not installed ({error}): pip install"
            " 'nbprof[remote]'"
        ) from error
    return grpc
