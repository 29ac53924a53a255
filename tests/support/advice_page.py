"""The page docs/advice.md: every rule of `p.advice` and of `p.ascend.rules`. To write it anew: `python -m tests.support.advice_page`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from nbprof.analysis.advice.advice import MOST, WORTH_PERCENT, every
from nbprof.analysis.advice.checks import MOST_GAIN, MOST_UNKNOWN
from nbprof.analysis.ascend.rules import every as every_of_ascend
from nbprof.analysis.rule import Rule, Threshold

PAGE = Path(__file__).resolve().parents[2] / "docs" / "advice.md"
HEAD = f"""# What advice looks at

`p.advice`, and *Next steps* in the dashboard, list what is worth changing: at most {MOST} findings, the largest gain first. Each has its
evidence in numbers of this profile, the code that changes it in the framework that was used, and the view that shows it.

- A gain is an upper bound: what a step would save if the cost went away entirely. Gains do not add up. Where none can be stated (memory,
  a batch that is too small), the finding comes after those that state one. None is stated of over {MOST_GAIN:g} % of a step, nor where nothing
  was recorded of over {MOST_UNKNOWN:g} % of it: what is left then says nothing of the step.
- A rule without evidence in the profile is silent, and so is one that would save less than {WORTH_PERCENT:g} % of a step.
- Of two findings that ask for the same change only one is shown.
- Without steps there is no step time to weigh a cost against; then only what the runtime itself reported is listed.
- On an NPU the rules of [`p.ascend.rules`](numbers.md) that found something at 5 % of the time or more are listed, as `npu_` and their name;
  of those below only the ones of PyTorch that hold there, with the names of torch_npu.
- How many steps were recorded, and how steady they are, is said beside the verdict.

*Threshold of nbprof* means that the source names the cost and no number.

| Rule | Applies to | What is checked | Threshold | Source |
|---|---|---|---|---|
"""
ASCEND = """
## On an NPU: `p.ascend.rules`

The rules of Ascend's own tools, computed from the tables of msprof. *nbprof* as the source means that these tools have no such rule.

| Rule | About | What is checked | Threshold | Source |
|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    return HEAD + _rows(every()) + ASCEND + _rows(every_of_ascend())


def _rows(rules: Iterable[Rule]) -> str:
    ordered = sorted(rules, key=lambda rule: rule.name)
    return "".join(f"| `{r.name}` | {r.about or r.applies} | {r.looks_at} | {r.threshold} | {r.source} |\n" for r in ordered)


def numbers_read(monkeypatch: pytest.MonkeyPatch) -> defaultdict[str, set[str]]:
    """By rule, the names of the numbers of its threshold that its check reads from now on."""
    read: defaultdict[str, set[str]] = defaultdict(set)

    class Told(Threshold):
        def __init__(self, rule: Rule) -> None:
            super().__init__(rule.threshold.text, **rule.threshold.numbers)
            self.name = rule.name

        def __getitem__(self, name: str) -> float:
            read[self.name].add(name)
            return super().__getitem__(name)

    monkeypatch.setattr(Rule, "ask", lambda rule, facts: rule.check(facts, Told(rule)))
    return read


if __name__ == "__main__":
    PAGE.write_text(page())
