"""An answer about a run that was asked for before: the same, and without the analysis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbprof.profiles.profile import Profile
from nbprof.run.cache import identity
from tests.cli.support import SLOW, answer, call

_LOADED = """
import sys
from nbprof.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print("LOADED", ended.code, *sys.modules)
"""


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    """Files that were just written count as settled."""
    monkeypatch.setattr(identity, "_SETTLED_NS", -(10**12))


@pytest.fixture
def path(tmp_path):
    """A copy of a run, of which no answer is stored."""
    path = tmp_path / "run" / "host.xplane.pb"
    path.parent.mkdir()
    path.write_bytes(Path(SLOW).read_bytes())
    return path


@pytest.fixture
def computed(monkeypatch):
    """The texts of profiles that were computed."""
    texts = []
    original = Profile.text

    def text(profile):
        texts.append(original(profile))
        return texts[-1]

    monkeypatch.setattr(Profile, "text", text)
    return texts


@pytest.mark.parametrize("command", ["summary", "advice", "brief"])
def test_a_second_answer_imports_neither_pandas_nor_the_analysis(command, tmp_path):
    environment = {**os.environ, "NBPROF_CACHE": "1", "NBPROF_CACHE_DIR": str(tmp_path / "cache")}
    answers, loaded = [], []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _LOADED, command, SLOW],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        text, _, names = done.stdout.partition("LOADED 0 ")
        answers.append(text)
        loaded.append(set(names.split()))
    assert answers[0] == answers[1] != ""
    assert {"pandas", "nbprof.run.run"} <= loaded[0]
    assert "pandas" not in loaded[1]
    rooms = {name.split(".")[1] for name in loaded[1] if name.startswith("nbprof.")}
    assert not rooms & {"analysis", "dialects", "timeline", "tools", "profiles", "notebook"}


@pytest.mark.parametrize("command", ["summary", "advice", "brief"])
def test_the_second_answer_is_the_first(command, path):
    assert call(command, path).stdout == call(command, path).stdout


def test_json_and_text_are_two_answers(path):
    text = call("summary", path).stdout
    for _ in range(2):
        assert answer("summary", path)["command"] == "summary"
        assert call("summary", path).stdout == text


def test_a_file_is_read_once_for_the_same_question(path, computed):
    for _ in range(2):
        call("summary", path)
    assert len(computed) == 1


def test_a_changed_file_is_read_again(path, computed):
    call("summary", path)
    path.write_bytes(Path(SLOW).read_bytes() * 2)
    call("summary", path)
    assert len(computed) == 2


def test_a_file_next_to_it_changes_the_answer(path, computed):
    call("summary", path)
    sidecar = path.with_name("nbprof.json")
    sidecar.write_text(json.dumps({"nbprof": 1, "label": "training [3]", "framework": "Keras 9"}))
    assert "Keras 9" in json.dumps(answer("summary", path.parent))
    assert "Keras 9" in json.dumps(answer("summary", path.parent))
    sidecar.write_text(json.dumps({"nbprof": 1, "label": "training [3]", "framework": "Keras 10"}))
    assert "Keras 10" in json.dumps(answer("summary", path.parent))


def test_a_file_that_may_change_unseen_is_read_each_time(path, computed, monkeypatch):
    monkeypatch.setattr(identity, "_SETTLED_NS", 10**15)
    for _ in range(2):
        call("summary", path)
    assert len(computed) == 2


def test_an_incomplete_answer_is_not_stored(path, computed, monkeypatch):
    complete = Profile.text

    def text(profile):
        profile.run.memo.failures.add("The tab Memory is left out.")
        return complete(profile)

    with monkeypatch.context() as patch:
        patch.setattr(Profile, "text", text)
        call("summary", path)
    call("summary", path)
    assert len(computed) == 2


def test_without_the_cache_nothing_is_stored(path, computed, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE", "0")
    for _ in range(2):
        call("summary", path)
    assert len(computed) == 2


def test_a_damaged_answer_is_computed_again(path, computed):
    call("summary", path)
    places = Path(os.environ["NBPROF_CACHE_DIR"], "places")
    for place in places.iterdir():
        place.write_text('{"answer": 3}')
    call("summary", path)
    assert len(computed) == 2


def test_which_run_was_read_is_said_again(path):
    second = path.parents[1] / "other" / "host.xplane.pb"
    second.parent.mkdir()
    second.write_bytes(path.read_bytes())
    said = [call("summary", path.parents[1]) for _ in range(2)]
    assert said[0].stdout == said[1].stdout
    assert "has 2 runs, and the newest was read" in said[0].stderr
    assert said[0].stderr == said[1].stderr
