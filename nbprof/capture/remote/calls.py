"""Calls to workers that are asked on a thread: what all ways of asking a worker have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nbprof.capture.remote.addresses import Address
from nbprof.capture.remote.client import Refusal
from nbprof.capture.remote.messages import ProfileRequest, ProfileResponse
from nbprof.sources.recording import CaptureInfo


@dataclass(frozen=True)
class Received:
    """A recording that a worker has sent.

    Attributes
    ----------
    path : Path
        Its file.
    worker : str
        Name of the process in its job: the machine, and the rank if there are several.
    info : CaptureInfo or None
        How it was recorded, if nbprof recorded it.
    """

    path: Path
    worker: str = ""
    info: CaptureInfo | None = None


Outcome = ProfileResponse | Received | Refusal


class Call(Protocol):
    """A request on its way; `outcome` once it is `done`."""

    @property
    def done(self) -> bool:
        """True when there is an answer, or will be none."""

    def outcome(self) -> Outcome:
        """The answer, or why there is none; only when `done`."""

    def terminate(self, session: str) -> None:
        """Ask the worker to end the recording early; the answer to this call comes sooner then."""

    def cancel(self) -> None:
        """Give up: the worker stops recording and sends nothing."""


@dataclass(frozen=True)
class Order:
    """A request to one worker.

    Attributes
    ----------
    address : Address
    request : ProfileRequest
    folder : Path
        Receives its file.
    timeout_s : float
        After which it is given up.
    written_to : str or None
        Where the server of a model writes its traces, as this machine sees it.
    """

    address: Address
    request: ProfileRequest
    folder: Path
    timeout_s: float
    written_to: str | None = None


class ThreadCall:
    """A call that is made on a separate thread.

    Parameters
    ----------
    order : Order
    done : callable
        Called from that thread when the call is over.
    """

    def __init__(self, order: Order, done: Callable[[], None]) -> None:
        self.order = order
        self.stopping = threading.Event()
        self.cancelled = threading.Event()
        self._outcome: Outcome | None = None
        self._over = done
        self._thread = threading.Thread(target=self._run, name="nbprof-call", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """True when there is an answer, or will be none."""
        return self._outcome is not None

    def outcome(self) -> Outcome:
        """The answer, or why there is none; only when `done`."""
        assert self._outcome is not None
        return self._outcome

    def terminate(self, session: str) -> None:
        """Ask the worker to end the recording early."""
        del session
        self.stopping.set()

    def cancel(self) -> None:
        """Give up: the worker stops recording and sends nothing."""
        self.cancelled.set()
        self.stopping.set()

    def record(self) -> Outcome:
        """Ask the worker, on the thread of the call. An exception is a refusal."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            outcome = self.record()
        except Exception as error:
            outcome = Refusal("UNKNOWN", f"{type(error).__name__}: {error}")
        if self.cancelled.is_set():
            if isinstance(outcome, Received):
                outcome.path.unlink(missing_ok=True)
            outcome = Refusal("CANCELLED", "")
        self._outcome = outcome
        self._over()
