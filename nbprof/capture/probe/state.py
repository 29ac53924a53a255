"""Saves the state that a cell can change, so that it can run once more and leave no trace.

Models, optimizers and arrays stay the same objects, because compiled functions, callbacks and
optimizers refer to them (a `tf.function` trains the variables that it was traced with, whatever a
name refers to later). So their values are copied before the second run, which works on the objects
themselves, and the copies are written back. Values that cannot be written back, because they are
immutable and may be used up (arrays of JAX that a function donates), are replaced by copies for the
second run. Variables of the notebook are rebound.
"""

from __future__ import annotations

import io
import random
import sys
import sysconfig
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import psutil

from nbprof.capture.probe.reads import BY_TEXT, names_in, reads_by_text

SHARE = 0.5
"""Share of the free memory that copies may take."""
MAX_OBJECTS = 1_000_000

_HEAP_TYPE = 1 << 9
_LIBRARIES = {
    "IPython",
    "ipykernel",
    "jax",
    "jaxlib",
    "keras",
    "logging",
    "matplotlib",
    "nbprof",
    "numpy",
    "pandas",
    "tensorflow",
    "torch",
    "tqdm",
}
"""Libraries whose objects hold caches and settings; classes with state that training changes are
handled below.
"""
_LEAVES = (
    ModuleType,
    CodeType,
    BaseException,
    range,
    slice,
    property,
    weakref.ref,
    GenericAlias,
    MappingProxyType,
    type(...),
    type(NotImplemented),
)
_OF_IPYTHON = {"In", "Out", "exit", "get_ipython", "quit"}
_BUILTIN_NEW = type(object.__new__)
INSTALLED = tuple(
    filter(None, map(sysconfig.get_paths().get, ("stdlib", "platstdlib", "purelib", "platlib")))
)


class _NoRoomError(Exception):
    """A copy would take too much memory."""


