"""Make this process available for sampling: start its framework's profiler server."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import socket
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

from nbprof.capture import keras
from nbprof.capture.clock import Marker, Span, StepClock, current, set_standing
from nbprof.capture.imports import ImportWatch
from nbprof.capture.patches import Patches
from nbprof.capture.windows import backend_class
from nbprof.core.errors import CaptureError
from nbprof.display.wording import listed
from nbprof.frameworks.register import PYTORCH, RECORDED, is_imported, named


class Unmarked:
    """Stands where a step is marked by somebody else."""

    def close(self, step: int | None, batches: int = 1) -> None:
        """Do nothing."""


class StandingMarks:
    """Marks the steps of this process from now on: of Keras, ``nbprof.step`` and ``nbprof.steps``.

    So whoever samples the process sees steps, though nobody starts a recording in it; while nothing
    is recorded, the framework drops the markers. A recording that is made in this process, as by
    ``%%nbprof``, marks its steps itself, and these are silent meanwhile.

    Parameters
    ----------
    name : str
        ``tensorflow`` or ``jax``.
    module : module
        The framework.
    """

    def __init__(self, name: str, module: ModuleType) -> None:
        self._backend: Any = backend_class(named(name))(module)
        self.clock = StepClock()
        self.clock.open_marker = self._open
        self.clock.open_wait = self._open_wait
        self._patches = Patches()
        self._watch = ImportWatch({keras.MODULE: self._keras_is_here})

    def install(self) -> None:
        """Begin."""
        self._backend.hook(self.clock, self._patches, lambda: None)
        self._watch.install()
        set_standing(self.clock)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.clock.abandon)

    def remove(self) -> None:
        """End."""
        set_standing(None)
        self._watch.remove()
        self._patches.restore()
        self.clock.abandon()

    def _open(self, kind: str, number: int) -> Marker:
        # Two roots around one batch would be two steps.
        if current() is not self.clock:
            return Unmarked()
        marker: Marker = self._backend.open_marker(kind, number)
        return marker

    def _open_wait(self, name: str) -> Span:
        span: Span = self._backend.open_wait(name)
        return span

    def _keras_is_here(self, module: ModuleType) -> None:
        try:
            keras.hook(module, self.clock, self._patches)
        except Exception as error:
            # Nothing of ours may fail the user's import.
            self.clock.fault = f"Keras steps could not be marked: {type(error).__name__}: {error}"


SERVERS = tuple(name for name, framework in RECORDED.items() if framework.recorder.has_server)
_LOOPBACK = "127.0.0.1"
_LEAST_TOKEN = 16
"""Characters of a token."""
_NO_SERVER = (
    "{title} has no profiler server, so it cannot be sampled from another process: %%nbprof above"
    " its cell, or `with nbprof.profile():` in its script, records it"
)
_lock = threading.Lock()
# Framework and its port, in the process that started it.
_serving: dict[str, tuple[int, int]] = {}


def serve(
    port: int = 6009,
    backend: str = "auto",
    *,
    steps: bool = True,
    host: str = "",
    token: str = "",
) -> int:
    """Start a profiler server in this process and return its port.

    `nbprof.capture` then records it: at ``grpc://machine:6009`` programs of TensorFlow and JAX,
    whose own server it is, and at ``torch://machine:6009`` those of PyTorch, which has none.

    It runs as long as the process. A second call changes nothing and returns the port of the first.
    From then on, the steps of Keras, `nbprof.step` and `nbprof.steps` are marked in programs of
    TensorFlow and JAX, so that samples have steps; a marker that is not recorded costs a few
    microseconds. In programs of PyTorch, nothing is changed until a recording begins.

    The servers of TensorFlow and JAX listen on all network addresses of the machine, without a
    password: whoever can reach the port can record the program. On a shared network, close the port
    in the firewall and use a tunnel: ``ssh -L 6009:localhost:6009 machine``. The server for PyTorch
    listens for its own machine, unless `host` and a token say otherwise.

    Parameters
    ----------
    port : int
        0 takes a free one.
    backend : str
        ``tensorflow``, ``jax``, ``torch``, or ``auto``: the one that Keras runs on, or that is
        imported.
    steps : bool
        False marks no steps; PyTorch's are only marked while they are recorded.
    host : str
        PyTorch only: the address to listen at, as ``0.0.0.0`` for all of the machine. When left
        out, only programs on this machine can connect.
    token : str
        PyTorch only: a secret of 16 characters and more that a recording must know, also in the
        environment variable ``NBPROF_TOKEN``. Needed with a `host` that others can reach.

    Returns
    -------
    int
        The port.

    Raises
    ------
    CaptureError
        The port is in use, no framework is imported, or `host` needs a token.

    Examples
    --------
    >>> import nbprof, jax                      # doctest: +SKIP
    >>> nbprof.serve(6009)                      # doctest: +SKIP
    6009
    """
    if not _is_port(port):
        raise CaptureError(
            f"the port must be a number from 1 to 65535, or 0 for a free one, not {port!r}"
        )
    with _lock:
        name = _choose(backend)
        if name == PYTORCH.name:
            listen, secret = _listening(host, token)
        elif host or token:
            raise CaptureError(
                f"{named(name).title}'s profiler server listens on all addresses without a token:"
                " host and token are for programs of PyTorch"
            )
        module = _module(name)
        process, running = _serving.get(name, (0, 0))
        if process == os.getpid():
            if port not in (0, running):
                raise CaptureError(
                    f"{named(name).title}'s profiler server already listens on port {running} in"
                    " this process; there can be only one"
                )
            return running
        if name == PYTORCH.name:
            _serving[name] = (os.getpid(), _serve_torch(listen, port, secret))
            return _serving[name][1]
        chosen = free_port(port)
        try:
            backend_class(named(name)).serve(module, chosen)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(
                f"{named(name).title}'s profiler server did not start: {error}"
            ) from error
        if not _listens(chosen):
            raise CaptureError(
                f"{named(name).title}'s profiler server does not listen on port"
                f" {chosen}{_low(chosen)}: choose another port"
            )
        _serving[name] = (os.getpid(), chosen)
        if steps:
            _mark_steps(name, module)
        return chosen


def _mark_steps(name: str, module: Any) -> None:
    marks = StandingMarks(name, module)
    try:
        marks.install()
    except Exception as error:
        # The server is of use without them.
        marks.remove()
        warnings.warn(
            f"nbprof: steps are not marked: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )


def _listening(host: str, token: str) -> tuple[str, str]:
    """The address to listen at, and the token; checked."""
    from nbprof.capture.remote import torch_wire
    from nbprof.capture.remote.torch_server import is_loopback

    token = token or os.environ.get(torch_wire.TOKEN_VARIABLE, "")
    host = (host or _LOOPBACK).strip("[]")
    if token and not (token.isascii() and token.isprintable() and len(token) >= _LEAST_TOKEN):
        raise CaptureError(
            f"the token must have {_LEAST_TOKEN} printable ASCII characters or more, as"
            " secrets.token_urlsafe() gives"
        )
    if not token and not is_loopback(host):
        raise CaptureError(
            f"at {host} whoever reaches the port could record the program: give a token, or set"
            f" {torch_wire.TOKEN_VARIABLE}; or leave out host, and use a tunnel"
        )
    return host, token


def _serve_torch(host: str, port: int, token: str) -> int:
    from nbprof.capture.remote.torch_server import Server

    try:
        return Server(host, port, token).start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = "is in use by another program"
        elif error.errno == errno.EACCES:
            why = f"may not be used here{_low(port)}"
        else:
            why = f"cannot be used at {host} ({error.strerror or error})"
        raise CaptureError(f"port {port} {why}: choose another, or 0 for a free one") from error


def _is_port(port: Any) -> bool:
    return isinstance(port, int) and not isinstance(port, bool) and 0 <= port < 65536


def _choose(backend: str) -> str:
    if backend in SERVERS:
        return backend
    if backend in RECORDED:
        raise CaptureError(_NO_SERVER.format(title=named(backend).title))
    if backend != "auto":
        raise CaptureError(f"unknown backend {backend!r}: choose auto, {listed(SERVERS, 'or')}")
    keras = sys.modules.get("keras")
    try:
        of_keras = str(keras.backend.backend()) if keras is not None else ""
    except AttributeError:
        of_keras = ""
    for name in (of_keras, *SERVERS):
        if name in SERVERS and is_imported(name):
            return name
    for framework in RECORDED.values():
        if framework.recorder.imported:
            raise CaptureError(_NO_SERVER.format(title=framework.title))
    titles = [named(name).title for name in SERVERS]
    raise CaptureError(
        f"neither {listed(titles, 'nor')} is imported: import one first, or name it:"
        " nbprof.serve(6009, backend='jax')"
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(named(name).recorder.module)
    except ImportError as error:
        raise CaptureError(f"{named(name).title} is not installed here ({error})") from error


def free_port(port: int) -> int:
    """A port that nobody listens at.

    Two gRPC servers may listen at one port without an error, and requests would go to either; so it
    is asked for here, without that sharing.
    """
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _bind(socket.AF_INET6, port)
    try:
        return _bind(socket.AF_INET, port)
    except OSError as error:
        raise CaptureError(f"port {port} cannot be used: {error.strerror}") from error


def _bind(family: socket.AddressFamily, port: int) -> int:
    """The port, free in this family of addresses; OSError where there are no such addresses."""
    with socket.socket(family) as probe:
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if os.name != "nt":
            # As servers do: a port on which only old connections linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = "is in use by another profiler server or another program"
            elif error.errno == errno.EACCES:
                why = f"may not be used here{_low(port)}"
            else:
                raise
            raise CaptureError(f"port {port} {why}: choose another, or 0 for a free one") from error
        return int(probe.getsockname()[1])


def _low(port: int) -> str:
    return ", since ports below 1024 need privileges" if port < 1024 else ""


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), timeout=5):
            return True
    except OSError:
        return False
