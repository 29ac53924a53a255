"""What the page adds up itself is held, in its own tests, against what Python makes of the same
rows.
"""

from __future__ import annotations

from tests.support import page_sums


def test_the_numbers_of_the_page_are_those_of_python():
    assert page_sums.PAGE.read_text() == page_sums.page(), (
        "write it anew: python -m tests.support.page_sums"
    )
