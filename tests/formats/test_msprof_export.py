"""Raw recordings of msprof: exported by the tool where it is there, else told how."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

import nbprof
from nbprof.core.errors import RawError, ReadError
from tests.support import msprof as made


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "PROF_000001_20250109084754000_ABC"
    (folder / "device_0" / "data").mkdir(parents=True)
    (folder / "device_0" / "data" / "stars_soc.data.0.slice_0").write_bytes(b"\0" * 64)
    return folder


def tool(monkeypatch, where: Path, code: str) -> None:
    """Puts an `msprof` on the PATH that runs some Python."""
    where.mkdir()
    script = where / "msprof"
    (where / "tool.py").write_text(code)
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(where / "tool.py"))} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}{os.pathsep}{os.environ['PATH']}")


def test_without_the_tool_the_sentence_says_how(raw, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        RawError, match=r"not exported yet: run  msprof --export=on --output=.*PROF_000001"
    ):
        nbprof.load(raw)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in of the tool is a shell script")
def test_the_tool_exports_and_what_it_wrote_is_read(raw, tmp_path, monkeypatch):
    tasks, marks = made.training(4)
    exported = made.prof(tmp_path / "elsewhere", tasks, marks) / "mindstudio_profiler_output"
    code = f"""
import shutil, sys
assert sys.argv[1:] == ["--export=on", "--output={raw}"], sys.argv
shutil.copytree({str(exported)!r}, "{raw}/mindstudio_profiler_output")
"""
    tool(monkeypatch, tmp_path / "bin", code)
    assert len(nbprof.load(raw).steps.frame) == 4


@pytest.mark.skipif(os.name == "nt", reason="the stand-in of the tool is a shell script")
def test_what_a_tool_that_fails_says_is_quoted(raw, tmp_path, monkeypatch):
    tool(
        monkeypatch, tmp_path / "bin", "import sys\nsys.exit('[ERROR] the data is of a newer CANN')"
    )
    with pytest.raises(ReadError, match=r"failed with code 1: .*newer CANN"):
        nbprof.load(raw)


def test_listing_runs_starts_no_tool(raw, tmp_path, monkeypatch):
    tool(monkeypatch, tmp_path / "bin", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert len(nbprof.runs(tmp_path)) == 0
    assert not (tmp_path / "ran").exists()
