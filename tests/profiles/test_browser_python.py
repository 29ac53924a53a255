"""Profiles in a Python that runs in a browser (Pyodide): no threads, no processes, no mappings, no
compiled library, and no module of the server. Its rules are imposed on a process here.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import nbprof

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "xspace": DATA / "xspace" / "tf_cpu.xplane.pb",
    "kineto": next((DATA / "kineto").glob("*.json*")),
}
FRAMES = ("steps.frame", "steps.summary", "ops.frame", "memory.timeline", "advice")

SCRIPT = """
import errno, mmap, os, pickle, subprocess, sys, threading

class Absent:
    names = {"jupyter_server", "psutil", "multiprocessing", "tornado", "zmq"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

class NoMappings(mmap.mmap):
    def __new__(cls, *_, **__):
        raise OSError(errno.ENODEV, "No such device")

def refuse(*_, **__):
    raise OSError(errno.ENOSYS, "Function not implemented")

def no_thread(_):
    raise RuntimeError("can't start new thread")

sys.meta_path.insert(0, Absent())
threading.Thread.start = no_thread
mmap.mmap = NoMappings
subprocess.Popen.__init__ = refuse
os.fork = os.posix_spawn = refuse

from nbprof.native import library
library.load = lambda: library.Loaded(None, "there is none in a browser")

import nbprof

def value(p, name):
    for part in name.split("."):
        p = getattr(p, part)
    return p

file, target, *names = sys.argv[1:]
p = nbprof.load(file)
held = {name: value(p, name) for name in names}
held["html"] = p.mimebundle()[0]["text/html"]
held["text"] = p.text()
assert not Absent.names & set(sys.modules), Absent.names & set(sys.modules)
with open(target, "wb") as stream:
    pickle.dump(held, stream)
"""


def value(p, name):
    for part in name.split("."):
        p = getattr(p, part)
    return p


@pytest.mark.parametrize("kind", FILES)
def test_frames_and_html_are_those_of_any_other_python_to_the_last_digit(tmp_path, kind):
    target = tmp_path / "held.pickle"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(FILES[kind]), str(target), *FRAMES],
        env={**os.environ, "NBPROF_CACHE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    held = pickle.loads(target.read_bytes())
    p = nbprof.load(FILES[kind])
    for name in FRAMES:
        # Advice displays itself; a pickle of it is a frame.
        pd.testing.assert_frame_equal(held[name], pd.DataFrame(value(p, name)), check_exact=True)
    assert held["text"] == p.text()
    # All but the key of the output, which is of the time that the analysis took, too.
    static = held["html"].partition("data-nbprof-static")[2].partition("<script")[0]
    html = p.mimebundle()[0]["text/html"]
    assert static
    assert static == html.partition("data-nbprof-static")[2].partition("<script")[0]
