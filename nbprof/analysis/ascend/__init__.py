"""What did the tasks of an NPU do, and what follows? From the tables of msprof, for `p.ascend`.

- `ascend` joins the tables of all recordings, and reads their columns.
- `iterations`, `ops`, `pmu` (hardware counters), `waits` and `tables` (fused ops, calls of the
  host) make the frames.
- `rules` makes `p.ascend.rules` of the rules in `rules_run` (iterations, streams, the host) and
  `rules_ops` (tasks and their counters); `facts` is what their checks get. To add one: a check and
  its `nbprof.analysis.rule.Rule` there, and its cases in tests/analysis/test_ascend_rules.py.
- `verdict` says what limits the iterations.
"""
