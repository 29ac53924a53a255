"""`nbprof.fits`: the peak of memory of a step, before it runs."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.result import Fit
from nbprof.core.errors import NbprofError
from nbprof.frameworks.register import JAX, PYTORCH, TENSORFLOW


def fits(
    model: Any,
    *batch: Any,
    optimizer: Any = None,
    loss: Any = None,
    device: str | int | None = None,
    autocast: Any = None,
    margin: float | None = None,
) -> Fit:
    """Predict the peak of memory of a step, without the device and without running it.

    A module of PyTorch is traced with tensors that have shapes and no data: two steps of a training
    loop (`zero_grad`, forward, loss, backward, `step`), or of inference without an optimizer. Each
    storage counts from its creation until it is freed, in blocks of 512 bytes as in PyTorch's
    caching allocator. A function of JAX, and the step of a Keras model on JAX or TensorFlow, is
    compiled for the shapes of its arguments, and the peak is that of XLA's buffer assignment.
    Nothing of yours is changed: not the model, its gradients, the optimizer or a generator of
    random numbers.

    Parameters
    ----------
    model : torch.nn.Module, keras.Model or callable
        A module, also on the device `meta`; a Keras model, built or not; or a function of JAX,
        jitted or not: a whole step, or with `optimizer` the loss, a function of the parameters and
        the batch that returns a number.
    *batch
        Of PyTorch one argument: a tensor, a tuple (the arguments of the model; with `loss`, the
        last one is the target), a dictionary (keyword arguments), or shapes instead of tensors.
        Of Keras what a dataset yields: `(x, y)` or `(x, y, sample_weight)` for a training step of a
        model that is compiled, `x` for a step of `predict`. Of JAX the arguments of the function:
        arrays or `jax.ShapeDtypeStruct`.
    optimizer : torch.optim.Optimizer, class or callable, optional
        An optimizer of the model, or what returns one for a list of parameters. Without one, the
        step is a forward pass under `torch.no_grad`. Of JAX an optimizer of optax. That of a Keras
        model is the one it is compiled with.
    loss : callable, optional
        `loss(output, target)`; of a dictionary `loss(output, batch)`, of a single tensor
        `loss(output)`. By default the field `loss` of the output, else the sum of its tensors of
        floating point.
    device : str, int or None
        A name such as "A100-80GB", "T4" or "cuda:0", bytes, or "cpu" for the memory of this
        machine. Without one, there is a peak and no verdict.
    autocast : torch.dtype, optional
        The forward pass and the loss run in `torch.autocast` of this type.
    margin : float, optional
        Bytes, or below 1 a share of the peak, that must be free beside it: for workspaces of
        libraries and fragmentation, which are not predicted. By default 5% of the peak and 512 MiB
        for a device, and none for a number of bytes.

    Returns
    -------
    Fit
        With `peak_bytes`, `fits`, `frame`, `largest_batch` and `levers`.

    Raises
    ------
    NbprofError
        The step cannot be traced (it depends on values, or an op has no shape function), or an
        argument is invalid; the message names the op, the line and a remedy.

    Examples
    --------
    >>> nbprof.fits(model, (32, 3, 224, 224), optimizer=torch.optim.AdamW, device="A100-80GB")
    ... # doctest: +SKIP
    """
    target = Device.of(device)
    if margin is not None and margin < 0:
        raise NbprofError(f"margin is {margin}; pass bytes, or a share of the peak below 1")
    if _is_of("keras", "Model", model):
        backend = sys.modules["keras"].backend.backend()
        if backend in (JAX.name, TENSORFLOW.name):
            return _fit_of_keras(model, batch, optimizer, loss, target, autocast, margin)
        if backend != PYTORCH.name:
            raise NbprofError(
                f"the memory of a Keras model is predicted on JAX, TensorFlow and PyTorch, not on"
                f" {backend}; set KERAS_BACKEND before Keras is imported"
            )
    if _is_of("torch.nn", "Module", model):
        if len(batch) != 1:
            raise NbprofError(
                f"nbprof.fits takes one batch, not {len(batch)}; pass several tensors as a tuple"
            )
        from nbprof.capture.fit.of_torch import fit_of_module

        return fit_of_module(model, batch[0], optimizer, loss, target, autocast, margin)
    if _is_function_of_jax(model, batch):
        return _fit_of_jax(model, batch, optimizer, loss, target, autocast, margin)
    raise NbprofError(
        f"the memory of a {type(model).__name__} cannot be predicted; pass a torch.nn.Module or a"
        " keras.Model with a batch, or a function of JAX with its arguments (arrays or"
        " jax.ShapeDtypeStruct)"
    )


def _fit_of_jax(
    function: Any,
    arguments: tuple[Any, ...],
    optimizer: Any,
    loss: Any,
    device: Device,
    autocast: Any,
    margin: float | None,
) -> Fit:
    if loss is not None or autocast is not None:
        raise NbprofError(
            "of a function of JAX, loss and autocast are part of the function: pass the loss"
            " function with optimizer=, or the training step with its state as an argument"
        )
    if optimizer is not None:
        from nbprof.capture.fit.of_loss import fit_of_loss

        return fit_of_loss(function, arguments, optimizer, device, margin)
    from nbprof.capture.fit.of_jax import fit_of_function

    return fit_of_function(function, arguments, device, margin)


def _fit_of_keras(
    model: Any,
    batch: tuple[Any, ...],
    optimizer: Any,
    loss: Any,
    device: Device,
    autocast: Any,
    margin: float | None,
) -> Fit:
    if optimizer is not None or loss is not None or autocast is not None:
        raise NbprofError(
            "of a Keras model, optimizer and loss are those of model.compile, and the precision is"
            " the dtype policy of its layers"
        )
    if len(batch) != 1:
        raise NbprofError(
            f"nbprof.fits takes one batch, not {len(batch)}; pass it as a tuple (x, y)"
        )
    from nbprof.capture.fit.of_keras import fit_of_model

    return fit_of_model(model, batch[0], device, margin)


def _is_function_of_jax(function: object, arguments: tuple[Any, ...]) -> bool:
    jax: Any = sys.modules.get("jax")
    if jax is None or not callable(function):
        return False
    if hasattr(function, "lower"):
        return True
    leaves = jax.tree_util.tree_leaves(arguments)
    return any(isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) for leaf in leaves)


def _is_of(module: str, name: str, value: object) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
