"""What docs/gate.md shows runs as it stands there, and its lists are whole."""

from __future__ import annotations

import re
from pathlib import Path

import jax  # noqa: F401 - what the session below imports first is gone after it, and numpy cannot be imported twice
import pytest

from nbprof.cli import expect
from nbprof.gate import record
from nbprof.gate.baseline import Baseline
from nbprof.gate.figures import KINDS

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "gate.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_test_of_the_page_runs(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    # How many are recommended is measured by benchmarks/gate.py.
    monkeypatch.setattr(
        record.record, "__kwdefaults__", {**record.record.__kwdefaults__, "repeats": 2}
    )
    (test,) = blocks("python")
    assert test.startswith("# tests/performance/test_step.py\n")
    folder = pytester.mkdir("tests") / "performance"
    folder.mkdir()
    (folder / "test_step.py").write_text(test)
    commands = [line.partition("#")[0].split() for line in blocks("shell")[0].splitlines()]
    assert [words[0] for words in commands] == ["pytest"] * 3
    plugin = ["-p", "no:nbprof", "-p", "nbprof.gate.plugin", "-p", "no:cacheprovider"]
    for command in commands[:2]:
        pytester.runpytest_inprocess(*plugin, *command[1:]).assert_outcomes(passed=1)
    # Runs that other processes disturbed are not in it.
    assert len(Baseline.read(folder / "step.json").runs) <= 2
    # Of two runs the noise is mostly too large to tell, and in this test that only warns; by chance
    # they may be slower.
    result = pytester.runpytest_inprocess(*plugin, *commands[2][1:], "--nbprof-unknown=fail")
    result.stdout.no_fnmatch_line("*fail: compilations*")
    result.stdout.no_fnmatch_line("*fail: dropped*")


def test_every_count_is_in_the_table():
    assert re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE) == list(KINDS)


def test_the_options_of_the_page_are_those_of_the_command_and_the_plugin(pytester):
    options = {option for parameter in expect.command.params for option in parameter.opts}
    shown = {word for block in blocks("shell")[1:] for word in re.findall(r"--[a-z-]+", block)}
    assert shown <= options
    helped = pytester.runpytest_inprocess(
        "-p", "no:nbprof", "-p", "nbprof.gate.plugin", "--help"
    ).outlines
    for option in set(re.findall(r"--nbprof-[a-z]+", TEXT)):
        assert any(option in line for line in helped), option


def test_the_workflow_runs_what_the_page_shows():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(blocks("yaml")[0])
    steps = workflow["jobs"]["gate"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[0].split()[:3] == ["pip", "install", "nbprof"]
    assert commands[1].startswith("pytest tests/performance --nbprof-unknown=fail")