class State:
    """The state that the functions and objects of a cell can change.

    Parameters
    ----------
    namespace : dict
        The variables of the notebook.
    names : iterable of str
        Those that the cell reads.

    Attributes
    ----------
    uncopied : list of str
        Objects that cannot be restored, with the reason.
    consumed : list of str
        Iterators, which the first run has used up.
    """

    def __init__(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        self.uncopied: list[str] = []
        self.consumed: list[str] = []
        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}
        self._looked_up: set[tuple[str, str]] = set()
        self._copies: dict[int, Any] = {}
        self._waiting: deque[tuple[Any, str]] = deque()
        self._left = SHARE * psutil.virtual_memory().available
        try:
            self._random()
            self._variables(namespace)
            read_names = set(names)
            if read_names & BY_TEXT:
                read_names = everything(namespace)
            self._globals(namespace, read_names, "")
            while self._waiting:
                self._visit(*self._waiting.popleft())
                if len(self._seen) > MAX_OBJECTS:
                    self.uncopied.append(f"more than {MAX_OBJECTS:,} objects")
                    break
        except BaseException:
            self.restore()
            raise

    def visited(self) -> list[Any]:
        """The objects whose state is saved, in the order in which they were found."""
        return list(self._seen.values())

    def restore(self) -> list[str]:
        """Restore everything; returns the errors."""
        failed = []
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}")
        self._seen.clear()
        self._copies.clear()
        return failed

    # Namespaces and functions.

    def _variables(self, namespace: dict[str, Any]) -> None:
        original = dict(namespace)

        def rebind() -> None:
            for name in namespace.keys() - original.keys():
                del namespace[name]
            for name, value in original.items():
                if name not in namespace or namespace[name] is not value:
                    namespace[name] = value

        self._undo.append(rebind)

    def _globals(self, namespace: dict[str, Any], names: set[str], within: str) -> None:
        """Visit the named variables; of a module of the user's, the attributes with these names."""
        if within and id(namespace) not in self._seen:
            self._seen[id(namespace)] = namespace
            self._variables(namespace)
        for name in sorted(names & namespace.keys()):
            if (within, name) in self._looked_up:
                continue
            self._looked_up.add((within, name))
            value = namespace[name]
            if isinstance(value, ModuleType):
                if own_module(value.__name__):
                    self._globals(vars(value), names, value.__name__)
                continue
            copy = self._substitute(value)
            if copy is not value:
                namespace[name] = copy
            if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
                self.consumed.append(name)
            else:
                self._waiting.append((value, name))

    def _function(self, function: FunctionType, path: str) -> None:
        for cell in function.__closure__ or ():
            self._waiting.append((cell, path))
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._waiting.append((value, path))
        # Not `__module__`, which a wrapper takes from the function that it wraps.
        module = str(function.__globals__.get("__name__"))
        if own_module(module):
            namespace, code = function.__globals__, function.__code__
            names = names_in(code)
            if reads_by_text(code):
                names = everything(namespace)
            self._globals(namespace, names, "" if module == "__main__" else module)
        inner = getattr(function, "__wrapped__", None)
        if callable(inner):
            self._waiting.append((inner, path))

    def _cell(self, cell: CellType, path: str) -> None:
        with suppress(ValueError):  # an empty one
            value = cell.cell_contents
            self._undo.append(lambda: setattr(cell, "cell_contents", value))
            cell.cell_contents = self._substitute(value)
            self._waiting.append((value, path))

    def _class(self, cls: type, path: str) -> None:
        if not own_module(cls.__module__):
            return
        original = dict(vars(cls))

        def put_back() -> None:
            for name in vars(cls).keys() - original.keys():
                delattr(cls, name)
            for name, value in original.items():
                if vars(cls).get(name) is not value:
                    setattr(cls, name, value)

        self._undo.append(put_back)
        for name, value in original.items():
            inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(inner, FunctionType) or not (
                name.startswith(("__", "_abc_")) or hasattr(type(inner), "__get__")
            ):
                self._waiting.append((inner, f"{path}.{name}"))
        for base in cls.__bases__:
            self._waiting.append((base, path))

    # Objects.

    def _visit(self, value: Any, path: str) -> None:
        if (
            value is None
            or isinstance(value, (bool, int, float, complex, str, bytes))
            or id(value) in self._seen
        ):
            return
        self._seen[id(value)] = value
        try:
            self._dispatch(value, path)
        except _NoRoomError:
            self._refuse(path, value, "a copy needs more than half of the free memory")
        except Exception as error:
            self._refuse(path, value, f"{type(error).__name__}: {error}")

    def _dispatch(self, value: Any, path: str) -> None:
        cls = type(value)
        keepers: tuple[tuple[Any, Callable[[Any, str], None]], ...] = (
            (FunctionType, self._function),
            (CellType, self._cell),
            (type, self._class),
            (dict, self._dict),
            ((list, bytearray, deque), self._sequence),
            (set, self._set),
        )
        for kind, keep in keepers:
            if isinstance(value, kind):
                keep(_unwrapped(value), path)
                break
        else:
            if isinstance(value, (tuple, frozenset)):
                self._waiting.extend((part, path) for part in value)
            elif isinstance(value, MethodType):
                self._waiting.extend(((value.__self__, path), (value.__func__, path)))
            elif isinstance(value, BuiltinFunctionType):
                self._waiting.append((value.__self__, path))
                return
            elif isinstance(value, _LEAVES) or self._of_library(value, path):
                return
            elif not self._is_plain(value):
                kind = ""
                if isinstance(value, io.IOBase):
                    kind = "an open file"
                self._refuse(path, value, kind)
                return
        if not isinstance(value, (FunctionType, type)):
            self._attributes(value, path)
            self._waiting.append((cls, cls.__name__))

    def _of_library(self, value: Any, path: str) -> bool:
        """Save the state of an object of a framework; False if it is of none."""
        if callable(value):
            for attribute in ("__wrapped__", "python_function", "func"):
                inner = getattr(value, attribute, None)
                if callable(inner):
                    self._waiting.append((inner, path))
        if type(value).__module__ == "functools":
            self._waiting.append((getattr(value, "args", None), path))
            self._waiting.append((getattr(value, "keywords", None), path))
            return True
        return (
            self._array(value)
            or self._generator(value)
            or self._torch(value, path)
            or self._keras(value, path)
            or self._is_stateless(value)
        )

    def _is_stateless(self, value: Any) -> bool:
        """Return whether an object has no state that can be changed, as far as is known."""
        cls = type(value)
        if cls.__module__.partition(".")[0] in _LIBRARIES:
            return not any(self._is(value, module, name) for module, name in _WALKED)
        # A type of C that defines a hash is a value, such as a date or a pattern.
        by_value: Any = cls.__hash__
        return not self._is_plain(value) and by_value not in (None, object.__hash__)

    @staticmethod
    def _is_plain(value: Any) -> bool:
        """Return whether all its state is in its attributes."""
        cls = type(value)
        return _base_of_c(cls) is object and (hasattr(value, "__dict__") or bool(_slots(cls)))

    @staticmethod
    def _is(value: Any, module: str, name: str) -> bool:
        attribute: Any = sys.modules.get(module)
        for part in name.split("."):
            attribute = getattr(attribute, part, None)
        return isinstance(attribute, type) and isinstance(value, attribute)

    def _refuse(self, path: str, value: Any, why: str) -> None:
        self.uncopied.append(f"{path} ({why or type(value).__name__})")

    def _attributes(self, value: Any, path: str) -> None:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            self._mapping(held, path)
        for name in _slots(type(value)):
            with suppress(AttributeError):
                original = getattr(value, name)
                self._undo.append(partial(object.__setattr__, value, name, original))
                copy = self._substitute(original)
                if copy is not original:
                    object.__setattr__(value, name, copy)
                self._waiting.append((original, f"{path}.{name}"))

    def _mapping(self, held: dict[Any, Any], path: str) -> None:
        original = dict(held)
        self._undo.append(lambda: (dict.clear(held), dict.update(held, original)))
        for key, value in original.items():
            copy = self._substitute(value)
            if copy is not value:
                dict.__setitem__(held, key, copy)
            self._waiting.append((value, _item_path(path, key)))

    def _dict(self, held: dict[Any, Any], path: str) -> None:
        if not isinstance(held, OrderedDict):
            self._mapping(held, path)
            return
        # It stores its order separately from the dict.
        original = list(held.items())
        self._undo.append(lambda: _refill(held, original))
        for key, value in original:
            copy = self._substitute(value)
            if copy is not value:
                held[key] = copy
            self._waiting.append((value, _item_path(path, key)))

    def _sequence(self, held: Any, path: str) -> None:
        original = list(held)
        if isinstance(held, list):
            self._undo.append(lambda: list.__setitem__(held, slice(None), original))
        else:
            self._undo.append(lambda: _refill(held, original))
        for index, value in enumerate(original):
            copy = self._substitute(value)
            if copy is not value:
                held[index] = copy
            self._waiting.append((value, path))

    def _set(self, held: set[Any], path: str) -> None:
        original = set(held)
        self._undo.append(lambda: (set.clear(held), set.update(held, original)))
        self._waiting.extend((value, path) for value in original)

    # Objects of frameworks.

    def _take_memory(self, size: int) -> None:
        if size > self._left:
            raise _NoRoomError
        self._left -= size

    def _array(self, value: Any) -> bool:
        if self._is(value, "numpy", "ndarray"):
            if value.flags.writeable:
                self._take_memory(value.nbytes)
                original = value.copy()
                self._undo.append(lambda: value.__setitem__(..., original))
            return True
        if self._is(value, "pandas", "DataFrame") or self._is(value, "pandas", "Series"):
            self._take_memory(int(value.memory_usage().sum()))
            frame = value.copy()
            self._undo.append(lambda: value._update_inplace(frame))
            return True
        return False

    def _generator(self, value: Any) -> bool:
        """Save a random number generator of the user's; False if it is none."""
        if self._is(value, "numpy.random", "Generator"):
            value = value.bit_generator
        if self._is(value, "numpy.random", "BitGenerator"):
            of_numpy = value.state
            self._undo.append(lambda: setattr(value, "state", of_numpy))
        elif isinstance(value, random.Random):
            of_python = value.getstate()
            self._undo.append(lambda: value.setstate(of_python))
        elif self._is(value, "numpy.random", "RandomState") or self._is(
            value, "torch", "Generator"
        ):
            state = value.get_state()
            self._undo.append(lambda: value.set_state(state))
        elif self._is(value, "tensorflow", "random.Generator"):
            self._assigned(value.state, value.state.numpy())
        else:
            return False
        return True

    def _substitute(self, value: Any) -> Any:
        """A copy of arrays of JAX, also in tuples, since a function may donate them."""
        if isinstance(value, tuple):
            return self._substitute_in_tuple(value)
        if not self._is(value, "jax", "Array") or not hasattr(value, "is_deleted"):
            return value
        if value.is_deleted():
            return value
        if id(value) not in self._copies:
            self._seen[id(value)] = value
            self._take_memory(getattr(value, "nbytes", 0))
            copy = self._copies[id(value)] = value.copy()
            self._copies[id(copy)] = copy
        return self._copies[id(value)]

    def _substitute_in_tuple(self, value: tuple[Any, ...]) -> Any:
        make: Any = getattr(type(value), "_make", None)
        if type(value) is tuple:
            make = tuple
        if make is None:
            return value
        parts = [self._substitute(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return make(parts)

    def _torch(self, value: Any, path: str) -> bool:
        if self._is(value, "torch.utils.data", "DataLoader"):
            # It does not change its dataset.
            self._waiting.append((value.generator, path))
            return True
        if self._is(value, "torch.utils.data", "Dataset"):
            return True
        if self._is(value, "torch.nn", "Module"):
            # A scripted module does not have them in its attributes.
            for tensor in (*value.parameters(), *value.buffers()):
                self._waiting.append((tensor, path))
        if not self._is(value, "torch", "Tensor"):
            return False
        self._take_memory(value.element_size() * value.nelement())
        torch = sys.modules["torch"]
        alias, gradient = value.detach(), None
        if value.is_leaf:
            gradient = value.grad
        # In main memory: that of a device may be too small for a second copy.
        copy = alias.to("cpu", copy=True)
        needs = value.requires_grad

        def put_back() -> None:
            with torch.no_grad():
                if 0 not in alias.stride():
                    alias.copy_(copy)
                if value.data_ptr() != alias.data_ptr():
                    value.data = alias
            if value.is_leaf:
                value.requires_grad_(needs)
                value.grad = gradient

        self._undo.append(put_back)
        if gradient is not None:
            self._waiting.append((gradient, f"{path}.grad"))
        return True

    def _keras(self, value: Any, path: str) -> bool:
        if self._is(value, "tensorflow", "Variable"):
            dtype = value.dtype
            if not dtype.is_numpy_compatible or dtype.name in ("resource", "variant"):
                raise TypeError(f"a variable of {dtype.name}")
            self._assigned(value, value.numpy())
            return True
        if self._is(value, "tensorflow", "Module"):
            self._waiting.extend((variable, path) for variable in value.variables)
        if self._is(value, "keras", "Variable"):
            self._keras_variables([value])
            return True
        kinds = ("Layer", "optimizers.Optimizer", "metrics.Metric", "random.SeedGenerator")
        if not any(self._is(value, "keras", kind) for kind in kinds):
            return False
        parts: list[Any] = [value]
        if self._is(value, "keras", "Layer"):
            parts += value._flatten_layers()
            parts += [getattr(value, "optimizer", None), *getattr(value, "metrics", ())]
        for index, part in enumerate(parts):
            if part is None or (index and id(part) in self._seen):
                continue
            self._seen[id(part)] = part
            self._shallow(part)
            self._keras_variables(part.variables if hasattr(part, "variables") else [part.state])
        self._waiting.append((type(value), path))
        return True

    def _shallow(self, value: Any) -> None:
        """Save the attributes of an object of Keras, and the containers among them.

        The objects in these containers are saved separately.
        """
        held = vars(value)
        original = dict(held)
        for part in map(_unwrapped, original.values()):
            if isinstance(part, dict):
                # Called from the last to the first.
                self._undo += [partial(dict.update, part, dict(part)), partial(dict.clear, part)]
            elif isinstance(part, list):
                self._undo.append(partial(list.__setitem__, part, slice(None), list(part)))
            elif isinstance(part, set):
                self._undo += [partial(set.update, part, set(part)), partial(set.clear, part)]
        self._undo.append(lambda: (held.clear(), held.update(original)))

    def _keras_variables(self, variables: Iterable[Any]) -> None:
        for variable in variables:
            if id(variable) not in self._copies:
                self._copies[id(variable)] = self._seen[id(variable)] = variable
                self._assigned(variable, sys.modules["keras"].ops.convert_to_numpy(variable))

    def _assigned(self, variable: Any, value: Any) -> None:
        self._take_memory(value.nbytes)
        original = value.copy()
        self._undo.append(lambda: variable.assign(original))

    def _random(self) -> None:
        """Save the global random number generators."""
        state = random.getstate()
        self._undo.append(lambda: random.setstate(state))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            of_numpy = numpy.random.get_state()
            self._undo.append(lambda: numpy.random.set_state(of_numpy))
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            of_torch = torch.get_rng_state()
            self._undo.append(lambda: torch.set_rng_state(of_torch))
            if torch.cuda.is_initialized():
                of_cuda = torch.cuda.get_rng_state_all()
                self._undo.append(lambda: torch.cuda.set_rng_state_all(of_cuda))
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "context", None)
        generator = None
        if context is not None:
            generator = getattr(context(), "_rng", None)
        if generator is not None:
            of_ops = generator.getstate()
            self._undo.append(lambda: generator.setstate(of_ops))
        shared = getattr(
            sys.modules.get("keras.src.backend.common.global_state"), "get_global_attribute", None
        )
        if shared is not None:
            seeds = shared("global_seed_generator")
            if seeds is not None:
                self._keras_variables([seeds.state])


_WALKED = (
    ("torch.nn", "Module"),
    ("torch.optim", "Optimizer"),
    ("torch.optim.lr_scheduler", "LRScheduler"),
    ("torch.amp", "GradScaler"),
    ("keras", "callbacks.Callback"),
)
"""Objects of libraries that hold all their state in attributes."""


def everything(namespace: dict[str, Any]) -> set[str]:
    """All variables that the user has named."""
    return {name for name in namespace if not name.startswith("_") and name not in _OF_IPYTHON}


def own_module(name: str | None) -> bool:
    """Return whether a module is the notebook, or one of the user's files."""
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(name or ""), "__file__", None) or ""
    if not file or file.startswith(INSTALLED):
        return False
    return str(name).partition(".")[0] not in _LIBRARIES


def _base_of_c(cls: type) -> type:
    """The class of C that an object is laid out by, as `copyreg` finds it; `object` by default."""
    for base in cls.__mro__:
        new = base.__new__
        if not base.__flags__ & _HEAP_TYPE or (
            isinstance(new, _BUILTIN_NEW) and getattr(new, "__self__", None) is base
        ):
            return base
    return object


def _unwrapped(held: Any) -> Any:
    """The container in a wrapper of TensorFlow, which tracks changes."""
    if isinstance(held, dict):
        return getattr(held, "__wrapped__", held)
    if isinstance(held, list):
        return getattr(held, "_storage", held)
    return held


def _item_path(path: str, key: object) -> str:
    if isinstance(key, str):
        return f"{path}.{key}"
    return path


def _refill(held: Any, original: Any) -> None:
    held.clear()
    if hasattr(held, "update"):
        held.update(original)
    else:
        held.extend(original)


def _slots(cls: type) -> list[str]:
    import copyreg

    return list(copyreg._slotnames(cls) or ())  # type: ignore[attr-defined]
