"""Addresses of workers, checked before any worker is contacted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nbprof.capture import notes
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note

# A name or IPv4 address, or an IPv6 address in brackets.
_HOST = (
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?"
    r"|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\]"
)
_EXAMPLE = "write it as host:6009, with the port of the profiler server"


# Of a Cloud TPU, below its zone and project where these are not those of this machine.
_PART = r"[a-z](?:[a-z0-9.:-]{0,61}[a-z0-9])?"
_TPU = (
    rf"(?:(?:({_PART})/)?([a-z][a-z0-9-]{{0,61}}[a-z0-9])/)?([a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?)"
)
_TPU_EXAMPLE = (
    "write it as tpu://NAME, tpu://ZONE/NAME or tpu://PROJECT/ZONE/NAME, with :PORT if its profiler"
    " server is not on {}"
)
TPU_PORT = 8466
"""Where the runtime of a Cloud TPU serves its profiler; a program with `nbprof.serve(6009)` or
``start_server(6009)`` serves its own.
"""


GRPC = "grpc"
"""The scheme of addresses without one."""


@dataclass(frozen=True)
class Address:
    """A worker: `host`, an IPv6 address in brackets, `port`, and the `scheme` of its server.

    A process that is asked over Kineto's own sockets has its id in place of the port.
    """

    host: str
    port: int
    scheme: str = GRPC

    def __str__(self) -> str:
        if self.scheme == KINETO:
            return f"{KINETO}://{self.port}"
        if self.scheme == GRPC:
            return f"{self.host}:{self.port}"
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def file_stem(self) -> str:
        """Its file name without a suffix; workers of one machine differ in the port."""
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.host.strip('[]'))}_{self.port}"


TORCH, KINETO, VLLM, SGLANG = "torch", "kineto", "vllm", "sglang"
SCHEMES = (GRPC, TORCH, KINETO, VLLM, SGLANG)
"""Of the addresses of workers."""


@dataclass(frozen=True)
class Tpu:
    """The workers of a Cloud TPU; an empty `zone` or `project` is that of this machine."""

    project: str
    zone: str
    name: str
    port: int

    def __str__(self) -> str:
        path = "/".join(filter(None, (self.project, self.zone, self.name)))
        return f"tpu://{path}:{self.port}"


def parse(addresses: str | Iterable[str]) -> tuple[list[Address | Tpu], list[Note]]:
    """Return the addresses, each once, and a note for each that was given again.

    Parameters
    ----------
    given : str or iterable of str
        ``grpc://a:6009,grpc://b:6009``, also without ``grpc://``, ``torch://a:6009``,
        ``tpu://NAME``, or a list of such texts.

    Raises
    ------
    CaptureError
        An invalid address, or none.
    """
    parsed: list[Address | Tpu] = []
    repeated: dict[Address | Tpu, None] = {}
    for text in filter(None, map(str.strip, ",".join(_texts(addresses)).split(","))):
        address = _parse_address(text)
        if address in parsed:
            repeated[address] = None
        else:
            parsed.append(address)
    if not parsed:
        raise CaptureError(
            "no address given: name the workers, as in grpc://host:6009,grpc://host2:6009"
        )
    schemes = {getattr(address, "scheme", GRPC) for address in parsed}
    if GRPC in schemes and len(schemes) > 1:
        raise CaptureError(
            "programs of PyTorch and those of TensorFlow or JAX write different files: record them"
            " separately"
        )
    if len(parsed) > 1 and schemes & {VLLM, SGLANG}:
        raise CaptureError(
            "record one server of vLLM or SGLang at a time: --folder names the folder of one, whose"
            " traces could not be told from another's"
        )
    return parsed, list(map(notes.repeated_address, repeated))


def _texts(addresses: Any) -> list[str]:
    """One text or many, as a list; other types are refused."""
    if isinstance(addresses, str):
        return [addresses]
    if isinstance(addresses, (bytes, bytearray)) or not isinstance(addresses, Iterable):
        raise CaptureError(
            "addresses must be a string such as 'host:6009,host2:6009' or a list of strings, not"
            f" {type(addresses).__name__}"
        )
    texts = list(addresses)
    for text in texts:
        if not isinstance(text, str):
            raise CaptureError(f"an address must be a string such as 'host:6009', not {text!r}")
    return texts


def _parse_address(text: str) -> Address | Tpu:
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme.lower() == "tpu":
        return _tpu(text, rest)
    scheme = scheme.lower() if separator else GRPC
    if scheme not in SCHEMES:
        raise CaptureError(
            f"{text}: workers are not asked by {scheme}; {_EXAMPLE}, or as torch://host:6009 for a"
            " program of PyTorch"
        )
    if scheme == KINETO:
        if not re.fullmatch(r"[1-9]\d{0,8}", rest):
            raise CaptureError(
                f"{text!r} names no process: write it as kineto://1234, with the id of a process of"
                " this machine that was started with KINETO_USE_DAEMON=1"
            )
        return Address("process", int(rest), KINETO)
    match = re.fullmatch(rf"({_HOST})(?::(\d{{1,9}}))?/?", rest)
    if match is None:
        hint = "; write an IPv6 address in brackets, as [::1]:6009" if rest.count(":") > 1 else ""
        raise CaptureError(f"{text!r} is not an address: {_EXAMPLE}{hint}")
    if match[2] is None:
        raise CaptureError(f"{text} has no port: {_EXAMPLE}")
    return Address(match[1], _port(text, match[2]), scheme)


def _tpu(text: str, rest: str) -> Tpu:
    match = re.fullmatch(rf"{_TPU}(?::(\d{{1,9}}))?/?", rest)
    if match is None:
        raise CaptureError(f"{text!r} does not name a TPU: {_TPU_EXAMPLE.format(TPU_PORT)}")
    return Tpu(match[1] or "", match[2] or "", match[3], _port(text, match[4] or str(TPU_PORT)))


def _port(text: str, digits: str) -> int:
    if not 0 < int(digits) < 65536:
        raise CaptureError(f"{text}: the port must be a number from 1 to 65535")
    return int(digits)
