"""Differences of a program that JAX compiles again from its earlier lowerings: shardings and
layouts of arguments and results, donated arguments, options of `jax.jit`.

JAX explains misses of its tracing cache alone. But the frame that compiles has the arguments of
the lowering, and the cache of lowerings those of earlier ones, of earlier cells too. Nothing is
wrapped, for a frame of ours would be in the source lines of what is lowered.
"""

from __future__ import annotations

import sys
import weakref
from itertools import zip_longest
from types import FrameType
from typing import Any, NamedTuple

from nbprof.core.compile_times import AGAIN

_PJIT = "jax._src.pjit"
_CALLS = "_pjit_call_impl_python"
"""The function of JAX that lowers and compiles a program at a call of it."""
_PARAMETERS = (
    "in_shardings",
    "out_shardings",
    "in_layouts",
    "out_layouts",
    "donated_invars",
    "ctx_mesh",
    "name",
    "keep_unused",
    "inline",
    "compiler_options_kvs",
)
"""Those of a lowering, in the order of the cache's keys."""
_PER_ARGUMENT = ("in_shardings", "in_layouts", "donated_invars")
_DEEPEST, _MOST_COMPARED = 20, 6
_LONGEST = 120

Values = tuple[Any, ...]
"""Those of the parameters of a lowering."""


class Program(NamedTuple):
    """A program that is being compiled.

    Attributes
    ----------
    jaxpr : object
        JAX's own.
    called : dict
        The variables of the frame that compiles it.
    file : str
    line : int
        Where its function is defined.
    """

    jaxpr: Any
    called: dict[str, Any]
    file: str
    line: int


class _Lowered(NamedTuple):
    """A program, by a weak reference, and the values of its lowerings."""

    jaxpr: Any
    lowerings: list[Values]


class _Difference(NamedTuple):
    """A difference from an earlier lowering: of an argument, or of all if `position` is None."""

    parameter: str
    position: int | None
    before: Any
    now: Any


def compiled_program() -> Program | None:
    """The program whose compilation is being reported; None if it is a library's, if no call of it
    compiles it, or if this version of JAX does not tell.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        if frame.f_code.co_name == _CALLS:
            break
        frame = frame.f_back
    else:
        return None
    called = dict(frame.f_locals)
    debug = called["jaxpr"].jaxpr.debug_info
    file, line = debug.func_filename, debug.func_lineno
    source = sys.modules["jax._src.source_info_util"]
    if not file or not line or not source.is_user_filename(file):
        return None
    return Program(called["jaxpr"], called, file, line)


class Lowerings:
    """Lowerings of programs of a person's code: those of the recording, and, once a program from
    before it is lowered again, those in JAX's cache.

    It holds no program: only weak references.
    """

    def __init__(self) -> None:
        self._programs: dict[int, _Lowered] = {}
        self._has_earlier = False

    def add(self, program: Program, *, is_traced: bool) -> dict[str, Any]:
        """Remember the lowering of a program that is compiled.

        Parameters
        ----------
        program : Program
        is_traced : bool
            True if it was traced for this call, and so was never lowered before.

        Returns
        -------
        dict
            Fields of `Compilation` on how it differs from the closest of its latest earlier
            lowerings; empty if it had none, or if that is not known.
        """
        now = _lowering(program)
        earlier = self._known(program.jaxpr)
        if earlier is None and not is_traced and not self._has_earlier:
            self._read_earlier(program.jaxpr, now)
            earlier = self._known(program.jaxpr)
        if earlier is None:
            self._programs[id(program.jaxpr)] = _Lowered(weakref.ref(program.jaxpr), [now])
            return {}
        differences = [_differences(each, now) for each in earlier]
        earlier.append(now)
        del earlier[:-_MOST_COMPARED]
        if not all(differences):
            # It was compiled for the same before: why it is again is another matter.
            return {}
        first = min(reversed(differences), key=len)[0]
        before, after = _texts(first)
        return {
            "state": AGAIN,
            "reason": first.parameter,
            "argument": _name(program, first),
            "before": before,
            "after": after,
        }

    def _known(self, jaxpr: Any) -> list[Values] | None:
        """The lowerings of a program, the latest last; None if none are known."""
        lowered = self._programs.get(id(jaxpr))
        if lowered is None or lowered.jaxpr() is not jaxpr:
            return None
        return lowered.lowerings

    def _read_earlier(self, jaxpr: Any, now: Values) -> None:
        """Read JAX's cache, which has the lowering of now, too."""
        self._has_earlier = True
        cache = sys.modules[_PJIT]._pjit_lower
        info = cache.cache_info()
        if info.maxsize is not None and info.currsize >= info.maxsize:
            # Some were dropped: the one of now may have been among them.
            return
        for reference, _, values, _ in cache.cache_keys():
            program = reference()
            if program is None or len(values) != len(now):
                continue
            if program is jaxpr and not _differences(values, now):
                continue
            lowered = self._programs.get(id(program))
            if lowered is None or lowered.jaxpr() is not program:
                lowered = self._programs[id(program)] = _Lowered(reference, [])
            lowered.lowerings.append(values)


