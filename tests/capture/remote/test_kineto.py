"""PyTorch programs that were started with ``KINETO_USE_DAEMON=1``: real ones, and messages as other
processes might send them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.remote import kineto
from nbprof.core.errors import CaptureError
from tests.capture.notes import text_of
from tests.support.profiles import require

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Kineto asks a daemon on Linux")

PROGRAM = """
import sys, time, torch

torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
print("trains", flush=True)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    time.sleep(0.005)
"""


@pytest.fixture
def sockets(tmp_path, monkeypatch):
    """A folder for sockets; their names have at most about 100 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("KINETO_IPC_SOCKET_DIR", folder)
        # This process was started without it.
        monkeypatch.setattr(kineto, "_environment", lambda _: dict(os.environ))
        yield folder


@contextlib.contextmanager
def program(**environment):
    require("torch")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout.readline() == b"trains\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def capture(*processes, duration_ms=300, **options):
    addresses = ",".join(f"kineto://{getattr(each, 'pid', each)}" for each in processes)
    return nbprof.capture(addresses, duration_ms, progress=False, **options)


def test_programs_that_nobody_changed_are_recorded_together(sockets):
    with program(KINETO_USE_DAEMON="1") as first, program(KINETO_USE_DAEMON="1") as second:
        profile = capture(first, second, delay_ms=0)
    assert not profile.run.capture.warnings
    assert len(profile.hosts) == 2
    assert {"aten::addmm", "aten::sum"} <= set(profile.run.trace.names)
    # Backward passes run on another thread.
    assert any("AddmmBackward" in name for name in profile.run.trace.names)
    assert "sampled over Kineto's sockets: 2 of 2 workers" in text_of(
        profile.run.capture.notes, "workers_sampled"
    )
    # Nothing is left behind.
    assert not Path(sockets, "dynolog").exists()
    assert not kineto._daemons


def test_one_that_does_not_ask_is_missing(sockets, monkeypatch):
    monkeypatch.setattr(kineto, "ASKS_S", 0.3)
    with pytest.raises(CaptureError, match="was it started with KINETO_USE_DAEMON=1"):
        capture(os.getpid(), retries=5)
    with pytest.raises(CaptureError, match="there is no such process"):
        capture(2**22 + 1)


def test_another_daemon_is_left_alone(sockets):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(f"{sockets}/dynolog")
        with pytest.raises(CaptureError, match="another daemon answers Kineto on this machine"):
            capture(os.getpid())
        assert Path(sockets, "dynolog").exists()
    # It has gone, and left its socket.
    daemon = kineto.Daemon(sockets)
    daemon.close()


def test_abstract_names_are_those_of_kineto(monkeypatch):
    monkeypatch.delenv("KINETO_IPC_SOCKET_DIR", raising=False)
    try:
        daemon = kineto.Daemon("")
    except OSError:
        pytest.skip("a daemon runs here")
    with contextlib.closing(daemon), client("\0nbprof-test\0") as asking:
        asking.sendto(message(b"ctxt", struct.pack("=iiq", 0, os.getpid(), 0)), "\0dynolog\0")
        assert asking.recv(100) == message(b"ctxt", struct.pack("=i", 1))


def message(kind, body):
    return struct.pack("=Q32s", len(body), kind) + body


def request(pid, kinds=3):
    return message(b"req", struct.pack("=iiqii", kinds, 2, 0, pid, 1))


@contextlib.contextmanager
def client(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.bind(name)
        asking.settimeout(30)
        yield asking


def test_only_the_process_itself_gets_its_configuration(sockets):
    daemon = kineto.Daemon(sockets)
    with contextlib.closing(daemon), client(f"{sockets}/me") as asking:
        asking.connect(f"{sockets}/dynolog")
        other = daemon.add(1, b"of another process")
        mine = daemon.add(os.getpid(), b"mine")
        asking.send(request(1))
        assert asking.recv(1000) == message(b"req", b"")
        # It records already.
        asking.send(request(os.getpid(), kinds=1))
        assert asking.recv(1000) == message(b"req", b"")
        assert mine.busy.is_set()
        asking.send(request(os.getpid()))
        assert asking.recv(1000) == message(b"req", b"mine")
        # Once.
        asking.send(request(os.getpid()))
        assert asking.recv(1000) == message(b"req", b"")
        assert mine.sent.is_set()
        assert not other.asked.is_set()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"\xff" * 39,
        b"\xff" * 60_000,
        message(b"req", b""),
        message(b"req", struct.pack("=iiq", 3, 10**9, 0)),
        message(b"req", struct.pack("=iiq", 3, -1, 0)),
        message(b"req", struct.pack("=iiq", 3, 5, 0)),
        message(b"other", b"x"),
    ],
)
def test_other_messages_do_no_harm(sockets, data):
    daemon = kineto.Daemon(sockets)
    with contextlib.closing(daemon), client(f"{sockets}/me") as asking:
        asking.connect(f"{sockets}/dynolog")
        asking.send(data)
        asking.send(request(os.getpid()))
        assert asking.recv(1000) == message(b"req", b"")


def test_a_program_that_is_killed_meanwhile_is_missing(sockets):
    with program(KINETO_USE_DAEMON="1") as victim:

        def kill():
            while not any(
                w.sent.is_set()
                for d in list(kineto._daemons.values())
                for w in list(d._waiting.values())
            ):
                time.sleep(0.01)
            victim.kill()
            victim.wait()

        threading.Thread(target=kill, daemon=True).start()
        with pytest.raises(CaptureError, match="the connection was lost"):
            capture(victim, duration_ms=60_000, retries=0)


@pytest.mark.parametrize("text", ["kineto://", "kineto://0", "kineto://x", "kineto://1:2"])
def test_what_is_no_process_is_refused(text):
    with pytest.raises(CaptureError, match=r"names no process: write it as kineto://1234"):
        nbprof.capture(text, 10, progress=False)
