"""The payload of the tab Machines."""

from __future__ import annotations

from nbprof.tools.parts import Tab


class Machines(Tab):
    """The hosts of the run."""

    hosts: list[str]
