"""Code of findings on input for Keras's `fit`, which has the loop and makes the DataLoader."""

from __future__ import annotations

import re

import pandas as pd

from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core.intervals import Intervals
from nbprof.dialects.iterations import Placed

_FEWEST = 4
"""Iterations from which on a call in each is a habit."""
_WITHIN = 0.1
"""Part of the iterations that may begin within a step, as clocks differ."""
_WORKERS = (
    "+class Batches(keras.utils.PyDataset):\n"
    "+    def __len__(self):\n"
    "+        return len(x) // n\n"
    "+    def __getitem__(self, i):\n"
    "+        return x[i * n : (i + 1) * n], y[i * n : (i + 1) * n]\n"
    "-model.fit(x, y, batch_size=n)\n"
    "+model.fit(Batches(workers=1, use_multiprocessing=True))  # more where more cores are free"
)
_FIXES = {
    "loader_none": _WORKERS,
    "loader_in_process": _WORKERS,
    "loader_workers": (
        "-model.fit(Batches(workers=k, use_multiprocessing=True))\n"
        "+model.fit(Batches(workers=k + 1, use_multiprocessing=True, max_queue_size=20))"
    ),
    "pinned_memory": (
        "-model.fit(x, y, batch_size=n)\n"
        "+model.fit(torch.utils.data.DataLoader(dataset, batch_size=n, pin_memory=True))"
    ),
    "tiny_batch": (
        "-model.fit(x, y, batch_size=2)\n+model.fit(x, y, batch_size=64)  # as accuracy permits"
    ),
}
"""The fix of each rule whose usual one is a DataLoader of the user's."""

_IN_LOADER = (
    "is spent in the DataLoader, which loads in the training process: with **num_workers=0**"
    " nothing is loaded ahead."
)
IN_KERAS = (
    "passes while Keras makes the batch in the training process, and nothing is loaded ahead."
)
"""The DataLoader is one that Keras makes around what it is given."""

TITLES = {
    "loader_none": "Load batches in worker processes",
    "loader_workers": "Give the data set more workers",
}

_CALLS = {"predict": "predict", "test": "evaluate"}
"""The method that a program calls whose steps are all of one of these kinds."""
_WHY_BETWEEN = re.compile(r": (?:validation, checkpoints|callbacks, metrics)[^.]*\.")
_ONE_CALL = {
    "predict": (
        "-outputs = [model.predict(x[i : i + 64]) for i in range(0, len(x), 64)]\n"
        "+outputs = model.predict(x, batch_size=64)  # model(x), if x is one small batch"
    ),
    "evaluate": (
        "-for x, y in batches:\n"
        "-    model.evaluate(x, y)\n"
        "+model.evaluate(dataset)  # model.test_on_batch(x, y), if x is one small batch"
    ),
}

CATEGORIES = {
    "demanded_file_read": (
        "load in worker processes: a keras.utils.PyDataset with use_multiprocessing=True, a worker"
        " for each free core"
    ),
    "preprocessing": (
        "transform in worker processes (a keras.utils.PyDataset with workers), or on the device"
    ),
    "advanced_file_read": (
        "more workers of the keras.utils.PyDataset, a larger max_queue_size; cheaper transforms"
    ),
    "enqueue": "give fit a DataLoader with pin_memory=True",
    "other": "give fit a keras.utils.PyDataset, which loads ahead",
}
"""What helps against the kinds of input work that PyTorch's profiler records, as
`input_pipeline.TORCH_CATEGORIES`.
"""


def in_keras(
    findings: pd.DataFrame, steps: pd.DataFrame, iterations: Placed | None
) -> pd.DataFrame:
    """The findings of a recording whose steps are batches of Keras.

    Parameters
    ----------
    findings : DataFrame
        `p.advice`.
    steps : DataFrame
        `p.steps.frame` with its column `kind`.
    iterations : Placed or None
        Of the loop in which the cell spends its time.
    """
    findings = _in_fit(findings)
    kinds = set(steps["kind"])
    between = findings["rule"] == "between_steps"
    if not between.any() or len(kinds) > 1 or iterations is None:
        return findings
    method = _CALLS.get(kinds.pop())
    # One call in each iteration: it begins between two steps.
    begun = Intervals.union(*step_bounds(steps)).index_at(iterations.start) >= 0
    if method is None or len(begun) < _FEWEST or begun.mean() > _WITHIN:
        return findings
    return _in_calls(findings, method)


def _in_calls(findings: pd.DataFrame, method: str) -> pd.DataFrame:
    """The findings of a program that calls `predict` or `evaluate` again and again."""
    # The first batch of a call takes longer, which is a part of the same.
    result = findings[findings["rule"] != "periodic"].reset_index(drop=True)
    between = result["rule"] == "between_steps"
    why = f": in each call of {method}, Keras prepares the data and what iterates over them anew."
    result.loc[between, "evidence"] = result.loc[between, "evidence"].str.replace(
        _WHY_BETWEEN, why, regex=True
    )
    result.loc[between, "title"] = f"Call {method} once, for all data"
    result.loc[between, "fix"] = _ONE_CALL[method]
    result.loc[between, "refuted_by"] = "one call for all data takes as long as these together"
    return result


def _in_fit(findings: pd.DataFrame) -> pd.DataFrame:
    rows = findings["rule"].isin(list(_FIXES)) & findings["fix"].astype(str).str.contains(
        "DataLoader(", regex=False
    )
    if not rows.any():
        return findings
    result = findings.copy()
    rules = result.loc[rows, "rule"]
    result.loc[rows, "fix"] = rules.map(_FIXES)
    result.loc[rows, "evidence"] = result.loc[rows, "evidence"].str.replace(
        _IN_LOADER, IN_KERAS, regex=False
    )
    result.loc[rows, "title"] = rules.map(TITLES).fillna(result.loc[rows, "title"])
    return result
