"""Recordings whose process was killed: what was written is opened, and of the rest a sentence says
what became of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import nbprof
from nbprof.capture.options import Options
from nbprof.capture.place import RunFolder
from nbprof.core.errors import ReadError
from nbprof.core.unfinished import MARK, SCRATCH, mark, unfinished
from nbprof.display.slot import Slot
from tests.support import programs
from tests.support.kineto import Kineto

KILLED = """
import os, nbprof
with nbprof.profile(backend="python", logdir={logdir!r}):
    os.kill(os.getpid(), {signal})
"""


def ended() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left(logdir, name="a", data=b"", **facts):
    """A recording as a killed process leaves it."""
    folder = logdir / f"{SCRATCH}{name}"
    run = folder / "plugins" / "profile" / "2026_01_01_00_00_00"
    run.mkdir(parents=True)
    mark(folder, {"pid": ended(), "started": 1_767_225_600.0, "notebook": "train.ipynb", **facts})
    if data:
        (run / "host.pt.trace.json").write_bytes(data)
    return folder


def trace():
    file = Kineto()
    for number in range(4):
        file.step(number, 1000 * number, 1000)
        file.op("aten::mm", 1000 * number + 10, 500)
    return file.encode()


def test_a_killed_process_leaves_a_sentence(tmp_path):
    logdir = str(tmp_path / "logs")
    code = KILLED.format(logdir=logdir, signal=int(signal.SIGKILL))
    programs.run(code, needs="nbprof", status=-signal.SIGKILL)
    (found,) = unfinished(tmp_path / "logs")
    assert not found.running
    with pytest.raises(
        ReadError,
        match=rf"its process, {found.facts['pid']}, ended before the recording did, before its profiler wrote",
    ):
        nbprof.load(logdir)
    assert not len(nbprof.runs(logdir))
    # A later one is what people come for then.
    with nbprof.profile(backend="python", logdir=logdir):
        pass
    assert "was not finished" not in str(nbprof.load(logdir).receipt)


def test_what_was_written_is_opened(tmp_path):
    left(tmp_path, data=trace()[:-300])
    p = nbprof.load(tmp_path)
    assert len(p.steps.frame)
    said = str(p.receipt)
    assert "host.pt.trace.json: The file is truncated at byte" in said
    assert "! The recording that began on " in said
    assert " in train.ipynb was not finished: its process, " in said
    assert "What its profiler had written so far is shown." in said
    # What can be read is not removed by the next recording.
    place = RunFolder(Options(logdir=str(tmp_path)))
    place.discard()
    assert len(unfinished(tmp_path)) == 1


def test_an_earlier_run_says_that_a_later_one_is_missing(tmp_path):
    left(tmp_path, started=1_767_225_600.0)
    path = tmp_path / "host.pt.trace.json"
    path.write_bytes(trace())
    assert "The recording that began on " not in str(nbprof.load(tmp_path).receipt)
    os.utime(path, (1_767_225_000, 1_767_225_000))
    assert "- The recording that began on " in str(nbprof.load(tmp_path).receipt)


def test_one_that_goes_on_is_not_opened(tmp_path):
    left(tmp_path, data=trace(), pid=os.getpid())
    with pytest.raises(
        ReadError,
        match=rf"is not finished: its process, {os.getpid()}, is still running, and its run appears when it finishes",
    ):
        nbprof.load(tmp_path)
    place = RunFolder(Options(logdir=str(tmp_path)))
    place.discard()
    assert len(unfinished(tmp_path)) == 1


def test_one_on_another_machine_may_go_on(tmp_path):
    left(tmp_path, machine="elsewhere")
    assert unfinished(tmp_path)[0].running


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"pid": "x", "started": "then", "notebook": 3}',
        '{"pid": -1, "started": 1e300}',
    ],
)
def test_a_damaged_file_is_no_error(tmp_path, text):
    folder = left(tmp_path)
    (folder / MARK).write_text(text)
    (found,) = unfinished(tmp_path)
    assert not found.running
    assert found.sentence
    with pytest.raises(ReadError, match="there is no profile in this folder"):
        nbprof.load(tmp_path)


def test_a_recording_says_whose_it_is(tmp_path):
    with nbprof.profile(backend="python", logdir=str(tmp_path)):
        (found,) = unfinished(tmp_path)
        assert found.running
        assert found.facts["pid"] == os.getpid()
    assert unfinished(tmp_path) == []
    assert not list(tmp_path.rglob(MARK))


def test_the_old_status_is_closed():
    sent = []
    publisher = SimpleNamespace(
        pub_socket=object(),
        parent_header={"msg_id": "1"},
        topic=b"display",
        session=SimpleNamespace(
            send=lambda _socket, kind, content, **_: sent.append((kind, content))
        ),
    )
    slot = Slot(SimpleNamespace(kernel=object(), display_pub=publisher))
    slot.close("", "nothing was shown")
    slot.close("d1", "nbprof: <ended>")
    ((kind, content),) = sent
    assert (kind, content["transient"]) == ("update_display_data", {"display_id": "d1"})
    assert content["data"]["text/plain"] == "nbprof: <ended>"
    assert "&lt;ended&gt;" in content["data"]["text/html"]
    json.dumps(content)
