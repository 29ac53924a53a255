"""The experiment on functions of TensorFlow that run op by op: tf.function."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from nbprof.capture.experiments.compiled_functions import Compiled, any_of, decorated_by
from nbprof.capture.experiments.experiment import Experiment
from nbprof.capture.experiments.observation import Observation


def _graph(function: Any) -> Any:
    return sys.modules["tensorflow"].function(function)


def _refusal(observation: Observation) -> str:
    if any_of(observation):
        return ""
    return "no function of the program takes and returns tensors of TensorFlow in each step"


EXPERIMENTS = (
    Experiment(
        "tf_function",
        "tf.function of the step",
        "tensorflow",
        ("eager", "host_bound", "tiny_eager_ops"),
        _refusal,
        partial(Compiled, _graph),
        "+ @tf.function\n  def step(x, y):",
        touches=("functions",),
        edit=decorated_by("tensorflow", "function"),
    ),
)
