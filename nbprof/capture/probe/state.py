"""Keeps the state that a cell can change, so that it can run once more and leave no trace.

Models, optimizers and arrays stay the objects they are, because compiled functions, callbacks and
optimizers hold references to them (a `tf.function` trains the variables that it was traced with,
whatever a name holds later). So their values are copied before the second run, which works on the
objects themselves, and the copies are written back. Where a value cannot be written back, because
it is immutable and may be used up (arrays of JAX that a function donates), it is the other way
round: the second run gets the copy. Variables of the notebook are rebound.
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
"""Of the free memory, what copies may take."""
MOST_OBJECTS = 1_000_000

_HEAP_TYPE = 1 << 9
_LIBRARIES = {
    *(
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
    )
}
"""Their own objects hold caches and settings; those with state that training changes are each dealt
with below.
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
_INSTALLED = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)


class _NoRoomError(Exception):
    """A copy would take too much memory."""


class State:
    """What the functions and objects that a cell uses can change.

    Parameters
    ----------
    namespace : dict
        The variables of the notebook.
    names : iterable of str
        Those that the cell reads.

    Attributes
    ----------
    uncopied : list of str
        What cannot be put back, with the reason.
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
            known = set(names)
            self._globals(namespace, everything(namespace) if known & BY_TEXT else known, "")
            while self._waiting:
                self._visit(*self._waiting.popleft())
                if len(self._seen) > MOST_OBJECTS:
                    self.uncopied.append(f"more than {MOST_OBJECTS:,} objects")
                    break
        except BaseException:
            self.restore()
            raise

    def restore(self) -> list[str]:
        """Put everything back; returns what failed."""
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
        kept = dict(namespace)

        def rebind() -> None:
            for name in namespace.keys() - kept.keys():
                del namespace[name]
            for name, value in kept.items():
                if name not in namespace or namespace[name] is not value:
                    namespace[name] = value

        self._undo.append(rebind)

    def _globals(self, namespace: dict[str, Any], names: set[str], within: str) -> None:
        """What those of the names hold that are there; a module of the user's own is looked into by
        the same names.
        """
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
            if (copy := self._substitute(value)) is not value:
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
        # Not of `__module__`, which a wrapper takes from what it wraps.
        module = str(function.__globals__.get("__name__"))
        if own_module(module):
            namespace, code = function.__globals__, function.__code__
            names = everything(namespace) if reads_by_text(code) else names_in(code)
            self._globals(namespace, names, "" if module == "__main__" else module)
        if callable(inner := getattr(function, "__wrapped__", None)):
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
        kept = dict(vars(cls))

        def put_back() -> None:
            for name in vars(cls).keys() - kept.keys():
                delattr(cls, name)
            for name, value in kept.items():
                if vars(cls).get(name) is not value:
                    setattr(cls, name, value)

        self._undo.append(put_back)
        for name, value in kept.items():
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
            elif not self._plain(value):
                self._refuse(path, value, "an open file" if isinstance(value, io.IOBase) else "")
                return
        if not isinstance(value, (FunctionType, type)):
            self._attributes(value, path)
            self._waiting.append((cls, cls.__name__))

    def _of_library(self, value: Any, path: str) -> bool:
        """Whether it is of a framework, or a function that one has compiled."""
        if callable(value):
            for attribute in ("__wrapped__", "python_function", "func"):
                if callable(inner := getattr(value, attribute, None)):
                    self._waiting.append((inner, path))
        if type(value).__module__ == "functools":
            self._waiting.extend(
                (part, path)
                for part in (getattr(value, "args", None), getattr(value, "keywords", None))
            )
            return True
        return (
            self._array(value)
            or self._generator(value)
            or self._torch(value, path)
            or self._keras(value, path)
            or self._rest(value)
        )

    def _rest(self, value: Any) -> bool:
        """What has no state that can be changed, as far as is known."""
        cls = type(value)
        kept = any(self._is(value, module, name) for module, name in _WALKED)
        if cls.__module__.partition(".")[0] in _LIBRARIES:
            return not kept
        # A type of C with a hash of its own is a value, as a date or a pattern is.
        by_value: Any = cls.__hash__
        return not self._plain(value) and by_value not in (None, object.__hash__)

    @staticmethod
    def _plain(value: Any) -> bool:
        """Whether all that it holds is in its attributes."""
        cls = type(value)
        return _base_of_c(cls) is object and (hasattr(value, "__dict__") or bool(_slots(cls)))

    @staticmethod
    def _is(value: Any, module: str, name: str) -> bool:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return isinstance(found, type) and isinstance(value, found)

    def _refuse(self, path: str, value: Any, why: str) -> None:
        self.uncopied.append(f"{path} ({why or type(value).__name__})")

    def _attributes(self, value: Any, path: str) -> None:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            self._mapping(held, path)
        for name in _slots(type(value)):
            with suppress(AttributeError):
                kept = getattr(value, name)
                self._undo.append(
                    lambda name=name, kept=kept: object.__setattr__(value, name, kept)
                )  # type: ignore[misc]
                if (copy := self._substitute(kept)) is not kept:
                    object.__setattr__(value, name, copy)
                self._waiting.append((kept, f"{path}.{name}"))

    def _mapping(self, held: dict[Any, Any], path: str) -> None:
        kept = dict(held)
        self._undo.append(lambda: (dict.clear(held), dict.update(held, kept)))
        for key, value in kept.items():
            if (copy := self._substitute(value)) is not value:
                dict.__setitem__(held, key, copy)
            self._waiting.append((value, f"{path}.{key}" if isinstance(key, str) else path))

    def _dict(self, held: dict[Any, Any], path: str) -> None:
        if not isinstance(held, OrderedDict):
            self._mapping(held, path)
            return
        # It keeps its order apart from the dict.
        kept = list(held.items())
        self._undo.append(lambda: _refill(held, kept))
        for key, value in kept:
            if (copy := self._substitute(value)) is not value:
                held[key] = copy
            self._waiting.append((value, f"{path}.{key}" if isinstance(key, str) else path))

    def _sequence(self, held: Any, path: str) -> None:
        kept = list(held)
        if isinstance(held, list):
            self._undo.append(lambda: list.__setitem__(held, slice(None), kept))
        else:
            self._undo.append(lambda: _refill(held, kept))
        for at, value in enumerate(kept):
            if (copy := self._substitute(value)) is not value:
                held[at] = copy
            self._waiting.append((value, path))

    def _set(self, held: set[Any], path: str) -> None:
        kept = set(held)
        self._undo.append(lambda: (set.clear(held), set.update(held, kept)))
        self._waiting.extend((value, path) for value in kept)

    # What only frameworks have.

    def _room(self, size: int) -> None:
        if size > self._left:
            raise _NoRoomError
        self._left -= size

    def _array(self, value: Any) -> bool:
        if self._is(value, "numpy", "ndarray"):
            if value.flags.writeable:
                self._room(value.nbytes)
                kept = value.copy()
                self._undo.append(lambda: value.__setitem__(..., kept))
            return True
        if self._is(value, "pandas", "DataFrame") or self._is(value, "pandas", "Series"):
            self._room(int(value.memory_usage().sum()))
            frame = value.copy()
            self._undo.append(lambda: value._update_inplace(frame))
            return True
        return False

    def _generator(self, value: Any) -> bool:
        """A random number generator of the user's own."""
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
        """A copy of arrays of JAX, also in tuples: a function may donate them, and then they are
        gone.
        """
        if type(value) is not tuple and isinstance(value, tuple) and not hasattr(value, "_make"):
            return value
        if isinstance(value, tuple):
            parts = [self._substitute(part) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
        if (
            not self._is(value, "jax", "Array")
            or not hasattr(value, "is_deleted")
            or value.is_deleted()
        ):
            return value
        if id(value) not in self._copies:
            self._seen[id(value)] = value
            self._room(getattr(value, "nbytes", 0))
            copy = self._copies[id(value)] = value.copy()
            self._copies[id(copy)] = copy
        return self._copies[id(value)]

    def _torch(self, value: Any, path: str) -> bool:
        if self._is(value, "torch.utils.data", "DataLoader"):
            # What it reads is only read.
            self._waiting.append((value.generator, path))
            return True
        if self._is(value, "torch.utils.data", "Dataset"):
            return True
        if self._is(value, "torch.nn", "Module"):
            # A scripted module does not keep them in its attributes.
            self._waiting.extend(
                (tensor, path) for tensor in (*value.parameters(), *value.buffers())
            )
        if not self._is(value, "torch", "Tensor"):
            return False
        self._room(value.element_size() * value.nelement())
        torch = sys.modules["torch"]
        alias, gradient = value.detach(), value.grad if value.is_leaf else None
        # In main memory: that of a device may have no room for a second copy.
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
            if not (
                value.dtype.is_numpy_compatible and value.dtype.name not in ("resource", "variant")
            ):
                raise TypeError(f"a variable of {value.dtype.name}")
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
            parts += [layer for layer in value._flatten_layers() if layer is not value]
            parts += [
                part
                for part in (getattr(value, "optimizer", None), *getattr(value, "metrics", ()))
                if part is not None
            ]
        for part in parts:
            if part is not value and id(part) in self._seen:
                continue
            self._seen[id(part)] = part
            self._shallow(part)
            self._keras_variables(part.variables if hasattr(part, "variables") else [part.state])
        self._waiting.append((type(value), path))
        return True

    def _shallow(self, value: Any) -> None:
        """The attributes of an object of Keras, and the containers among them; what Keras keeps in
        those is dealt with one by one.
        """
        held = vars(value)
        kept = dict(held)
        for part in map(_unwrapped, kept.values()):
            if isinstance(part, dict):
                self._undo.append(lambda d=part, k=dict(part): (dict.clear(d), dict.update(d, k)))  # type: ignore[misc]
            elif isinstance(part, list):
                self._undo.append(lambda d=part, k=list(part): list.__setitem__(d, slice(None), k))  # type: ignore[misc]
            elif isinstance(part, set):
                self._undo.append(lambda d=part, k=set(part): (set.clear(d), set.update(d, k)))  # type: ignore[misc]
        self._undo.append(lambda: (held.clear(), held.update(kept)))

    def _keras_variables(self, variables: Iterable[Any]) -> None:
        for variable in variables:
            if id(variable) not in self._copies:
                self._copies[id(variable)] = self._seen[id(variable)] = variable
                self._assigned(variable, sys.modules["keras"].ops.convert_to_numpy(variable))

    def _assigned(self, variable: Any, value: Any) -> None:
        self._room(value.nbytes)
        kept = value.copy()
        self._undo.append(lambda: variable.assign(kept))

    def _random(self) -> None:
        """The random number generators that everything shares."""
        state = random.getstate()
        self._undo.append(lambda: random.setstate(state))
        if (numpy := sys.modules.get("numpy")) is not None:
            of_numpy = numpy.random.get_state()
            self._undo.append(lambda: numpy.random.set_state(of_numpy))
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
            of_torch = torch.get_rng_state()
            self._undo.append(lambda: torch.set_rng_state(of_torch))
            if torch.cuda.is_initialized():
                of_cuda = torch.cuda.get_rng_state_all()
                self._undo.append(lambda: torch.cuda.set_rng_state_all(of_cuda))
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "context", None)
        generator = getattr(context(), "_rng", None) if context is not None else None
        if generator is not None:
            of_ops = generator.getstate()
            self._undo.append(lambda: generator.setstate(of_ops))
        shared = getattr(
            sys.modules.get("keras.src.backend.common.global_state"), "get_global_attribute", None
        )
        seeds = shared("global_seed_generator") if shared is not None else None
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
    """Whether a module is the notebook, or of the user's own files."""
    module = sys.modules.get(name or "")
    if name == "__main__" or module is None:
        return name == "__main__"
    file = getattr(module, "__file__", None) or ""
    return (
        bool(file)
        and not file.startswith(_INSTALLED)
        and str(name).partition(".")[0] not in _LIBRARIES
    )


def _base_of_c(cls: type) -> type:
    """The class that an object is laid out by: `object`, where all classes are written in Python
    (as `copyreg` finds it).
    """
    for base in cls.__mro__:
        new = base.__new__
        if not base.__flags__ & _HEAP_TYPE or (
            isinstance(new, _BUILTIN_NEW) and getattr(new, "__self__", None) is base
        ):
            return base
    return object


def _unwrapped(held: Any) -> Any:
    """The container in a wrapper of TensorFlow, which tracks what is put into it."""
    return (
        getattr(held, "__wrapped__", held)
        if isinstance(held, dict)
        else getattr(held, "_storage", held)
        if isinstance(held, list)
        else held
    )


def _refill(held: Any, kept: Any) -> None:
    held.clear()
    (held.update if hasattr(held, "update") else held.extend)(kept)


def _slots(cls: type) -> list[str]:
    import copyreg

    return list(copyreg._slotnames(cls) or ())  # type: ignore[attr-defined]
