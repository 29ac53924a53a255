"""Start the server of `nbprof.serve` in a program that runs already, by `sys.remote_exec`."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from nbprof.core.errors import CaptureError

_MOST_BYTES = 1 << 16
"""Of an answer."""

FIRST = (3, 14)
"""The first Python that can run code in another one."""
WAIT_S = 30.0
"""Time for the program to run the script: it does between two instructions of its main thread."""
_SCRIPT = """\
import json, os, sys
answer = {answer!r}
try:
    try:
        import nbprof
    except ImportError:
        # The program has no nbprof: the one that attaches is for the same Python.
        sys.path.append({package!r})
        import nbprof
    backend = {backend!r}
    result = {{"port": nbprof.serve(0, backend)}}
except BaseException as error:
    result = {{"error": f"{{type(error).__name__}}: {{error}}"}}
with open(answer + ".part", "w", encoding="utf-8") as file:
    json.dump(result, file)
os.replace(answer + ".part", answer)
"""


def script(answer: Path, backend: str) -> str:
    """The text that is run in the program; it never raises there.

    Parameters
    ----------
    answer : Path
        The file that receives the port, or the error.
    backend : str
        As for `nbprof.serve`.
    """
    package = str(Path(__file__).resolve().parents[3])
    return _SCRIPT.format(answer=str(answer), package=package, backend=backend)


def attach(pid: int, backend: str = "torch") -> int:
    """Start the server of a framework in the program `pid`, and return its port.

    Raises
    ------
    CaptureError
        This is not possible here, or it failed there.
    """
    remote_exec = getattr(sys, "remote_exec", None)
    if remote_exec is None:
        raise CaptureError(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} cannot run code in a program that"
            " runs already; Python 3.14 can. A program of PyTorch that was started with"
            f" KINETO_USE_DAEMON=1 is recorded by `nbprof capture kineto://{pid}`; others need"
            " nbprof.serve(6009) in the program, or `nbprof serve train.py`"
        )
    with tempfile.TemporaryDirectory(prefix="nbprof-") as folder:
        answer, code = Path(folder, "answer.json"), Path(folder, "script.py")
        code.write_text(script(answer, backend), encoding="utf-8")
        _share(pid, Path(folder), code)
        try:
            remote_exec(pid, str(code))
        except (OSError, RuntimeError) as error:
            raise CaptureError(
                f"{pid} cannot be attached to ({error}): it must be a program of the same Python"
                " 3.14 that belongs to you, without PYTHON_DISABLE_REMOTE_DEBUG; containers and"
                " macOS want a permission for it (CAP_SYS_PTRACE, or root)"
            ) from error
        return _port(pid, answer)


def _share(pid: int, folder: Path, code: Path) -> None:
    """Let a program of another user, which root attaches to, read the script and answer."""
    import psutil

    try:
        owner = psutil.Process(pid).uids().effective
    except psutil.NoSuchProcess as error:
        raise CaptureError(f"there is no process {pid} on this machine") from error
    if os.geteuid() == 0 and owner:
        os.chown(folder, owner, -1)
        code.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)


def _port(pid: int, answer: Path) -> int:
    until = time.monotonic() + WAIT_S
    while not answer.exists():
        if time.monotonic() > until:
            raise CaptureError(
                f"{pid} has not run the script within {WAIT_S:.0f} s: its main thread is in a call"
                " that does not return to Python"
            )
        time.sleep(0.05)
    try:
        result = json.loads(_text(answer))
        if "error" not in result:
            return int(result["port"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CaptureError(f"{pid} answered nothing that can be read: {error}") from error
    raise CaptureError(f"the server did not start in {pid}: {result['error']}")


def _text(answer: Path) -> str:
    """The answer, from a folder that is the other program's: no link, no pipe, no large file."""
    descriptor = os.open(answer, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no file")
        return file.read(_MOST_BYTES).decode("utf-8")
