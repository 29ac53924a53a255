"""Calls and results of a program, observed in a turn that is not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from nbprof.capture.experiments.code_replaced import calling, copy_of, swap
from nbprof.capture.experiments.jax_calls import Carried
from nbprof.capture.patches import Patches
from nbprof.capture.probe.reads import globals_in
from nbprof.capture.probe.state import INSTALLED, State, everything
from nbprof.frameworks.register import JAX, TENSORFLOW, is_imported

MOST_VALUES = 500
MOST_ELEMENTS = 2_000_000
"""Elements of an array that is compared; larger results are left out."""
ALL_ELEMENTS = 20_000_000
"""Elements of all arrays that are compared."""
_OUTPUTS = 3
"""Outputs of models that are compared besides the losses."""
_DEPTH = 6
"""Depth of the containers in which results are looked for."""

_OWN = str(Path(__file__).parents[2])
"""The package itself, which need not be installed where others are."""

_DEVICE = "cuda"

RESULT, STATE = "result", "state"
"""Losses and outputs, which have to be equal by their largest difference; and arrays that the
program left in variables and containers, by the norm of the difference.
"""


class Value(NamedTuple):
    """A value that the program computed.

    Attributes
    ----------
    kind : str
        `RESULT` or `STATE`.
    name : str
    array : ndarray
    dtype : str
        Its own, before it became float64.
    """

    kind: str
    name: str
    array: Any
    dtype: str


class Root(NamedTuple):
    """An outermost call of a module of PyTorch.

    Attributes
    ----------
    module : Module
    training : bool
        The module is in training mode.
    graded : bool
        Gradients are enabled.
    images : bool
        An input has four dimensions.
    gives_floats : bool
        It returns one tensor, of float32 or bfloat16.
    """

    module: Any
    training: bool
    graded: bool
    images: bool
    gives_floats: bool


@dataclass
class Call:
    """The calls of a function of the program.

    Attributes
    ----------
    count : int
    outermost : bool
        It is called by code that runs once.
    of_arrays : bool
        It takes and returns arrays of JAX, or tensors of TensorFlow.
    """

    count: int = 0
    outermost: bool = False
    of_arrays: bool = False


class Observation:
    """The observed calls and results of a turn.

    Attributes
    ----------
    loaders, optimizers, datasets, keras_models, py_datasets : list
        Objects that were used, in order.
    roots : list of Root
        Outermost calls of modules, the first of each kind.
    backward : bool
        A loss was differentiated.
    checkpoints : set of (str, int)
        Files and lines of the program that compute activations again, by `torch.utils.checkpoint`.
    waits : dict of str to set of (str, int)
        Modules whose calls wait for the device, ``torch`` and ``jax``, with the files and lines of
        the program that do.
    items : bool
        The program reads floating-point numbers of a GPU by ``.item()``.
    zeros : bool
        Gradients were set to zero instead of None.
    callbacks : list
        Callbacks that the program gave to a loop of Keras.
    epochs : int
        The most epochs of a `fit` of Keras.
    epoch_steps : int
        Its steps in an epoch; 0 if they are not known.
    validation_freq : int or list
        From how many epochs to the next, or after which ones, it validates; None if it does not.
    carried : dict of code to set of int
        Positions of the arguments of functions that `jax.jit` compiled which are what the function
        returned before.
    wrapped_again : set of (str, int)
        Files and lines of the program where a function was wrapped in `jax.jit` once more.
    calls : dict of code to Call
        Calls of functions of the program, if it uses JAX or TensorFlow.
    values : list of Value
    namespace : dict
        The variables of the program.
    deleted : set of str
        Variables that hold an array of JAX which is gone at the end of the turn.
    names : list of (str, object)
        The variables that hold any of these objects at the end of the turn.
    seen : list
        Objects of the program: functions, containers, arrays.
    """

    def __init__(self) -> None:
        self.loaders: list[Any] = []
        self.optimizers: list[Any] = []
        self.datasets: list[Any] = []
        self.keras_models: list[Any] = []
        self.py_datasets: list[Any] = []
        self.callbacks: list[Any] = []
        self.epochs = 1
        self.epoch_steps = 0
        self.validation_freq: Any = None
        self.carried: dict[CodeType, set[int]] = {}
        self.wrapped_again: set[tuple[str, int]] = set()
        self.roots: list[Root] = []
        self.calls: dict[CodeType, Call] = {}
        self._iterators: list[Any] = []
        self.backward = self.zeros = False
        self.checkpoints: set[tuple[str, int]] = set()
        self.items = False
        self.waits: dict[str, set[tuple[str, int]]] = {}
        self.values: list[Value] = []
        self.namespace: dict[str, Any] = {}
        self.deleted: set[str] = set()
        self.names: list[tuple[str, Any]] = []
        self.seen: list[Any] = []
        self._outputs = self._elements = 0

    def hook(self, patches: Patches) -> None:
        """Watch the frameworks that are imported."""
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "nn"):
            self._hook_torch(torch, patches)
        trainer = getattr(sys.modules.get("keras"), "Model", None)
        if trainer is not None:
            self._hook_keras(trainer, patches)
        dataset = dataset_class()
        if dataset is not None:
            self._hook_datasets(dataset, patches)
        jax = sys.modules.get(JAX.name)
        if jax is not None and hasattr(jax, "jit"):
            self._hook_jit(jax, patches)
        if is_imported(JAX.name) or is_imported(TENSORFLOW.name):
            before = sys.getprofile()
            patches.on_restore(lambda: sys.setprofile(before))
            sys.setprofile(self._called if before is None else self._after(before))

    def _after(self, before: Callable[..., object]) -> Callable[..., None]:
        """Also call what a change has set."""

        def called(frame: FrameType, event: str, value: Any) -> None:
            before(frame, event, value)
            self._called(frame, event, value)

        return called

    def _called(self, frame: FrameType, event: str, returned: object) -> None:
        """Count the calls of the program's own functions."""
        code = frame.f_code
        if event not in ("call", "return") or code.co_filename.startswith((*INSTALLED, _OWN)):
            return
        call = self.calls.setdefault(code, Call())
        if event == "call":
            call.count += 1
            return
        outer = frame.f_back
        while outer is not None and outer.f_code not in self.calls:
            outer = outer.f_back
        call.outermost = outer is None or self.calls[outer.f_code].count <= 1
        if call.outermost and not call.of_arrays:
            names = code.co_varnames[: code.co_argcount]
            taken = [frame.f_locals.get(name) for name in names]
            call.of_arrays = _has_array(taken) and _has_array(returned)

    def _hook_torch(self, torch: Any, patches: Patches) -> None:
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            register_optimizer_step_pre_hook,
        )
        from torch.utils.data import (  # type: ignore[import-not-found,unused-ignore]
            DataLoader,
        )

        handle = register_optimizer_step_pre_hook(lambda optimizer, *_: self._stepping(optimizer))
        patches.on_restore(handle.remove)
        self._before(patches, DataLoader, "__iter__", self._iterating)
        self._before(patches, torch.Tensor, "backward", self._differentiated)
        self._before(patches, torch.Tensor, "item", self._read)
        engine = torch.autograd
        backward = engine.backward

        @wraps(backward)
        def differentiate(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self.backward = True
            return backward(tensors, *args, **kwargs)

        patches.replace(engine, "backward", differentiate)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._hook_zero_grad(owner, patches)
        around_roots(patches, self._root)
        checkpoint = sys.modules.get("torch.utils.checkpoint")
        if checkpoint is not None:
            checkpoints = partial(_add_line, self.checkpoints)
            self._note_call(checkpoint.checkpoint, checkpoints, patches)
        self._note_call(torch.cuda.synchronize, lambda: self._waits("torch"), patches)

    @staticmethod
    def _note_call(function: FunctionType, note: Callable[[], object], patches: Patches) -> None:
        """Call `note` before a function, whoever refers to it."""
        original = copy_of(function)

        def noted(*args: Any, **kwargs: Any) -> Any:
            note()
            return original(*args, **kwargs)

        swap(function, calling(noted, function.__code__), patches)

    def _read(self, tensor: Any) -> None:
        if is_read_from_device(tensor) and of_program(sys._getframe()):
            self.items = True

    def _waits(self, module: str) -> None:
        _add_line(self.waits.setdefault(module, set()))

    def _hook_zero_grad(self, owner: Any, patches: Patches) -> None:
        original = owner.zero_grad

        @wraps(original)
        def zero_grad(self_: Any, set_to_none: bool = True) -> Any:
            self.zeros = self.zeros or not set_to_none
            return original(self_, set_to_none)

        patches.replace(owner, "zero_grad", zero_grad)

    @staticmethod
    def _before(patches: Patches, owner: Any, name: str, note: Callable[[Any], None]) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            note(self)
            return original(self, *args, **kwargs)

        patches.replace(owner, name, method)

    def _iterating(self, loader: Any) -> None:
        if not any(loader is other for other in self.loaders):
            self.loaders.append(loader)
            self._iterators.append(loader._iterator)

    def close(self) -> None:
        """End workers that loaders have kept since the turn, and had not before."""
        for loader, before in zip(self.loaders, self._iterators, strict=True):
            now = loader._iterator
            if now is not before:
                loader._iterator = before
                end_workers(now)

    def _stepping(self, optimizer: Any) -> None:
        _add(self.optimizers, optimizer)

    def _differentiated(self, loss: Any) -> None:
        self.backward = True
        self._result("loss", loss)

    def _root(self, module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        torch = sys.modules["torch"]
        images = any(getattr(part, "ndim", 0) == 4 for part in args)
        is_graded = torch.is_grad_enabled()
        output = call(module, *args, **kwargs)
        gives_floats = getattr(output, "dtype", None) in (torch.float32, torch.bfloat16)
        root = Root(module, bool(module.training), is_graded, images, gives_floats)
        kinds = [(id(other.module), *other[1:]) for other in self.roots]
        if (id(module), *root[1:]) not in kinds:
            self.roots.append(root)
        self._outputs += 1
        if self._outputs <= _OUTPUTS or not root.graded:
            for part in _leaves(output, 2):
                self._result("output", part)
        return output

    def _hook_keras(self, model: Any, patches: Patches) -> None:
        batches = sys.modules.get("keras.src.callbacks.callback_list")
        if batches is not None:
            for kind in ("train", "test"):
                self._hook_logs(batches.CallbackList, kind, patches)
        for name in ("fit", "evaluate", "predict"):
            self._before(patches, model, name, lambda each: _add(self.keras_models, each))
        trained = model.fit
        parameters = signature(trained)

        @wraps(trained)
        def fit(*args: Any, **kwargs: Any) -> Any:
            with suppress(TypeError):
                arguments = parameters.bind(*args, **kwargs).arguments
                epochs = arguments.get("epochs", 1) - arguments.get("initial_epoch", 0)
                self.epochs = max(self.epochs, epochs)
                if arguments.get("validation_data") is not None:
                    self.validation_freq = arguments.get("validation_freq", 1)
            return trained(*args, **kwargs)

        patches.replace(model, "fit", fit)
        adapter = py_dataset_adapter()
        if adapter is not None:
            construct = adapter.__init__

            @wraps(construct)
            def make(adapted: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
                _add(self.py_datasets, dataset)
                construct(adapted, dataset, *args, **kwargs)

            patches.replace(adapter, "__init__", make)

    def _hook_logs(self, owner: Any, kind: str, patches: Patches) -> None:
        name = f"on_{kind}_batch_end"
        original = getattr(owner, name)

        @wraps(original)
        def method(callbacks: Any, batch: int, logs: Any = None) -> Any:
            for each in callbacks.callbacks:
                _add(self.callbacks, each)
            if kind == "train":
                self.epoch_steps = callbacks.params.get("steps") or 0
            for key, value in sorted((logs or {}).items()):
                self._result(key, value)
            return original(callbacks, batch, logs)

        patches.replace(owner, name, method)

    def _hook_datasets(self, dataset: Any, patches: Patches) -> None:
        self._before(patches, dataset, "__iter__", lambda each: _add(self.datasets, each))

    def _hook_jit(self, jax: Any, patches: Patches) -> None:
        original = jax.jit
        wrapped: set[CodeType] = set()

        @wraps(original)
        def jit(*args: Any, **kwargs: Any) -> Any:
            code = getattr(args[0], "__code__", None) if args else None
            if code in wrapped:
                _add_line(self.wrapped_again)
            elif code is not None:
                wrapped.add(code)
            return original(*args, **kwargs)

        patches.replace(jax, "jit", jit)
        carried = Carried()
        carried.hook(patches)
        self.carried = carried.arguments
        self._note_call(jax.block_until_ready, lambda: self._waits("jax"), patches)
        array = array_class()
        if array is not None:
            wait = array.block_until_ready

            # Without `wraps`: a method of nanobind has no names to copy.
            def block_until_ready(self_: Any) -> Any:
                self._waits("jax")
                return wait(self_)

            # The turn itself waits by the original.
            block_until_ready.__wrapped__ = wait  # type: ignore[attr-defined]
            patches.replace(array, "block_until_ready", block_until_ready)

    def _result(self, name: str, value: Any) -> None:
        self._add_value(RESULT, name, value)

    def _add_value(self, kind: str, name: str, value: Any) -> None:
        if len(self.values) >= MOST_VALUES or self._elements >= ALL_ELEMENTS:
            return
        array = _array(value)
        if array is not None:
            self._elements += array.size
            self.values.append(Value(kind, name, array, _dtype(value)))

    def take(self, state: State, namespace: dict[str, Any]) -> None:
        """Take the results that the program left in its variables and containers."""
        self.namespace = namespace
        self.seen = state.visited()
        if is_imported(JAX.name):
            self.deleted = {name for name, value in self._variables() if _is_deleted(value)}
        if not self.values:
            for value in filter(_is_variable, self.seen):
                self._left("variable", value)
        used = [*self.loaders, *self.optimizers, *self.datasets, *self.keras_models]
        used += [root.module for root in self.roots]
        for name in sorted(everything(namespace)):
            self._left(name, namespace[name])
            if any(namespace[name] is each for each in used):
                self.names.append((name, namespace[name]))
        for container in self.seen:
            if type(container) in (list, dict):
                self._left("container", container)

    def _variables(self) -> Iterator[tuple[str, Any]]:
        """The variables of the program and of its functions, and its containers, with names."""
        for name in everything(self.namespace):
            yield name, self.namespace[name]
        for value in self.seen:
            if type(value) in (list, dict):
                yield f"a {type(value).__name__}", value
            elif isinstance(value, FunctionType):
                for name in globals_in(value.__code__) & value.__globals__.keys():
                    yield name, value.__globals__[name]
                cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
                for name, cell in cells:
                    with suppress(ValueError):  # not set yet
                        yield name, cell.cell_contents

    def _left(self, name: str, value: Any) -> None:
        for leaf in _leaves(value, _DEPTH):
            self._add_value(STATE, name, leaf)


def around_roots(
    patches: Patches, around: Callable[[Any, Callable[..., Any], Any, Any], Any]
) -> Callable[[], None]:
    """Call ``around(module, call, args, kwargs)`` in place of each outermost call of a module.

    Returns
    -------
    callable
        Ends it before `patches` does.
    """
    module = sys.modules["torch"].nn.Module
    original = module.__call__
    nested = [False]

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if nested[0]:
            return original(self, *args, **kwargs)
        nested[0] = True
        try:
            return around(self, original, args, kwargs)
        finally:
            nested[0] = False

    patches.replace(module, "__call__", call)

    def end() -> None:
        if vars(module).get("__call__") is call:
            module.__call__ = original

    return end


def end_workers(iterator: Any) -> None:
    """End the workers of an iterator of a DataLoader, if it has any."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()


def dataset_class() -> Any:
    """The class of datasets of tf.data; None if TensorFlow is not imported."""
    return getattr(sys.modules.get("tensorflow.python.data.ops.dataset_ops"), "DatasetV2", None)


def array_class() -> Any:
    """The class of arrays of JAX; None if it is not imported."""
    return getattr(sys.modules.get("jax._src.array"), "ArrayImpl", None)


def py_dataset_adapter() -> Any:
    """The class by which Keras reads a PyDataset; None if Keras is not imported."""
    module = sys.modules.get("keras.src.trainers.data_adapters.py_dataset_adapter")
    return getattr(module, "PyDatasetAdapter", None)


def is_read_from_device(tensor: Any) -> bool:
    """Return whether `.item()` of a tensor waits for a GPU and gives a floating-point number."""
    return tensor.device.type == _DEVICE and not tensor.ndim and bool(tensor.is_floating_point())


def of_program(frame: FrameType | None) -> bool:
    """Return whether the program called the function of this package that a frame runs."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith(INSTALLED)


def _add_line(lines: set[tuple[str, int]]) -> None:
    """Add the line of the program that runs; of a library's, the line that called it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith((*INSTALLED, _OWN)):
        frame = frame.f_back
    if frame is not None:
        lines.add((frame.f_code.co_filename, frame.f_lineno))


def _add(values: list[Any], value: Any) -> None:
    if not any(value is other for other in values):
        values.append(value)


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if type(value) is list or isinstance(value, tuple):
        parts = list(value)
    elif type(value) is dict:
        parts = list(value.values())
    else:
        yield value
        return
    if depth:
        for part in parts[:MOST_VALUES]:
            yield from _leaves(part, depth - 1)


def _is_variable(value: Any) -> bool:
    """Return whether it is a variable of TensorFlow or Keras, which a loop of one's own trains."""
    for name in ("tensorflow", "keras"):
        kind = getattr(sys.modules.get(name), "Variable", None)
        if isinstance(kind, type) and isinstance(value, kind):
            return True
    return False


def _is_deleted(value: Any) -> bool:
    """Return whether an array of JAX is gone that a variable or a container holds."""
    kind = array_class()
    leaves = _leaves(value, _DEPTH)
    return any(isinstance(leaf, kind) and leaf.is_deleted() for leaf in leaves)


def _has_array(value: Any) -> bool:
    kinds = []
    for module, name in ((JAX.name, "Array"), (TENSORFLOW.name, "Tensor")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            kinds.append(kind)
    return any(isinstance(leaf, tuple(kinds)) for leaf in _leaves(value, _DEPTH))


def _dtype(value: Any) -> str:
    if isinstance(value, float):
        # The loss of a step as a number has the precision of its tensor.
        return "float32"
    return str(getattr(value, "dtype", "")).rpartition(".")[2]


def _array(value: Any) -> Any:
    """A copy in float64; None for what holds no floating-point numbers."""
    numpy = sys.modules.get("numpy")
    if numpy is None or isinstance(value, (bool, int, str, bytes)):
        return None
    if isinstance(value, float):
        return numpy.array(value, numpy.float64)
    if "float" not in _dtype(value) or not hasattr(value, "shape"):
        return None
    try:
        if hasattr(value, "is_deleted") and value.is_deleted():
            return None
        if hasattr(value, "detach"):
            if value.numel() > MOST_ELEMENTS:
                return None
            return value.detach().to("cpu", sys.modules["torch"].float64, copy=True).numpy()
        if numpy.prod([int(size) for size in value.shape]) > MOST_ELEMENTS:
            return None
        if hasattr(value, "numpy"):
            value = value.numpy()
        return numpy.array(value, numpy.float64)
    except Exception:
        # Of a type that cannot be copied: it is not compared.
        return None
