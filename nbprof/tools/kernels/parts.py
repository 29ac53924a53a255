"""The payload of the tab GPU kernels."""

from __future__ import annotations

from nbprof.tools.parts import Figure, Ring, Tab, Table


class Kernels(Tab):
    """The kernels with the most time, and sums over all of them."""

    chip: str
    """What they ran on: "GPU", "NPU"."""
    occupancy: str
    """Where recorded occupancies come from, at the end of a sentence."""
    # The names of both are long and mostly the same: so close together gzip finds them again.
    by_name: Table
    """`p.kernels.by_name()` of the names in the table, over all rows of the profile."""
    table: Table
    by_op: Table
    top: Ring
    """The kernels with the most time, of all of it."""
    figures: list[Figure]
