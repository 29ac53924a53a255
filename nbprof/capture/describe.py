"""Sentences in which a recording describes itself."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator

from nbprof.capture.clock import StepClock
from nbprof.core.cells import stem

_MOST_CELLS = 500
_NO_MEMORY = re.compile(r"out of memory|\boom\b|alloc|not enough memory", re.IGNORECASE)


MOST_CHARACTERS = 300


class LeftEarlyError(Exception):
    """Stands in for the unknown exception that ended a loop; its text is the name of the loop."""


def failure(error: BaseException, step: int | None, seen: int) -> str:
    """What ended a cell and where, such as ``cell failed in step 3, after 2 complete steps:
    ValueError: bad batch``.

    Parameters
    ----------
    error : BaseException
    step : int, optional
        The step that it ended; None where no step ran.
    seen : int
        How many steps were complete.
    """
    # Where none was seen nothing is known of steps: those of JAX are found in the recording.
    where = ([f"in step {step:,}"] if step is not None else []) + (
        [f"after {seen:,} complete step{'s' if seen > 1 else ''}"] if seen else []
    )
    when = f" {', '.join(where)}" if where else ""
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return f"cell was interrupted{when}"
    if isinstance(error, LeftEarlyError):
        return f"{error} was ended by an exception{when}"
    text = message(error).strip().partition("\n")[0].rstrip()
    return f"cell failed{when}: {_cut(type(error).__name__)}" + (f": {_cut(text)}" if text else "")


def _cut(text: str) -> str:
    """So much of a text as a sentence has room for: an exception may hold megabytes."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def message(error: BaseException) -> str:
    """The text of an exception; "" where its own code cannot make it."""
    try:
        return str(error)
    except Exception:
        return ""


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error or one of its causes is an out-of-memory error of Python, TensorFlow, JAX or
    PyTorch.

    The frameworks are not imported for it: TensorFlow raises ``ResourceExhaustedError``, JAX an
    ``XlaRuntimeError`` or ``JaxRuntimeError`` that begins with ``RESOURCE_EXHAUSTED``, PyTorch
    ``OutOfMemoryError`` or, for the CPU, a ``RuntimeError``. A message that is too large for gRPC
    exhausts a resource too, so the text counts where the type alone does not say it.
    """
    return any(_is_out_of_memory(each) for each in _chain(error))


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    name, text = type(error).__name__, message(error)[:5000]
    if name == "OutOfMemoryError":
        return True
    if name == "ResourceExhaustedError" or "RESOURCE_EXHAUSTED" in text:
        return _NO_MEMORY.search(text) is not None
    # "CUDA out of memory" of older PyTorch, "DefaultCPUAllocator: can't allocate memory",
    # CUDA_ERROR_OUT_OF_MEMORY inside an InternalError.
    own = isinstance(error, RuntimeError) or name == "InternalError"
    return (
        own
        and re.search(r"out of memory|OUT_OF_MEMORY|can't allocate memory|not enough memory", text)
        is not None
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def how_steps_were_found(clock: StepClock) -> list[str]:
    """A sentence on where the steps come from; none where nbprof saw no step while the cell ran."""
    if not clock.origins:
        return []
    if len(clock.origins) == 1:
        return [f"steps: {next(iter(clock.origins))}"]
    return ["steps: " + ", ".join(f"{count:,} {how}" for how, count in clock.origins.items())]


def cells() -> dict[str, int]:
    """Execution counts of the cells that ran in this kernel, by the stems of the files that stand
    for them; the last of 500.
    """
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    # Of IPython itself, which tells tracebacks by it.
    files = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if not isinstance(files, dict):
        return {}
    known = {
        stem(str(path)): count
        for path, count in files.items()
        if isinstance(count, int) and count > 0
    }
    return dict([(name, count) for name, count in known.items() if name][-_MOST_CELLS:])


def precision() -> str:
    """The dtype policy of Keras, if Keras is imported."""
    policies = sys.modules.get("keras.src.dtype_policies.dtype_policy")
    try:
        return str(policies.dtype_policy().name) if policies is not None else ""
    except Exception:
        return ""
