"""All experiments. To add one, declare it in a module of this package and list the module here."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from nbprof.capture.experiments import (
    jax_donate,
    jax_jit,
    jax_waits,
    keras_callbacks,
    keras_input,
    keras_model,
    tf_data,
    tf_data_batch,
    tf_data_cache,
    tf_data_vectorized,
    tf_functions,
    torch_batch,
    torch_data,
    torch_loader,
    torch_models,
    torch_optimizer,
    torch_settings,
    torch_threads,
    torch_validation,
    torch_waits,
)
from nbprof.capture.experiments.experiment import Experiment
from nbprof.core.errors import CaptureError

EXPERIMENTS: tuple[Experiment, ...] = (
    *torch_loader.EXPERIMENTS,
    *torch_data.EXPERIMENTS,
    *torch_optimizer.EXPERIMENTS,
    *torch_models.EXPERIMENTS,
    *torch_settings.EXPERIMENTS,
    *torch_threads.EXPERIMENTS,
    *torch_waits.EXPERIMENTS,
    *torch_batch.EXPERIMENTS,
    *torch_validation.EXPERIMENTS,
    *keras_model.EXPERIMENTS,
    *keras_input.EXPERIMENTS,
    *keras_callbacks.EXPERIMENTS,
    *tf_data.EXPERIMENTS,
    *tf_data_cache.EXPERIMENTS,
    *tf_data_vectorized.EXPERIMENTS,
    *tf_data_batch.EXPERIMENTS,
    *tf_functions.EXPERIMENTS,
    *jax_jit.EXPERIMENTS,
    *jax_donate.EXPERIMENTS,
    *jax_waits.EXPERIMENTS,
)

ALL = "all"
"""The value of ``--try`` for the experiments of all findings."""


def names() -> list[str]:
    """The rules and the experiments that ``--try`` takes."""
    takes: dict[str, None] = {}
    for experiment in EXPERIMENTS:
        takes |= dict.fromkeys([experiment.name, *experiment.rules])
    return sorted(takes)


def check(requested: str, as_written: str) -> None:
    """Check the rule or the experiment that is requested.

    Parameters
    ----------
    requested : str
    as_written : str
        The same as the person wrote it, such as ``--try magic``.

    Raises
    ------
    CaptureError
        It is neither a rule with an experiment nor an experiment.
    """
    if requested not in ("", ALL, *names()):
        raise CaptureError(
            f"{as_written}: there is no experiment for it; it takes a rule or an experiment:"
            f" {', '.join(names())}"
        )


def chosen(
    requested: str, findings: Iterable[str], backend: str = ""
) -> list[tuple[Experiment, str]]:
    """The experiments to run, each with the rule that it is run for.

    Parameters
    ----------
    requested : str
        A rule, an experiment, or `ALL`.
    findings : iterable of str
        The rules of the findings, the largest gain first.
    backend : str
        The framework that was recorded; with `ALL`, experiments of others are left out.
    """
    findings = list(findings)
    pairs = []
    for experiment in EXPERIMENTS:
        if experiment.framework not in sys.modules:
            continue
        rules = [rule for rule in findings if rule in experiment.rules]
        if requested in (experiment.name, *experiment.rules):
            rules = [requested] if requested in experiment.rules else rules or [""]
        elif requested != ALL or not _of_backend(experiment, backend):
            continue
        if rules:
            pairs.append((experiment, rules[0]))
    order = {rule: index for index, rule in enumerate(findings)}
    return sorted(pairs, key=lambda pair: order.get(pair[1], len(order)))


def _of_backend(experiment: Experiment, backend: str) -> bool:
    recorder = {"keras": "tensorflow"}.get(experiment.framework, experiment.framework)
    return backend in (recorder, "", "python")


def rules_of(backend: str) -> frozenset[str]:
    """The rules that have an experiment for a recorded framework."""
    rules: set[str] = set()
    for experiment in EXPERIMENTS:
        if experiment.framework in sys.modules and _of_backend(experiment, backend):
            rules.update(experiment.rules)
    return frozenset(rules)
