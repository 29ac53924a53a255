"""The page docs/advice.md: every rule of `p.advice` and of `p.ascend.rules`. To regenerate it:
`python -m tests.support.advice_page`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nbprof.activity.unit import MARKED
from nbprof.analysis.advice.advice import MOST, WORTH_PERCENT, every
from nbprof.analysis.advice.checks import MOST_GAIN, MOST_UNKNOWN, PART_HIGH, PART_MODERATE
from nbprof.analysis.ascend.rules import every as every_of_ascend
from nbprof.analysis.rule import Rule, Threshold
from nbprof.frameworks.register import JAX, PYTORCH

PAGE = Path(__file__).resolve().parents[2] / "docs" / "advice.md"
MEASURED = PAGE.parents[1] / "benchmarks" / "diagnosis" / "proven.json"


def _proven(programs: dict[str, Any]) -> str:
    """The table of what `--try` proved, as `benchmarks/diagnosis/proven.py --store` keeps it."""
    lines = [
        "| Program | Rule | Predicted | Proven, 95 % interval | Predicted ÷ proven | Mended |",
        "|---|---|---|---|---|---|",
    ]
    for name, program in programs.items():
        row = program["proven"]
        if row is None or not program["planted"]:
            continue
        predicted = ratio = "–"
        if row["predicted_ms"] is not None:
            predicted = f"{row['predicted_ms']:.1f}"
            ratio = f"{row['predicted_ms'] / row['gain_ms']:.1f}"
        proven = f"{row['gain_ms']:.1f} [{row['low_ms']:.1f}, {row['high_ms']:.1f}]"
        lines.append(
            f"| {name} | `{row['rule']}` | {predicted} | {proven} | {ratio} |"
            f" {program['twin_ms']:.1f} |"
        )
    return "\n".join(lines)


_OF_RUNS = json.loads(MEASURED.read_text())
PROVEN = _proven(_OF_RUNS["programs"])
SUMMARY = " ".join(_OF_RUNS["summary"])
HEAD = f"""# Advice rules

`p.advice`, and *Next steps* in the dashboard, list what is worth changing: at most {MOST} findings, largest gain first. Each comes with
evidence in figures of this profile, the code for the change in the framework used, and the tab with the details.

- A gain is time per step, and the column *Gain* says what it is. *Up to* is a bound: the change takes away no more than this time.
  *About* is an estimate: the host spends so long on it, or the step waits so long for it, but the change may leave some of that, or save
  more where it frees cores for the rest of the step. *At least* is a part: what goes with the cost was not recorded, such as tracing before
  a compilation. Gains do not add up. Findings without one (memory, a batch that is too small) come last. No gain is stated above {MOST_GAIN:g} % of step time, nor if nothing was recorded in more than
  {MOST_UNKNOWN:g} % of it: what remains then says little about the step.
