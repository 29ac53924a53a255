"""The data of runs that are compared, and their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.compare import call_tree
from nbprof.analysis.compare.call_tree import CallTree
from nbprof.analysis.compare.compare import NO_SAMPLES, Side, SideMemory
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.core.guard import FrameError
from nbprof.dialects.environment import origin_ns
from nbprof.tools import header

if TYPE_CHECKING:
    from nbprof.run.run import Run


def sides(runs: Sequence[Run]) -> list[Side]:
    """The data of some runs, with distinct names."""
    return [_side(run, name) for run, name in zip(runs, labels(runs), strict=True)]


def _side(run: Run, label: str) -> Side:
    # Only the name of the framework: of recordings by nbprof, the overview has its version too.
    environment = {**_environment(run), "hosts": _machines(run)}
    overview = {
        **run.overview,
        "framework": run.overview_of_files["framework"],
        "environment": environment,
    }
    of_capture: dict[str, Any] = {}
    capture = run.capture
    if capture is not None:
        of_capture = {
            "batch": capture.batch,
            "precision": capture.precision,
            "failed": bool(capture.cell_failed),
            "cores": capture.contention,
            "options": capture.costly_options,
        }
    workers = [use.workers for use in run.loaders if use.workers is not None]
    return Side(
        label,
        run.steps,
        run.ops_in_steps,
        run.kernels_in_steps,
        run.input_ops,
        overview,
        dropped=run.receipt.dropped,
        advice=run.advice,
        workers=max(workers, default=None),
        bare=run.bare_steps,
        memory=cache(lambda: _memory(run)),
        python=cache(lambda per_step: _python(run, per_step=per_step)),
        op_tree=cache(lambda by_module: _op_tree(run, by_module=by_module)),
        has_modules=cache(lambda: _has_modules(run)),
        **of_capture,
    )


def _memory(run: Run) -> SideMemory:
    allocator = run.allocator
    try:
        return SideMemory(
            peak=run.memory_roles_of_leading,
            snapshot=allocator.roles_of_leading,
            plan=run.programs.roles_of_leading,
            stacks=allocator.by_stack,
            has_allocations=len(run.memory_summary) > 0,
        )
    except FrameError as error:
        # The rest of the comparison does not depend on it.
        return SideMemory(failure=str(error))


def _python(run: Run, *, per_step: bool) -> CallTree:
    if run.python is None:
        return CallTree(reason=NO_SAMPLES)
    if not per_step:
        return call_tree.of_python(run.python, None)
    if run.parts is not None or len(run.hosts) != 1:
        return CallTree(reason="the steps of several hosts are not those of the sampled process")
    origin = origin_ns(run.trace)
    if not origin:
        return CallTree(reason="the file does not say when its steps ran")
    start, end = (bound // 1000 + origin for bound in step_bounds(counted(run.steps)))
    return call_tree.of_python(run.python, (start, end))


def _op_tree(run: Run, *, by_module: bool) -> pd.DataFrame:
    from nbprof.analysis.ops import op_tree

    modules = run.torch_ops_by("module")
    if not by_module:
        modules = modules.head(0)
    return op_tree.frame(run.ops_in_steps, run.kernels_in_steps, modules)


def _has_modules(run: Run) -> bool:
    from nbprof.analysis.ops import op_tree

    return op_tree.has_modules(run.torch_ops_by("module"))


def _environment(run: Run) -> dict[str, Any]:
    return run.overview.get("environment") or {}


def _machines(run: Run) -> list[str]:
    """The hosts of a run, except one that is named after a file, which may have any name."""
    hosts = list(map(str, _environment(run).get("hosts") or []))
    file = run.source.file
    if len(hosts) != 1 or not file.startswith(f"{hosts[0]}."):
        return hosts
    # The profilers of TensorFlow, JAX and PyTorch name their files after the host.
    in_logdir = "plugins/profile" in Path(run.source.path).as_posix()
    named_by_profiler = in_logdir or re.search(r"\.\d{10,}\.", file)
    return hosts if named_by_profiler else []


def labels(runs: Sequence[Run]) -> list[str]:
    """Distinct names of runs: as elsewhere, else by folder or file, else numbered."""
    names = [header.label(run) for run in runs]
    for candidates in (names, *_longer_names(runs, names)):
        if len(set(candidates)) == len(candidates):
            return candidates
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _longer_names(runs: Sequence[Run], names: Sequence[str]) -> Iterator[list[str]]:
    """Names with the folder above, of the folder, and of the file."""
    with_parent, folders, files = [], [], []
    for run, name in zip(runs, names, strict=True):
        parts = Path(run.source.path).parts
        with_parent.append(f"{name} in {parts[-2]}" if len(parts) > 1 else name)
        folders.append(parts[-1] if parts else name)
        files.append(run.source.file or name)
    yield from (with_parent, folders, files)
