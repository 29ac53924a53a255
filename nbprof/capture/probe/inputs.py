"""Replaces inputs (tf.data, DataLoader, `nbprof.steps`) by their first batch, repeated."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import wraps
from itertools import chain, repeat
from typing import Any

from nbprof.capture import steps
from nbprof.capture.patches import Patches
from nbprof.core.units import plural

_INFINITE = -1
"""The cardinality of an endless `tf.data.Dataset`; -2 is unknown."""
_UNNAMED = {
    "tf.data": "a dataset of tf.data",
    "DataLoader": "a DataLoader",
    "nbprof.steps": "the items of nbprof.steps",
}
_PASSES_ON = (enumerate, zip, map, filter)
"""What adds nothing of its own to an input that is replaced already."""


class Inputs:
    """While entered, each input gives its first batch as often as it would have given batches.

    The first batch is read, and an unknown number of batches is counted, when the loop begins: such
    a step is in `prepared`, since it still waits for input.

    Parameters
    ----------
    patience_s : float
        How long to count the batches of an input that does not know their number. The length of the
        recorded cell is enough: it also computed with each batch that it read.
    name_of : callable
        What an input is called in the cell; '' where it has no name.

    Attributes
    ----------
    replaced : dict of str to None
        What was replaced, in a few words each, in order.
    empty : list of str
        Inputs that gave no batch.
    prepared : set of int
        Steps in which a first batch was read.
    step : callable
        The number of the step that is running; to be set before it is entered.
    """

    def __init__(self, patience_s: float, name_of: Callable[[Any], str]) -> None:
        self.replaced: dict[str, None] = {}
        self.empty: list[str] = []
        self.prepared: set[int] = set()
        self._patience_s = patience_s
        self._name_of = name_of
        self.step: Callable[[], int] = lambda: 1
        self._patches = Patches()
        self._served = 0
        # With the input itself, so that no other one gets its address.
        self._ready: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> Inputs:
        try:
            self._hook_tf_data()
            self._hook_loaders()
            self._patches.replace(steps, "input_of", self._of_steps)
        except BaseException:
            self._patches.restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.restore()
        self._ready.clear()

    def _hook_tf_data(self) -> None:
        dataset = getattr(
            sys.modules.get("tensorflow.python.data.ops.dataset_ops"), "DatasetV2", None
        )
        iterator = getattr(
            sys.modules.get("tensorflow.python.data.ops.iterator_ops"), "OwnedIterator", None
        )
        if dataset is None or iterator is None:
            return
        original, following = dataset.__iter__, iterator.__next__

        @wraps(original)
        def iterate(self_: Any) -> Any:
            __tracebackhide__ = True
            if not sys.modules["tensorflow"].executing_eagerly():
                return original(self_)
            return original(self._once(self_, lambda: self._repeated_dataset(self_, original)))

        @wraps(following)
        def serve(self_: Any) -> Any:
            __tracebackhide__ = True
            self._served += 1
            return following(self_)

        self._patches.replace(dataset, "__iter__", iterate)
        self._patches.replace(iterator, "__next__", serve)

    def _repeated_dataset(self, dataset: Any, iterate: Callable[[Any], Iterator[Any]]) -> Any:
        # Of the same element spec, so that nothing is compiled for other shapes than in the
        # recorded run.
        first = dataset.take(1).cache()
        if not sum(1 for _ in iterate(first)):
            self._note("tf.data", dataset, 0)
            return first
        number = int(dataset.cardinality())
        if number == _INFINITE:
            self._note("tf.data", dataset, None)
            return first.repeat(number)
        if number < _INFINITE:
            # It is not known.
            number = self._count(iterate(dataset))
        number = max(number, 1)
        self._note("tf.data", dataset, number)
        return first.repeat(number)

    def _hook_loaders(self) -> None:
        loader = getattr(sys.modules.get("torch.utils.data.dataloader"), "DataLoader", None)
        if loader is None:
            return

        @wraps(loader.__iter__)
        def iterate(self_: Any) -> Any:
            __tracebackhide__ = True
            batch, number = self._once(self_, lambda: self._first_of_loader(self_))
            return _Repeated(self, batch, number)

        self._patches.replace(loader, "__iter__", iterate)

    def _first_of_loader(self, loader: Any) -> tuple[Any, int]:
        # A separate iterator, so that that of persistent workers is unchanged.
        iterator = loader._get_iterator()
        try:
            return self._first("DataLoader", loader, iterator)
        finally:
            if hasattr(iterator, "_shutdown_workers"):
                iterator._shutdown_workers()

    def _of_steps(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """The iterable in place of that of `nbprof.steps`."""
        iterator = iter(iterable)
        of_tensorflow = type(iterator).__module__.startswith("tensorflow.")
        in_memory = isinstance(iterable, Sequence) or hasattr(iterable, "__array__")
        if isinstance(iterator, _Repeated) or of_tensorflow or in_memory:
            return iterator
        return self._rest(iterable, iterator)

    def _rest(self, iterable: Any, iterator: Iterator[Any]) -> Iterator[Any]:
        served = self._served
        for item in iterator:
            if self._served > served and isinstance(iterable, _PASSES_ON):
                yield item
                yield from iterator
                return
            iterator = chain([item], iterator)
            break
        item, number = self._first("nbprof.steps", iterable, iterator)
        if isinstance(iterable, enumerate) and number:
            for index in range(number):
                yield item[0] + index, item[1]
        else:
            yield from _Repeated(self, item, number)

    def _first(self, kind: str, source: Any, iterator: Iterator[Any]) -> tuple[Any, int]:
        """The first item, and how many there are."""
        self.prepared.add(self.step())
        for item in iterator:
            try:
                number = len(source)
            except (TypeError, NotImplementedError):
                number = 1 + self._count(iterator)
            self._note(kind, source, number)
            return item, number
        self._note(kind, source, 0)
        return None, 0

    def _count(self, iterator: Iterator[Any]) -> int:
        until = time.perf_counter() + self._patience_s
        number = 0
        for _ in iterator:
            number += 1
            if time.perf_counter() > until:
                break
        return number

    def _once(self, source: Any, make: Callable[[], Any]) -> Any:
        if id(source) not in self._ready:
            self.prepared.add(self.step())
            self._ready[id(source)] = source, make()
        return self._ready[id(source)][1]

    def _note(self, kind: str, source: Any, number: int | None) -> None:
        name = self._name_of(source)
        called = _UNNAMED[kind]
        if name:
            called = f"{name} ({kind})"
        if number == 0:
            self.empty.append(called)
        else:
            batches = "endless"
            if number is not None:
                batches = plural(number, "batch", "batches")
            self.replaced[f"{called}, {batches}"] = None

    def serve(self) -> None:
        """A batch of a replaced input was taken."""
        self._served += 1


class _Repeated:
    """The same batch, so many times.

    Its containers are copied each time, for a loop may take things out of them; a tensor only once
    the loop has written to it.
    """

    def __init__(self, inputs: Inputs, item: Any, number: int) -> None:
        self._inputs = inputs
        self._left = repeat(item, number)
        self._length = number
        self._pristine: dict[int, tuple[int, Any]] = {}
        self._keep(item)

    def __iter__(self) -> _Repeated:
        return self

    def __len__(self) -> int:
        return self._length

    def __next__(self) -> Any:
        item = next(self._left)
        self._inputs.serve()
        return self._fresh(item)

    def _keep(self, item: Any) -> None:
        for part in _parts(item):
            self._keep(part)
        if hasattr(item, "is_inference") and not item.is_inference():
            self._pristine[id(item)] = item._version, item.detach().clone()

    def _fresh(self, item: Any) -> Any:
        if type(item) is dict:
            return {key: self._fresh(value) for key, value in item.items()}
        if type(item) in (list, tuple):
            return type(item)(self._fresh(value) for value in item)
        if isinstance(item, Mapping):
            return copy(item)
        version, pristine = self._pristine.get(id(item), (0, None))
        if pristine is not None and item._version != version:
            return pristine.clone()
        return item


def _parts(item: Any) -> Iterable[Any]:
    parts: Iterable[Any] = ()
    if type(item) is dict:
        parts = item.values()
    elif type(item) in (list, tuple):
        parts = item
    return parts
