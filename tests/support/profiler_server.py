"""A gRPC server that stands in for a framework's profiler server and behaves as it is told, badly
for the most part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.support.places import space
from tests.support.xspace import chunk, number

SERVICE = "tensorflow.ProfilerService"


def answer(host: str = "machine", data: bytes | None = None, *, empty: bool = False) -> bytes:
    """A ProfileResponse that holds a small recording."""
    own = space() if data is None else data
    return (number(7, 1) if empty else b"") + chunk(8, own + (chunk(4, host) if host else b""))


class Refuse(Exception):
    """Answer with a status."""

    def __init__(self, code: str, details: str = "") -> None:
        super().__init__(details)
        self.code, self.details = code, details


class StandIn:
    """Answers the calls of `Profile` one after the other, the last answer again and again.

    An answer is bytes, a `Refuse`, or a function of the decoded request and this server that gives
    one of them. `left` is set when a call is over, also while its answer is still being thought
    about.
    """

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.requests: list[dict[int, Any]] = []
        self.ended: list[str] = []
        self.at: list[float] = []
        self.end = threading.Event()
        self.left = threading.Event()
        self.port = 0

    def profile(self, request: bytes, context: Any) -> bytes:
        import grpc

        self.requests.append(decode(request))
        self.at.append(time.monotonic())
        context.add_callback(self.left.set)
        now = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if callable(now):
            now = now(self.requests[-1], self)
        if isinstance(now, Refuse):
            context.abort(grpc.StatusCode[now.code], now.details)
        return bytes(now)

    def terminate(self, request: bytes, context: Any) -> bytes:
        self.ended.append(decode(request)[1])
        self.end.set()
        return b""

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"


def decode(data: bytes) -> dict[int, Any]:
    """The fields of a message: numbers, texts, and options (field 4) as fields again."""
    from nbprof.core.wire import LENGTH, fields

    out: dict[int, Any] = {}
    for no, kind, value, end in fields(data, 0, len(data)):
        part = data[value:end] if kind == LENGTH else b""
        out[no] = value if kind != LENGTH else decode(part) if no == 4 else part.decode()
    return out


@contextmanager
def standing_in(*answers: Any, service: str = SERVICE) -> Iterator[StandIn]:
    """A server that gives these answers."""
    import grpc

    own = StandIn(list(answers) or [answer()])
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=bytes, response_serializer=bytes
        )
        for name, method in (("Profile", own.profile), ("Terminate", own.terminate))
    }
    options = [("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    own.port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield own
    finally:
        own.end.set()
        server.stop(None).wait()


Behaviour = Callable[[dict[int, Any], StandIn], Any]
