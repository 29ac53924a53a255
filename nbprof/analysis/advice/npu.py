"""Advice for NPUs: findings of the rules from Ascend's own tools, and PyTorch's rules with
torch_npu names.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from nbprof.analysis.advice.facts import Facts
from nbprof.analysis.ascend.rules import FOUND, every
from nbprof.analysis.rule import ABOUT, UP_TO, Finding, Found

PREFIX = "npu_"
_REFUTED = "{the} takes as long after the change"
_SEVERE = ("High", "Medium")
_OF_ALL_TIME = ("Iterations", "Schedule")
_NUMBER = re.compile(r"(?<![\w.*])\d[\d,.]*\d*\s?(?:%|µs|ms|s\b)")
_WORDS = (
    ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"),
    ("torch.cuda", "torch.npu"),
    ("CUDA", "NPU"),
    ('"cuda"', '"npu"'),
)


def in_words_of_npus(findings: list[Finding]) -> list[Finding]:
    """PyTorch's findings with CUDA names replaced by those of torch_npu."""
    translated = []
    for finding in findings:
        texts = {name: getattr(finding, name) for name in ("evidence", "fix")}
        for there, here in _WORDS:
            texts = {name: text.replace(there, here) for name, text in texts.items()}
        if finding.rule == "other":
            # torch.compile needs a backend of its own there.
            texts["fix"] = texts["fix"].replace(
                "torch.compile(Model().to(device))",
                "torch.compile(Model().to(device), backend=npu_backend)",
            )
        translated.append(finding._replace(**texts))
    return translated


def findings(facts: Facts) -> list[Finding]:
    """Findings of the Ascend rules at 5 % of the time or more, excluding rules that only say where
    to look.
    """
    rules = facts.evidence.npu_rules
    if rules is None or not len(rules):
        return []
    advising = {rule.name: rule for rule in every() if rule.advises}
    severe = rules[
        (rules["state"] == FOUND)
        & rules["severity"].isin(_SEVERE)
        & rules["rule"].isin(list(advising))
    ]
    result = []
    for _, row in severe.iterrows():
        rule = advising[str(row["rule"])]
        # What helps is a sentence there, and no code.
        waits = ABOUT if row["about"] in _OF_ALL_TIME else UP_TO
        result.append(
            replace(
                rule, name=f"{PREFIX}{rule.name}", fix="", refuted_by=_REFUTED, gain_is=waits
            ).finding(_found(row, facts), facts.unit)
        )
    return result


def _found(row: pd.Series, facts: Facts) -> Found:
    # Parts of an iteration and waits are of the time of the device, the others of that of its
    # tasks.
    total_ms = facts.mean["step_time"] if row["about"] in _OF_ALL_TIME else facts.compute_ms
    gain = (
        min(float(row["share"]), 1.0) * total_ms
        if total_ms and pd.notna(row["share"])
        else float("nan")
    )
    text = (
        f"{_NUMBER.sub(lambda match: f'**{match.group(0)}**', str(row['evidence']))} {row['fix']}"
    )
    return Found(text, severity=str(row["severity"]).lower(), gain_ms=gain, title=str(row["title"]))
