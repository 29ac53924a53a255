"""The way to record Python calls, or other steps, in the words of the profiler that recorded the
profile.
"""

from __future__ import annotations

import re

import pandas as pd

from nbprof.frameworks.framework import Framework

IN_CELL = "again with this first line in the cell"
"""The words of the rule `other`, for a cell; `in_words_of` replaces them for other recorders."""
CELL, BLOCK, SCRIPT = "cell", "block", "script"
"""Recorders of nbprof."""

_WITH_OPTION = "again with this option"
_NSYS = (
    "-nsys profile python train.py\n"
    "+nsys profile --python-sampling=true python train.py  # at a prompt"
)

_STEPS_OF_CELL = re.compile(r"-%%nbprof\n\+%%nbprof --steps (\S+)")


_STEPS = {
    BLOCK: r'-with nbprof.profile():\n+with nbprof.profile(steps="\1"):\n     train()',
    SCRIPT: r"-nbprof run train.py\n+nbprof run --steps \1 train.py  # at a prompt",
}
"""The range of steps to record, in the words of a program."""
_CALLS = {
    BLOCK: "-with nbprof.profile():\n+with nbprof.profile(python=True):\n     train()",
    SCRIPT: "-nbprof run train.py\n+nbprof run --python train.py  # at a prompt",
}
"""The option that records Python calls, in the words of a program."""


def in_words_of(
    findings: pd.DataFrame, recorder: str, framework: Framework, form: str = ""
) -> pd.DataFrame:
    """The findings, with the options of their profiler that record Python calls, or other steps.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    recorder : str
        `CELL`, `BLOCK` or `SCRIPT` of nbprof; "" for other profilers.
    framework : Framework
    form : str
        The format of the files: Nsight Systems has options of its own.
    """
    if not len(findings):
        return findings
    if recorder in _STEPS:
        steps = _STEPS[recorder]
        fixes = [_STEPS_OF_CELL.sub(steps, str(fix)) for fix in findings["fix"]]
        findings = findings.assign(fix=fixes)
    rows = (findings["rule"] == "other") & findings["fix"].astype(str).str.startswith("-%%nbprof")
    if recorder == CELL or not rows.any():
        return findings
    result = findings.copy()
    result.loc[rows, "evidence"] = result.loc[rows, "evidence"].str.replace(
        IN_CELL, _WITH_OPTION, regex=False
    )
    keyword = "stacks" if "--stacks" in str(result.loc[rows, "fix"].iloc[0]) else "python"
    if recorder in _CALLS:
        fix = _CALLS[recorder].replace("python=", f"{keyword}=")
        result.loc[rows, "fix"] = fix.replace("--python", f"--{keyword}")
    elif form == "nsys":
        result.loc[rows, "fix"] = _NSYS
    else:
        result.loc[rows, "fix"] = framework.words.record_python_calls
        if not framework.words.record_python_calls:
            result.loc[rows, "evidence"] = result.loc[rows, "evidence"].str.replace(
                _WITH_OPTION, "with Python calls", regex=False
            )
    return result
