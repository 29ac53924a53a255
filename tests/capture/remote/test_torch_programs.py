"""PyTorch programs in processes of their own, recorded while they run: together, in turn, idle,
busy, ended and killed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import socket
import threading
import time
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.remote import torch_server, torch_wire
from nbprof.core.errors import CaptureError
from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import keys, text_of
from tests.support import programs
from tests.support.ctrl_c import ctrl_c
from tests.support.profiles import require

SCRIPT = Path(__file__).resolve().parents[2] / "support" / "torch_worker.py"
TOKEN = "a token of the test"
PAUSE_MS = 20
"""Of each step of the program."""


class Trainer:
    """A PyTorch program."""

    def __init__(self, *arguments, **environment):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            self.process = programs.piped(("torch",), SCRIPT.read_text(), *arguments)
        self.port = 0

    def ready(self):
        word, _, port = self.process.stdout.readline().partition(b" ")
        assert word == b"port"
        self.port = int(port)
        return self

    def be(self, word):
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"is {word}\n".encode()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    @property
    def address(self):
        return f"torch://localhost:{self.port}"


@contextlib.contextmanager
def running(*arguments, **environment):
    require("torch")
    trainer = Trainer(*arguments, **environment)
    try:
        yield trainer.ready()
    finally:
        trainer.close()


@pytest.fixture(scope="module")
def trainer():
    with running() as started:
        yield started


def sample(*trainers, duration_ms=400, **options):
    return nbprof.capture(
        ",".join(t.address for t in trainers), duration_ms, progress=False, **options
    )


def ask(port, path=torch_wire.RECORD, body=b"{}", host="", **headers):
    """The status and text of an answer."""
    connection = http.client.HTTPConnection("localhost", port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest("POST", path, skip_host=bool(host))
        if host:
            connection.putheader("Host", host)
        everything = {"Content_Type": torch_wire.TYPE, "Content_Length": str(len(body)), **headers}
        for name, value in everything.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")


def test_it_is_recorded_as_a_cell_is(trainer):
    profile = sample(trainer, duration_ms=1500)
    steps = profile.steps.frame
    assert len(steps) >= 3
    # Neither the step in which the recording begins nor that in which it ends is among them.
    assert steps["step_time_ms"].min() >= PAUSE_MS
    assert {"aten::addmm", "aten::cross_entropy_loss"} <= set(profile.run.trace.names)
    assert any("AddmmBackward" in name for name in profile.run.trace.names)
    capture = profile.run.capture
    assert capture.backend == "torch"
    assert "optimizer steps of torch.optim" in "\n".join(note.text for note in capture.notes)
    assert f"sampled over nbprof.serve: {trainer.address}" in text_of(
        capture.notes, "workers_sampled"
    )
    assert any("pause" in name for name in profile.python.functions["function"])
    assert CaptureInfo.read(Path(profile.path)).python == capture.python
    assert [file.suffix for file in sorted(Path(profile.path).iterdir())] == [".json", ".gz"]
    assert nbprof.load(profile.path).hosts == profile.hosts


def test_two_at_once_are_two_hosts(trainer):
    with running() as other:
        profile = sample(trainer, other, duration_ms=800)
    assert not profile.run.capture.warnings
    assert len(profile.hosts) == 2
    assert profile.run.steps.groupby("host").size().reindex(profile.hosts).min() >= 2
    capture = profile.run.capture
    assert capture.backend == "torch"
    assert "python_of_one_worker" in keys(capture.notes)
    assert not capture.python


def test_ops_without_an_optimizer_are_recorded(trainer):
    trainer.be("infer")
    try:
        profile = sample(trainer)
    finally:
        trainer.be("train")
    assert "aten::addmm" in profile.run.trace.names
    assert not any("Backward" in name for name in profile.run.trace.names)


def test_an_idle_one_is_asked_until_it_works(trainer):
    trainer.be("idle")
    try:
        with pytest.raises(CaptureError, match=r"nothing happened there .* \(2 tries\)"):
            sample(trainer, duration_ms=50, retries=1)

        def tell(text):
            # Asked once, it found nothing.
            if "again" in text:
                trainer.be("train")

        profile = nbprof.capture(trainer.address, 300, retries=100, progress=tell)
    finally:
        trainer.be("train")
    assert "nothing happened there" in text_of(profile.run.capture.notes, "late_worker")


@contextlib.contextmanager
def held(port, session):
    """A connection over which a recording of an hour runs."""
    body = torch_wire.RecordRequest(session, 3_600_000).encode()
    short = torch_wire.RecordRequest("short", 1).encode()
    while True:
        with socket.create_connection(("localhost", port)) as connection:
            connection.sendall(
                b"POST /record HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: %d\r\n"
                b"Content-Type: application/json\r\n\r\n%s" % (len(body), body)
            )
            # The short ones may have come first, and then it is refused.
            while not select.select([connection], [], [], 0)[0]:
                if ask(port, body=short)[0] == 409:
                    break
            if not select.select([connection], [], [], 0)[0]:
                yield connection
                return


def test_one_that_someone_else_records_is_waited_for(trainer):
    stop = json.dumps({"session": "someone"}).encode()

    def tell(text):
        if "again" in text:
            ask(trainer.port, torch_wire.STOP, stop)

    with held(trainer.port, "someone") as other:
        profile = nbprof.capture(trainer.address, 300, retries=100, progress=tell)
        assert "another recording is running there" in text_of(
            profile.run.capture.notes, "late_worker"
        )
        # The other one was not disturbed.
        with other.makefile("rb") as answer:
            assert b"\r\n\r\nPK" in answer.read()


def test_one_that_profiles_itself_is_busy(trainer):
    trainer.be("profile")
    try:
        with pytest.raises(CaptureError, match="another recording is running there"):
            sample(trainer, duration_ms=50, retries=0)
    finally:
        trainer.be("train")
    assert len(sample(trainer).steps.frame)


def test_ctrl_c_gives_what_was_recorded(trainer):
    with ctrl_c(lambda over: not over.wait(1.5)):
        profile = sample(trainer, duration_ms=120_000)
    assert len(profile.steps.frame) >= 2
    assert re.search(
        r"stopped early, after \d+\.\d of 120 s",
        text_of(profile.run.capture.notes, "stopped_early"),
    )
    # Nothing is left open there.
    assert len(sample(trainer, retries=0).steps.frame)


def test_a_client_that_goes_away_ends_the_recording(trainer):
    with held(trainer.port, "gone"):
        pass
    assert len(sample(trainer, retries=100).steps.frame)


def test_python_calls_are_recorded_when_they_are_asked_for(trainer):
    profile = sample(trainer, python_level=1)
    assert any("torch_worker" in name or "pause" in name for name in profile.run.trace.names)


def test_one_that_ends_meanwhile_sends_what_it_recorded():
    with running() as short:
        timer = threading.Timer(1.5, short.be, ["end"])
        timer.start()
        profile = sample(short, duration_ms=120_000, retries=0)
        timer.join()
        assert short.process.wait(60) == 0
    assert len(profile.steps.frame) >= 2


def test_one_that_is_killed_is_missing_and_the_other_is_kept(trainer):
    with running() as victim:
        threading.Timer(0.5, victim.process.kill).start()
        profile = sample(trainer, victim, duration_ms=1000, delay_ms=0, retries=1)
        missing = text_of(profile.run.capture.warnings, "missing_worker")
    assert len(profile.hosts) == 1
    assert missing.startswith(f"{victim.address} is missing: the connection was lost")
    assert "then nothing listens on this port" in missing


def test_where_only_one_thread_can_be_recorded_it_begins_with_a_step():
    with running("one-thread") as old:
        profile = sample(old, duration_ms=800)
        assert profile.steps.frame["step_time_ms"].min() >= PAUSE_MS
        # Recorded on the thread that trains, so allocations are there, too.
        assert len(profile.memory.timeline)
        old.be("infer")
        old.be("idle")


def test_a_token_is_needed_where_there_is_one(monkeypatch):
    with running(WORKER_TOKEN=TOKEN) as guarded:
        for wrong in ("", "another one", TOKEN + "x", "ä"):
            monkeypatch.setenv(torch_wire.TOKEN_VARIABLE, wrong.encode().decode("latin-1"))
            with pytest.raises(CaptureError, match="set the environment variable NBPROF_TOKEN"):
                sample(guarded, retries=3)
        monkeypatch.setenv(torch_wire.TOKEN_VARIABLE, TOKEN)
        profile = sample(guarded)
    assert len(profile.steps.frame)
    assert TOKEN not in (Path(profile.path) / "nbprof.json").read_text()


def test_requests_that_are_not_allowed_are_refused(trainer):
    good = torch_wire.RecordRequest("x", 1).encode()
    port = trainer.port
    assert ask(port, body=good, host="evil.example:80")[0] == 403
    assert ask(port, body=good, Content_Type="text/plain")[0] == 415
    assert ask(port, body=b"x" * (torch_wire.MOST_REQUEST + 1))[0] == 413
    assert ask(port, body=b"", Content_Length="9" * 100)[0] == 413
    assert ask(port, body=b"", Content_Length="-1")[0] == 411
    assert ask(port, "/../etc/passwd", good)[0] == 404
    assert ask(port, torch_wire.STOP, json.dumps({"session": "unknown"}).encode())[0] == 404
    for body in (
        b"[" * 4000,
        b"[]",
        b"\xff",
        b"{}",
        b'{"session": "x", "duration_ms": 0}',
        b'{"session": "x", "duration_ms": 3600001}',
        b'{"session": "x", "duration_ms": true}',
        b'{"session": "x", "duration_ms": 1, "start_ns": -1}',
        b'{"session": "x", "duration_ms": 1, "python": "import os"}',
        b'{"session": "x", "duration_ms": 1, "logdir": "/"}',
        b'{"session": "", "duration_ms": 1}',
    ):
        assert ask(port, body=body)[0] == 400, body
    # It trains on, and records.
    assert len(sample(trainer).steps.frame)


def test_idle_connections_do_not_pile_up(trainer):
    with contextlib.ExitStack() as stack:
        for _ in range(torch_server.MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(("localhost", trainer.port)))
        deadline = time.monotonic() + 60
        closed = False
        while not closed and time.monotonic() < deadline:
            with socket.create_connection(("localhost", trainer.port)) as further:
                further.settimeout(60)
                with contextlib.suppress(ConnectionResetError):
                    closed = not further.recv(1)
        assert closed
    assert len(sample(trainer, retries=100).steps.frame)


def test_a_server_of_another_kind_is_not_taken_for_one():
    with socket.create_server(("localhost", 0)) as listening:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(CaptureError, match=r"is not that of nbprof\.serve"):
            nbprof.capture(f"torch://localhost:{listening.getsockname()[1]}", 10, progress=False)
    with pytest.raises(CaptureError, match="nothing listens on this port"):
        nbprof.capture("torch://localhost:1", 10, retries=0, progress=False)


@pytest.mark.parametrize(
    ("host", "token", "says"),
    [
        ("0.0.0.0", "", "whoever reaches the port could record the program: give a token"),
        ("", "short", "the token must have 16 printable ASCII characters"),
        ("", "ö" * 20, "the token must have 16 printable ASCII characters"),
    ],
)
def test_a_server_for_others_needs_a_token(monkeypatch, host, token, says):
    require("torch")
    monkeypatch.delenv(torch_wire.TOKEN_VARIABLE, raising=False)
    with pytest.raises(CaptureError, match=says):
        nbprof.serve(0, "torch", host=host, token=token)


def test_pytorch_and_other_frameworks_are_recorded_separately():
    with pytest.raises(CaptureError, match="record them separately"):
        nbprof.capture("torch://a:1,grpc://b:2", 10, progress=False)


def test_a_child_of_the_program_does_not_hold_the_port():
    code = """
    import os, torch, nbprof

    def listens():
        return any(os.path.exists(f"/proc/self/fd/{each}") and os.readlink(f"/proc/self/fd/{each}")
                   in sockets for each in os.listdir("/proc/self/fd"))

    port = nbprof.serve(0)
    rows = [line.split() for line in open("/proc/self/net/tcp").read().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}")}
    print(listens(), flush=True)
    child = os.fork()
    if not child:
        print(listens(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    """
    if not Path("/proc/self/net/tcp").exists():
        pytest.skip("sockets of a process are not listed here")
    assert programs.run(code, needs="torch").stdout.split() == ["True", "False"]
