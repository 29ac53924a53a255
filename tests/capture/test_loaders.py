"""Which loaders a recording names, with which arguments, and that none is kept."""

from __future__ import annotations

import gc
import sys
import time
import weakref

import pytest

import nbprof
from nbprof.capture.loaders import Clocks, Loaders
from nbprof.capture.patches import Patches
from nbprof.core.loader_uses import DATA_LOADER, ITERABLE, PY_DATASET, TF_DATA, LoaderUse, unpacked

torch = pytest.importorskip("torch")


class Numbers(torch.utils.data.Dataset):
    """Whose items take some time of a core."""

    def __init__(self, count=12, spin_s=0.0):
        self.count, self.spin_s = count, spin_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        end = time.thread_time() + self.spin_s
        while time.thread_time() < end:
            pass
        return torch.tensor([float(index)])


@pytest.fixture
def loaders():
    patches, found = Patches(), Loaders()
    found.hook(patches)
    yield found
    patches.restore()


def arguments(use):
    return (
        use.workers,
        use.prefetch,
        use.pin_memory,
        use.persistent_workers,
        use.batch_size,
        use.shuffle,
        use.iterations,
    )


def test_arguments_are_those_of_the_loader(loaders):
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, shuffle=True)
    for _ in range(2):
        assert sum(len(batch) for batch in loader) == 12
    (use,) = loaders.taken()
    assert (use.kind, use.dataset) == (DATA_LOADER, "Numbers")
    assert arguments(use) == (0, None, False, False, 4, True, 2)


def test_workers_that_stay_are_iterated_over_again(loaders):
    options = {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 3}
    loader = torch.utils.data.DataLoader(Numbers(4), batch_size=2, **options)
    for _ in range(2):
        assert len(list(loader)) == 2
    (use,) = loaders.taken()
    assert arguments(use) == (1, 3, False, True, 2, False, 2)


def test_no_loader_is_kept_alive(loaders):
    loader = torch.utils.data.DataLoader(Numbers())
    seen = weakref.ref(loader)
    iterator = iter(loader)
    next(iterator)
    loaders.gave(iterator, (0.0, 0.0))
    del loader, iterator
    gc.collect()
    assert seen() is None
    assert len(loaders.taken()) == 1


def test_code_of_a_subclass_does_not_run():
    class Odd(torch.utils.data.DataLoader):
        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    asked = []
    loader = Odd(Numbers(), batch_size=3)
    asked.clear()
    list(loader)
    without = list(asked)
    patches, found = Patches(), Loaders()
    found.hook(patches)
    asked.clear()
    list(loader)
    patches.restore()
    assert found.taken()[0].batch_size == 3
    assert asked == without


def test_what_fails_leaves_the_loop_alone(loaders):
    class Slots:
        __slots__ = ()

    loaders.iterates(Slots(), lambda: 1 / 0)
    loaders.gave(Slots(), Clocks(0.0, 0.0, 0.0))
    assert loaders.taken() == []


@pytest.mark.parametrize(("workers", "cpu_s"), [(2, 1.8), (0, 0.9)])
def test_time_is_that_of_all_but_the_first_batch_of_an_iteration(workers, cpu_s):
    """A batch that the loop's thread makes takes the CPU time of this thread: others spin on the
    cores meanwhile.
    """
    clock = iter([10.0, 12.0, 15.0, 40.0, 41.0])
    cpu = iter([0.0, 2.0, 2.5, 9.0, 9.0])
    thread = iter([0.0, 1.0, 1.2, 4.0, 4.0])
    found = Loaders(lambda: next(clock), lambda: next(cpu), lambda: next(thread))

    class Iterator:
        pass

    iterator = Iterator()
    found.iterates(iterator, lambda: LoaderUse(DATA_LOADER, workers=workers))
    found.gave(iterator, Clocks(4.0, 0.0, 0.0))
    found.gave(iterator, Clocks(11.0, 0.5, 0.2))
    found.gave(iterator, Clocks(13.0, 2.2, 1.1))
    (use,) = found.taken()
    assert (use.batches, use.wait_s, use.rest_s) == (2, 3.0, 2.0)
    assert (use.wait_cpu_s, use.rest_cpu_s) == pytest.approx((cpu_s, 0.7))
    assert (use.wait_cores, use.rest_cores) == pytest.approx((cpu_s / 3, 0.35))
    found.begin()
    found.gave(iterator, Clocks(39.0, 9.0, 4.0))
    assert found.taken() == [], "the gap between two windows is no rest of a step"


