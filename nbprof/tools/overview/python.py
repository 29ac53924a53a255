"""`p.python`: Python time from sampled stacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.schema import frames
from nbprof.tools.accessor import Shown, View
from nbprof.tools.plot import bokeh, displayed

if TYPE_CHECKING:
    from bokeh.model import Model

_MISSING = (
    "This profile has no Python samples: %%nbprof records them unless --no-sampling is given."
)
_LEAST = 0.001
"""Share of the time below which a call is not drawn."""
_CARD_COLUMNS = (
    "left",
    "right",
    "function",
    "file",
    "line",
    "self_ms",
    "total_ms",
    "percent",
)
_COLOURS = ("#E8A33D", "#DD7F3B", "#D9A066", "#C96F4A", "#E3B778", "#B9784E")


class PythonView(View):
    """Python time by function, line, module and thread, from the stacks of all threads, sampled up
    to 100 times a second.

    - Times are wall time on the thread of the recorded cell, waiting included, and CPU time on
      other threads, where the system tells it (Linux). `cpu_ms` less than `self_ms` is waiting: for
      files, locks, devices or the GIL.
    - Time in a C function is that of the line that calls it, and `call` names the function, from
      Python 3.11 on.
    - A thread can be seen only where the interpreter lets others run: inside calls that release the
      GIL, after calls of C functions, at the end of a pass of a loop and where a function begins. A
      short function without any of these counts for the line that calls it; a pass of a loop counts
      for its last call, or for the line of the loop.
    - `self` and `total` are estimates from samples: what takes less than some tens of milliseconds
      may be missing.

    Threads of the notebook's kernel and of nbprof are left out.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "overview")

    @property
    def functions(self) -> pd.DataFrame:
        """Time by function, that of C code with the function that called it; most self time
        first.
        """
        return self._frame("functions")

    @property
    def lines(self) -> pd.DataFrame:
        """Time by line, of cells and of all other files, with the function that each called; most
        self time first.
        """
        return self._frame("lines")

    @property
    def modules(self) -> pd.DataFrame:
        """Time by top-level package: the self time of its functions, and the total time of the
        calls into it.
        """
        return self._frame("modules")

    @property
    def threads(self) -> pd.DataFrame:
        """CPU time by thread, as the system counts it: the thread of the cell first, then the
        busiest ones.
        """
        return self._frame("threads")

    @property
    def tree(self) -> pd.DataFrame:
        """Calls as a tree of functions: a row for each function and its callers, which come before
        it.
        """
        return self._frame("tree")

    @property
    def pools(self) -> pd.DataFrame:
        """Process pools that the recorded code sent tasks to (`multiprocessing`,
        `concurrent.futures`, joblib): how many tasks, how many of them were timed, and how busy
        the workers were.
        """
        return self._profile.run.pools.pools()

    @property
    def tasks(self) -> pd.DataFrame:
        """Functions that ran as tasks of process pools, by pool, most time first; `inside` is the
        line in which most of its samples were.
        """
        return self._profile.run.pools.tasks()

    @property
    def workers(self) -> pd.DataFrame:
        """Worker processes of these pools that ran a timed task: time in tasks and without one,
        CPU time, memory.
        """
        return self._profile.run.pools.workers()

    def figure(self, **options: Any) -> Model:
        """A flame graph of `tree`: callers below, and as wide as their total time.

        Parameters
        ----------
        **options
            Options of `bokeh.plotting.figure`.

        Raises
        ------
        NbprofError
            Bokeh is not installed, or there are no samples.
        """
        tree = self.tree
        if not len(tree):
            raise NbprofError(_MISSING)
        return displayed(_flame(tree, **options), self)

    def export(self, path: str | Path) -> Path:
        """Writes `tree` for a viewer of flame graphs: speedscope, which draws them in a browser and
        offline, or pprof.

        Parameters
        ----------
        path : str or path
            Such as `run.speedscope.json`, or `run.pb.gz` for pprof; a file of that name is
            replaced.

        Raises
        ------
        NbprofError
            There are no samples, the name ends as that of neither format, or the file could not be
            written.

        Examples
        --------
        >>> p.python.export("run.speedscope.json")   # doctest: +SKIP
        >>> p.python.export("run.pb.gz")   # doctest: +SKIP
        """
        from nbprof.tools.header import label
        from nbprof.tools.stacks import Frame, Stacks

        tree = self.tree
        if not len(tree):
            raise NbprofError(_MISSING)
        columns = (tree[name].tolist() for name in ("function", "file", "line"))
        calls = [Frame(*call) for call in zip(*columns, strict=True)]
        name, times_ns = label(self._profile.run), tree["self_ms"] * 1e6
        return Stacks.of_tree(name, tree, calls, ["Python"] * len(tree), times_ns).write(path)

    def _frame(self, name: str) -> pd.DataFrame:
        python = self._profile.run.python
        frame: pd.DataFrame = (
            frames.empty(f"python.{name}") if python is None else getattr(python, name)
        )
        return frame.copy()

    def _there(self) -> bool:
        return self._profile.run.python is not None

    def _nothing(self) -> str:
        return _MISSING

    def _table(self) -> pd.DataFrame:
        return self.functions

    def _name_of(self) -> str:
        return "python"


