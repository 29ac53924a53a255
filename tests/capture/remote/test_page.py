"""The section of docs/capture.md on sampling names the options and the sentences as they are."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import nbprof
from nbprof.capture.remote import failures
from nbprof.capture.remote.addresses import Address
from nbprof.capture.remote.client import Refusal
from nbprof.notebook.sampling_magic import _parser

PAGE = Path(__file__).resolve().parents[3] / "docs" / "capture.md"
SECTION = re.search(
    r"^## Another machine\n(.*?)(?=^## |\Z)",
    PAGE.read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)[1]


def test_options_and_defaults():
    options = {
        option
        for action in _parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", SECTION))
    assert named - {"--quiet", "--help"} == options - {"--quiet", "--help"}
    parameters = inspect.signature(type(nbprof.capture).__call__).parameters
    for name, default in re.findall(r"`([a-z]\w*)=(\w+)`", SECTION):
        assert str(parameters[name].default) == default


def test_each_sentence_is_said():
    said = [
        failures.REFUSED,
        failures.NO_GRPC,
        failures.NO_PROFILER,
        failures.IDLE,
        failures.BUSY,
        failures.BROKEN,
    ]
    late = failures.explain(Refusal("DEADLINE_EXCEEDED", ""), Address("a", 1), "", 62.0).reason
    old = (Path(failures.__file__).parent / "workers.py").read_text(encoding="utf-8")
    rows = re.search(r"\| it says \| it means \|\n\|---\|---\|\n(.*?)\n\n", SECTION, re.DOTALL)[
        1
    ].splitlines()
    for row in rows:
        for text in row.split("|")[1].strip().split(", has"):
            parts = [part.strip() for part in text.split("…")]
            assert any(all(part in whole for part in parts) for whole in [*said, late, old]), text
