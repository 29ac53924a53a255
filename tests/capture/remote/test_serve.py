"""`nbprof.serve` on stand-ins of the frameworks; the real ones serve in `test_real_workers.py`."""

from __future__ import annotations

import os
import socket
import sys
import types

import pytest

import nbprof
from nbprof.capture.clock import current
from nbprof.capture.remote import serve as room
from nbprof.core.errors import CaptureError


@pytest.fixture
def bare(monkeypatch):
    """As if no framework were imported."""
    for name in ("tensorflow", "jax", "torch", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(room, "_serving", {})
    # The stand-ins have nothing to mark steps with.
    monkeypatch.setattr(room, "_mark_steps", lambda name, module: None)
    return monkeypatch


class Started(Exception):
    pass


def framework(monkeypatch, name, ports=None, error=None):
    """A framework whose server listens, at the port that it was given."""
    sockets = []

    def start(port):
        if error:
            raise error
        sockets.append(socket.create_server(("localhost", port)))
        if ports is not None:
            ports.append(port)

    module = types.ModuleType(name)
    server = types.SimpleNamespace(start=start)
    module.profiler = types.SimpleNamespace(
        start_server=start, experimental=types.SimpleNamespace(server=server)
    )
    monkeypatch.setitem(sys.modules, name, module)
    return sockets


@pytest.mark.parametrize("name", ["tensorflow", "jax"])
def test_a_free_port_is_found_and_a_second_call_changes_nothing(bare, name):
    ports = []
    sockets = framework(bare, name, ports)
    port = nbprof.serve(0)
    assert ports == [port]
    assert (nbprof.serve(0), nbprof.serve(port)) == (port, port)
    assert ports == [port]
    with pytest.raises(
        CaptureError, match=f"already listens on port {port} in this process; there can be only one"
    ):
        nbprof.serve(port - 1)
    for each in sockets:
        each.close()


def test_a_framework_that_has_nothing_to_mark_steps_with_serves_nevertheless(monkeypatch):
    monkeypatch.setattr(room, "_serving", {})
    ports = []
    sockets = framework(monkeypatch, "jax", ports)
    with pytest.warns(RuntimeWarning, match="nbprof: steps are not marked: AttributeError"):
        assert nbprof.serve(0, "jax") == ports[0]
    sockets[0].close()
    assert current() is None


def test_a_child_has_no_server_of_its_parent(bare):
    ports = []
    sockets = framework(bare, "jax", ports)
    bare.setattr(room, "_serving", {"jax": (os.getpid() + 1, 6009)})
    assert nbprof.serve(0) == ports[0]
    sockets[0].close()


def test_a_taken_port_is_said(bare):
    ports = []
    framework(bare, "jax", ports)
    with (
        socket.create_server(("", 0)) as taken,
        pytest.raises(
            CaptureError, match="is in use by another profiler server or another program"
        ),
    ):
        nbprof.serve(taken.getsockname()[1])
    assert not ports


def test_a_server_that_does_not_listen_is_said(bare):
    framework(bare, "jax")
    sys.modules["jax"].profiler.start_server = lambda port: None
    with pytest.raises(CaptureError, match="does not listen on port"):
        nbprof.serve(0)
    assert not room._serving


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ValueError("Only one profiler server can be active at a time."),
            "is already running in this process",
        ),
        (RuntimeError("no backend"), "JAX's profiler server did not start: no backend"),
        (ValueError("what"), "did not start: what"),
    ],
)
def test_what_jax_says_is_passed_on(bare, error, says):
    framework(bare, "jax", error=error)
    with pytest.raises(CaptureError, match=says):
        nbprof.serve(0)


def test_the_framework_of_keras_wins(bare):
    framework(bare, "tensorflow")
    ports = []
    sockets = framework(bare, "jax", ports)
    keras = types.ModuleType("keras")
    keras.backend = types.SimpleNamespace(backend=lambda: "jax")
    bare.setitem(sys.modules, "keras", keras)
    assert nbprof.serve(0) == ports[0]
    sockets[0].close()


def test_mlx_has_no_server(bare):
    with pytest.raises(CaptureError, match=r"MLX has no profiler server.* %%nbprof above its cell"):
        nbprof.serve(0, "mlx")


def test_without_a_framework_it_is_asked_which(bare):
    with pytest.raises(
        CaptureError,
        match="neither TensorFlow, JAX nor PyTorch is imported: import one first, or name it",
    ):
        nbprof.serve(0)
    with pytest.raises(CaptureError, match="unknown backend 'mxnet'"):
        nbprof.serve(0, "mxnet")
    bare.setitem(sys.modules, "jax", None)
    with pytest.raises(CaptureError, match="JAX is not installed here"):
        nbprof.serve(0, "jax")


@pytest.mark.parametrize("port", [-1, 65536, 1.5, "6009", True, None])
def test_what_is_no_port_is_said(port):
    with pytest.raises(CaptureError, match="the port must be a number from 1 to 65535"):
        nbprof.serve(port)
