"""`nbprof attach`: the refusal before Python 3.14, the script that runs in the program, and the
conversation, with a stand-in of `sys.remote_exec` where Python has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import nbprof
from nbprof.capture.remote import attach
from nbprof.cli import attach as cli
from nbprof.core.errors import CaptureError
from tests.support.profiles import require
from tests.support.programs import ROOT


def test_before_python_3_14_it_says_what_is_possible(monkeypatch):
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    with pytest.raises(CaptureError, match=r"Python 3\.14 can.*nbprof capture kineto://1234"):
        attach.attach(1234)


def test_the_script_starts_a_server_that_records(tmp_path):
    require("torch")
    answer, script = tmp_path / "answer.json", tmp_path / "script.py"
    script.write_text(attach.script(answer, "torch"))
    code = (
        "import sys, torch\n"
        "exec(compile(open(sys.argv[1]).read(), 'script', 'exec'))\n"
        "print('ready', flush=True)\n"
        "while True: torch.ones(4).add(1)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout.readline() == b"ready\n", answer.read_text()
        port = attach._port(process.pid, answer)
        profile = nbprof.capture(f"torch://localhost:{port}", 100, progress=False)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert "aten::add" in profile.run.trace.names


def test_what_fails_in_the_program_is_said_and_does_not_raise_there(monkeypatch):
    monkeypatch.setattr(nbprof, "serve", lambda *_: 1 / 0)

    def run(pid, path):
        code = compile(Path(path).read_text(encoding="utf-8"), path, "exec")
        threading.Thread(target=exec, args=(code, {})).start()

    monkeypatch.setattr(sys, "remote_exec", run, raising=False)
    with pytest.raises(CaptureError, match=r"did not start in \d+: ZeroDivisionError"):
        attach.attach(os.getpid())
    monkeypatch.setattr(nbprof, "serve", lambda port, backend: 4711)
    result = CliRunner().invoke(cli.command, [str(os.getpid())])
    assert result.output == "torch://localhost:4711\n"
    assert (
        CliRunner().invoke(cli.command, [str(os.getpid()), "--backend", "jax"]).output
        == "grpc://localhost:4711\n"
    )


def test_one_that_may_not_be_attached_to_is_explained(monkeypatch):
    def refuse(pid, path):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sys, "remote_exec", refuse, raising=False)
    with pytest.raises(CaptureError, match="containers and macOS want a permission"):
        attach.attach(os.getpid())
    with pytest.raises(CaptureError, match="there is no process"):
        attach.attach(2**22 + 1)
    monkeypatch.setattr(sys, "remote_exec", lambda pid, path: None)
    monkeypatch.setattr(attach, "WAIT_S", 0.1)
    with pytest.raises(CaptureError, match="has not run the script within"):
        attach.attach(os.getpid())
