"""Inputs that a probe takes out: as many batches, all the first one, from each kind of input; and
all is put back.
"""

from __future__ import annotations

import itertools
import time
from collections import UserDict

import pytest

import nbprof
from nbprof.capture.probe.inputs import Inputs


def inputs(patience_s=60.0, **names):
    return Inputs(
        patience_s, lambda value: next((name for name, held in names.items() if held is value), "")
    )


def numbers(tf, count, batch=2):
    return tf.data.Dataset.range(count).batch(batch)


def test_a_dataset_gives_its_first_batch_as_often_as_it_has_batches(tf):
    data = numbers(tf, 7)
    before = tf.data.Dataset.__iter__
    with inputs(data=data) as probe:
        assert [batch.numpy().tolist() for batch in data] == [[0, 1]] * 4
        assert [batch.tolist() for batch in data.as_numpy_iterator()] == [[0, 1]] * 4
    assert list(probe.replaced) == ["data (tf.data), 4 batches"]
    assert tf.data.Dataset.__iter__ is before
    assert [batch.numpy().tolist() for batch in data] == [[0, 1], [2, 3], [4, 5], [6]]


def test_the_element_spec_stays_as_it_was(tf):
    data = numbers(tf, 7)
    with inputs():
        assert iter(data).element_spec == data.element_spec


def test_a_dataset_that_does_not_know_its_length_is_counted(tf):
    data = numbers(tf, 40).filter(lambda batch: tf.reduce_all(batch > 7))
    assert data.cardinality() == tf.data.UNKNOWN_CARDINALITY
    with inputs() as probe:
        assert [batch.numpy().tolist() for batch in data] == [[8, 9]] * 16
    assert list(probe.replaced) == ["a dataset of tf.data, 16 batches"]


def test_an_endless_dataset_and_one_whose_end_does_not_come(tf):
    endless = numbers(tf, 4).repeat()

    def rows():
        yield from itertools.count()

    generated = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int64))
    with inputs(0.05, endless=endless, generated=generated) as probe:
        assert len(list(itertools.islice(endless, 10))) == 10
        assert {item.numpy() for item in itertools.islice(generated, 3)} == {0}
    first, second = probe.replaced
    assert first == "endless (tf.data), endless"
    assert second.startswith("generated (tf.data), ")


@pytest.mark.parametrize(("count", "left"), [(0, 0), (2, 1)])
def test_a_dataset_of_no_batch_or_one(tf, count, left):
    with inputs() as probe:
        assert len(list(numbers(tf, count))) == left
    assert probe.empty == ([] if left else ["a dataset of tf.data"])
    assert list(probe.replaced) == (["a dataset of tf.data, 1 batch"] if left else [])


def test_datasets_inside_fit_with_validation(tf, model):
    read = []

    def rows():
        for at in range(8):
            read.append(at)
            yield [[float(at)] * 4] * 8, [[1.0]] * 8

    shapes = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))
    data = tf.data.Dataset.from_generator(rows, output_signature=shapes).apply(
        tf.data.experimental.assert_cardinality(8)
    )
    validation = data.take(2)
    model.fit(data, validation_data=validation, epochs=2, verbose=0)
    read.clear()
    with inputs(data=data, validation=validation) as probe:
        model.fit(data, validation_data=validation, epochs=2, verbose=0)
    assert read == [0, 0]
    assert list(probe.replaced) == ["data (tf.data), 8 batches", "validation (tf.data), 2 batches"]


def test_the_first_batch_is_read_in_steps_that_are_told(tf):
    data, other = numbers(tf, 4), numbers(tf, 4)
    with inputs() as probe:
        for number in (1, 2, 3):
            probe.step = lambda number=number: number
            list(data)
            if number == 3:
                list(other)
    assert probe.prepared == {1, 3}


class Rows:
    """A dataset of PyTorch that counts what is read."""

    def __init__(self, torch, count=10):
        self.torch, self.count, self.read = torch, count, 0

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        self.read += 1
        return self.torch.full((3,), float(at)), at


