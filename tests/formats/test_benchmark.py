"""The benchmark of reading measures what it says: whole processes, all events, and it stops where
some are missing.
"""

import importlib
import sys
from pathlib import Path

import pytest

from tests.support.xspace import training_run

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def decode(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("decode")


def test_a_measurement_is_a_whole_process(tmp_path, decode):
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(training_run(3))
    contestants, missing = decode.contestants(
        "xspace", str(tmp_path / "python"), tmp_path / "cache"
    )
    assert [c.name for c in contestants] == [
        "nbprof",
        "nbprof, filling its cache",
        "nbprof, second open",
    ]
    assert "XProf is missing" in missing[0]
    run = contestants[0].measure(path, tmp_path)
    assert (run.events, run.rows) == (3 * 8, 3)
    assert 0 < run.call < run.frame < run.exit
    # No upper limit: to the system a process has at least the peak of the one that started it, here
    # that of all tests.
    assert run.peak > 10
    decode.check(contestants[0], run, {"events": 24, "ops": 2}, path)
    with pytest.raises(AssertionError, match="read 24 of 30 events"):
        decode.check(contestants[0], run, {"events": 30, "ops": 2}, path)
    with pytest.raises(AssertionError, match="no ops"):
        decode.check(
            contestants[0], decode.Run(1, 1, 1, 1, 1, 24, 0), {"events": 24, "ops": 2}, path
        )


def test_a_reader_that_fails_stops_the_benchmark(tmp_path, decode):
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(b"not a profile")
    ours = decode.contestants("xspace", sys.executable, tmp_path / "cache")[0][0]
    with pytest.raises(SystemExit, match="nbprof did not read run"):
        ours.measure(path, tmp_path)


def test_stages_add_up(tmp_path, decode, capsys):
    stages = importlib.import_module("stages")
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(training_run(3))
    stages.stages(path)
    said = capsys.readouterr().out
    assert "24 events, 3 rows" in said
    assert "not there" not in said, "every stage that is timed is a function of nbprof"
    assert "decode" in said


def test_all_frames_are_made_and_counted(tmp_path, decode):
    analysis = importlib.import_module("analysis")
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(training_run(3))
    ours = analysis.contestants(str(tmp_path / "python"), analysis.FRAMES)
    assert [c.name for c in ours] == ["nbprof"]
    run = ours[0].measure(path, tmp_path)
    assert (run.events, run.rows[0], run.rows[2]) == (3 * 8, 3, 0)
    assert 0 < run.call < run.frame < run.exit
