"""Which framework a cell uses. This is asked before the cell runs, so the answer may be to wait for
an import.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbprof.capture import used
from nbprof.capture.options import BACKENDS
from nbprof.frameworks.register import RECORDED, TENSORFLOW, is_imported


@dataclass(frozen=True)
class Choice:
    """What to record.

    Parameters
    ----------
    candidates : tuple of str
        Frameworks in order of preference: record the first one that is, or gets, imported.
    others : tuple of str
        Further frameworks that the cell uses; they will not be recorded.
    unnamed : tuple of str
        Where neither the cell nor its variables tell, those that it may use as well: what else is
        imported.
    expected : tuple of str
        Frameworks that the cell names or its variables lead to, in order of preference.
    """

    candidates: tuple[str, ...]
    others: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()


def choose(backend: str, source: str, namespace: Mapping[str, Any] | None = None) -> Choice:
    """Return what to record for a cell.

    A framework that the cell names wins over one that its variables lead to, and that over one that
    is merely imported; among several, TensorFlow, then JAX, then PyTorch.

    Parameters
    ----------
    backend : str
        What the user asked for: ``auto``, a framework or ``python``.
    source : str
        The source of the cell; empty if unknown.
    namespace : mapping, optional
        The variables of the notebook.
    """
    in_source = names_in(source)
    led = _led_to(source, namespace) if namespace is not None else ()
    found = (*in_source, *(name for name in led if name not in in_source))
    if backend != "auto":
        return Choice(
            (backend,), tuple(name for name in found if name != backend), expected=(backend,)
        )
    if found:
        return Choice(found[:1], found[1:], expected=found)
    imported = tuple(name for name in BACKENDS if is_imported(name))
    if imported:
        return Choice(imported[:1], unnamed=imported[1:])
    return Choice(BACKENDS)


def _led_to(source: str, namespace: Mapping[str, Any]) -> tuple[str, ...]:
    found: set[str] = set()
    # A variable may be of any kind, and a cell runs whatever its variables are.
    with contextlib.suppress(Exception):
        found = {backend_of(name) for name in used.led_to(_code(source), namespace)}
    return tuple(name for name in BACKENDS if name in found)


def either(names: Sequence[str], word: str) -> str:
    """Names as a sentence lists them, as ``A, B or C``."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


def names_in(source: str) -> tuple[str, ...]:
    """Return the frameworks that a cell's text names, in the order of preference."""
    code = _code(source)
    found = {
        name for name, framework in RECORDED.items() if re.search(framework.recorder.code, code)
    }
    if re.search(r"\bkeras\b", code) and not re.search(r"\b(?:tf|tensorflow)\.keras\b", code):
        found.add(_keras_backend())
    return tuple(name for name in BACKENDS if name in found)


def backend_of(framework: str) -> str:
    """What records a framework of `nbprof.capture.used`: of Keras, its backend."""
    return _keras_backend() if framework == "keras" else framework


def _code(source: str) -> str:
    return re.sub(r"#.*", "", source)


def _keras_backend() -> str:
    keras = sys.modules.get("keras")
    try:
        name = (
            keras.backend.backend()
            if keras is not None
            else os.environ.get("KERAS_BACKEND", TENSORFLOW.name)
        )
    except AttributeError:
        name = TENSORFLOW.name
    return name if name in BACKENDS else TENSORFLOW.name
