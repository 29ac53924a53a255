"""What is worth changing? Findings, each with its evidence in numbers of the profile, the code that changes it, and its gain.

- `advice` asks the rules and makes `p.advice` of what they find: here every topic is listed.
- `input`, `step`, `hlo` (compiled programs), `training`, `device`, `host_buffer` are the topics. Each has its checks and, below them, its
  `RULES`; `npu` takes over what the rules of `nbprof.analysis.ascend` found.
- `facts` is what a check gets; `evidence` and `programs` are gathered for it. `tf_data` knows what helps which iterator.
- `checks` are the recommendations of TensorFlow Profiler, for `p.overview["checks"]`.

To add a rule: a check and its `nbprof.analysis.rule.Rule` in a topic, and the cases in which it speaks and is silent in
tests/analysis/test_advice_rules.py. docs/advice.md is made anew by `python -m tests.support.advice_page`.
"""
