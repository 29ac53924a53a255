"""Recordings whose logdir is a URL."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import fsspec
import pytest

import nbprof
from nbprof.sources.upload import Upload
from tests.capture.notes import text_of


@pytest.fixture
def bucket():
    name = f"bucket-{uuid.uuid4().hex}"
    yield f"memory://{name}"
    fs = fsspec.filesystem("memory")
    if fs.exists(f"/{name}"):
        fs.rm(f"/{name}", recursive=True)


def recorded(url, **options):
    with nbprof.profile(backend="python", logdir=url, **options) as p:
        for _ in nbprof.steps(range(3)):
            sum(range(1000))
    return p


def files_of(url):
    return sorted(fsspec.filesystem("memory").find(url))


def test_a_run_is_copied_to_the_url_and_opens_there(bucket):
    p = recorded(bucket + "/logs/")
    note = text_of(p.run.capture.notes, "run_uploaded")
    where = note.removeprefix("the run is in ")
    assert where.startswith(f"{bucket}/logs/plugins/profile/")
    names = {path.rpartition("/")[2] for path in files_of(bucket)}
    assert "nbprof.json" in names
    assert len(names) == 2
    again = nbprof.load(where)
    assert len(again.steps.frame) == len(p.steps.frame) == 3
    assert again.run.capture is not None
    assert (
        nbprof.load(bucket + "/logs").steps.frame["step"].tolist() == p.steps.frame["step"].tolist()
    )


def test_two_runs_of_one_second_are_two(tmp_path, bucket):
    runs = [tmp_path / one / "2026_01_01_00_00_00" for one in "ab"]
    upload = Upload(bucket)
    for number, run in enumerate(runs):
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_text(str(number))
        upload.put(run)
    assert [upload.url_of(run).rpartition("/")[2] for run in runs] == [
        "2026_01_01_00_00_00",
        "2026_01_01_00_00_00_2",
    ]
    # What has changed since is copied again, to the same place.
    (runs[0] / "nbprof.json").write_text(json.dumps({"label": "a"}))
    upload.put(runs[0])
    assert len(files_of(bucket)) == 3


def test_what_cannot_be_copied_is_kept_here(bucket, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("no access for key=SECRET@")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", refuse)
    p = recorded(bucket)
    note = text_of(p.run.capture.notes, "run_not_uploaded")
    assert note.startswith(f"the run could not be copied to {bucket} (PermissionError: ")
    folder = note.rpartition("it is in ")[2]
    assert len(nbprof.load(folder).steps.frame) == 3


def test_a_url_that_is_not_one_of_a_bucket_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nbprof.CaptureError, match="cannot be written to"):
        recorded("https://example.org/logs")
    assert list(tmp_path.iterdir()) == []


def test_recording_to_a_folder_asks_fsspec_for_nothing():
    code = "import sys\nfrom nbprof.capture.options import Options\nfrom nbprof.capture import place\nOptions(logdir='logs')\n"
    code += "print('fsspec' in sys.modules, 'numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "False"]
