"""The live dashboard as an anywidget, for ipywidgets layouts.

Its selected steps can be read and set from Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles import trials
from nbprof.profiles.comms import answer, deliver
from nbprof.profiles.report import bundle
from nbprof.profiles.report.mimebundle import mimebundle
from nbprof.tools.common import unit_in
from nbprof.tools.dashboard import chosen, dashboard, select

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

_OPTIONS = ("views", "height", "selected", "events", "layout")


class DashboardWidget(anywidget.AnyWidget):
    """The dashboard, or some of its views, in a live notebook.

    **Example:**

    ```py
    widget = p.steps.widget()
    widget                        # drag over the strip below the step graph
    widget.selected               # [508, 515]
    widget.selected = (510, 512)
    widget.observe(lambda change: print(change.new), names="selected")
    ```

    Parameters
    ----------
    run : Run
    payload : Payload, optional
        The payload of this run, if it is computed already.
    views : iterable of str, optional
        Tabs to show, by the ids and words of `nbprof.tools.names`.
    height : int, optional
        Height in px; the natural height by default.
    selected : (int, int), optional
        First and last step number of the selection.
    events : int, optional
        Number of trace events that it holds; 20,000 by default. Not used with `payload`.

    Raises
    ------
    NbprofError
        Unknown option or view, invalid value, or the front end has not been built.
    """

    _esm: Any = traitlets.Unicode().tag(sync=True)

    packed = traitlets.Bytes().tag(sync=True)
    """The payload, as packed by `nbprof.display.codec.pack`."""

    selected: Any = traitlets.List(traitlets.Int()).tag(sync=True)
    """[first, last] step number of the selection; empty when all steps are selected."""

    views: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The tabs to show; empty for all."""

    height = traitlets.Int(0).tag(sync=True)
    """Height in px; 0 for the natural height."""

    def __init__(
        self,
        run: Run,
        payload: Payload | None = None,
        *,
        views: Iterable[str] | None = None,
        height: int | None = None,
        selected: Sequence[int] | None = None,
        events: int | None = None,
        **options: Any,
    ) -> None:
        # traitlets ignores misspelt options.
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise NbprofError(
                f"a dashboard widget has no option {unknown[0]!r}; it takes {', '.join(_OPTIONS)}"
            )
        tabs = chosen(views) if views else []
        self._run = run
        if payload is None:
            self._payload = dashboard(run, tabs or None, events)
        else:
            self._payload = select(payload, tabs or None)
        self._steps = [int(step) for step in self._payload.steps.step]
        super().__init__(
            _esm=bundle.script(),
            packed=codec.pack(self._payload),
            views=tabs,
            height=height or 0,
            selected=[] if selected is None else selected,
            **options,
        )
        self._draw = partial(dashboard, run, tabs or None, events)
        self.on_msg(self._on_request)
        trials.watch(run, self._tried)

    def _tried(self) -> None:
        """Shows the results of experiments."""
        self._payload = self._draw()
        self.packed = codec.pack(self._payload)

    def _on_request(self, _: Any, message: Any, __: Any) -> None:
        """Answers requests of the view for more of the trace than the payload has."""
        deliver(message, lambda request: answer(self._run, request), self.send)

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> list[int]:
        value = list(proposal["value"])
        if not value:
            return []
        if len(value) != 2:
            raise NbprofError(
                "selected takes two step numbers (first, last) or nothing for all steps, not"
                f" {len(value)} numbers"
            )
        first, last = int(value[0]), int(value[1])
        if first > last:
            raise NbprofError(
                f"selected goes from the first to the last step; {first} is after {last}"
            )
        if unit_in(self._payload.meta).is_recording:
            raise NbprofError(
                "this recording is not divided into steps, so there are none to select"
            )
        if not self._steps:
            raise NbprofError("this run has no steps to select")
        if last < min(self._steps) or first > max(self._steps):
            raise NbprofError(
                f"steps {first} to {last} are not in this run; it has {min(self._steps)} to"
                f" {max(self._steps)}"
            )
        return [first, last]

    @traitlets.validate("height")
    def _check_height(self, proposal: Any) -> int:
        if proposal["value"] < 0:
            raise NbprofError(
                f"a height of {proposal['value']} px cannot be drawn; 0 means automatic height"
            )
        return int(proposal["value"])

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live view, and the static one for viewers without a kernel."""
        live = super()._repr_mimebundle_(**kwargs)
        if live is None:
            return None
        still, metadata = mimebundle(self._run, self._payload, height=self.height)
        # Without our own mime type, which JupyterLab would prefer to the widget.
        data = {key: still[key] for key in ("text/html", "image/png", "text/plain")}
        live_data = {key: value for key, value in live[0].items() if key != "text/plain"}
        return {**data, **live_data}, {**metadata, **live[1]}
