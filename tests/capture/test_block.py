"""Blocks, decorated functions and start/stop, with a stand-in for the framework's profiler."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import re
import signal
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest

import nbprof
from nbprof.capture import session as room
from nbprof.capture.session import Session
from nbprof.core.errors import CaptureError
from tests.support.xspace import training_run


class Stub:
    """As a backend; each run is a small file that can be read."""

    name, title = "tensorflow", "TensorFlow"

    def __init__(self):
        self.runs = 0

    def start(self, folder, options):
        del options
        self.folder = folder
        return []

    def stop(self):
        self.runs += 1
        run = self.folder / "plugins" / "profile" / "run"
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(training_run(3))

    def open_marker(self, kind, number):
        del kind, number
        return types.SimpleNamespace(close=lambda step, batches=1: None)

    def versions(self):
        return "TensorFlow 9"

    def hook(self, clock, patches, give_way):
        pass


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    # Another test may have imported the others.
    monkeypatch.setattr(room, "BACKENDS", ("tensorflow",))
    stub = Stub()
    monkeypatch.setattr(room, "_make_backend", lambda module: stub)
    yield stub
    assert room.active() is None


def test_each_call_of_a_function_is_a_run(stub):
    @nbprof.profile(save=False)
    def train(count):
        """Trains."""
        for _ in nbprof.steps(range(count)):
            pass
        return count

    assert (train.__name__, train.__doc__, train.profile) == ("train", "Trains.", None)
    assert train(2) == 2
    first = train.profile.result
    assert first.run.capture.steps_seen == 2
    assert train(3) == 3
    assert train.profile.run.capture.steps_seen == 3
    assert nbprof.last is train.profile.result is not first
    assert stub.runs == 2


def test_without_parentheses_it_decorates_too(stub, tmp_path):
    @nbprof.profile
    def train():
        return 42

    assert train() == 42
    assert train.profile.path.startswith(str(tmp_path / "nbprof-results"))


def test_methods_have_their_object(stub):
    class Trainer:
        @nbprof.profile(save=False)
        def train(self, a, *, b):
            return self, a, b

    trainer = Trainer()
    assert trainer.train(1, b=2) == (trainer, 1, 2)
    assert stub.runs == 1


def test_a_function_that_calls_itself_is_one_run(stub):
    @nbprof.profile(save=False)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(7) == 13
    assert stub.runs == 1


def test_calls_in_several_threads_never_end_each_others_run(stub):
    inside, leave = threading.Event(), threading.Event()

    @nbprof.profile(save=False)
    def train(first):
        if first:
            inside.set()
            assert leave.wait(20)
        return first

    thread = threading.Thread(target=train, args=(True,))
    thread.start()
    assert inside.wait(20)
    assert train(False) is False
    assert stub.runs == 0
    leave.set()
    thread.join(20)
    assert stub.runs == 1


def test_a_decorated_function_within_a_recording_is_part_of_it(stub):
    @nbprof.profile
    def train():
        with nbprof.step():
            pass

    with nbprof.profile(save=False) as run:
        train()
        train()
    assert stub.runs == 1
    assert train.profile is None
    assert run.run.capture.steps_seen == 2


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration(3), KeyboardInterrupt(), SystemExit(2)]
)
def test_what_a_function_raises_is_untouched(stub, error):
    @nbprof.profile(save=False)
    def train():
        raise error

    with pytest.raises(type(error)) as caught:
        train()
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert train.profile.run.capture.cell_failed
    assert stub.runs == 1


def test_a_coroutine_function_stays_one(stub):
    @nbprof.profile(save=False)
    async def train(count):
        for _ in nbprof.steps(range(count)):
            await asyncio.sleep(0)
        return count

    assert inspect.iscoroutinefunction(train)
    assert asyncio.run(train(4)) == 4
    assert train.profile.run.capture.steps_seen == 4


def test_a_cancelled_coroutine_is_an_interrupted_run(stub):
    @nbprof.profile(save=False)
    async def train():
        await asyncio.sleep(60)

    async def cancels():
        task = asyncio.create_task(train())
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancels())
    assert train.profile.run.capture.error == "cell was interrupted"


def test_ctrl_c_while_a_run_is_read_keeps_it_and_says_where(stub, monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(
        "nbprof.profiles.load.open_recording", lambda recording: signal.raise_signal(signal.SIGINT)
    )
    run = nbprof.profile()
    try:
        with pytest.raises(KeyboardInterrupt), run:
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    said = re.fullmatch(
        r"<nbprof\.profile: reading the run was interrupted: nbprof\.load\(\"(.+)\"\) opens it>",
        repr(run),
    )
    assert Path(said[1]).is_dir()


def test_a_generator_is_recorded_until_it_ends(stub):
    seen = []

    @nbprof.profile(save=False)
    def batches(count):
        for number in range(count):
            seen.append((yield number))
        return "done"

    assert inspect.isgeneratorfunction(batches)
    generator = batches(2)
    assert stub.runs == 0
    assert room.active() is None
    assert next(generator) == 0
    assert room.active() is not None
    assert generator.send("a") == 1
    with pytest.raises(StopIteration) as ended:
        generator.send("b")
    assert (ended.value.value, seen, stub.runs) == ("done", ["a", "b"], 1)
    assert list(batches(3)) == [0, 1, 2]


def test_a_generator_that_is_given_up_has_not_failed(stub):
    @nbprof.profile(save=False)
    def batches():
        yield from range(10)

    for number in batches():
        if number == 3:
            break
    gc.collect()
    assert batches.profile.run.capture.cell_failed is False


def test_an_asynchronous_generator_takes_values_and_errors(stub):
    @nbprof.profile(save=False)
    async def echo():
        said = "begin"
        while said != "end":
            try:
                said = yield said
            except KeyError:
                said = "caught"

    async def talks():
        generator = echo()
        assert room.active() is None
        out = [
            await anext(generator),
            await generator.asend("more"),
            await generator.athrow(KeyError("x")),
        ]
        assert room.active() is not None
        with pytest.raises(StopAsyncIteration):
            await generator.asend("end")
        async with contextlib.aclosing(echo()) as given_up:
            async for said in given_up:
                out.append(said)
                break
        return out

    assert inspect.isasyncgenfunction(echo)
    assert asyncio.run(talks()) == ["begin", "more", "caught", "begin"]
    assert stub.runs == 2
    assert echo.profile.run.capture.error == ""


def test_only_functions_are_decorated():
    for thing in (3, int):
        with pytest.raises(CaptureError, match="decorates a function, not"):
            nbprof.profile()(thing)


def test_start_and_stop(stub):
    nbprof.start(save=False, seconds=60)
    with nbprof.step():
        pass
    profile = nbprof.stop()
    assert profile is nbprof.last
    assert profile.run.capture.steps_seen == 1
    with pytest.raises(CaptureError, match=r"no recording to stop: call nbprof\.start\(\) first"):
        nbprof.stop()
    with pytest.raises(CaptureError, match="did you mean 'seconds'"):
        nbprof.start(second=60)


def test_a_second_start_keeps_the_files_of_the_first(stub, tmp_path):
    nbprof.start()
    with pytest.warns(
        RuntimeWarning,
        match="an earlier recording was still running and has been stopped; its files are in",
    ):
        nbprof.start()
    assert nbprof.stop() is not None
    assert len(list((tmp_path / "nbprof-results/plugins/profile").iterdir())) == 2


def test_a_block_within_a_block_ends_the_outer_and_says_so(stub):
    with (
        pytest.warns(RuntimeWarning) as said,
        nbprof.profile(save=False) as outer,
        nbprof.profile(save=False) as inner,
    ):
        pass
    assert [str(warning.message) for warning in said] == [
        "nbprof: an earlier recording was still running and has been stopped",
        "nbprof: this recording was ended by a newer one",
    ]
    assert {warning.filename for warning in said} == {__file__}
    assert inner.result is nbprof.last
    assert outer.result is not None
    assert inner.result is not None


def test_what_cannot_be_recorded_is_a_warning_at_the_persons_line(stub, monkeypatch):
    monkeypatch.setattr(Session, "start", lambda self: 1 / 0)
    ran = []
    with (
        pytest.warns(RuntimeWarning, match="the recording did not start") as said,
        nbprof.profile(),
    ):
        ran.append(1)
    with pytest.warns(RuntimeWarning, match="the recording did not start") as at_start:
        nbprof.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nbprof.stop() is None

    @nbprof.profile
    def train():
        ran.append(2)

    with pytest.warns(RuntimeWarning, match="the recording did not start") as in_call:
        train()
    assert ran == [1, 2]
    for warning in (said[0], at_start[0], in_call[0]):
        assert warning.filename == __file__


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_recorded_function_records_its_own(stub):
    @nbprof.profile(save=False)
    def train(depth):
        if depth == 0:
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                train(0)
                code = 0 if stub.runs == 1 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0

    train(1)
    assert stub.runs == 1


def test_a_brief_of_the_block_is_that_of_its_profile():
    with nbprof.profile(backend="python", save=False) as run:
        for _ in nbprof.steps(range(3)):
            pass
    assert nbprof.brief(run) == nbprof.brief(run.result)
