"""Changes that helped are tried together, on a program whose cost is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbprof.capture.experiments import combination, engine, equality, program, register, turn
from nbprof.capture.experiments.engine import Engine
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, dataset_class
from nbprof.capture.experiments.tf_data import graph_of
from nbprof.capture.experiments.turn import Timing
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches


class Fake:
    """A program of 10 ms a step, by the changes that are made: no clock decides what a step takes.

    Parameters
    ----------
    saves : dict of tuple of str to float
        What sets of changes save, in ms.
    unequal : set of tuple of str
        Sets of changes with which the results are others.
    """

    def __init__(self, saves, unequal=()):
        self.saves, self.unequal = saves, set(unequal)
        self.made: list[str] = []
        self.closed: list[str] = []
        self.reported: list[str] = []

    def experiment(self, name, touches):
        fake = self

        class Made(Change):
            warmup = len(name)

            def apply(self, patches):
                fake.made.append(name)
                patches.on_restore(lambda: fake.made.remove(name))

            def close(self):
                fake.closed.append(name)

        return Experiment(
            name, f"the {name}", "torch", (), lambda _: "", lambda _: Made(), f"+ {name}",
            touches=touches,
        )  # fmt: skip

    def run(self, *experiments, budget_s=60.0):
        runner = Engine(
            program.of_call(print, (), {}),
            Options(),
            steps=20,
            units=20,
            budget_s=budget_s,
        )
        runner.run([(each, "some_rule") for each in experiments], self.reported.append)
        assert self.made == []
        return {each.experiment: each for each in runner.tried}


@pytest.fixture
def faked(monkeypatch):
    """Turns that take what a `Fake` says, and results by the changes that are made."""

    def begin(saves, unequal=()):
        fake = Fake(saves, unequal)
        changed = []

        def run(program_, options, plan, change=None, observation=None):
            with program_.restored() as saved:
                if change is not None:
                    change.apply(saved.patches)
                made = tuple(sorted(fake.made))
                if observation is not None:
                    changed[:] = [made in fake.unequal]
            step_s = 0.010 - 0.001 * fake.saves.get(made, 0.0)
            return Timing(10 * step_s, 10, step_s, 2 * step_s, 12 * step_s, None)

        def compare(*_):
            difference = 1.0 if changed[0] else 0.0
            return equality.Equality(not changed[0], difference, 0.0, 1e-5)

        monkeypatch.setattr(turn, "run", run)
        monkeypatch.setattr(equality, "compare", compare)
        return fake

    return begin


def test_changes_that_helped_are_tried_together_last(faked):
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): 4.5})
    touches = {"model": ("modules",), "slow": ("threads",), "input": ("loader",)}
    results = fake.run(*(fake.experiment(name, touches[name]) for name in touches))
    assert list(results) == ["model", "slow", "input", "input + model"]
    together = results["input + model"]
    assert together.title == "together: the input and the model"
    assert together.gain_ms == pytest.approx(4.5)
    assert together.baseline_ms == pytest.approx(10.0)
    assert (together.recommended, together.why, together.rule) == (True, engine.FASTER, "")
    assert together.code == "+ input\n+ model"
    assert fake.reported[-1].startswith("trying: together: the input and the model, up to ")
    assert sorted(fake.closed) == ["input", "input", "model", "model", "slow"]


def test_together_they_may_be_slower_than_one_alone(faked):
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): 2.5})
    results = fake.run(fake.experiment("input", ("a",)), fake.experiment("model", ("b",)))
    together = results["input + model"]
    assert not together.recommended
    assert together.why == "together they save no more than the input alone"
    assert results["input"].recommended
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): -1.0})
    results = fake.run(fake.experiment("input", ("a",)), fake.experiment("model", ("b",)))
    assert results["input + model"].why == engine.SLOWER


def test_together_their_results_may_be_others(faked):
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): 5.0}, [("input", "model")])
    results = fake.run(fake.experiment("input", ("a",)), fake.experiment("model", ("b",)))
    together = results["input + model"]
    assert (together.equal, together.recommended) == (False, False)
    assert together.why.startswith("the results are not equal")


@pytest.mark.parametrize(
    ("touches", "unequal"),
    [
        # The same thing; nothing said; only one of them equal.
        ((("a",), ("b", "a")), []),
        ((("a",), ()), []),
        ((("a",), ("b",)), [("model",)]),
    ],
)
def test_what_does_not_fit_together_is_not_combined(faked, touches, unequal):
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): 5.0}, unequal)
    first, second = touches
    results = fake.run(fake.experiment("input", first), fake.experiment("model", second))
    assert list(results) == ["input", "model"]


def test_of_changes_of_the_same_thing_the_better_is_combined(faked):
    fake = faked({("few",): 1.0, ("many",): 3.0, ("model",): 2.0, ("many", "model"): 4.0})
    results = fake.run(
        fake.experiment("few", ("loader",)),
        fake.experiment("many", ("loader",)),
        fake.experiment("model", ("modules",)),
    )
    assert list(results)[-1] == "many + model"
    assert results["many + model"].recommended


def test_a_budget_that_is_used_up_leaves_no_time_for_the_combination(faked, monkeypatch):
    fake = faked({("input",): 3.0, ("model",): 2.0, ("input", "model"): 5.0})
    looks = iter(range(10_000))

    def clock():
        """Stands until the combination begins, and goes on with each look at it from then on."""
        return 400.0 * next(looks) if "together" in "".join(fake.reported) else 0.0

    monkeypatch.setattr(engine, "time", SimpleNamespace(perf_counter=clock))
    results = fake.run(
        fake.experiment("input", ("a",)), fake.experiment("model", ("b",)), budget_s=60.0
    )
    assert "turns of it do not fit into the time; --budget" in results["input + model"].why
    assert not results["input + model"].recommended


def test_all_changes_are_closed_where_one_cannot_be_made(faked):
    fake = faked({})
    good = fake.experiment("good", ("a",))

    def fails(_):
        raise ValueError("no")

    bad = Experiment("bad", "bad", "torch", (), lambda _: "", fails, "")
    with pytest.raises(ValueError, match="no"):
        combination.combined([good, bad]).change(None)
    assert fake.closed == ["good"]


def test_the_warm_up_is_the_longest(faked):
    fake = faked({})
    parts = [fake.experiment(name, (name,)) for name in ("abc", "a")]
    assert combination.combined(parts).change(None).warmup == 3


@pytest.mark.parametrize(
    ("names", "ops"),
    [
        (("tf_data_cache", "tf_data_prefetch"), ["Map", "BatchV2", "CacheV2", "Repeat", "Prefetch"]),
        (("tf_data_cache", "tf_data_threads"), ["Map", "BatchV2", "CacheV2", "Repeat"]),
        (("tf_data_vectorized_map", "tf_data_threads"), ["BatchV2", "Map", "Repeat"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_reversed", [False, True])
def test_changes_of_a_pipeline_together_do_what_each_does(monkeypatch, names, ops, is_reversed):
    tf = pytest.importorskip("tensorflow")
    made = tf.data.Dataset.range(12).map(lambda x: x * 3).batch(4).repeat(2)
    parts = [each for each in register.EXPERIMENTS if each.name in names]
    assert len(combination.compatible(parts)) == 2
    if is_reversed:
        parts.reverse()
    read = []
    original = dataset_class().__iter__

    def iterate(dataset):
        read.append(dataset)
        return original(dataset)

    monkeypatch.setattr(dataset_class(), "__iter__", iterate)
    observation, patches = Observation(), Patches()
    observation.datasets.append(made)
    change = combination.combined(parts).change(observation)
    try:
        change.apply(patches)
        values = [x.numpy().tolist() for x in made]
    finally:
        patches.restore()
        change.close()
    assert values == [[0, 3, 6, 9], [12, 15, 18, 21], [24, 27, 30, 33]] * 2
    datasets = [each.op for each in graph_of(read[-1]).node if each.op.endswith(("Dataset", "V2"))]
    kinds = [op.replace("Dataset", "") for op in datasets]
    assert [kind for kind in kinds if kind not in ("Range", "Options")] == ops
    threads = read[-1].options().threading.private_threadpool_size
    assert threads == (16 if "tf_data_threads" in names else None)
