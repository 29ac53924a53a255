"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re

import pytest

from nbprof.core import late_pattern as module
from nbprof.core.late_pattern import late_pattern


@pytest.fixture
def compiled(monkeypatch):
    """The patterns that were compiled."""
    seen = []

    class Recording:
        @staticmethod
        def compile(pattern, flags):
            seen.append((pattern, flags))
            return re.compile(pattern, flags)

    monkeypatch.setattr(module, "re", Recording)
    return seen


def test_a_pattern_is_compiled_once_when_it_is_used(compiled):
    pattern = late_pattern(r"(\d+)", re.IGNORECASE)
    assert (pattern.pattern, compiled) == (r"(\d+)", [])
    assert pattern.search("step 12")[1] == "12"
    assert pattern.sub("#", "a1b22") == "a#b#"
    assert compiled == [(r"(\d+)", re.IGNORECASE)]


@pytest.mark.parametrize("method", ["match", "fullmatch", "search"])
def test_it_matches_as_a_compiled_one_does(method):
    late, compiled = late_pattern("a+", re.IGNORECASE), re.compile("a+", re.IGNORECASE)
    for text in ("", "a", "AAb", "ba"):
        ours, theirs = getattr(late, method)(text), getattr(compiled, method)(text)
        assert (ours and ours.span()) == (theirs and theirs.span())


def test_all_matches():
    late, compiled = late_pattern(r"\d"), re.compile(r"\d")
    assert late.findall("a1b2") == compiled.findall("a1b2")
    assert [each.span() for each in late.finditer("a1b2")] == [(1, 2), (3, 4)]
    assert late.split("a1b2") == compiled.split("a1b2")


def test_anything_else_is_an_error():
    with pytest.raises(AttributeError):
        _ = late_pattern("a").scanner
