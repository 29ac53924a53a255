"""Gradient checkpointing of a function of JAX that is not edited: its ops in segments.

The ops of the function are cut where few values are alive, and each segment but the last is a
`jax.checkpoint`: of its values only those that a later segment needs are kept for the backward
pass. So are the bodies of `jax.lax.scan`. Source of the idea: Chen et al., Training Deep Nets with
Sublinear Memory Cost (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

_CALLS = ("jit", "pjit", "closed_call", "core_call")
_gensym: Any = core.gensym
_fresh = _gensym()
_MOST = 64
"""Segments that are tried at most."""


def checkpointed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the same results whose gradient needs less memory, and computes more.

    Parameters
    ----------
    function : callable
        Of trees of arrays, without side effects; keyword arguments are not differentiated.
    """

    def in_segments(*arguments: Any, **options: Any) -> Any:
        def positional(*values: Any) -> Any:
            return function(*values, **options)

        program, shapes = jax.make_jaxpr(positional, return_shape=True)(*arguments)
        flat = jax.tree_util.tree_leaves(arguments)
        outputs = _run(_Ops.from_program(program), flat)
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), outputs)

    return in_segments


@dataclass(frozen=True)
class _Ops:
    """Ops of a program in their order, those of jitted functions in place of their call.

    Attributes
    ----------
    ops : list
        Equations of a jaxpr.
    inputs, outputs : list
        Variables of the program; an output may be a literal.
    constants : dict
        Values of variables that are neither inputs nor results of ops.
    """

    ops: list[Any]
    inputs: list[Any]
    outputs: list[Any]
    constants: dict[Any, Any]

    @classmethod
    def from_program(cls, program: Any) -> _Ops:
        constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        names: dict[Any, Any] = {}
        ops = list(_inlined(program.jaxpr, names, constants))
        outputs = [_named(names, each) for each in program.jaxpr.outvars]
        return cls(ops, list(program.jaxpr.invars), outputs, constants)


def _inlined(jaxpr: Any, names: dict[Any, Any], constants: dict[Any, Any]) -> Iterator[Any]:
    """Equations whose variables are unique, also where a function is called twice."""
    for op in jaxpr.eqns:
        inputs = [_named(names, each) for each in op.invars]
        inner = op.params.get("jaxpr")
        if op.primitive.name in _CALLS and isinstance(inner, core.ClosedJaxpr):
            inner_names = dict(zip(inner.jaxpr.invars, inputs, strict=True))
            for variable, value in zip(inner.jaxpr.constvars, inner.consts, strict=True):
                inner_names[variable] = _fresh(variable.aval)
                constants[inner_names[variable]] = value
            yield from _inlined(inner.jaxpr, inner_names, constants)
            for outer, result in zip(op.outvars, inner.jaxpr.outvars, strict=True):
                names[outer] = _named(inner_names, result)
            continue
        outputs = []
        for variable in op.outvars:
            names[variable] = _fresh(variable.aval)
            outputs.append(names[variable])
        yield op.replace(invars=inputs, outvars=outputs)


def _named(names: dict[Any, Any], value: Any) -> Any:
    if _is_literal(value):
        return value
    return names.get(value, value)


def _run(program: _Ops, arguments: Sequence[Any]) -> list[Any]:
    values = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    segments = _segments(program)
    for number, (begin, end) in enumerate(segments):
        ops = program.ops[begin:end]
        created = dict.fromkeys(each for op in ops for each in op.outvars)
        needed = [each for each in _variables(ops) if each not in created]
        later = _variables(program.ops[end:], program.outputs)
        results = [each for each in created if each in later]

        def run(
            inputs: list[Any],
            ops: list[Any] = ops,
            needed: list[Any] = needed,
            results: list[Any] = results,
        ) -> list[Any]:
            return _evaluated(ops, dict(zip(needed, inputs, strict=True)), results)

        if number < len(segments) - 1:
            run = jax.checkpoint(run)
        values |= zip(results, run([values[each] for each in needed]), strict=True)
    return [_value(values, each) for each in program.outputs]