def test_a_loader_gives_its_first_batch_as_often_as_it_has_batches(torch):
    rows = Rows(torch)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    before = torch.utils.data.DataLoader.__iter__
    with inputs(loader=loader) as probe:
        first = [at.tolist() for _, at in loader]
        again = [at.tolist() for _, at in loader]
        assert len(iter(loader)) == 3
    assert first == again == [[0, 1, 2, 3]] * 3
    assert rows.read == 4
    assert list(probe.replaced) == ["loader (DataLoader), 3 batches"]
    assert torch.utils.data.DataLoader.__iter__ is before
    assert [at.tolist() for _, at in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_loop_may_write_to_its_batches_and_take_things_out_of_them(torch):
    def collate(rows):
        return {
            "x": torch.stack([x for x, _ in rows]),
            "y": [torch.tensor([at for _, at in rows])],
            "more": UserDict(z=1),
        }

    loader = torch.utils.data.DataLoader(Rows(torch), batch_size=5, collate_fn=collate)
    with inputs():
        for batch in loader:
            assert batch.pop("y").pop().tolist() == [0, 1, 2, 3, 4]
            assert batch["more"].pop("z") == 1
            assert batch["x"].sum() == 30
            batch["x"].zero_()


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_are_ended_and_its_own_are_kept(torch, persistent):
    loader = torch.utils.data.DataLoader(
        Rows(torch), batch_size=5, num_workers=1, persistent_workers=persistent
    )
    list(loader)
    own = loader._iterator
    with inputs():
        assert [at.tolist() for _, at in loader] == [[0, 1, 2, 3, 4]] * 2
    assert loader._iterator is own
    assert [at.tolist() for _, at in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_loader_of_unknown_length_is_counted(torch):
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(7))

    with inputs() as probe:
        assert [
            batch.tolist() for batch in torch.utils.data.DataLoader(Endless(), batch_size=2)
        ] == [[0, 1]] * 4
    assert list(probe.replaced) == ["a DataLoader, 4 batches"]


def slow(count):
    for at in range(count):
        time.sleep(0.001)
        yield at, [at]


def test_the_items_of_steps():
    batches = slow(3)
    with inputs(batches=batches) as probe:
        assert list(nbprof.steps(batches)) == [(0, [0])] * 3
    assert list(probe.replaced) == ["batches (nbprof.steps), 3 batches"]
    assert list(nbprof.steps(slow(2))) == [(0, [0]), (1, [1])]


def test_what_counts_the_items_of_steps_goes_on_counting():
    with inputs():
        assert list(nbprof.steps(enumerate(slow(3), 5))) == [
            (5, (0, [0])),
            (6, (0, [0])),
            (7, (0, [0])),
        ]


@pytest.mark.parametrize("items", [range(3), [1, 2, 3], (1, 2, 3), "abc"])
def test_items_in_memory_are_left_as_they_are(items):
    with inputs() as probe:
        assert list(nbprof.steps(items)) == list(items)
    assert not probe.replaced


def test_steps_of_no_item():
    with inputs() as probe:
        assert list(nbprof.steps(slow(0))) == []
    assert probe.empty == ["the items of nbprof.steps"]


def test_steps_over_a_loader_or_a_dataset_replace_it_once(torch, tf):
    loader, data = torch.utils.data.DataLoader(Rows(torch), batch_size=5), numbers(tf, 4)
    with inputs(loader=loader, data=data) as probe:
        assert [at.tolist() for _, at in nbprof.steps(loader)] == [[0, 1, 2, 3, 4]] * 2
        assert [number for number, _ in nbprof.steps(enumerate(loader))] == [0, 1]
        assert [
            number for number, _ in nbprof.steps(zip(itertools.count(), data, strict=False))
        ] == [0, 1]
        assert len(list(nbprof.steps(data))) == 2
    assert list(probe.replaced) == ["loader (DataLoader), 2 batches", "data (tf.data), 2 batches"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_all_is_put_back_after_an_error(torch, tf, error):
    from nbprof.capture import steps

    places = (
        (tf.data.Dataset, "__iter__"),
        (torch.utils.data.DataLoader, "__iter__"),
        (steps, "input_of"),
    )
    before = [vars(owner).get(name) for owner, name in places]
    with pytest.raises(error), inputs():
        raise error
    assert [vars(owner).get(name) for owner, name in places] == before
