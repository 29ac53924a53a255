"""Steps of Keras models on TensorFlow: functions that XLA compiles (`jit_compile`).

TensorFlow compiles a function for variables that have values. Those that do not exist yet get
memory that nothing is written to, one piece for all of a shape.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf
from keras import initializers
from keras.src.backend import compute_output_spec
from keras.src.backend.common import global_state

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.xla import Sizes
from nbprof.core.errors import NbprofError
from nbprof.hlo import buffers
from nbprof.hlo.hlo import Program

HAS_CHECKPOINTING = False
REST = Role.ARGUMENTS
"""Role of arguments that are neither variables nor inputs: tensors that the model refers to."""
_PROGRAM = "optimized_hlo_proto_serialized"


def platform() -> str:
    """Name of the platform that programs are compiled for."""
    if tf.config.list_logical_devices("GPU"):
        return "gpu"
    return "cpu"


def notes(model: Any) -> tuple[str, ...]:
    """Sentences on what is assumed of the step."""
    if model.jit_compile:
        return ()
    return ("On a GPU, Keras has XLA compile the step, unless jit_compile=False was passed.",)


def is_compiled(model: Any, device: Device) -> bool:
    """True if XLA compiles the steps of the model.

    Keras decides that by the devices of the machine: without a GPU, its default is not to.
    """
    if model.jit_compile:
        return True
    is_elsewhere = device.has_context and platform() == "cpu"
    return is_elsewhere and all(layer.supports_jit for layer in model._flatten_layers())


def is_distributed(model: Any) -> bool:
    """True if the model runs on several devices."""
    return model._distribute_strategy is not None


def batches(_: Device) -> int:
    """Batches that are on the device at once; the next ones are in the memory of the host."""
    return 1


def shape_of(shape: Any, dtype: str) -> Any:
    """A tensor without data."""
    return tf.TensorSpec(shape, dtype)


def checkpoint(_: Any) -> None:
    """Not possible without changing the model."""
    raise NotImplementedError


def tracing() -> contextlib.AbstractContextManager[None]:
    """A scope in which functions within the model keep no trace: their calls are inlined."""
    return _inlined()


def build(model: Any, data: Any, is_training: bool) -> None:
    """Create what layers, metrics and the optimizer lack, as the first batch of `fit` does."""
    optimizer: Any = getattr(model, "optimizer", None)
    with keras.StatelessScope(initialize_variables=False):
        if is_training:
            # An optimizer is built of variables that have memory.
            object.__setattr__(model, "optimizer", None)
            model._symbolic_build(data_batch=data)
            object.__setattr__(model, "optimizer", optimizer)
        elif not all(layer.built for layer in model._flatten_layers()):
            compute_output_spec(model, keras.tree.map_structure(_symbolic, data[0]))
    _allocate(_variables(model))
    if is_training and not optimizer.built:
        with keras.StatelessScope(initialize_variables=False):
            optimizer.build(model.trainable_variables)
        _allocate(optimizer.variables)
    # Scopes within the step would initialize them.
    global_state.set_global_attribute("uninitialized_variables", [])


def step_sizes(model: Any, data: Any, is_training: bool) -> Sizes:
    """Memory of a step whose model is built; its variables need no values.

    The first step is the largest: variables that TensorFlow initializes alike, such as the zeros of
    an optimizer, share one tensor, so that their new values cannot take its place.
    """
    step, shared = model.predict_step, 0
    if is_training:
        step, shared = model.train_step, _shared_bytes(_variables(model))
    leaves = keras.tree.flatten(data)
    arrays = [leaf for leaf in leaves if leaf is not None]

    def of_arrays(*tensors: Any) -> Any:
        rest = iter(tensors)
        values = [leaf if leaf is None else next(rest) for leaf in leaves]
        return step(keras.tree.pack_sequence_as(data, values))

    unconverted = tf.autograph.experimental.do_not_convert(of_arrays)
    function = tf.function(unconverted, jit_compile=True)
    program = Program(function.experimental_get_compiler_ir(*arrays)(stage=_PROGRAM))
    sizes = _planned(program)
    return replace(sizes, outputs=sizes.outputs + shared)


def _planned(program: Program) -> Sizes:
    """Memory of a program by its buffer assignment."""
    assignment = buffers.read(program)
    if assignment is None:
        raise NbprofError(f"XLA does not state the memory of programs for {platform()}")
    allocations = assignment.allocations
    of_caller = allocations.parameter >= 0
    outputs = allocations.live_out & ~of_caller
    constants = allocations.constant & ~outputs
    rest = ~(of_caller | outputs | constants | allocations.thread_local)
    return Sizes(
        arguments=int(allocations.size[of_caller].sum()),
        outputs=int(allocations.size[outputs].sum()),
        temporaries=int(allocations.size[rest].sum()),
        code=int(allocations.size[constants].sum()),
        aliased=int(allocations.size[of_caller & allocations.live_out].sum()),
    )


def _variables(model: Any) -> list[Any]:
    variables = [*model.variables, *model.metrics_variables]
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    return list({id(variable): variable for variable in variables}.values())


def _shared_bytes(variables: Iterable[Any]) -> int:
    """Bytes of the tensors that several new variables share at first."""
    groups = Counter((*_kind(variable), _constant(variable)) for variable in variables)
    return sum(
        _bytes(shape, dtype)
        for (shape, dtype, constant), count in groups.items()
        if constant and count > 1
    )


def _constant(variable: Any) -> str:
    """The initializer of a new variable that begins with equal numbers; '' for others."""
    initializer = variable._initializer
    if isinstance(initializer, initializers.Constant | initializers.Zeros | initializers.Ones):
        return f"{type(initializer).__name__} {initializer.get_config()}"
    return ""


def _allocate(variables: Iterable[Any]) -> None:
    """Memory for variables that have none."""
    tensors: dict[Any, Any] = {}
    for variable in variables:
        if variable._value is not None:
            continue
        kind = _kind(variable)
        if kind not in tensors:
            tensors[kind] = tf.raw_ops.Empty(shape=kind[0], dtype=kind[1], init=False)
        variable._initialize(tensors[kind])


def _kind(variable: Any) -> tuple[tuple[int, ...], str]:
    return tuple(variable.shape), variable.dtype


def _symbolic(leaf: Any) -> Any:
    if leaf is None:
        return None
    return keras.KerasTensor(tuple(leaf.shape), leaf.dtype.name)


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * int(tf.as_dtype(dtype).size)


@contextlib.contextmanager
def _inlined() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            # Of layers without build, which are built here by their call.
            warnings.simplefilter("ignore")
            yield
    finally:
        tf.config.run_functions_eagerly(before)
