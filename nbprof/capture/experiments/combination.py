"""Changes that helped, made together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from nbprof.capture.experiments import edits
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.patches import Patches
from nbprof.core.units import listed


class Together(Change):
    """Several changes, made in this order.

    Parameters
    ----------
    experiments : sequence of Experiment
    observation : Observation
    """

    def __init__(self, experiments: Sequence[Experiment], observation: Observation) -> None:
        self._changes: list[Change] = []
        try:
            for experiment in experiments:
                self._changes.append(experiment.change(observation))
        except BaseException:
            self.close()
            raise
        self.warmup = max(change.warmup for change in self._changes)

    def apply(self, patches: Patches) -> None:  # noqa: D102
        for change in self._changes:
            change.apply(patches)

    def close(self) -> None:  # noqa: D102
        with ExitStack() as stack:
            for change in self._changes:
                stack.callback(change.close)


def compatible(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments that can be combined, of those that change the same thing the first.

    One that does not say what it changes is combined with none.
    """
    taken: list[Experiment] = []
    touched: set[str] = set()
    for experiment in experiments:
        if experiment.touches and touched.isdisjoint(experiment.touches):
            taken.append(experiment)
            touched.update(experiment.touches)
    return taken


def combined(experiments: Sequence[Experiment]) -> Experiment:
    """The experiment that makes the changes of several others together."""
    reasons = [experiment.unequal for experiment in experiments if experiment.unequal]
    return Experiment(
        name=" + ".join(experiment.name for experiment in experiments),
        title=f"together: {listed([experiment.title for experiment in experiments])}",
        framework=experiments[0].framework,
        rules=(),
        refusal=lambda _: "",
        change=lambda observation: Together(experiments, observation),
        code="\n".join(experiment.code for experiment in experiments),
        unequal="; ".join(dict.fromkeys(reasons)),
        edit=edits.together([experiment.edit for experiment in experiments]),
    )