def _variables(ops: list[Any], outputs: Sequence[Any] = ()) -> dict[Any, None]:
    """Variables that ops read, and those of outputs, once each."""
    values = [each for op in ops for each in op.invars]
    return dict.fromkeys(each for each in [*values, *outputs] if not _is_literal(each))


def _is_literal(value: Any) -> bool:
    return isinstance(value, core.Literal)


def _evaluated(ops: list[Any], values: dict[Any, Any], results: list[Any]) -> list[Any]:
    for op in ops:
        inputs = [_value(values, each) for each in op.invars]
        values |= zip(op.outvars, _applied(op, inputs), strict=True)
    return [values[each] for each in results]


def _applied(op: Any, inputs: list[Any]) -> list[Any]:
    if op.primitive.name == "scan":
        return _scan(op.params, inputs)
    functions: Sequence[Any] = ()
    params = op.primitive.get_bind_params(op.params)
    # In older versions of JAX, functions within an op are arguments before the others.
    if isinstance(params, tuple):
        functions, params = params
    with op.ctx.manager:
        outputs = op.primitive.bind(*functions, *inputs, **params)
    if op.primitive.multiple_results:
        return list(outputs)
    return [outputs]


def _scan(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
    """The loop again, with a body whose values are not kept."""
    constants, carry = params["num_consts"], params["num_consts"] + params["num_carry"]
    body = core.jaxpr_as_fun(params["jaxpr"])

    def step(carried: list[Any], sliced: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = jax.checkpoint(body)(*inputs[:constants], *carried, *sliced)
        return outputs[: params["num_carry"]], outputs[params["num_carry"] :]

    carried, stacked = jax.lax.scan(
        step,
        inputs[constants:carry],
        inputs[carry:],
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carried, *stacked]


def _value(values: dict[Any, Any], variable: Any) -> Any:
    if _is_literal(variable):
        return variable.val
    return values[variable]


def _segments(program: _Ops) -> list[tuple[int, int]]:
    """Begin and end of segments, in the number of them that keeps least, by the sizes of values."""
    if not program.ops:
        return []
    created = [sum(map(_bytes, op.outvars)) for op in program.ops]
    alive = _alive(program)
    best, least = [(0, len(created))], math.inf
    for number in range(1, min(_MOST, len(created)) + 1):
        cuts = _cuts(created, alive, number)
        segments = list(zip([0, *cuts], [*cuts, len(created)], strict=True))
        total = sum(alive[position] for position in cuts)
        total += max(sum(created[begin:end]) for begin, end in segments)
        if total < least:
            best, least = segments, total
    return best


def _cuts(created: list[int], alive: list[int], number: int) -> list[int]:
    """Places between segments that create about as much each, where the least is alive."""
    share = sum(created) / number
    cuts: list[int] = []
    position, total = 0, 0
    for part in range(1, number):
        candidates = []
        while position < len(created) - 1 and total < (part + 0.5) * share:
            total += created[position]
            position += 1
            if total >= (part - 0.5) * share:
                candidates.append(position)
        if candidates:
            cuts.append(min(candidates, key=alive.__getitem__))
    return cuts


def _alive(program: _Ops) -> list[int]:
    """Bytes of results of ops before each op that this op or one after it needs."""
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for position, op in enumerate(program.ops):
        for variable in op.outvars:
            first[variable] = position
        for variable in op.invars:
            if not _is_literal(variable) and variable in first:
                last[variable] = position
    changes = [0] * (len(program.ops) + 1)
    for variable, position in last.items():
        size = _bytes(variable)
        changes[first[variable] + 1] += size
        changes[position + 1] -= size
    alive, total = [], 0
    for change in changes:
        total += change
        alive.append(total)
    return alive


def _bytes(variable: Any) -> int:
    shape = getattr(variable.aval, "shape", ())
    dtype = getattr(variable.aval, "dtype", None)
    return math.prod(shape) * getattr(dtype, "itemsize", 0)
