"""The declaration of frames: computed once, guarded, cached, and combined over hosts."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.core.guard import Failures, FrameError
from nbprof.run.cache.run_cache import RunCache
from nbprof.run.combine import below
from nbprof.run.frame import (
    FRAMES,
    Frames,
    Group,
    Memo,
    Phase,
    cached,
    combined_frames,
    frame,
)
from nbprof.run.source import RunSource


class Stored(RunCache):
    """A cache that remembers what it was asked to store."""

    def __init__(self) -> None:
        super().__init__([])
        self.names = []

    def value(self, name, compute, sound=lambda: True):
        value = compute()
        if sound():
            self.names.append(name)
        return value


class Hosts:
    """Two hosts, the clock of the second 5 ms late."""

    def __init__(self):
        self.groups = [["a"], ["b"]]
        self.clock_offsets_ms = [0.0, 5.0]
        self.phases = []

    def values(self, name):
        frames = {"_test_rows": [1.0, 2.0], "_test_group_rows": [3.0, 4.0]}
        return [pd.DataFrame({"start_ms": [value]}) for value in frames[name]]

    def reading(self, phase):
        self.phases.append(phase)
        return self


@pytest.fixture
def family():
    """A family of frames, with a group, that is declared for one test."""
    before = dict(FRAMES)

    class TestGroup(Group["TestFrames"]):
        prefix = "_test_group"

        @frame(combine=below("start_ms"), phase=Phase.REST)
        def _rows(self) -> pd.DataFrame:
            return pd.DataFrame({"start_ms": [self.run.count]})

    class TestFrames(Frames):
        def __init__(self, parts=None) -> None:
            self.stored = Stored()
            source = RunSource("", "", "", None, "", analysed_s=0.0)
            self.memo = Memo(source, self.stored, Failures(lambda _: None))
            self.parts = parts
            self.computed = 0

        @frame(combine=below("start_ms"))
        def _test_rows(self) -> pd.DataFrame:
            self.computed += 1
            return pd.DataFrame({"start_ms": [0.0]})

        @cached
        def count(self) -> int:
            self.computed += 1
            return len(self._test_rows)

        @frame
        def broken(self) -> int:
            return 1 // 0

        @property
        def group(self) -> TestGroup:
            return TestGroup(self)

    yield TestFrames
    FRAMES.clear()
    FRAMES.update(before)


def test_a_frame_is_computed_once_and_stored_if_it_follows_from_the_files(family):
    run = family()
    assert (run.count, run.count, len(run._test_rows)) == (1, 1, 1)
    assert run.computed == 2
    assert run.stored.names == ["_test_rows"]


@pytest.mark.parts_fail
def test_a_frame_that_fails_is_named_and_nothing_is_stored_of_it(family):
    run = family()
    with pytest.raises(FrameError, match="The part broken of the analysis could not be computed"):
        _ = run.broken
    assert run.stored.names == []


def test_hosts_compute_what_is_declared_with_combine_in_their_phase(family):
    first, rest = combined_frames("first"), combined_frames(Phase.REST.value)
    assert "_test_rows" in first
    assert "_test_group_rows" in rest
    assert not {"count", "broken"} & {*first, *rest}
    run = family()
    # A worker reads a frame of a group by its name alone.
    assert rest["_test_group_rows"].of_run(run)["start_ms"].tolist() == [1]
    assert run.group._rows is rest["_test_group_rows"].of_run(run)


def test_a_run_of_hosts_combines_their_frames_and_computes_none(family):
    hosts = Hosts()
    run = family(hosts)
    assert run._test_rows["start_ms"].tolist() == [1.0, 7.0]
    assert run.group._rows["start_ms"].tolist() == [3.0, 9.0]
    assert hosts.phases == [Phase.FIRST, Phase.REST]
    assert run.computed == 0
    assert run.stored.names == ["_test_rows", "_test_group_rows"]


def test_a_frame_without_combine_is_not_combined(family):
    with pytest.raises(TypeError, match="the frame count is not combined over hosts"):
        FRAMES["count"].of_hosts(Hosts())
