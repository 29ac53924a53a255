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
        evidence, fix = finding.evidence, finding.fix
        for cuda, torch_npu in _WORDS:
            evidence, fix = evidence.replace(cuda, torch_npu), fix.replace(cuda, torch_npu)
        if finding.rule == "other":
            # torch.compile needs another backend there.
            fix = fix.replace(
                "torch.compile(Model().to(device))",
                "torch.compile(Model().to(device), backend=npu_backend)",
            )
        translated.append(finding._replace(evidence=evidence, fix=fix))
    return translated


def findings(facts: Facts) -> list[Finding]:
    """Findings of the Ascend rules at 5 % of the time or more, excluding rules that only refer to
    other places.
    """
    table = facts.evidence.npu_rules
    if table is None or not len(table):
        return []
    rules = {rule.name: rule for rule in every() if rule.advises}
    severe = table[
        (table["state"] == FOUND)
        & table["severity"].isin(_SEVERE)
        & table["rule"].isin(list(rules))
    ]
    result = []
    for _, row in severe.iterrows():
        rule = rules[str(row["rule"])]
        # The remedy is a sentence of the evidence, not code.
        advising = replace(
            rule,
            name=f"{PREFIX}{rule.name}",
            fix="",
            refuted_by=_REFUTED,
            gain_is=ABOUT if row["about"] in _OF_ALL_TIME else UP_TO,
        )
        result.append(advising.finding(_figures(row, facts), facts.unit))
    return result


def _figures(row: pd.Series, facts: Facts) -> Found:
    # Shares of iterations and waits are of the time of the device, others of that of its tasks.
    total_ms = facts.mean["step_time"] if row["about"] in _OF_ALL_TIME else facts.compute_ms
    gain = float("nan")
    if total_ms and pd.notna(row["share"]):
        gain = min(float(row["share"]), 1.0) * total_ms
    evidence = _NUMBER.sub(r"**\g<0>**", str(row["evidence"]))
    return Found(
        f"{evidence} {row['fix']}",
        severity=str(row["severity"]).lower(),
        gain_ms=gain,
        title=str(row["title"]),
    )
