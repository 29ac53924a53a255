"""Failures of workers, as sentences with a remedy, and whether to ask again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nbprof.capture.remote.addresses import Address
from nbprof.capture.remote.client import Refusal

BUSY = "another recording is running there; a worker makes one recording at a time"
IDLE = "nothing happened there during the recording: is it training? Try a longer --duration"
REFUSED = (
    "nothing listens on this port: is the worker running, and is this the port of its profiler"
    " server (nbprof.serve(6009) starts one)?"
)
NO_GRPC = (
    "the server on this port does not speak gRPC; the profiler server uses a separate port, not"
    " TensorBoard's or Jupyter's"
)
NO_PROFILER = (
    "the server on this port has no profiler service; the profiler server uses a separate port"
)
BROKEN = "the connection was lost during the recording; was the worker stopped?"


TOLD = "TOLD"
"""Code of a refusal whose text is the reason."""
NO_DAEMON = (
    "another daemon answers Kineto on this machine: if it is dynolog, `dyno gputrace` records, or"
    " stop it first"
)
NOT_WRITTEN = "NOT_WRITTEN"
"""Code of a recording that arrived, but could not be written here."""
_TORCH = {
    "UNIMPLEMENTED": (
        "the server on this port is not that of nbprof.serve in a program of PyTorch; those of"
        " TensorFlow and JAX are grpc://host:port"
    ),
    "UNAUTHENTICATED": (
        "it wants the token that its program was given: set the environment variable NBPROF_TOKEN"
        " to it here, too"
    ),
    "PERMISSION_DENIED": (
        "it listens for its own machine alone: use a tunnel to localhost, or start it with a host"
        " and a token"
    ),
}
"""Reasons for the codes of `nbprof.serve` in programs of PyTorch."""


@dataclass(frozen=True)
class Failure:
    """A failed attempt.

    Parameters
    ----------
    reason : str
        A sentence without its full stop, to stand behind the address.
    again : bool
        Whether another try may do better.
    busy : bool
        Someone else records there; waiting helps.
    """

    reason: str
    again: bool = False
    busy: bool = False


def explain(refusal: Refusal, address: Address, root: str, waited_s: float) -> Failure:
    """Explain a status code of gRPC for the user; other calls use its codes.

    Parameters
    ----------
    refusal : Refusal
    address : Address
    root : str
        The folder that a server without answers of its own was to write to.
    waited_s : float
        How long the call was under way.
    """
    code, details = refusal.code, refusal.details
    if code == TOLD:
        return Failure(details)
    if code == NOT_WRITTEN:
        return Failure(
            f"its recording could not be written to {root} ({details}): choose another location"
            " with --logdir DIR"
        )
    if address.scheme == "torch" and code in _TORCH:
        return Failure(_TORCH[code])
    if code == "UNAVAILABLE":
        return _unreachable(details, address)
    if code == "UNIMPLEMENTED":
        if "http2 header" in details:
            return Failure(NO_GRPC)
        return Failure(NO_PROFILER)
    if code == "ALREADY_EXISTS" or "nother profiling session" in details:
        return Failure(BUSY, again=True, busy=True)
    if "Stream removed" in details:
        return Failure(BROKEN, again=True)
    if code == "DEADLINE_EXCEEDED":
        return Failure(
            f"no answer within {waited_s:.0f} s: it hangs, sends more data than the network can"
            " carry, or its clock is behind this machine's"
        )
    if root and root in details:
        return Failure(
            f"this server writes its own file, and could not write to {root} ({_short(details)}):"
            f" {shared()}"
        )
    if code == "DATA_LOSS":
        return Failure(f"its answer is not a profile ({_short(details)})")
    if code == "RESOURCE_EXHAUSTED":
        return Failure(
            f"the recording is too large to send ({_short(details)}): try a shorter --duration"
        )
    if code == "CANCELLED":
        return Failure("it aborted the recording", again=True)
    reason = f"it answered {code}"
    if details:
        reason += f": {_short(details)}"
    return Failure(reason)


def shared() -> str:
    """The remedy where a server writes its file itself."""
    return (
        "choose a --logdir that both machines share under this path, or update TensorFlow or JAX"
        " there"
    )


def _unreachable(details: str, address: Address) -> Failure:
    if re.search(r"HTTP/2|frame type", details):
        return Failure(NO_GRPC)
    if "SETTINGS frame" in details:
        return Failure(
            "the server on this port does not answer: it is not a profiler server, or it hangs"
        )
    if re.search(r"resolv|lookup|[Nn]ame (?:or service )?not (?:found|known)|DNS", details):
        return Failure(f"no machine named {address.host} was found", again=True)
    if "refused" in details:
        return Failure(REFUSED, again=True)
    if re.search(r"[Tt]ime[d ]*out|FD [Ss]hutdown|unreachable|No route", details):
        return Failure(
            "the machine cannot be reached: is the name right, and is the port open in the"
            " firewall?",
            again=True,
        )
    if re.search(r"[Ss]ocket closed|reset|GOAWAY|Broken pipe|Stream removed|EOF", details):
        return Failure(BROKEN, again=True)
    return Failure(f"it cannot be reached ({_short(details)})", again=True)


def _short(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > 200:
        return f"{line[:199]}…"
    return line
