"""The experiment on the threads of PyTorch's ops on the CPU."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence

from nbprof.capture.experiments.edits import at_begin, located
from nbprof.capture.experiments.experiment import Change, Experiment, available_cores
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches


class Threads(Change):
    """Ops of the CPU use all cores."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        torch = sys.modules["torch"]
        before = torch.get_num_threads()
        patches.on_restore(lambda: torch.set_num_threads(before))
        torch.set_num_threads(available_cores())


def _refusal(observation: Observation) -> str:
    if not observation.roots:
        return "no module of PyTorch was called"
    threads = sys.modules["torch"].get_num_threads()
    if threads >= available_cores():
        return f"ops use {threads} threads, and {available_cores()} cores are available"
    return ""


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call that sets the number of threads; where there is none, the begin of the cell."""
    function = sys.modules["torch"].set_num_threads
    calls = [call for call in source.calls() if source.value(call.func) is function]
    if not calls:
        threads = f"{{name}}.set_num_threads({available_cores()})"
        return at_begin("torch", lambda: [threads])(source, observed)
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    number = calls[0].args[0]
    if not isinstance(number, ast.Constant):
        return None
    return located(source, source.replaced(number, str(available_cores())))


EXPERIMENTS = (
    Experiment(
        "cpu_threads",
        "as many threads as cores",
        "torch",
        ("idle_cores",),
        _refusal,
        lambda _: Threads(),
        "+ torch.set_num_threads(len(os.sched_getaffinity(0)))",
        touches=("threads",),
        edit=_in_source,
    ),
)
