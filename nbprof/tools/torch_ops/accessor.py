"""`p.torch_ops`: PyTorch's ops by name, input shapes, call stack and nn.Module."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.ops import torch_ops
from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import Framed


class TorchOps(Framed):
    """The table of `torch.profiler`'s `key_averages()`, for any file, with the modules and the
    backward pass.

    `frame` has one row per op, annotation or runtime call (`kind`), most self time first: on the
    device if the file has one, else on the host. Times are in µs: `self` excludes nested ops,
    `total` includes them. Without a device in the file, the device columns are NA.

    An op whose only nested run has the same name is counted once together with it, as in
    `key_averages()`. Otherwise an op nested in another run of itself counts in both totals, there
    and here. If ops overlap partly, `p.ops` gives each instant to one op; here the nested run is
    subtracted from the outer one, as in `key_averages()`.
    """

    _none = "No op of PyTorch was recorded in this profile."

    def by(self, key: str) -> pd.DataFrame:
        """The ops separated by input shapes, by the Python code that called them or its line, or by
        the module in which they ran.

        Ops of the backward pass have no Python code and no module of their own: they are listed
        with the op of the forward pass that they belong to, which has the same autograd sequence
        number.

        Parameters
        ----------
        key : {'op', 'shapes', 'stack', 'module', 'source'}
            `shapes` needs a profile recorded with record_shapes=True, `stack`, `module` and
            `source` one with with_stack=True; without, the column of the key is None.

        Returns
        -------
        DataFrame
            The columns of `frame` and `input_shapes`, `call_stack` (one call a line, innermost
            first), `module` (outermost first), or `source` and `aten_ops`. These are exact for what
            `torch.compile` made with `INDUCTOR_PROVENANCE=1`, if the log that `TORCH_TRACE` names,
            or a file that TORCH_COMPILE_DEBUG or tlparse made of it, is in the folder of the
            trace. Else a line is the one in which the function begins.

        Raises
        ------
        NbprofError
            Another key.
        """
        if key not in torch_ops.KEYS:
            raise NbprofError(
                f"ops can be grouped by {', '.join(map(repr, torch_ops.KEYS))}, not by {key!r}"
            )
        return self._profile.run.torch_ops_by(key).copy()

    @property
    def modules(self) -> pd.DataFrame:
        """The tree of nn.Modules with the time of their forward and backward passes; empty where
        with_stack was off.
        """
        return self._profile.run.torch_modules.copy()
