"""The declaration of an experiment: a change of running objects and calls, and its conditions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbprof.capture.patches import Patches

if TYPE_CHECKING:
    from nbprof.capture.experiments.edits import Find
    from nbprof.capture.experiments.observation import Observation


LARGER = 2
"""By how many times batches get larger: more of them may not fit into the memory."""
LARGER_BATCH = "a larger batch trains differently, so compare how the loss falls"
"""What is given up by that."""


class Change:
    """A change of the running program, made before each turn of the candidate.

    Attributes
    ----------
    warmup : int
        Steps at the beginning of a turn that are not measured on its account: a queue that fills,
        for example.
    is_long : bool
        It is about what happens in some steps only, such as validation: a turn has as many steps as
        the time allows.
    kind : str
        Not empty: only steps of this kind count in a long turn, such as ``train`` for those of a
        fit of Keras, and not the batches of its validation.
    steps : int
        Steps of this kind that the program has; 0 if they are those that the recording found.
    epoch : int
        A long turn has a multiple of so many steps, from one validation to the next; 0 for any
        number.
    """

    warmup = 0
    is_long = False
    kind = ""
    steps = 0
    epoch = 0

    def apply(self, patches: Patches) -> None:
        """Change objects and calls; `patches` undoes all of it at the end of the turn."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was kept from turn to turn, such as workers and compiled functions."""


@dataclass(frozen=True)
class Experiment:
    """The experiment for a remedy that can be applied without editing the program.

    Attributes
    ----------
    name : str
        Its name for ``--try`` and in `p.tried`.
    title : str
        What is changed, in a few words.
    framework : str
        The module that has to be imported: ``torch``, ``tensorflow``, ``keras``, ``jax``.
    rules : tuple of str
        The rules of `p.advice` whose remedy it is, the closest first.
    refusal : callable
        By what a turn of the unchanged program showed: why it is not run, as a clause; empty if it
        can be.
    change : callable
        Makes the change, by the same.
    code : str
        The change in the program's own code, as diff lines.
    unequal : str
        Why results may differ although the change is right, as a clause.
    examples : int
        By how many times a step has more examples than without it. It is timed per example.
    tradeoff : str
        What the person gives up by it, as a clause. Such a change is timed, and never recommended.
    edit : callable or None
        Locates the change in the program's source; see `nbprof.capture.experiments.edits`.
    touches : tuple of str
        What it changes, as ``loader``. Experiments that change different things are combined;
        without this it is combined with none.
    """

    name: str
    title: str
    framework: str
    rules: tuple[str, ...]
    refusal: Callable[[Observation], str]
    change: Callable[[Observation], Change]
    code: str
    unequal: str = ""
    touches: tuple[str, ...] = ()
    examples: int = 1
    tradeoff: str = ""
    edit: Find | None = None


def available_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
