"""`-o -` is standard output, byte for byte, and nothing else is written there."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbprof
from nbprof.cli.main import BAD, CLOSED_PIPE
from tests.cli.support import DATA, SLOW, call

MENDED = str(DATA / "xspace" / "tf_mended.xplane.pb")


def run(*words, **how):
    return subprocess.run(
        [sys.executable, "-m", "nbprof", *map(str, words)],
        capture_output="stdout" not in how,
        check=False,
        **how,
    )


def test_a_frame(tmp_path):
    target = tmp_path / "ops.csv"
    call("frame", SLOW, "ops", "--csv", "-o", target)
    assert call("frame", SLOW, "ops", "--csv", "-o", "-").stdout_bytes == target.read_bytes()


def test_a_frame_of_bytes_that_are_no_text(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    call("frame", SLOW, "ops", "--parquet", "-o", "ops.parquet")
    piped = run("frame", SLOW, "ops", "--parquet", "-o", "-")
    assert piped.stdout == (tmp_path / "ops.parquet").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["ops.parquet"]


def test_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = call("report", SLOW, "--events", 0, "-o", "-").stdout
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert not list(tmp_path.iterdir())


def test_a_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    piped = json.loads(call("trace", SLOW, "--range", "100:120", "-o", "-").stdout)
    call("trace", SLOW, "--range", "100:120", "-o", "x.json.gz")
    assert piped == json.loads(gzip.decompress((tmp_path / "x.json.gz").read_bytes()))
    assert [path.name for path in tmp_path.iterdir()] == ["x.json.gz"]


def test_a_comparison_has_its_text_on_stderr():
    result = call("compare", SLOW, MENDED, "-o", "-")
    assert result.stdout.startswith("<!doctype html>")
    assert result.stderr == nbprof.compare(SLOW, MENDED).text() + "\n"


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_two_answers_cannot_share_it(form):
    assert "-o needs a file" in call("compare", SLOW, MENDED, form, "-o", "-", code=BAD).stderr


def test_a_folder_is_bad_use(tmp_path):
    for command in ("report", "trace"):
        assert "is a directory" in call(command, SLOW, "-o", tmp_path, code=BAD).stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["report", SLOW, "--events", 0], ["frame", SLOW, "ops", "--csv"]]
)
def test_a_disk_that_is_full_is_a_sentence(words):
    with Path("/dev/full").open("wb") as full:
        result = run(*words, "-o", "-", stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == BAD
    said = result.stderr.decode()
    assert said.startswith(
        f"nbprof: standard output: the {words[0]} could not be written (No space left on device)"
    )
    assert said.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_has_gone_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = run("report", SLOW, "-o", "-", stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert result.returncode == CLOSED_PIPE
    assert not result.stderr


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout here")
def test_the_device_of_standard_output_is_written_to(tmp_path):
    with (tmp_path / "report.html").open("wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        assert (
            run(
                "report",
                SLOW,
                "--events",
                0,
                "-o",
                "/dev/stdout",
                stdout=file,
                stderr=subprocess.PIPE,
            ).returncode
            == 0
        )
    assert (tmp_path / "report.html").stat().st_ino == inode
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
