"""Python's garbage collector while nbprof imports and computes."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from nbprof.core.garbage import collection_paused, importing


class Cycle:
    """An object that only the collector frees."""

    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def _enabled():
    """The collector as it is outside of the test."""
    yield
    gc.enable()


@pytest.fixture
def unfrozen():
    """Nothing is frozen, as in most programs; the tests freeze what they import."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


@pytest.mark.parametrize("paused", [collection_paused, importing])
def test_nothing_is_collected_in_the_block_and_everything_after_it(paused):
    with paused():
        assert not gc.isenabled()
        dead = weakref.ref(Cycle())
        # As many objects as start a collection.
        _ = [[] for _ in range(3 * gc.get_threshold()[0])]
        assert dead() is not None
    assert gc.isenabled()
    gc.collect()
    until = time.monotonic() + 60
    while dead() is not None and time.monotonic() < until:
        # Another thread, which an earlier test may have left, collects: then a call does nothing.
        time.sleep(0.05)
        gc.collect()
    assert dead() is None


@pytest.mark.parametrize("paused", [collection_paused, importing])
def test_a_collector_that_was_off_stays_off(paused):
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("paused", [collection_paused, importing])
def test_the_collector_is_on_again_after_an_error(paused):
    with pytest.raises(ZeroDivisionError), paused():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.usefixtures("unfrozen")
def test_imported_objects_are_of_the_oldest_generation():
    with importing():
        imported = [[number] for number in range(5000)]
    oldest = {id(each) for each in gc.get_objects(generation=2)}
    assert all(id(each) in oldest for each in imported)
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("unfrozen")
def test_what_a_program_has_frozen_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with importing():
        pass
    assert gc.get_freeze_count() == frozen > 0
    gc.unfreeze()


def test_blocks_within_blocks_end_with_the_outer_one():
    with collection_paused():
        with importing():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
