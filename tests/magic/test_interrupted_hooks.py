"""A Ctrl-C that meets nbprof's own code in a cell is shown as if it had met the user's."""

from __future__ import annotations

import re
import signal
import sys
import threading
from pathlib import Path
from traceback import walk_tb

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nbprof.capture import keras, shield
from nbprof.capture.clock import StepClock
from nbprof.capture.options import Options
from nbprof.capture.windows import Windows
from nbprof.notebook import magic
from tests.support.tracebacks import PACKAGE

STANDARD = Path(threading.__file__).resolve().parent
USERS = "def train():\n    return begin()\n"


@pytest.fixture
def shell(monkeypatch):
    made = InteractiveShell()
    # Quick: what is looked at is the traceback itself.
    made.InteractiveTB.set_mode("Minimal")
    magic.load(made)
    monkeypatch.setattr(threading, "Timer", Later)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield made
    sys.settrace(None)
    shield._shields.clear()
    signal.signal(signal.SIGINT, before)
    magic.unload(made)


class Later(threading.Timer):
    """A Ctrl-C that was held back and comes a moment later: when the cell is at its last line."""

    pending = False

    def start(self):
        """Do not start, but wait for `release`."""
        Later.pending = True


def release():
    """The last line of a cell."""
    sys.settrace(None)
    if Later.pending:
        Later.pending = False
        signal.raise_signal(signal.SIGINT)


class Presses:
    """Presses Ctrl-C at one of the bytecodes of nbprof that run in a cell; the first of each
    function is its beginning.
    """

    def __init__(self, at: int, files: tuple[str, ...]) -> None:
        self.left, self.files = at, files

    def trace(self, frame, event, _):
        """Follow a frame, if it is one of those files'."""
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self.trace


def ctrl_c_at(shell, at, text, files):
    """Run a cell with Ctrl-C at a bytecode; gives the files of the traceback, and whether that
    bytecode was reached.
    """
    presses, sys.last_traceback, Later.pending = Presses(at, files), None, False
    shell.user_ns |= {"press": lambda: sys.settrace(presses.trace), "release": release}
    shell.run_cell(f"press()\n{text}\nrelease()")
    trace = sys.last_traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shield._shields.clear()
    shown = [Path(frame.f_code.co_filename).resolve() for frame, _ in walk_tb(trace)]
    return [
        file for file in shown if file != Path(__file__) and "IPython" not in file.parts
    ], presses.left <= 0


def at_each_bytecode(shell, text, files):
    """Press Ctrl-C at each of them; gives how many there were, and how many tracebacks were
    shown.
    """
    at, shown, reached = 0, 0, True
    while reached:
        at += 1
        seen, reached = ctrl_c_at(shell, at, text, files)
        shown += bool(seen)
        # Those of cells have names that lie below a folder of their own, or none.
        assert not [
            file for file in seen if file.is_relative_to(PACKAGE) or file.is_relative_to(STANDARD)
        ], at
    return at, shown


@pytest.mark.parametrize("pressed", [False, True], ids=["once", "again"])
def test_at_each_bytecode_of_the_beginning_of_a_cell(shell, monkeypatch, pressed):
    prepared = []

    def prepare(*_):
        prepared.append(True)
        if pressed:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(magic.NbprofMagics, "_prepare", prepare)
    at, shown = at_each_bytecode(
        shell, "get_ipython().run_line_magic('nbprof_begin', '')", (magic.__file__, shield.__file__)
    )
    assert at > 60
    assert shown > 20
    assert len(prepared) > 20


@pytest.mark.parametrize("method", ["begin", "end"])
def test_at_each_bytecode_of_a_hook_that_begins_or_ends_a_window(shell, method):
    clock = StepClock()
    windows = Windows(Options(), clock)
    shell.user_ns["begin"] = lambda: keras._safely(clock, lambda _: getattr(windows, method)(), ())
    shell.run_cell(USERS)
    at, shown = at_each_bytecode(shell, "train()", (keras.__file__, shield.__file__))
    assert at > 60
    assert shown > 20


def test_what_the_user_called_is_shown(shell, capsys):
    shell.InteractiveTB.set_mode("Context")
    shell.run_cell(
        "import signal\ndef wait():\n    signal.raise_signal(signal.SIGINT)\n%nbprof defaults none\n"
    )
    capsys.readouterr()
    shell.run_cell("def train():\n    wait()\ntrain()")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert re.findall(r"in (\w+)\(", shown) == ["train", "wait"]


def test_a_way_of_showing_exceptions_of_the_users_own_stays():
    shell, seen = InteractiveShell(), []
    shell.set_custom_exc((KeyboardInterrupt,), lambda *_, **__: seen.append(1))
    magic.load(shell)
    shell.run_cell("raise KeyboardInterrupt")
    magic.unload(shell)
    shell.run_cell("raise KeyboardInterrupt")
    assert seen == [1, 1]


def test_nothing_is_left_in_a_shell():
    shell = InteractiveShell()
    magic.load(shell)
    assert shell.custom_exceptions == (KeyboardInterrupt,)
    magic.unload(shell)
    assert shell.custom_exceptions == ()
