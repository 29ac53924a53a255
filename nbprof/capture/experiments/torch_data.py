"""Experiments on data in memory: rows by the batch, on the device, and copies that do not wait."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

from nbprof.capture.experiments.edits import in_constructor, located, made_by_program, name_of
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import POSTFIXED, Edit, Located, Source
from nbprof.capture.experiments.torch_loader import Copied
from nbprof.capture.experiments.torch_settings import no_gpu
from nbprof.capture.patches import Patches
from nbprof.display import wording

_DEVICE = "cuda"
_SHARE = 0.25
"""Part of the free memory of the device that a dataset may take."""


class _Batches:
    """The items of a TensorDataset, a batch at a time.

    Parameters
    ----------
    dataset : TensorDataset or Subset
    device : str
        Where its tensors are copied to; '' leaves them where they are.
    """

    def __init__(self, dataset: Any, device: str) -> None:
        self._subsets = []
        while _is_subset(dataset):
            self._subsets.append(dataset.indices)
            dataset = dataset.dataset
        self._tensors = list(dataset.tensors)
        if device:
            self._tensors = [tensor.to(device) for tensor in self._tensors]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        for subset in self._subsets:
            indices = [subset[index] for index in indices]
        rows = sys.modules["torch"].as_tensor(indices)
        return [tensor.index_select(0, rows.to(tensor.device)) for tensor in self._tensors]


def _as_they_are(batch: Any) -> Any:
    return batch


def _in_batches(device: str, loader: Any) -> dict[str, Any]:
    """The attributes of a loader that takes whole batches, in this process."""
    return {
        "dataset": _Batches(loader.dataset, device),
        "collate_fn": _as_they_are,
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": loader.pin_memory and not device,
    }


def _is_subset(dataset: Any) -> bool:
    return type(dataset) is sys.modules["torch.utils.data"].Subset


def _not_tensors(loader: Any) -> str:
    data = sys.modules["torch.utils.data"]
    dataset = loader.dataset
    while _is_subset(dataset):
        dataset = dataset.dataset
    if type(dataset) is not data.TensorDataset:
        return "the dataset is no TensorDataset, whose items are known to be rows of tensors"
    if loader.batch_sampler is None or loader.collate_fn is not data.default_collate:
        return "the loader puts batches together in a way of its own"
    return ""


def _refusal(observation: Observation) -> str:
    if not observation.loaders:
        return "no DataLoader was read"
    reasons = [_not_tensors(loader) for loader in observation.loaders]
    return reasons[0] if all(reasons) else ""


def _not_on_device(observation: Observation) -> str:
    if why := no_gpu(observation) or _refusal(observation):
        return why
    free = sys.modules["torch"].cuda.mem_get_info()[0]
    for loader in observation.loaders:
        if not _not_tensors(loader):
            size = sum(tensor.nbytes for tensor in _Batches(loader.dataset, "")._tensors)
            if size > _SHARE * free:
                return f"a dataset has {wording.size(size)}, more than a quarter of the free memory"
    return ""


def _batches(observation: Observation) -> Change:
    return Copied(partial(_in_batches, ""), _not_tensors, observation)


def _on_device(observation: Observation) -> Change:
    return Copied(partial(_in_batches, _DEVICE), _not_tensors, observation)


class Ahead(Change):
    """Loaders pin their batches, and copies of them do not wait.

    Only copies from pinned memory to a GPU: one that does not wait in the other direction may be
    read before it is complete.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._pinned = Copied(lambda _: {"pin_memory": True}, _pins, observation)

    def apply(self, patches: Patches) -> None:  # noqa: D102
        self._pinned.apply(patches)
        torch = sys.modules["torch"]
        for name in _COPIES:
            _replace(torch.Tensor, name, patches)

    def close(self) -> None:  # noqa: D102
        self._pinned.close()


def _replace(owner: Any, name: str, patches: Patches) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A number of positional arguments may hold `non_blocking` already.
        if len(args) <= 1 and self.device.type == "cpu" and self.is_pinned():
            kwargs.setdefault("non_blocking", True)
        return original(self, *args, **kwargs)

    patches.replace(owner, name, copied)


def _pins(loader: Any) -> str:
    return "the loader pins its batches already" if loader.pin_memory else ""


def _not_pinned(observation: Observation) -> str:
    if why := no_gpu(observation):
        return why
    if not observation.loaders:
        return "no DataLoader was read"
    return ""


class _Rows(NamedTuple):
    """The variable of a dataset, and the change of the loader that reads it."""

    dataset: str
    edit: Edit


_COPIES = ("to", "cuda")
"""Methods of tensors that copy."""
_KEPT = frozenset({"pin_memory"})
_REPLACED = frozenset({
    "dataset", "batch_size", "shuffle", "drop_last", "num_workers", "persistent_workers",
    "prefetch_factor",
})  # fmt: skip


