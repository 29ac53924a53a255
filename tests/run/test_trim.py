"""Memory that was freed and that the C library keeps."""

from __future__ import annotations

import platform

import pytest

from nbprof.core import trim
from nbprof.profiles.load import load
from tests.support.xspace import training_run


def test_it_can_be_given_back_where_the_c_library_is_glibc():
    trim._trim.cache_clear()
    trim.give_back()
    assert (trim._trim() is not None) == (platform.libc_ver()[0] == "glibc")


def test_where_there_is_no_such_call_nothing_happens(monkeypatch):
    def absent(_name):
        raise OSError

    trim._trim.cache_clear()
    monkeypatch.setattr(trim.ctypes, "CDLL", absent)
    trim.give_back()
    assert trim._trim() is None
    trim._trim.cache_clear()


@pytest.mark.parametrize(("many", "times"), [(1, 2), (10**9, 0)])
def test_a_large_recording_gives_it_back_when_it_was_read_and_when_its_allocations_are_known(
    tmp_path, monkeypatch, many, times
):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(training_run(3))
    told = []
    monkeypatch.setattr(trim, "MANY_EVENTS", many)
    monkeypatch.setattr(trim, "give_back", lambda: told.append(1))
    load(path).payload()
    assert len(told) == times


@pytest.mark.parametrize(("many", "kept"), [(1, False), (10**9, True)])
def test_classified_spans_of_a_large_recording_are_kept_no_longer_than_its_output_needs_them(
    tmp_path, monkeypatch, many, kept
):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(training_run(3))
    monkeypatch.setattr(trim, "MANY_EVENTS", many)
    profile = load(path)
    profile.payload()
    assert ("work" in vars(profile.run.activity)) == kept
