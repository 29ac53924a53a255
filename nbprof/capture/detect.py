"""Detect the framework that a cell uses, before it runs: it may have to be imported first."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbprof.capture import used
from nbprof.capture.options import BACKENDS
from nbprof.frameworks.register import RECORDED, TENSORFLOW, is_imported


@dataclass(frozen=True)
class Choice:
    """The frameworks to record.

    Parameters
    ----------
    candidates : tuple of str
        Frameworks in order of preference: record the first one that is, or gets, imported.
    others : tuple of str
        Further frameworks that the cell uses; they will not be recorded.
    unnamed : tuple of str
        If neither the cell nor its variables lead to a framework, other imported ones that it may
        use.
    expected : tuple of str
        Frameworks that the cell names or its variables lead to, in order of preference.
    """

    candidates: tuple[str, ...]
    others: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()


def choose(backend: str, source: str, namespace: Mapping[str, Any] | None = None) -> Choice:
    """Return the frameworks to record for a cell.

    A framework that the cell names wins over one that its variables lead to, and that over one that
    is merely imported; among several, TensorFlow, then JAX, then PyTorch.

    Parameters
    ----------
    backend : str
        The option: ``auto``, a framework or ``python``.
    source : str
        The source of the cell; empty if unknown.
    namespace : mapping, optional
        The variables of the notebook.
    """
    expected = dict.fromkeys(names_in(source))
    if namespace is not None:
        expected |= dict.fromkeys(_led_to(source, namespace))
    if backend != "auto":
        further = tuple(name for name in expected if name != backend)
        return Choice((backend,), further, expected=(backend,))
    if expected:
        first, *less_preferred = expected
        return Choice((first,), tuple(less_preferred), expected=tuple(expected))
    imported = tuple(filter(is_imported, BACKENDS))
    if imported:
        return Choice(imported[:1], unnamed=imported[1:])
    return Choice(BACKENDS)


def _led_to(source: str, namespace: Mapping[str, Any]) -> tuple[str, ...]:
    backends: set[str] = set()
    # A variable may be of any kind, and the cell must run in any case.
    with contextlib.suppress(Exception):
        backends = set(map(backend_of, used.led_to(_code(source), namespace)))
    return _in_order(backends)


def names_in(source: str) -> tuple[str, ...]:
    """Return the frameworks that a cell's text names, in the order of preference."""
    code = _code(source)
    named = set()
    for name, framework in RECORDED.items():
        if re.search(framework.recorder.code, code):
            named.add(name)
    if re.search(r"\bkeras\b", code) and not re.search(r"\b(?:tf|tensorflow)\.keras\b", code):
        named.add(_keras_backend())
    return _in_order(named)


def _in_order(names: set[str]) -> tuple[str, ...]:
    return tuple(filter(names.__contains__, BACKENDS))


def backend_of(framework: str) -> str:
    """The backend that records a framework of `nbprof.capture.used`; of Keras, its own backend."""
    if framework == "keras":
        return _keras_backend()
    return framework


def _code(source: str) -> str:
    return re.sub(r"#.*", "", source)


def _keras_backend() -> str:
    keras = sys.modules.get("keras")
    if keras is None:
        name = os.environ.get("KERAS_BACKEND", "")
    else:
        try:
            name = keras.backend.backend()
        except AttributeError:
            name = ""
    return name if name in BACKENDS else TENSORFLOW.name
