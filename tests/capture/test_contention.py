"""What other processes took of the cores while a recording ran."""

from __future__ import annotations

import json
import os
import subprocess

import psutil
import pytest

from nbprof import load
from nbprof.analysis.contention import sentence
from nbprof.capture.contention import _between, _Reading, children_of
from nbprof.sources.recording import CaptureInfo
from tests.capture.test_load_back import recorded
from tests.support.programs import run

CROWDED = {"cores": 4.0, "own_cores": 1.0, "other_cores": 2.5, "waited_percent": 40.0}


def test_cores_of_others_are_those_that_were_busy_without_ours():
    begin = _Reading(time=10.0, cores=4, busy=100.0, process=7.0, threads={"1": (5.0, 1.0)})
    end = _Reading(
        time=12.0, cores=4, busy=106.0, process=8.0, threads={"1": (6.0, 1.5), "2": (0.5, 0.5)}
    )
    # 6 of 8 core seconds were busy, of which 1 is ours; our threads ran for 1.5 s and waited for 1
    # s.
    assert _between(begin, end) == pytest.approx(
        {"cores": 4, "own_cores": 0.5, "other_cores": 2.5, "waited_percent": 40}
    )
    assert _between(begin, end._replace(time=10.0)) == {}
    assert _between(begin, end._replace(cores=2)) == {}
    assert "waited_percent" not in _between(begin, end._replace(threads={}))


MEASURED_BESIDE = """
import json, os, subprocess, sys, time
from nbprof.capture.contention import Contention

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
# Of its parent it must not be a child, whose time is counted as ours.
busy = (
    "import os; pid = os.fork(); pid and (print(pid, flush=True), os._exit(0)); os.close(1)\\n"
    "while True: pass"
)
command = [sys.executable, "-c", busy]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
    pid = int(parent.stdout.readline())
try:
    contention, end = Contention(), time.perf_counter() + 1.5
    while time.perf_counter() < end:
        pass
    print(json.dumps(contention.measured()))
finally:
    os.kill(pid, 9)
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="binds processes to a core, which Linux can"
)
def test_a_neighbour_on_the_same_core_is_seen():
    """A loop beside ours on one core: it has about half of that core, and we wait for it about half
    of the time.
    """
    # In a process of its own: threads that earlier tests left in this one run on other cores.
    ended = run(MEASURED_BESIDE)
    measured = json.loads(ended.stdout)
    assert measured["cores"] == 1
    assert measured["other_cores"] > 0.2
    assert "core" in sentence(measured)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({}, ""),
        (
            CROWDED,
            "Other processes used 2.5 of the 4 cores while this was recorded, and this process waited for a free core 40% of",
        ),
        (CROWDED | {"other_cores": 0.5}, ""),
        (CROWDED | {"waited_percent": 2.0}, ""),
        (
            {"cores": 1.0, "own_cores": 0.5, "other_cores": 0.5},
            "Other processes used 50% of the core while this was recorded, and this one 0.5",
        ),
        ({"cores": 4.0, "own_cores": 0.5, "other_cores": 2.0}, ""),
    ],
)
def test_it_is_said_where_it_made_a_difference(measured, said):
    assert sentence(measured).startswith(said)
    assert bool(sentence(measured)) == bool(said)


def test_it_stands_before_the_advice_and_lowers_the_confidence(tmp_path):
    quiet, crowded = (
        load(recorded(tmp_path / "a")),
        load(recorded(tmp_path / "b", contention=CROWDED)),
    )
    assert "contention" not in quiet.overview
    said = crowded.overview["contention"]
    assert (False, said) in crowded.overview["confidence_evidence"]
    levels = ("low", "medium", "high")
    assert levels.index(crowded.overview["confidence"]) == max(
        levels.index(quiet.overview["confidence"]) - 1, 0
    )
    assert said in crowded.text()
    assert said in crowded.advice._repr_mimebundle_()[0]["text/html"]
    # The advice is the same. The 1.5 cores that others leave do the 10 ms of work of a step in 6.67
    # ms, which is about what it may save.
    for column in ("rule", "title", "fix"):
        assert crowded.advice[column].tolist() == quiet.advice[column].tolist()
    assert quiet.advice["gain_ms_per_step"].tolist() == pytest.approx([4.0, 4.0])
    assert crowded.advice["gain_ms_per_step"].tolist() == pytest.approx([10 - 10 / 1.5] * 2)
    assert set(crowded.advice["gain_is"]) == {"about"}
    assert all("other processes **2.5**" in evidence for evidence in crowded.advice["evidence"])
    assert not any("other processes" in evidence for evidence in quiet.advice["evidence"])


def test_what_the_sidecar_says_is_checked():
    values = {"cores": 2, "other_cores": "many", "waited_percent": float("nan"), "own_cores": True}
    assert CaptureInfo.from_dict({"contention": values}).contention == {"cores": 2.0}
    assert CaptureInfo.from_dict({"contention": [1]}).contention == {}


def test_children_and_theirs_are_those_that_the_system_knows():
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo begun; wait"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        try:
            known = {one.pid for one in psutil.Process().children(recursive=True)}
            assert set(children_of(os.getpid())) == known
            assert child.pid in known
            assert len(psutil.Process(child.pid).children()) == 1
        finally:
            for one in psutil.Process(child.pid).children():
                one.kill()
            child.kill()
