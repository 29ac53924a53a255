"""What every face of a profile needs: the run, and the ways in which it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbprof.profiles.widget import DashboardWidget
    from nbprof.run.run import Run


class Shown:
    """A run that can be shown."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._payload: tuple[int, dict[str, Any]] | None = None
        self._temporary: Path | None = None

    def payload(self, events: int | None = None) -> dict[str, Any]:
        """What the dashboard draws: small numbers, texts and typed arrays, with so many events of the trace (20,000)."""
        from nbprof.tools import dashboard as payload

        most = payload.budget(events)
        if self._payload is None or self._payload[0] != most:
            self._payload = most, payload.dashboard(self.run, events=most)
        return self._payload[1]

    def widget(self, **options: Any) -> DashboardWidget:
        """A live anywidget of the dashboard; `widget.selected` are the selected steps, to read and to set.

        Parameters
        ----------
        views : list of str, optional
            Tabs to show; all when left out.
        height : int, optional
            Height in px; the natural one when left out.
        selected : (int, int), optional
            First and last step number of the selection.
        events : int, optional
            How many events of the trace it holds by itself, as `save` takes it; it has the others while the kernel runs.

        Raises
        ------
        NbprofError
            An unknown option or view, or a value that makes no sense.
        """
        from nbprof.profiles.widget import DashboardWidget

        return DashboardWidget(self.run, **options)

    def mimebundle(
        self, views: list[str] | None = None, height: int | None = None, live: bool = True, events: int | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The four mime types of the notebook output, and their metadata, for `display(..., raw=True)`.

        Parameters
        ----------
        views : list of str, optional
            Tabs to show; all when left out.
        height : int, optional
            Height of the live view in px.
        live : bool
            False: picture, text and HTML without script.
        events : int, optional
            How many events of the trace the output holds, as `save` takes it.

        Raises
        ------
        NbprofError
            An unknown view, or `events` is no number of events.
        """
        from nbprof.profiles.report import mimebundle

        return mimebundle.mimebundle(self.run, self.payload(events), views=views, height=height, live=live)
