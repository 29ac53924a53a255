"""Advice for NPUs: what the rules of Ascend's own tools found, and the rules of PyTorch in the words of torch_npu."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

from nbprof.analysis.advice.facts import Facts, Finding
from nbprof.analysis.ascend.rules import FOUND

PREFIX = "npu_"
_SEVERE = ("High", "Medium")
# They say where to look, and nothing to change.
_LOOKS = frozenset({"one_type", "affinity", "prof_rule"})
_OF_ALL_TIME = ("Iterations", "Schedule")
_NUMBER = re.compile(r"(?<![\w.*])\d[\d,.]*\d*\s?(?:%|µs|ms|s\b)")
# What of PyTorch's advice holds on an NPU; the rest is about CUDA graphs, TensorCores and the like.
_ALSO_THERE = frozenset(
    {
        *("loader_none", "loader_in_process", "loader_workers", "pinned_memory", "copies_exposed", "allocator", "waits", "other", "output"),
        *(
            "collectives",
            "memory_full",
            "fragmentation",
            "out_of_memory",
            "data_parallel",
            "optimizer_loop",
            "between_steps",
            "uneven_workers",
        ),
    }
)
_WORDS = (
    ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"),
    ("torch.cuda", "torch.npu"),
    ("CUDA", "NPU"),
    ('"cuda"', '"npu"'),
)


def in_words_of_npus(found: list[Finding]) -> list[Finding]:
    """PyTorch's findings that hold on an NPU, with the names that torch_npu has for the same."""
    out = []
    for one in found:
        if one.rule not in _ALSO_THERE:
            continue
        texts = {name: getattr(one, name) for name in ("evidence", "fix")}
        for there, here in _WORDS:
            texts = {name: text.replace(there, here) for name, text in texts.items()}
        if one.rule == "other":
            # torch.compile needs a backend of its own there.
            texts["fix"] = texts["fix"].replace(
                "torch.compile(Model().to(device))", "torch.compile(Model().to(device), backend=npu_backend)"
            )
        out.append(one._replace(**texts))
    return out


def _rules(facts: Facts) -> list[Finding]:
    """What the rules of Ascend's tools found at a twentieth of the time or more."""
    rules = facts.evidence.npu_rules
    if rules is None or not len(rules):
        return []
    found = rules[(rules["state"] == FOUND) & rules["severity"].isin(_SEVERE) & ~rules["rule"].isin(_LOOKS)]
    return [_finding(row, facts) for _, row in found.iterrows()]


def _finding(row: pd.Series, facts: Facts) -> Finding:
    # Parts of an iteration and waits are of the time of the device, the others of that of its tasks.
    whole = facts.mean["step_time"] if row["about"] in _OF_ALL_TIME else facts.compute_ms
    gain = min(float(row["share"]), 1.0) * whole if whole and pd.notna(row["share"]) else float("nan")
    text = f"{_NUMBER.sub(lambda found: f'**{found.group(0)}**', str(row['evidence']))} {row['fix']}"
    rule, level = f"{PREFIX}{row['rule']}", str(row["severity"]).lower()
    return Finding(rule, level, str(row["title"]), text, gain, "", "ascend", "Ascend")


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (_rules,)
