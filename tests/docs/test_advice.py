"""docs/advice.md against the rules that it is made of, and the rules against each other."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter

import pytest

import nbprof
from nbprof.analysis.advice.advice import every
from nbprof.analysis.ascend.rules import every as every_of_ascend
from tests.support import advice_page

RULES = [*every(), *every_of_ascend()]


def test_the_page_is_made_of_the_rules():
    assert advice_page.PAGE.read_text() == advice_page.page(), (
        "write it anew: python -m tests.support.advice_page"
    )


def test_a_finding_is_made_by_its_rule_alone():
    """So that none is missing from the page."""
    makers = set()
    for path in Path(nbprof.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and "Finding" in (
                getattr(node.func, "id", ""),
                getattr(node.func, "attr", ""),
            ):
                makers.add(path.name)
    assert makers == {"rule.py"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.applies}-{rule.name}")
def test_a_rule_says_what_it_checks_from_where_on_and_why(rule):
    stated = (
        rule.name,
        rule.applies,
        rule.looks_at,
        str(rule.threshold),
        rule.source,
        *rule.target,
    )
    assert all(stated)
    assert "|" not in "".join(stated)
    named = {field for _, field, _, _ in Formatter().parse(rule.threshold.text) if field}
    # "any" is more than none.
    assert named == {name for name, number in rule.threshold.numbers.items() if number}
