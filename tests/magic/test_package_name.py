"""`%load_ext nbprof` puts `nbprof` into the namespace, where the advice's code needs it, unless the
name is taken.
"""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

import nbprof


@pytest.fixture
def shell():
    return InteractiveShell()


def ran(shell, text):
    result = shell.run_cell(text, store_history=True)
    assert result.success, text
    return result.result


def test_code_that_names_the_package_runs(shell):
    ran(shell, "%load_ext nbprof")
    assert ran(shell, "[batch for batch in nbprof.steps([1, 2])]") == [1, 2]
    assert shell.user_ns["nbprof"] is nbprof


def test_it_is_not_among_the_variables_of_the_user(shell):
    ran(shell, "%load_ext nbprof\nmine = 1")
    assert ran(shell, "%who_ls") == ["mine"]


def test_a_variable_of_the_user_stays(shell):
    ran(shell, "nbprof = 'mine'")
    ran(shell, "%load_ext nbprof")
    assert shell.user_ns["nbprof"] == "mine"
    ran(shell, "%unload_ext nbprof")
    assert shell.user_ns["nbprof"] == "mine"


def test_unloading_takes_it_away_again(shell):
    ran(shell, "%load_ext nbprof")
    ran(shell, "%unload_ext nbprof")
    assert "nbprof" not in shell.user_ns
    assert "nbprof" not in shell.user_ns_hidden
    ran(shell, "%load_ext nbprof")
    assert shell.user_ns["nbprof"] is nbprof


@pytest.mark.parametrize(
    "text", ["nbprof = 1", "import nbprof", "if True:\n    import json, nbprof"]
)
def test_unloading_leaves_what_the_user_bound_since(shell, text):
    ran(shell, "%load_ext nbprof")
    ran(shell, text)
    held = shell.user_ns["nbprof"]
    ran(shell, "%unload_ext nbprof")
    assert shell.user_ns["nbprof"] is held


def test_a_name_that_the_user_deleted_is_not_missed(shell):
    ran(shell, "%load_ext nbprof")
    ran(shell, "del nbprof")
    ran(shell, "%unload_ext nbprof")
    assert "nbprof" not in shell.user_ns
