"""TensorFlow and JAX in processes of their own, which train; sampled together, in turn, idle,
stopped and killed.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import nbprof
from nbprof.capture.remote import serve
from nbprof.capture.remote.addresses import parse
from nbprof.capture.remote.client import Refusal, profile
from nbprof.capture.remote.messages import ProfileRequest
from nbprof.core.errors import CaptureError
from tests.capture.notes import text_of
from tests.support import programs
from tests.support.ctrl_c import ctrl_c
from tests.support.profiles import needed

SCRIPT = Path(__file__).resolve().parents[2] / "support" / "training_worker.py"


class Trainer:
    """A process that trains."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.port = 0
        self.process = programs.piped((framework,), SCRIPT.read_text(), framework)

    def ready(self) -> Trainer:
        word, _, port = self.process.stdout.readline().partition(b" ")
        assert word == b"port", f"the {self.framework} worker did not start"
        self.port = int(port)
        return self

    def be(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"is {word}\n".encode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"


@pytest.fixture(scope="module")
def trainers():
    """TensorFlow, JAX, and a second JAX that may be killed, started at the same time."""
    names = [
        name for name in ("tensorflow", "jax", "jax") if importlib.util.find_spec(name) is not None
    ]
    if len(names) < 3:
        needed("TensorFlow and JAX are not both installed")
    started = [Trainer(name) for name in names]
    try:
        yield [trainer.ready() for trainer in started]
    finally:
        for trainer in started:
            trainer.close()


def sample(*trainers, duration_ms=300, **options):
    return nbprof.capture(
        ",".join(f"grpc://{t.address}" for t in trainers), duration_ms, progress=False, **options
    )


def test_each_is_a_host_with_its_steps(trainers):
    tensorflow, jax, _ = trainers
    # A busy machine may take a step in more than 100 ms.
    profile = sample(tensorflow, jax, duration_ms=2000)
    machine = profile.hosts[0].rpartition(":")[0]
    assert sorted(profile.hosts) == sorted(
        [f"{machine}:{tensorflow.port}", f"{machine}:{jax.port}"]
    )
    assert profile.run.steps.groupby("host").size().reindex(profile.hosts).min() >= 2
    ops = profile.ops.frame
    assert any("MatMul" in kind for kind in ops["type"])
    trace = profile.run.trace
    names = [trace.names[code] for code in np.unique(trace.events.name)]
    assert any("PjitFunction(train)" in name for name in names)
    assert len(list(Path(profile.path).glob("*.xplane.pb"))) == 2
    assert nbprof.load(profile.path).hosts == profile.hosts


@pytest.mark.parametrize("which", [0, 1])
def test_one_alone_and_what_it_was_asked_for(trainers, which):
    plain = sample(trainers[which], duration_ms=200)
    python = sample(trainers[which], duration_ms=200, python_level=1, host_level=3)
    for recorded, wanted in ((plain, False), (python, True)):
        assert any(name.startswith("$") for name in recorded.run.trace.names) is wanted
    span_ms = (plain.run.trace.events.end.max() - plain.run.trace.events.start.min()) / 1e9
    # By default it is 2 s.
    assert 0 < span_ms < 1500
    assert ":" not in plain.hosts[0]


@pytest.mark.parametrize("which", [0, 1])
def test_an_idle_worker_is_asked_until_it_works(trainers, which):
    trainer = trainers[which]
    trainer.be("idle")
    time.sleep(0.05)
    try:
        with pytest.raises(
            CaptureError, match=rf"{trainer.address}: nothing happened there .* \(2 tries\)"
        ):
            sample(trainer, duration_ms=100, retries=1)
        timer = threading.Timer(0.4, trainer.be, ["train"])
        timer.start()
        profile = sample(trainer, duration_ms=150, retries=50)
        timer.join()
    finally:
        trainer.be("train")
    assert "nothing happened there" in text_of(profile.run.capture.notes, "late_worker")


@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_someone_else_records_is_waited_for(trainers, which):
    (address,), _ = parse(trainers[which].address)
    over = threading.Event()
    other = profile(address, ProfileRequest(500, session="someone").encode(), 20, over.set)
    time.sleep(0.1)
    refused = profile(address, ProfileRequest(10, session="me").encode(), 20, lambda: None)
    while not refused.done:
        time.sleep(0.01)
    outcome = refused.outcome()
    assert isinstance(outcome, Refusal)
    mine = sample(trainers[which], duration_ms=100, retries=8)
    assert "another recording is running there" in text_of(mine.run.capture.notes, "late_worker")
    assert over.wait(20)
    # The other one was not disturbed.
    assert other.outcome().xspace


def test_ctrl_c_gives_what_both_have_recorded(trainers):
    began = time.monotonic()
    with ctrl_c(lambda over: not over.wait(1.0)):
        profile = sample(trainers[0], trainers[1], duration_ms=120_000, delay_ms=0)
    assert time.monotonic() - began < 60
    assert len(profile.hosts) == 2
    assert len(profile.steps.frame) >= 5
    assert re.search(
        r"the recording was stopped early, after \d+\.\d of 120 s",
        text_of(profile.run.capture.notes, "stopped_early"),
    )
    # Nothing is left open there. A busy machine may take a step in more than 100 ms.
    after = sample(trainers[0], trainers[1], duration_ms=300, retries=8)
    assert len(after.hosts) == 2, after.run.capture.warnings


def test_one_is_killed_in_the_middle_and_the_other_is_kept(trainers):
    tensorflow, _, victim = trainers
    threading.Timer(0.5, victim.process.kill).start()
    profile = sample(tensorflow, victim, duration_ms=1000, delay_ms=0, retries=1)
    assert len(profile.hosts) == 1
    capture = profile.run.capture
    text = "\n".join(note.text for note in capture.notes + capture.warnings)
    assert "sampled over gRPC: 1 of 2 workers" in text
    assert (
        f"{victim.address} is missing: the connection was lost during the recording; was the worker stopped?; then nothing listens on this port"
        in text
    )


def test_a_port_of_a_running_server_is_taken(trainers):
    # The frameworks would share it without a word.
    with pytest.raises(CaptureError, match="is in use by another profiler server"):
        serve.free_port(trainers[0].port)


def test_a_run_is_what_tensorboard_expects(trainers, tmp_path):
    folder = Path(sample(trainers[1], logdir=str(tmp_path / "logs")).path)
    assert folder.parent == tmp_path / "logs" / "plugins" / "profile"
    try:
        from xprof.convert import raw_to_tool_data
    except ImportError:
        needed("xprof is not installed")
    files = [str(path) for path in folder.glob("*.xplane.pb")]
    data, _ = raw_to_tool_data.xspace_to_tool_data(files, "overview_page", {})
    assert data
