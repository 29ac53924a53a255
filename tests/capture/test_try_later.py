"""`p.try_`: experiments on a profile that this process recorded, after it was read."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

import nbprof
from nbprof.capture.experiments import engine
from nbprof.capture.experiments.engine import Tried
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.display import codec
from nbprof.profiles import actions, comms, trials


def result(name, **values):
    return Tried(
        name, f"the {name}", "map_serial", engine.FASTER, baseline_ms=10.0, gain_ms=2.0,
        gain_low_ms=1.0, gain_high_ms=3.0, equal=True, pairs=6, recommended=True, **values
    ).to_dict()  # fmt: skip


@pytest.fixture
def function(tmp_path):
    """A decorated function that was called once."""

    @nbprof.profile(logdir=tmp_path)
    def train(values):
        for _ in nbprof.steps(range(3)):
            time.sleep(0.001)
            values.append(1)
        return len(values)

    assert train([]) == 3
    return train


@pytest.fixture
def experiments(monkeypatch):
    """What experiments give, and how they were asked for; the program runs once more."""
    given = {"text": "", "rows": [result("a")]}
    asked = []

    def try_remedies(make, run, options, requested, budget_s, report):
        asked.append((requested, budget_s))
        report("trying: the a")
        program = make()
        with program.restored():
            program.run()
        return {"text": given["text"], "rows": list(given["rows"])}

    monkeypatch.setattr(engine, "try_remedies", try_remedies)
    given["asked"] = asked
    return given


def test_results_are_in_the_frame_the_file_and_what_is_shown(function, experiments):
    profile = function.profile.result
    assert "Tried" not in profile.text()
    before = profile.payload()
    frame = profile.try_("map_serial", budget=5)
    assert experiments["asked"] == [("map_serial", 5)]
    assert frame["experiment"].tolist() == ["a"]
    assert frame.equals(profile.tried)
    assert profile.payload() is not before
    assert "the a saves 2.00 ms per step [1.00, 3.00]: recommended" in profile.text()
    assert nbprof.load(profile.path).tried.equals(frame)
    assert profile.payload() is profile.payload()


def test_later_results_replace_those_of_the_same_experiment(function, experiments):
    profile = function.profile.result
    profile.try_()
    assert experiments["asked"] == [("all", 60.0)]
    experiments["rows"] = [result("b"), {**result("a"), "gain_ms": 2.5}]
    experiments["text"] = "The experiments were interrupted."
    frame = profile.try_()
    assert frame[["experiment", "gain_ms"]].values.tolist() == [["b", 2.0], ["a", 2.5]]
    experiments["rows"], experiments["text"] = [result("c")], ""
    assert profile.try_()["experiment"].tolist() == ["b", "a", "c"]
    assert "tried" not in profile.overview


def test_what_was_not_tried_changes_nothing_and_says_why(function, experiments):
    profile = function.profile.result
    profile.try_()
    experiments["rows"], experiments["text"] = [], "Nothing was tried: no."
    with pytest.raises(NbprofError, match=r"^Nothing was tried: no\.$"):
        profile.try_()
    assert profile.tried["experiment"].tolist() == ["a"]


def test_the_call_has_its_arguments_again(function, experiments):
    values = [1, 2]
    assert function(values) == 5
    function.profile.try_()
    assert values == [1, 2, 1, 1, 1]


def test_a_block_refuses_and_says_what_to_use(tmp_path):
    with nbprof.profile(logdir=tmp_path) as run:
        for _ in nbprof.steps(range(3)):
            time.sleep(0.001)
    with pytest.raises(NbprofError, match=r"A block cannot run again\. Put its code into a cell"):
        run.try_()
    nbprof.start(logdir=tmp_path)
    time.sleep(0.001)
    with pytest.raises(NbprofError, match="A block cannot run again"):
        nbprof.stop().try_()


def test_a_generator_refuses(tmp_path):
    @nbprof.profile(logdir=tmp_path)
    def batches():
        yield from nbprof.steps(range(3))

    assert list(batches()) == [0, 1, 2]
    with pytest.raises(NbprofError, match="A block cannot run again"):
        batches.profile.try_()


def test_a_loaded_profile_refuses(function):
    loaded = nbprof.load(function.profile.path)
    with pytest.raises(NbprofError, match="This kernel did not record this profile"):
        loaded.try_()
    assert all(not advice.tries for advice in loaded.payload().overview.advice)


def test_invalid_values_are_refused_before_anything_runs(function):
    profile = function.profile.result
    with pytest.raises(CaptureError, match=r"^p\.try_\('magic'\): there is no experiment for it"):
        profile.try_("magic")
    with pytest.raises(
        CaptureError, match=r"^p\.try_\(budget=-1\): the budget is a number of seconds"
    ):
        profile.try_(budget=-1)


def test_nothing_is_tried_during_a_recording(function, tmp_path):
    profile = function.profile.result
    with (
        nbprof.profile(logdir=tmp_path),
        pytest.raises(NbprofError, match=r"^Nothing was tried: a recording is running\.$"),
    ):
        profile.try_()


def test_a_profile_is_freed_with_its_arguments(function):
    class Argument(list):
        pass

    values = Argument()
    function(values)
    held = weakref.ref(values)
    del values
    function([])
    gc.collect()
    assert held() is None


class Page:
    """What a page receives."""

    def __init__(self):
        self.messages = []

    def send(self, message, buffers):
        self.messages.append((message, buffers))

    def ask(self, run, **request):
        comms.deliver(
            {"id": "1", "request": request}, lambda each: comms.answer(run, each), self.send
        )
        message, buffers = self.messages[-1]
        return message["ok"], codec.unpack(buffers[0])


def test_a_button_has_it_tried_and_the_run_drawn_again(function, experiments):
    profile, page, shown = function.profile.result, Page(), Shown()
    trials.watch(profile.run, shown.again)
    ok, answer = page.ask(profile.run, ask="try", rule="map_serial")
    assert ok, answer
    assert page.messages[0] == ({"id": "1", "news": "trying: the a"}, [])
    assert experiments["asked"] == [("map_serial", 60.0)]
    payload = codec.unpack(bytes(answer["payload"]))
    assert payload["overview"]["tried"]["table"]["rows"] == 1
    assert shown.count == 1
    del shown
    assert page.ask(profile.run, ask="try", rule="map_serial")[0]


class Shown:
    """Where a run is shown."""

    count = 0

    def again(self):
        self.count += 1


def test_a_button_says_why_nothing_was_tried(function, experiments):
    profile, page = function.profile.result, Page()
    ok, answer = page.ask(nbprof.load(profile.path).run, ask="try", rule="map_serial")
    assert (ok, answer["error"]) == (False, trials.NOT_HERE)
    profile.run.origin.busy = lambda: "A cell is running."
    ok, answer = page.ask(profile.run, ask="try", rule="map_serial")
    assert (ok, answer["error"], experiments["asked"]) == (False, "A cell is running.", [])


def test_the_changed_cell_is_given_while_it_is_known(function, experiments):
    profile = function.profile.result
    experiments["rows"] = [result("a", diff="+x", edited="x\n")]
    profile.try_()
    assert actions.reply(profile.run, {"ask": "edited", "experiment": "a"})
    with pytest.raises(NbprofError, match="not known any more"):
        actions.reply(profile.run, {"ask": "edited", "experiment": "b"})