def _flame(tree: pd.DataFrame, **options: Any) -> Model:
    """Calls as boxes, those of one caller side by side, the longest first."""
    plotting, models = bokeh()
    total = float(tree.loc[tree["depth"] == 0, "total_ms"].sum())
    left = _left_edges(tree)
    calls = tree.assign(left=left, right=left + tree["total_ms"].to_numpy(float))
    calls = calls[calls["total_ms"] >= _LEAST * total]
    source = models.ColumnDataSource(
        {
            **{key: calls[key].tolist() for key in _CARD_COLUMNS},
            "bottom": calls["depth"].tolist(),
            "top": (calls["depth"] + 0.92).tolist(),
            "colour": [_colour(call) for call in calls.to_dict("records")],
            "label": _labels(calls, total),
        }
    )
    defaults = {
        "height": 60 + 18 * (int(calls["depth"].max()) + 1),
        "width": 900,
        "tools": "xwheel_zoom,xpan,reset",
        "toolbar_location": None,
    }
    plot = plotting.figure(**defaults | options)
    boxes = plot.quad(
        "left",
        "right",
        "top",
        "bottom",
        source=source,
        fill_color="colour",
        line_color="white",
        line_width=0.5,
    )
    plot.text(
        "left", "bottom", "label", source=source, text_font_size="10px", x_offset=3, y_offset=-2
    )
    card = [
        ("", "@function"),
        ("", "@file:@line"),
        ("total", "@total_ms{0,0.0} ms (@percent{0.0}%)"),
        ("self", "@self_ms{0,0.0} ms"),
    ]
    plot.add_tools(models.HoverTool(renderers=[boxes], tooltips=card))
    plot.xaxis.axis_label, plot.yaxis.visible = "ms", False
    plot.grid.grid_line_color = plot.outline_line_color = None
    flame: Model = plot
    return flame


def _left_edges(tree: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Left edge of the box of each call: right of the longer calls of its caller."""
    total, parent = tree["total_ms"].to_numpy(float), tree["parent"].tolist()
    depth = tree["depth"].tolist()
    left = np.zeros(len(tree))
    used = dict.fromkeys(range(-1, len(tree)), 0.0)
    for row in sorted(range(len(tree)), key=lambda row: (depth[row], -total[row])):
        caller = parent[row]
        left[row] = used[caller]
        if caller >= 0:
            left[row] += left[caller]
        used[caller] += total[row]
    return left


def _colour(call: dict[Any, Any]) -> str:
    """The same for each box of a function."""
    letters = f"{call['file']}{call['function']}"
    return _COLOURS[sum(map(ord, letters)) % len(_COLOURS)]


def _labels(calls: pd.DataFrame, total_ms: float) -> list[str]:
    """Names of functions, cut to the width of their boxes."""
    letters = (110 * (calls["right"] - calls["left"]) / total_ms).astype(int)
    labels = []
    for name, count in zip(calls["function"], letters, strict=True):
        labels.append(name[:count] if count > 2 else "")
    return labels
