"""The life of a recording, without a framework."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
import time
import types
import weakref
from contextlib import closing, suppress
from itertools import islice

import pytest

import nbprof
from nbprof.capture import describe
from nbprof.capture import session as room
from nbprof.capture.clock import StepClock, set_current
from nbprof.capture.detect import choose, names_in
from nbprof.capture.imports import ImportWatch
from nbprof.capture.options import Options, parse_steps
from nbprof.capture.patches import Patches
from nbprof.capture.place import RunFolder
from nbprof.capture.session import Session
from nbprof.capture.shield import Shield, pressed, shielded
from nbprof.capture.steps import step, steps
from nbprof.core.errors import CaptureError
from tests.capture.notes import keys, text_of


@pytest.fixture(autouse=True)
def no_framework(monkeypatch, tmp_path):
    """Other tests of this process may have imported one, and a session would record it, into the
    working directory.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("tensorflow", "jax", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("text", "range_"), [("3:7", (3, 7)), ("3:", (3, None)), (":7", (1, 7)), (" 5 ", (5, 5))]
)
def test_step_ranges(text, range_):
    assert parse_steps(text) == range_


@pytest.mark.parametrize("text", ["", ":", "7:3", "0:3", "a:b", "1:2:3", "-1:4"])
def test_bad_step_ranges_are_sentences(text):
    with pytest.raises(CaptureError, match="steps are counted from 1"):
        parse_steps(text)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import tensorflow as tf", ("tensorflow",)),
        ("model.fit(x)", ()),
        ("# import torch\nimport jax.numpy as jnp", ("jax",)),
        ("import torch, tensorflow", ("tensorflow", "torch")),
        ("tf.keras.Model()", ("tensorflow",)),
        ("tfds = 1", ()),
    ],
)
def test_frameworks_that_a_cell_names(source, names):
    assert names_in(source) == names


def test_a_named_framework_wins_over_an_imported_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    assert choose("auto", "import torch").candidates == ("torch",)
    assert choose("auto", "train()").candidates == ("tensorflow",)
    assert choose("jax", "import torch").others == ("torch",)


