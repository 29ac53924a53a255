"""Whoever writes an entry decides what is said of a profile: only what this user alone could have
written is read.
"""

from __future__ import annotations

import os
import signal

import pytest

from nbprof.profiles import redaction
from nbprof.profiles.load import load
from nbprof.run.cache.stored import StoredTrace
from tests.cache.conftest import written
from tests.cache.test_trouble import check, parts, path, truth  # noqa: F401

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")

STRANGER = 54321


@pytest.fixture
def stored(cache, path):  # noqa: F811
    """A profile that is in the cache."""
    load(path).payload()
    written()
    assert parts(cache)
    cache.note("p", {"a": 1})
    return cache


class Waits(BaseException):
    """It waits for somebody who writes into the FIFO. The cache takes any lesser error for a reason
    to do without.
    """


@pytest.fixture
def waits_for_nothing():
    """Makes what would wait for ever an error."""

    def ends(*_):
        raise Waits

    before = signal.signal(signal.SIGALRM, ends)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def opens_without_it(path, truth):  # noqa: F811
    assert not isinstance(check(path, truth).run.trace, StoredTrace)


def everything(cache):
    return [cache.path, *cache.path.rglob("*")]


def some(cache, which):
    found = [cache.path] if which == "." else list(cache.path.glob(which))
    assert found
    return found


def test_what_is_ones_own_is_used(stored, path, truth):  # noqa: F811
    assert isinstance(check(path, truth).run.trace, StoredTrace)


def test_a_fifo_is_not_waited_for(stored, path, truth, waits_for_nothing):  # noqa: F811
    assert stored.noted("p") == {"a": 1}
    for file in [*parts(stored), *stored.path.glob("places/*")]:
        file.unlink()
        os.mkfifo(file)
    check(path, truth)
    assert stored.noted("p") is None


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)
@pytest.mark.parametrize("which", ["entries/*/*.part", "entries", "entries/*", "places", "."])
def test_what_belongs_to_somebody_else_is_not_used_by_root_either(stored, path, truth, which):  # noqa: F811
    for file in some(stored, which):
        os.chown(file, STRANGER, STRANGER)
    opens_without_it(path, truth)


def test_what_belongs_to_somebody_else_is_not_used(stored, path, truth, monkeypatch):  # noqa: F811
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert not stored.owned()
    opens_without_it(path, truth)


@pytest.mark.parametrize("which", ["entries/*/*.part", "entries", "entries/*", "places", "."])
def test_what_everybody_may_write_to_is_not_used(stored, path, truth, which):  # noqa: F811
    for file in some(stored, which):
        file.chmod(file.stat().st_mode | 0o002)
    opens_without_it(path, truth)


def test_links_in_it_are_not_followed(stored, path, truth, tmp_path):  # noqa: F811
    (stored.path / "entries").rename(tmp_path / "elsewhere")
    (stored.path / "entries").symlink_to(tmp_path / "elsewhere")
    opens_without_it(path, truth)


def test_the_folder_itself_may_be_a_link_to_a_larger_disk(stored, path, truth, tmp_path):  # noqa: F811
    stored.path.rename(tmp_path / "scratch")
    stored.path.symlink_to(tmp_path / "scratch")
    assert isinstance(check(path, truth).run.trace, StoredTrace)


def test_nothing_is_written_into_a_folder_that_is_not_trusted(stored, monkeypatch):
    stored.path.chmod(0o777)
    before = everything(stored)
    stored.note("p", {"a": 1})
    assert everything(stored) == before


def test_a_key_that_others_could_have_put_there_makes_no_pseudonyms(
    cache, monkeypatch, waits_for_nothing
):
    """Who knows the key finds out by trying which name a pseudonym stands for."""
    own = redaction._key()
    assert redaction._key() == own
    kept = cache.path / "redact.key"
    kept.chmod(0o666)
    assert redaction._key() != own
    kept.unlink()
    os.mkfifo(kept)
    assert len(redaction._key()) == 32
