"""Findings with evidence, the code for the change, and its gain.

- `advice` runs the rules and builds `p.advice` from their findings: every topic is listed there.
- `input`, `loaders` (waits for workers that more workers do not shorten), `step`, `code`, `hlo`
  (compiled programs), `training`, `device`, `over_steps`, `host_buffer`, `versions` are the topics.
  Each has its checks and, below them, its `RULES`; `npu` takes over the findings of the rules in
  `nbprof.analysis.ascend`.
- `facts` is the input of a check. `evidence` declares the evidence that rules ask for by name;
  `programs` and `step_code` compute some of it. `tf_data` has the advice for each kind of iterator,
  `buffers` that for the memory of their buffers,
  `epochs` finds elements that each epoch produces anew.
- `checks` are the recommendations of TensorFlow Profiler, for `p.overview["checks"]`.

To add a rule: a check and its `nbprof.analysis.rule.Rule` in a topic, and cases in which it fires
and does not in tests/analysis/test_advice_rules.py. `python -m tests.support.advice_page`
regenerates docs/advice.md.
"""
