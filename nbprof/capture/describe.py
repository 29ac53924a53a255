"""Sentences and facts about a recording."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator

from nbprof.capture import notes
from nbprof.capture.clock import StepClock
from nbprof.core.cells import stem
from nbprof.core.receipt import Note
from nbprof.core.units import plural

_MAX_CELLS = 500
_NO_MEMORY = re.compile(r"out of memory|\boom\b|alloc|not enough memory", re.IGNORECASE)
_NO_MEMORY_OF_NATIVE_CODE = re.compile(
    r"out of memory|OUT_OF_MEMORY|can't allocate memory|not enough memory"
)
_MAX_CHARACTERS = 300


class LeftEarlyError(Exception):
    """Stands in for the unknown exception that ended a loop; its text is the name of the loop."""


class EndedBySignalError(Exception):
    """Stands in for the exception of a program that a signal ended; its text is the signal."""


def failure(error: BaseException, step: int | None, seen: int, unit: str = "cell") -> str:
    """Describe how a cell failed.

    For example ``cell failed in step 3, after 2 complete steps: ValueError: bad batch``.

    Parameters
    ----------
    error : BaseException
    step : int, optional
        The step that it ended; None if no step ran.
    seen : int
        Number of complete steps.
    unit : str
        What failed.
    """
    # If none was seen nothing is known of steps: those of JAX are found in the recording.
    progress = []
    if step is not None:
        progress.append(f" in step {step:,}")
    if seen:
        progress.append(f" after {plural(seen, 'complete step')}")
    when = ",".join(progress)
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return f"{unit} was interrupted{when}"
    if isinstance(error, EndedBySignalError):
        return f"{unit} was ended by {error}{when}"
    if isinstance(error, LeftEarlyError):
        return f"{error} was ended by an exception{when}"
    sentence = f"{unit} failed{when}: {_shortened(type(error).__name__)}"
    text = message(error).strip().partition("\n")[0].rstrip()
    if not text:
        return sentence
    return f"{sentence}: {_shortened(text)}"


def _shortened(text: str) -> str:
    """A text that fits into a sentence: an exception may hold megabytes."""
    if len(text) > _MAX_CHARACTERS:
        return f"{text[:_MAX_CHARACTERS]}…"
    return text


def message(error: BaseException) -> str:
    """The text of an exception; "" if its own code fails."""
    try:
        return str(error)
    except Exception:
        return ""


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is an out-of-memory error.

    The frameworks are not imported for it: TensorFlow raises ``ResourceExhaustedError``, JAX an
    ``XlaRuntimeError`` or ``JaxRuntimeError`` that begins with ``RESOURCE_EXHAUSTED``, PyTorch
    ``OutOfMemoryError`` or, for the CPU, a ``RuntimeError``. A message that is too large for gRPC
    exhausts a resource too, so the text counts if the type alone is ambiguous.
    """
    return any(map(_is_out_of_memory, _chain(error)))


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
    native = isinstance(error, RuntimeError) or name == "InternalError"
    return native and _NO_MEMORY_OF_NATIVE_CODE.search(text) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        error = cause


def how_steps_were_found(clock: StepClock) -> list[Note]:
    """A note on the origin of the steps; none if no step was seen while the cell ran."""
    return [notes.step_origins(clock.origins)] if clock.origins else []


def cells() -> dict[str, int]:
    """Execution counts of the last 500 cells of this kernel, by the stems of their file names."""
    interactive = sys.modules.get("IPython")
    if interactive is None:
        return {}
    # IPython's own map, which it uses for tracebacks.
    files = getattr(getattr(interactive.get_ipython(), "compile", None), "_filename_map", None)
    if not isinstance(files, dict):
        return {}
    counts = {}
    for path, count in files.items():
        name = stem(str(path))
        if name and isinstance(count, int) and count > 0:
            counts[name] = count
    return dict(list(counts.items())[-_MAX_CELLS:])


def keras_version() -> str:
    """`, Keras 3.9.0` for a list of versions; "" if Keras is not imported."""
    version = getattr(sys.modules.get("keras"), "__version__", None)
    if version is None:
        return ""
    return f", Keras {version}"


def precision() -> str:
    """The dtype policy of Keras, if Keras is imported."""
    policies = sys.modules.get("keras.src.dtype_policies.dtype_policy")
    if policies is None:
        return ""
    try:
        return str(policies.dtype_policy().name)
    except Exception:
        return ""
