"""Code of findings on input for Keras's `fit`, which has the loop and makes the DataLoader."""

from __future__ import annotations

import pandas as pd

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


def in_keras(findings: pd.DataFrame) -> pd.DataFrame:
    """The findings of a recording whose steps are batches of Keras.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    """
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
