"""Named scopes in the names of ops: `jax.named_scope`, `tf.name_scope`, layers of Keras and Flax.

JAX writes `jit(step)/transpose(jvp(forward))/layer0/dot_general`: a compiled function,
transformations of the outermost scope, scopes, and the primitive. TensorFlow writes
`gradient_tape/encoder/dense/MatMul`. Names that these and the compilers add are
not scopes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Scope(NamedTuple):
    """The scopes around an op, outermost first, and whether it is of the backward pass."""

    path: tuple[str, ...]
    backward: bool


NOWHERE = Scope((), backward=False)

_END = re.compile(r":\w*\Z")
_CALLED = re.compile(r"\b(?:jit|pjit|pmap|xmap|shard_map|core_call|closed_call)\([^()]*\)")
_TRANSFORMED = re.compile(
    r"\b(transpose|jvp|vmap|remat|checkpoint|linearize|custom_jvp|custom_vjp)\(([^()]*)\)"
)
_OF_JAX = re.compile(
    r"while|body|cond|scan|main|jvp|transpose|vmap|pjit|jit|remat2?|checkpoint"
    r"|rematted_computation|closed_call|core_call|xla_call|shard_map|custom_(?:jvp|vjp)_call\w*"
    r"|custom_lin|branch_\d+_fun|(?:body|cond)_jaxpr|named"
)
_OF_TF = re.compile(
    r"(?:StatefulPartitionedCall|PartitionedCall|ArithmeticOptimizer|ConstantFolding"
    r"|LayoutOptimizer|MemoryOptimizer|while|body|cond|then|else|cluster|_)?(?:_?\d+)*"
)
_COPY = re.compile(r"/_\d+\Z")
_GRADIENTS = ("gradient_tape", "gradients")


def of_jax(op: str) -> Scope:
    """The scopes of an op as JAX names it to the compiler."""
    text = _END.sub("", op)
    backward = False
    while (plain := _CALLED.sub("", text)) != text:
        text = plain
    while (match := _TRANSFORMED.search(text)) is not None:
        backward |= match[1] == "transpose"
        text = text[: match.start()] + match[2] + text[match.end() :]
    parts = [part for part in text.split("/")[:-1] if part and not _OF_JAX.fullmatch(part)]
    return Scope(tuple(parts), backward)


def of_tensorflow(op: str) -> Scope:
    """The scopes of an op of a graph of TensorFlow."""
    if "/" not in op or "::" in op:
        return NOWHERE
    # Copies between devices are called after the op that made what they copy: `dense/MatMul/_12`.
    parts = _COPY.sub("", _END.sub("", op)).split("/")[:-1]
    backward = any(part in _GRADIENTS for part in parts)
    return Scope(
        tuple(part for part in parts if part not in _GRADIENTS and not _OF_TF.fullmatch(part)),
        backward,
    )


def of_ops(names: Iterable[str], compiled: bool) -> list[Scope]:
    """The scopes of some ops.

    Parameters
    ----------
    names : iterable of str
    compiled : bool
        Whether they are names that a compiler was given: those of JAX begin with a compiled
        function.
    """
    texts = list(names)
    scopes = [
        of_jax(text) if compiled and "(" in text.partition("/")[0] else of_tensorflow(text)
        for text in texts
    ]
    # An op of TensorFlow that consists of others is a scope of these, and no scope of the program.
    ops = {
        (*scope.path, _END.sub("", text).rpartition("/")[2])
        for scope, text in zip(scopes, texts, strict=True)
    }
    return [Scope(_without(scope.path, ops), scope.backward) for scope in scopes]


def _without(path: tuple[str, ...], ops: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    while path and path in ops:
        path = path[:-1]
    return path
