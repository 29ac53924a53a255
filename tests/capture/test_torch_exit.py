"""The end of a rank's process: threads of PyTorch that still hold a context are waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HOLD = """
    import atexit, contextvars, ctypes, threading, time, weakref
    from nbprof.capture import torch_exit

    # What is registered first is called last.
    atexit.register(lambda: print("dropped" if held() is None else "held"))
    count = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    take, drop = (count((name, ctypes.pythonapi)) for name in ("Py_IncRef", "Py_DecRef"))
    context = contextvars.copy_context()
    address, held = id(context), weakref.ref(context)
    take(address)
    del context

    def drops():
        time.sleep(0.3)
        drop(address)
"""


def run(script):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_context_that_native_code_holds_is_waited_for(times):
    said = run(
        HOLD
        + f"""
    torch_exit.LIMIT_S = 60
    for _ in range({times}):
        torch_exit.wait_at_exit()
    threading.Thread(target=drops, daemon=True).start()
        """
    )
    assert said == ["dropped" if times else "held"]


def test_not_for_ever():
    assert run(HOLD + "    torch_exit.LIMIT_S = 0.1\n    torch_exit.wait_at_exit()") == ["held"]


def test_contexts_of_python_are_not_waited_for():
    said = run("""
    import contextvars
    from nbprof.capture import torch_exit

    one = contextvars.ContextVar("one")
    one.set(1)  # Now this thread has a context.
    kept = [contextvars.copy_context()]
    torch_exit.LIMIT_S = 1e9
    torch_exit._wait()
    print("over")
    """)
    assert said == ["over"]
