"""How to record the Python calls, in the words of whatever recorded the profile: nobody has a magic's line in a script of their own."""

from __future__ import annotations

import pandas as pd

IN_CELL = "again with this first line in the cell"
"""What the rule `other` says, as for a cell; `in_words_of` says it for others."""
CELL, BLOCK = "cell", "block"
"""What nbprof recorded."""

_WITH_OPTION = "again with this option"
_FIXES = {
    "PyTorch": "-with torch.profiler.profile() as prof:\n+with torch.profiler.profile(with_stack=True) as prof:\n     train()",
    "TensorFlow": (
        "+options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)\n"
        "-tf.profiler.experimental.start(logdir)\n+tf.profiler.experimental.start(logdir, options)"
    ),
    "JAX": (
        "+options = jax.profiler.ProfileOptions()\n+options.python_tracer_level = 1\n"
        "-jax.profiler.start_trace(logdir)\n+jax.profiler.start_trace(logdir, profiler_options=options)"
    ),
}
_NSYS = "-nsys profile python train.py\n+nsys profile --python-sampling=true python train.py  # at a prompt"


def in_words_of(found: pd.DataFrame, recorder: str, framework: str, form: str = "") -> pd.DataFrame:
    """The findings, with the way to record Python calls of who recorded the profile.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    recorder : str
        `CELL` or `BLOCK` of nbprof; "" for other profilers.
    framework : str
        As `p.overview["framework"]` has it.
    form : str
        The format of the files: Nsight Systems has options of its own.
    """
    if not len(found):
        return found
    rows = (found["rule"] == "other") & found["fix"].astype(str).str.startswith("-%%nbprof")
    if recorder == CELL or not rows.any():
        return found
    result = found.copy()
    result.loc[rows, "evidence"] = result.loc[rows, "evidence"].str.replace(IN_CELL, _WITH_OPTION, regex=False)
    keyword = "stacks" if "--stacks" in str(result.loc[rows, "fix"].iloc[0]) else "python"
    if recorder == BLOCK:
        result.loc[rows, "fix"] = f"-with nbprof.profile():\n+with nbprof.profile({keyword}=True):\n     train()"
    elif form == "nsys":
        result.loc[rows, "fix"] = _NSYS
    else:
        known = [name for name in _FIXES if name in framework]
        result.loc[rows, "fix"] = _FIXES[known[0]] if known else ""
        if not known:
            result.loc[rows, "evidence"] = result.loc[rows, "evidence"].str.replace(_WITH_OPTION, "with Python calls", regex=False)
    return result