def _rows(source: Source, observed: Sequence[Observation], pins: bool) -> _Rows | None:
    """The only call that makes the only loader, and that of whole batches in its place.

    Parameters
    ----------
    source, observed
        See `nbprof.capture.experiments.edits.Find`.
    pins : bool
        It may pin its batches.
    """
    used = made_by_program(lambda observation: observation.loaders, observed)
    torch = source.name_of(sys.modules["torch"])
    if len(used) != 1 or _not_tensors(used[0]) or not torch:
        return None
    loader = used[0]
    kind = type(loader)
    calls = [call for call in source.calls() if source.value(call.func) is kind]
    order = type(loader.sampler).__name__
    if len(calls) != 1 or order not in ("RandomSampler", "SequentialSampler"):
        return None
    call = calls[0]
    given = {str(keyword.arg): keyword.value for keyword in call.keywords}
    dataset = call.args[0] if call.args else given.get("dataset")
    if not isinstance(dataset, ast.Name) or given.keys() - _REPLACED - _KEPT or len(call.args) > 3:
        return None
    data = f"{torch}.utils.data"
    sampler = (
        f"{data}.BatchSampler({data}.{order}({dataset.id}), {loader.batch_size},"
        f" drop_last={loader.drop_last})"
    )
    text = f"{dataset.id}, sampler={sampler}, batch_size=None"
    if pins:
        text += "".join(f", {name}={source.text_of(given[name])}" for name in _KEPT & given.keys())
    return _Rows(dataset.id, source.with_other_arguments(call, text))


def _batches_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    rows = _rows(source, observed, pins=True)
    return located(source, rows.edit) if rows is not None else None


def _on_device_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The same, and the only call that makes the dataset, of tensors on the device."""
    rows = _rows(source, observed, pins=False)
    statement = source.assignment(rows.dataset) if rows is not None else None
    if rows is None or statement is None or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    kind = sys.modules["torch.utils.data"].TensorDataset
    if source.value(call.func) is not kind or not call.args or call.keywords:
        return None
    if not all(isinstance(each, POSTFIXED) for each in call.args):
        return None
    reads = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == rows.dataset
    ]
    if len(reads) != 2:
        # Besides its own statement and the loader, something uses its tensors where they are.
        return None
    tensors = ", ".join(f'{source.text_of(each)}.to("{_DEVICE}")' for each in call.args)
    return located(source, source.with_other_arguments(call, tensors), rows.edit)


_pinned_in_source = in_constructor(lambda observation: observation.loaders, {"pin_memory": "True"})


def _ahead_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The call that makes the only loader, and the copies of what it gives in its loops."""
    pinned = _pinned_in_source(source, observed)
    name = name_of(observed, observed[0].loaders[0])
    if pinned is None or not name:
        return None
    copies: list[Edit | None] = []
    for loop in ast.walk(source.tree):
        if isinstance(loop, ast.For) and _reads(loop, name):
            targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
            copies += [
                source.with_arguments(call, {"non_blocking": "True"}, _copy)
                for call in _copies(loop, targets)
            ]
    return located(source, *pinned.edits, *copies) if copies else None


def _reads(loop: ast.For, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(loop.iter))


def _copies(loop: ast.For, variables: set[str]) -> list[ast.Call]:
    """The calls in statements like ``x = x.to(device)``, of variables that no other one sets.

    A copy back to the CPU that does not wait might be read before it is complete.
    """
    sets = [
        each.id
        for statement in loop.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    calls = []
    for statement in loop.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        (target, *rest) = statement.targets
        call = statement.value
        if not isinstance(target, ast.Name) or rest or sets.count(target.id) != 1:
            continue
        if target.id in variables and _is_copy_of(target.id, call):
            calls.append(call)
    return calls


def _is_copy_of(variable: str, call: ast.Call) -> bool:
    """Return whether a call copies a variable, by one argument or none, and not to the CPU."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _COPIES:
        return False
    if not isinstance(function.value, ast.Name) or function.value.id != variable:
        return False
    to_cpu = any(isinstance(each, ast.Constant) and each.value == "cpu" for each in call.args)
    return len(call.args) <= 1 and not to_cpu


def _copy(tensor: Any, device: Any = None) -> None:
    """The signature of a copy."""


EXPERIMENTS = (
    Experiment(
        "tensors_in_batches",
        "rows of a TensorDataset taken a batch at a time",
        "torch",
        ("loader_in_process", "loader_workers"),
        _refusal,
        _batches,
        "- DataLoader(dataset, batch_size, shuffle=True)\n"
        "+ order = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)\n"
        "+ DataLoader(dataset, sampler=order, batch_size=None)",
        touches=("loader",),
        edit=_batches_in_source,
    ),
    Experiment(
        "tensors_on_device",
        "a TensorDataset in the memory of the GPU",
        "torch",
        ("pinned_memory", "copies_exposed", "loader_in_process", "loader_workers"),
        _not_on_device,
        _on_device,
        "- dataset = TensorDataset(x, y)\n"
        "+ dataset = TensorDataset(x.cuda(), y.cuda())\n"
        "+ order = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)\n"
        "+ DataLoader(dataset, sampler=order, batch_size=None)",
        touches=("loader",),
        edit=_on_device_in_source,
    ),
    Experiment(
        "asynchronous_copies",
        "pinned memory, and copies that do not wait",
        "torch",
        ("pinned_memory", "copies_exposed"),
        _not_pinned,
        Ahead,
        "- DataLoader(...)\n+ DataLoader(..., pin_memory=True)\n"
        "- x = x.to(device)\n+ x = x.to(device, non_blocking=True)",
        touches=("loader",),
        edit=_ahead_in_source,
    ),
)
