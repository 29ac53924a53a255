"""docs/advice.md and the table of rules against the rules themselves."""

from __future__ import annotations

import re
from pathlib import Path

import nbprof.analysis
from nbprof.analysis.advice.rules import RULES
from tests.support import advice_page

SOURCES = sorted(Path(nbprof.analysis.__file__).parent.glob("advice/*.py"))
NAMED = re.compile(r'Finding\(\s*"(\w+)"|\bpart\(\s*"(\w+)"|\bfor rule, mine in \(\("(\w+)", small\), \("(\w+)"')


def test_the_page_is_made_of_the_rules():
    assert advice_page.PAGE.read_text() == advice_page.page(), "write it anew: python -m tests.support.advice_page"


def test_every_finding_has_a_rule_in_the_table_and_every_rule_a_finding():
    named = {name for path in SOURCES for found in NAMED.findall(path.read_text()) for name in found if name}
    listed = [rule.rule for rule in RULES]
    assert len(listed) == len(set(listed))
    assert named == set(listed)


def test_the_table_is_complete():
    for rule in RULES:
        assert all(rule), rule
        assert "|" not in "".join(rule), rule
