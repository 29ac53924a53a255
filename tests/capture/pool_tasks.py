"""Functions that tests send to process pools; workers import this module, so it imports little."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path


def double(value):
    return 2 * value


def add(first, second):
    return first + second


def spin(value):
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        sum(range(100))
    return value


def fail(value):
    raise ValueError(f"bad {value}")


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.005)
    return path


def begin_and_wait(folder):
    """Say that it runs, and wait for another file."""
    (Path(folder) / f"began-{os.getpid()}").touch()
    wait_for(Path(folder) / "go")


def kill(value):
    os.kill(os.getpid(), 9)


def process(value):
    return os.getpid()


def set_up(value):
    global initial
    initial = value


def set_up_value(value):
    return initial + value


def surroundings(value):
    """The files of the callers and the names of the threads."""
    files, frame = [], sys._getframe()
    # A process that was forked has the calls that led to its start as well.
    while frame is not None and frame.f_code.co_name != "worker":
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    return files, [thread.name for thread in threading.enumerate()]