- Where enough steps of the cell ran without the profiler ([bare steps](capture.md#steps-without-the-profiler)), a gain is a part of such a
  step: "about −3.9 ms of 8.6 ms per step without recording". Evidence keeps the recorded times, and says so. Kernels and copies take as long
  as recorded; of the host's time the gain is what `p.steps.bare` leaves of its category, never more than that category, and a rule is silent
  where that is below its threshold. Elsewhere a gain is recorded time: without the profiler the change may save less
  ([measured](benchmarks.md#gains-of-the-bare-step)).
- A rule without evidence in the profile reports nothing, nor does one that would save less than {WORTH_PERCENT:g} % of step time.
- Recording slows the host that feeds a GPU: loops bound by the host took up to {PYTORCH.slows_host:g} times as long under PyTorch's profiler,
  and up to {JAX.slows_host:g} times under JAX's ([measured](benchmarks.md)). So rules about host time are silent where the GPU is busy for
  {100 / PYTORCH.slows_host:g} % of step time or more (JAX: {100 / JAX.slows_host:g} %), as without the recording it might never wait, and their gain is *up to*. Where it is
  busy for less, the host is slower for certain, and rules about device time alone are of low severity, their gain is *up to*, and they are
  silent below {PART_MODERATE:g} % of step time. Where enough steps of the cell ran without the profiler
  ([bare steps](capture.md#steps-without-the-profiler)), the measured slowdown decides instead, an optimizer's gain is *about*,
  and rules about device time alone are silent below {PART_HIGH:g} % of a step that the host bounds.
- A rule is silent where the recording shows that its remedy is applied (*done already if*), even if the cost is still there, and
  where the recording lacks what the advice is about: a recording of inference gets no advice on optimizers. Where only a part of the
  remedy is applied, the code is the rest of it.
- Where nbprof recorded, it knows the cores, how many of them the program and other processes kept busy, and the arguments of the loaders
  of PyTorch and Keras. Numbers of workers and gains go by these: workers share the cores with the training, so that a step is never
  predicted to be shorter than the rest of it on the cores that the workers leave, a batch divided by the workers, or the work of all
  divided by the cores that others leave. Such a prediction is *about*: how much a wait is work of a core is measured where a loop asks
  `nbprof.steps`, a `DataLoader` or a dataset of tf.data for its batches, and assumed elsewhere. Where no core is free, cheaper items are
  advised instead; on a machine without a device their gain is *about* the wait, as what makes them took cores from the rest of the step.
- Of two findings that advise the same change, only one is shown.
- After [`%%nbprof --probe input`](capture.md#a-probe-the-step-without-its-input), the gain of a finding on input is what the probe measured,
  the recorded step less the step with instant input, and not what was predicted; where that is less than {WORTH_PERCENT:g} % of the step, it is dropped.
- After [`%%nbprof --try`](capture.md#trying-remedies), each finding also says what its remedy saved, with the 95 % interval, and whether it is
  recommended.
- Without steps there is no step time to compare a cost with; then only what the runtime itself reported is listed.
- On an NPU, findings of [`p.ascend.rules`](numbers.md) at 5 % of the time or more are listed under their name with the prefix `npu_`;
  of the rules below, only PyTorch's that also hold there apply, with torch_npu names.
- The verdict states how many steps were recorded, and how steady they are.

How sure a finding is: *measured* (its cost is the time of recorded events), *estimated* (it follows from names, shapes or peaks of the device)
or *inferred* (what causes the time was not recorded). *Wrong if* is the experiment that would refute it.

*nbprof's threshold* means that the source names the cost but gives no number.

What [`--try`](capture.md#trying-remedies) proves was compared with predictions and with programs in which the problem is mended (ms per step;
`benchmarks/diagnosis/proven.py`). {SUMMARY}

{PROVEN}

| Rule | Applies to | What is checked | Threshold | Source | Certainty | Gain | Wrong if | Done already if |
|---|---|---|---|---|---|---|---|---|
"""
ASCEND = """
## On an NPU: `p.ascend.rules`

The rules of Ascend's own tools, computed from msprof's tables. *nbprof* as the source means that these tools have no such rule.

| Rule | About | What is checked | Threshold | Source |
|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    return (
        HEAD
        + _rows(
            every(),
            lambda rule: (
                f" {rule.certainty} | {rule.gain_is or '–'} | {MARKED.fill(rule.refuted_by)} | {_done(rule)} |"
            ),
        )
        + ASCEND
        + _rows(every_of_ascend())
    )


def _done(rule: Rule) -> str:
    """What shows that the remedy is applied, and what must be there for it to have a place."""
    done = rule.done.text if rule.done is not None else "–"
    return (
        f"{done} (needs: {rule.requires.text[0].lower()}{rule.requires.text[1:]})"
        if rule.requires is not None
        else done
    )


def _rows(rules: Iterable[Rule], more: Callable[[Rule], str] = lambda _: "") -> str:
    ordered = sorted(rules, key=lambda rule: rule.name)
    return "".join(
        f"| `{r.name}` | {r.about or r.applies} | {r.looks_at} | {r.threshold} | {r.source} |{more(r)}\n"
        for r in ordered
    )


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