def test_keras_stands_for_its_backend(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert names_in("import keras") == ("jax",)


def test_an_import_is_followed_once_and_the_watch_goes(tmp_path, monkeypatch):
    (tmp_path / "awaited_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    watch = ImportWatch(
        {
            "awaited_module": lambda module: seen.append(module.value),
            "sys": lambda module: seen.append("sys"),
        }
    )
    watch.install()
    importlib.import_module("awaited_module")
    assert seen == ["sys", 1]
    del sys.modules["awaited_module"]
    watch.remove()
    importlib.import_module("awaited_module")
    del sys.modules["awaited_module"]
    assert seen == ["sys", 1]
    assert watch not in sys.meta_path


def test_patches_leave_what_others_have_wrapped_since():
    class Owner:
        def own(self):
            return "own"

    class Child(Owner):
        pass

    original = Owner.own
    patches = Patches()
    patches.replace(Owner, "own", lambda self: "ours")
    patches.replace(Child, "own", lambda self: "child")
    assert Child().own() == "child"
    theirs = lambda self: "theirs"  # noqa: E731
    Owner.own = theirs
    patches.restore()
    assert Owner.own is theirs
    assert "own" not in vars(Child)
    patches.replace(Owner, "own", original)
    patches.restore()
    assert Owner.own is theirs


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts, also where the tests run in the background of a shell, which lets them
    ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_the_end_of_a_shielded_block():
    reached = []

    def block():
        with shielded():
            signal.raise_signal(signal.SIGINT)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_the_end_of_an_import(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(0.1)\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def block():
        with Shield() as shield, shield.opened():
            importlib.import_module("slow_module")
            for _ in range(3000):
                time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert sys.modules.pop("slow_module").whole
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class Interrupted(set):
    def discard(self, member):
        signal.raise_signal(signal.SIGINT)
        super().discard(member)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", ["__del__", "finalize", "gc", "weakref", "weakset"])
def test_ctrl_c_is_not_lost_where_exceptions_are(how, request):
    held = [Finalized() if how == "__del__" else Patches()]
    if how == "finalize":
        weakref.finalize(held[0], signal.raise_signal, signal.SIGINT)
    if how == "weakref":
        seen = weakref.ref(held[0], lambda _: signal.raise_signal(signal.SIGINT))
        request.addfinalizer(lambda: seen())
    if how == "weakset":
        members = weakref.WeakSet(held)
        members.data = Interrupted(members.data)
        request.addfinalizer(lambda: len(members))
    if how == "gc":
        # A collection of Python's own may come before the shield, where nothing of ours could keep
        # it.
        gc.disable()
        request.addfinalizer(gc.enable)
        once = iter([signal.SIGINT])

        def callback(*_):
            for number in once:
                signal.raise_signal(number)

        gc.callbacks.append(callback)
        request.addfinalizer(lambda: gc.callbacks.remove(callback))

    def block():
        with Shield() as shield, shield.opened():
            held.clear()
            gc.collect()
            # Python notices a signal between two calls, not in one that had begun.
            for _ in range(3000):
                time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        block()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_interrupts_once_and_only_where_it_may():
    seen = []

    def closed(shield):
        with shield.opened(), shield.closed():
            signal.raise_signal(signal.SIGINT)
            seen.append("whole")

    with Shield() as shield:
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt), shield.opened():
            seen.append("never")
        with pytest.raises(KeyboardInterrupt):
            closed(shield)
        signal.raise_signal(signal.SIGINT)
    assert seen == ["whole"]
    assert not pressed()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_the_start_of_a_block_ends_its_recording(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "_check_installed", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), nbprof.profile():
        raise AssertionError("the block does not run")
    assert room.active() is None


def test_nothing_to_record_has_a_reason_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tensorflow", "jax", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("nbprof.capture.session._installed", lambda name: True)
    session = Session(Options(backend="jax"), source="x = 1").start()
    assert room.active() is session
    assert session.stop() is None
    assert (
        session.failure == "nothing to record: JAX is imported neither by this cell nor before it"
    )
    assert session.stop() is None
    assert room.active() is None
    assert not list(tmp_path.iterdir())


def test_nothing_to_record_tells_of_a_framework_that_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tensorflow", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr("nbprof.capture.session._installed", lambda name: True)
    session = Session(Options(backend="jax"), source="if False: import jax").start()
    assert session.awaited == ["JAX"]
    assert session.stop() is None
    assert (
        session.failure
        == "nothing to record: JAX is imported neither by this cell nor before it; PyTorch is, which --backend torch records"
    )


def test_a_second_recording_stops_the_first():
    first = Session(Options(save=False)).start()
    second = Session(Options(save=False)).start()
    assert first.superseded
    assert second.messages == [
        "nbprof: an earlier recording was still running and has been stopped"
    ]
    assert room.active() is second
    second.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_records_nothing():
    session = Session(Options(save=False)).start()
    child = os.fork()
    if child == 0:
        quiet = room.active() is None and not session.clock.alive and session.stop() is None
        os._exit(0 if quiet else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert session.clock.alive
    session.stop()


def test_a_place_that_cannot_be_written_is_replaced_and_said(tmp_path):
    (tmp_path / "file").write_text("")
    place = RunFolder(Options(logdir=str(tmp_path / "file" / "below")))
    assert keys(place.notes) == ["logdir_not_writable"]
    assert place.scratch.is_dir()
    place.discard()


def test_a_working_directory_that_is_gone_is_replaced_and_said(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    place = RunFolder(Options())
    assert place.scratch.is_dir()
    text = text_of(place.notes, "logdir_not_writable")
    assert text.startswith("nbprof-results cannot be written (No such file or directory)")
    place.discard()


def test_an_exception_that_cannot_say_what_it_is_is_told_by_its_type():
    class Mute(RuntimeError):
        def __str__(self):
            raise ValueError("no words")

    assert describe.failure(Mute(), 3, 2) == "cell failed in step 3, after 2 complete steps: Mute"
    assert not describe.out_of_memory(Mute())
    assert (
        describe.failure(RuntimeError("x" * 10**7 + "\ny"), None, 0)
        == f"cell failed: RuntimeError: {'x' * 300}…"
    )
    long = describe.failure(type("E" * 10**7, (Exception,), {})("no\nyes"), 2, 1)
    assert long == f"cell failed in step 2, after 1 complete step: {'E' * 300}…: no"
    assert (
        describe.failure(KeyboardInterrupt(), None, 8)
        == "cell was interrupted after 8 complete steps"
    )


def test_steps_do_nothing_while_nothing_is_recorded():
    with step():
        pass
    assert list(steps(range(3))) == [0, 1, 2]
    with pytest.raises(ZeroDivisionError), step():
        1 / 0  # noqa: B018


class Spans:
    """Stands for a framework's markers."""

    def __init__(self):
        self.closed = []

    def __call__(self, kind, number):
        spans = self

        class Span:
            def close(self, step, batches=1):
                spans.closed.append((kind, step))

        return Span()


def clock_with_spans(**kwargs):
    clock, spans = StepClock(**kwargs), Spans()
    clock.open_marker = spans
    return clock, spans


def test_a_loop_gives_up_the_span_after_its_last_batch():
    clock, spans = clock_with_spans()
    clock.loop("train")
    for _ in range(2):
        clock.begin("train")
        clock.end("train")
    clock.begin("train")
    clock.leave()
    assert spans.closed == [("train", 1), ("train", 2), ("train", None)]
    assert clock.seen == 2


def test_a_root_of_the_person_inside_a_batch_is_the_step():
    clock, spans = clock_with_spans()
    clock.loop("train")
    clock.begin("train")
    clock.root_begins(of_framework=True)
    clock.root_ends("mine")
    clock.end("train")
    clock.leave()
    assert spans.closed == [("train", None), ("train", None)]
    assert clock.seen == clock.marked == 1


def test_a_loop_left_by_an_exception_does_not_spoil_the_next():
    clock, spans = clock_with_spans()
    clock.loop("train")
    clock.begin("train")
    assert clock.current_step == 1
    clock.loop("test")
    clock.begin("test")
    clock.end("test")
    assert spans.closed[:2] == [("train", None), ("test", 1)]


def test_a_range_opens_before_its_first_and_closes_after_its_last_step():
    calls = []
    clock = StepClock(
        window=(2, 3),
        begin_window=lambda: calls.append(("begin", clock.seen)),
        end_window=lambda: calls.append(("end", clock.seen)),
    )
    clock.loop("train")
    for _ in range(4):
        clock.begin("train")
        clock.end("train")
    assert calls == [("begin", 1), ("end", 3)]


def test_a_fault_in_the_marking_breaks_no_loop():
    clock, _ = clock_with_spans()
    set_current(clock)
    try:
        rounds = []
        for number in steps(range(4)):
            if number == 2:
                clock.open_marker = lambda kind, step: 1 / 0
            rounds.append(number)
        with step():
            rounds.append("step")
    finally:
        set_current(None)
    assert rounds == [0, 1, 2, 3, "step"]
    assert (clock.seen, clock.fault, clock.alive) == (
        3,
        "ZeroDivisionError: division by zero",
        False,
    )


def passed_on(items):
    """As tqdm does."""
    for item in items:  # noqa: UP028  `yield from` passes the closing on in another way
        yield item


def fails(number):
    if number == 3:
        raise ValueError("bad batch")


def fails_in_the_body():
    for number in steps(range(6)):
        if number == 3:
            raise ValueError("bad batch")


def fails_in_a_call():
    for number, _ in enumerate(passed_on(steps(range(6)))):
        fails(number)


def fails_in_a_with():
    for number in steps(range(6)):
        with suppress(KeyError):
            fails(number)


def breaks():
    for number in steps(range(6)):
        if number == 2:
            break


def returns():
    for number in passed_on(steps(range(6))):
        if number == 2:
            return


def keeps_the_iterator():
    kept = steps(range(6))
    for number in kept:
        if number == 2:
            break


def closes_after_the_loop():
    kept = steps(range(6))
    for number in kept:
        if number == 2:
            break
    kept.close()


def closes_in_the_end():
    kept = steps(range(6))
    try:
        for number in enumerate(kept):
            if number == (2, 2):
                break
    finally:
        kept.close()


def closes_in_the_loop():
    kept = steps(range(6))
    for number in kept:
        if number == 2:
            kept.close()


def closes_what_passes_on():
    kept = passed_on(steps(range(6)))
    for number in kept:
        if number == 2:
            break
    kept.close()


def closes_while_an_error_is_handled():
    try:
        fails(3)
    except ValueError:
        closes_after_the_loop()


def closes_by_a_context():
    with closing(steps(range(6))) as kept:
        for number in kept:
            if number == 2:
                break


def closes_later():
    kept = steps(range(6))
    for number in kept:
        if number == 3:
            break
    breaks.__name__.upper()
    kept.close()


def closes_on_an_error():
    kept = steps(range(6))
    try:
        for number in kept:
            fails(number)
    finally:
        kept.close()


def closes_on_an_error_in_the_loop():
    kept = steps(range(6))
    for number in kept:
        try:
            fails(number)
        except ValueError:
            kept.close()
            raise


def an_error_closes_the_context():
    with closing(steps(range(6))) as kept:
        for number in kept:
            fails(number)


def breaks_and_fails():
    breaks()
    raise ValueError("later")


def has_enough():
    for _ in enumerate(islice(passed_on(steps(range(6))), 3)):
        pass


def takes_as_many_as_there_are():
    for _ in zip(range(3), steps(range(6)), strict=False):
        pass


def lists():
    list(islice(steps(range(6)), 3))


def looks_for_one():
    assert any(number == 2 for number in steps(range(6)))


def asks_itself():
    kept = steps(range(6))
    for _ in range(3):
        next(kept)


def unpacks():
    first, *rest = islice(steps(range(6)), 3)
    assert [first, *rest] == [0, 1, 2]


FAILED = [
    *(fails_in_the_body, fails_in_a_call, fails_in_a_with),
    *(closes_on_an_error, closes_on_an_error_in_the_loop, an_error_closes_the_context),
]


@pytest.mark.parametrize("loop", FAILED)
def test_a_round_that_an_exception_ended_is_no_complete_step(loop):
    clock, spans = clock_with_spans()
    set_current(clock)
    try:
        with pytest.raises(ValueError, match="bad batch"):
            loop()
    finally:
        set_current(None)
    assert (clock.seen, clock.marked, clock.current_step) == (3, 3, 4)
    assert spans.closed == [("train", 1), ("train", 2), ("train", 3), ("train", None)]


LEFT = [
    *(
        breaks,
        returns,
        keeps_the_iterator,
        breaks_and_fails,
        has_enough,
        takes_as_many_as_there_are,
    ),
    *(lists, looks_for_one, asks_itself, unpacks),
    *(closes_after_the_loop, closes_in_the_end, closes_in_the_loop, closes_what_passes_on),
    *(closes_while_an_error_is_handled, closes_by_a_context),
]


@pytest.mark.parametrize("loop", LEFT)
def test_the_last_round_of_a_loop_that_was_left_on_purpose_is_a_step(loop):
    clock, _ = clock_with_spans()
    set_current(clock)
    try:
        with suppress(ValueError):
            loop()
    finally:
        set_current(None)
    assert (clock.seen, clock.marked, clock.current_step) == (3, 3, None)


def test_a_round_whose_end_nobody_saw_is_neither_a_step_nor_a_failure():
    clock, spans = clock_with_spans()
    set_current(clock)
    try:
        closes_later()
    finally:
        set_current(None)
    # What ran between the loop and the call would count into its time.
    assert (clock.seen, clock.marked, clock.current_step) == (3, 3, None)
    assert spans.closed == [("train", 1), ("train", 2), ("train", 3), ("train", None)]


def test_a_recording_that_a_bound_ends_meanwhile_harms_no_step():
    class Ends(StepClock):
        # As a thread that ends the recording between two looks of this one.
        looks = 0

        @property
        def open_marker(self):
            self.looks += 1
            return self.spans if self.looks % 2 else None

        @open_marker.setter
        def open_marker(self, value):
            pass

    clock = Ends()
    clock.spans = Spans()
    clock.loop("train")
    for _ in range(5):
        clock.begin("train")
        clock.end("train")
    clock.stop()
    assert clock.seen == 5


def test_steps_of_two_threads_are_each_counted():
    clock, spans = clock_with_spans()
    set_current(clock)
    turns = threading.Barrier(2)

    def loop(kind):
        for _ in steps(range(200), kind):
            with step("inner"):
                pass
            # Both are in a step at once.
            turns.wait(10)

    try:
        threads = [threading.Thread(target=loop, args=(kind,)) for kind in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        set_current(None)
        turns.abort()
    marked = [(kind, number) for kind, number in spans.closed if number is not None]
    assert (clock.seen, clock.marked, clock.fault, clock.current_step) == (400, 400, "", None)
    assert {kind: sum(k == kind for k, _ in marked) for kind in ("one", "two")} == {
        "one": 200,
        "two": 200,
    }
    assert len({number for _, number in marked}) == 400, "each has a number of its own"