def _lowering(program: Program) -> Values:
    """The lowering of a program, as a key of JAX's cache has it."""
    pjit: Any = sys.modules[_PJIT]
    values = {name: program.called[name] for name in _PARAMETERS}
    types = program.called["arg_types"]
    values["in_shardings"] = pjit._resolve_in_shardings(types, values["in_shardings"])
    values["in_layouts"] = pjit._resolve_in_layouts(
        types, values["in_layouts"], values["in_shardings"], program.jaxpr.in_avals
    )
    values["out_layouts"] = pjit._resolve_out_layouts(
        values["out_layouts"], values["out_shardings"], program.jaxpr.out_avals
    )
    return tuple(values.values())


def _differences(before: Values, now: Values) -> list[_Difference]:
    differences = []
    for parameter, was, is_now in zip(_PARAMETERS, before, now, strict=True):
        if was == is_now:
            continue
        if isinstance(was, tuple) and isinstance(is_now, tuple) and parameter != _PARAMETERS[-1]:
            pairs = enumerate(zip_longest(was, is_now))
            differences += [
                _Difference(parameter, index, *pair) for index, pair in pairs if _differ(*pair)
            ]
        else:
            differences.append(_Difference(parameter, None, was, is_now))
    return differences


def _differ(before: Any, now: Any) -> bool:
    return bool(before != now)


def _name(program: Program, difference: _Difference) -> str:
    """The argument that differs, or the parameter of `jax.jit`."""
    if difference.position is None or difference.parameter not in _PER_ARGUMENT:
        return {"ctx_mesh": "mesh", "compiler_options_kvs": "compiler_options"}.get(
            difference.parameter, difference.parameter
        )
    names = program.jaxpr.jaxpr.debug_info.arg_names or ()
    # Constants, which come first, have no names.
    position = difference.position - (len(program.called["donated_invars"]) - len(names))
    if 0 <= position < len(names) and names[position]:
        return str(names[position])
    return f"argument {difference.position + 1}"


def _texts(difference: _Difference) -> tuple[str, str]:
    """The values before and now, with as much of them as tells one from the other."""
    before, now = (_text(difference, value) for value in (difference.before, difference.now))
    if before == now:
        before, now = (_on_devices(value) for value in (difference.before, difference.now))
    if before == now:
        before, now = repr(difference.before), repr(difference.now)
    return before[:_LONGEST], now[:_LONGEST]


def _text(difference: _Difference, value: Any) -> str:
    """A value as people write it."""
    if difference.parameter == "donated_invars":
        return "donated" if value else "not donated"
    if type(value).__name__ == "UnspecifiedValue":
        return "uncommitted" if difference.parameter == "in_shardings" else "unspecified"
    if difference.parameter in ("in_shardings", "out_shardings"):
        return _sharding(value)
    if difference.parameter in ("in_layouts", "out_layouts"):
        order = getattr(value, "major_to_minor", None)
        return "default" if order is None else f"major to minor {order}"
    return repr(value)


def _on_devices(value: Any) -> str:
    """A sharding with the numbers of its devices in their order."""
    numbers = ", ".join(str(device.id) for device in getattr(value, "_device_assignment", ()))
    return f"{_sharding(value)} of devices {numbers}"


def _sharding(value: Any) -> str:
    """A sharding: its device, or its axes and those of its mesh."""
    spec, mesh = getattr(value, "spec", None), getattr(value, "mesh", None)
    if spec is not None and mesh is not None:
        axes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
        return f"P({', '.join(map(repr, spec))}) on mesh({axes})"
    devices = list(getattr(value, "device_set", ()))
    if len(devices) == 1:
        return f"{devices[0].platform}:{devices[0].id}"
    return repr(value)
