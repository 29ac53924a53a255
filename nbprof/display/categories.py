"""The step-time categories in stack order, with their colours in every drawing: the counterpart of
CATEGORIES in js/lib/payload.ts.
"""

from __future__ import annotations

from typing import NamedTuple


class Category(NamedTuple):
    """One category of step time."""

    key: str
    label: str
    colour: str
    """On a light ground."""

    @property
    def column(self) -> str:
        """Its column in `Run.steps`."""
        return f"{self.key}_ms"


CATEGORIES = (
    Category("device_compute", "Device compute", "#23896A"),
    Category("device_to_device", "Device to device", "#1E9FCE"),
    Category("device_collectives", "Device collectives", "#123A44"),
    Category("host_compute", "Host compute", "#184A95"),
    Category("kernel_launch", "Kernel launch", "#BF8C08"),
    Category("input", "Input", "#CF4A1A"),
    Category("output", "Output", "#5E3C0A"),
    Category("compile", "Compile", "#9455C8"),
    Category("other", "Other", "#8F959C"),
)

BY_KEY = {category.key: category for category in CATEGORIES}

DEVICE, HOST, OTHER = (
    BY_KEY["device_compute"].colour,
    BY_KEY["host_compute"].colour,
    BY_KEY["other"].colour,
)
OF_SIDE = {"device": DEVICE, "host": HOST}
HEAP, STACK, FREE, FRAGMENTATION = "#6B7F99", "#33445C", "#E9EDF2", "#22262B"
OVER, MIDDLE, UNDER = "#B9480A", "#F1F2F4", "#2B62A8"
"""About a median, which the colour-blind tell apart too."""


def ranked(colour: str, count: int) -> list[str]:
    """`count` shades of a colour on white, the strongest first: lightness says rank, hue says
    where.
    """
    steps: tuple[int, ...] = (100, 90, 80, 71, 63, 55, 48, 41, 35, 29)
    if count <= 5:
        steps = (100, 80, 63, 48, 35)
    return [mix(colour, steps[min(i, len(steps) - 1)]) for i in range(count)]


def mix(colour: str, percent: float, ground: str = "#FFFFFF") -> str:
    """`percent` of a colour on a ground, as #RRGGBB."""
    part = percent / 100
    front, back = _rgb(colour), _rgb(ground)
    return "#" + "".join(
        f"{round(f * part + b * (1 - part)):02X}" for f, b in zip(front, back, strict=True)
    )


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