def test_items_of_nbprof_steps_take_the_cpu_time_of_the_thread_that_makes_them():
    def cell():
        for wall, process, thread in [(10, 0, 0), (14, 2, 1)]:
            clocks.append((wall, process, thread))
            found.steps_gave(Clocks(wall - 3.0, process - 0.5, thread - 0.25))

    clocks = []
    found = Loaders(*(lambda i=i: float(clocks[-1][i]) for i in range(3)))
    cell()
    (use,) = found.taken()
    assert (use.kind, use.batches, use.wait_s, use.rest_s) == (ITERABLE, 1, 3.0, 1.0)
    assert (use.wait_cpu_s, use.rest_cpu_s) == (0.25, 1.5)
    found.begin()
    assert found.taken() == []


def test_a_recording_names_its_loader_and_what_it_used(record):
    def cell():
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in torch.utils.data.DataLoader(Numbers(24, 0.002), batch_size=2):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    before = {
        name: vars(torch.utils.data.dataloader._BaseDataLoaderIter)[name]
        for name in ("__init__", "_reset", "__next__")
    }
    recording = record(cell, "import torch", backend="torch", save=False)
    (use,) = unpacked(recording.info.loaders)
    assert arguments(use) == (0, None, False, False, 2, False, 1)
    assert use.batches == 11
    # Items that spin take at least 4 ms of a core each; a core that others take makes the wait
    # longer, not the work.
    assert use.wait_cpu_s >= 0.9 * 11 * 0.004
    assert use.wait_s >= 0.9 * use.wait_cpu_s
    after = {name: vars(torch.utils.data.dataloader._BaseDataLoaderIter)[name] for name in before}
    assert after == before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_under_nbprof_steps_has_its_waits(record, workers):
    def read_on(loader):
        # A generator of the person's between the steps and the loader.
        yield from loader

    def cell():
        loader = torch.utils.data.DataLoader(Numbers(24, 0.002), 2, num_workers=workers)
        for batch in nbprof.steps(read_on(loader)):
            batch.sum()

    recording = record(cell, "import torch", backend="torch", save=False)
    (use,) = unpacked(recording.info.loaders)
    assert (use.kind, use.dataset, use.workers, use.batches) == (
        DATA_LOADER,
        "Numbers",
        workers,
        11,
    )
    assert use.wait_s > 0
    if not workers:
        assert use.wait_cpu_s >= 0.9 * 11 * 0.004


def test_an_iterator_from_before_the_recording_is_known_by_what_it_keeps(record):
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2)
    iterator = iter(loader)

    def cell():
        for _ in range(3):
            next(iterator)

    (use,) = unpacked(record(cell, "import torch", backend="torch", save=False).info.loaders)
    assert (use.dataset, use.workers, use.batch_size, use.batches) == ("Numbers", 0, None, 2)


@pytest.mark.skipif(
    "tensorflow" not in sys.modules
    and __import__("importlib.util").util.find_spec("tensorflow") is None,
    reason="TensorFlow",
)
def test_a_dataset_of_tensorflow_is_named_by_its_kind(record):
    import tensorflow as tf

    def cell():
        for _ in tf.data.Dataset.range(6):
            pass

    uses = unpacked(record(cell, backend="tensorflow", save=False).info.loaders)
    assert [(use.kind, use.batches) for use in uses] == [(TF_DATA, 5)]


def test_a_dataset_of_keras_is_named_with_its_workers():
    class Adapter:
        def __init__(self, x, class_weight=None, shuffle=False):
            self.x = x

    class Batches:
        def __init__(self):
            self._workers, self._use_multiprocessing, self._max_queue_size = 2, True, 20

    class Module:
        PyDatasetAdapter = Adapter

    patches, found = Patches(), Loaders()
    before = Adapter.__init__
    found.hook_keras(Module, patches)
    Adapter(Batches(), shuffle=True)
    patches.restore()
    assert found.taken() == [
        LoaderUse(PY_DATASET, "Batches", 2, 20, processes=True, shuffle=True, iterations=1)
    ]
    assert Adapter.__init__ is before
