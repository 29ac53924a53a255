"""Texts that are cut or joined for a sentence or a cell."""

from __future__ import annotations

import pytest

from nbprof.display import wording


def test_a_text_is_cut_only_where_it_has_no_room() -> None:
    assert [wording.cut("abcdef", most) for most in (6, 5)] == ["abcdef", "abcd…"]
    assert wording.cut(12345, 4) == "123…"
    assert [wording.middle_cut("abcdefgh", most) for most in (8, 5, 4)] == ["abcdefgh", "ab…gh", "ab…h"]


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_words_are_listed(words: list[str], text: str) -> None:
    assert wording.listed(words, "or") == text
