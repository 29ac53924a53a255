"""A small drawing surface over Pillow: text that measures itself, bars, rules, at the pixels of a
1.5x screen.
"""

from __future__ import annotations

import struct
import unicodedata
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

INK, TEXT, SOFT, FAINT, LINE, TRACK, GROUND = (
    "#000000",
    "#212121",
    "#6B6B6B",
    "#9E9E9E",
    "#DEDEDE",
    "#EBEBEB",
    "#FFFFFF",
)

WIDTH = 1400
"""Units in which a run's picture is drawn, two to a point."""
_SCALE = 0.75
"""Pixels of a unit. Letters on whole pixels look alike each time, which packs better than what is
made smaller afterwards.
"""
_PLAIN = str.maketrans(
    {
        "–": "-",
        "—": "-",
        "−": "-",
        "µ": "u",
        "μ": "u",
        "×": "x",
        "→": ">",
        "≥": ">=",
        "≤": "<=",
        "✓": "+",
        "█": "|",
        "\u00a0": " ",
    }
)
# Soft edges of letters are most of a picture, and pictures a large part of a notebook: with few
# shades the letters look the same, and a picture packs better in a third of the time.
_SHADES = 6
_SHADE = 255 // (_SHADES - 1)
_TO_SHADE = [round(level / _SHADE) * _SHADE for level in range(256)]
_BEFORE = {"l": 0.0, "c": 0.5, "r": 1.0}
"""By alignment: the part of a text that is left of its position."""


@lru_cache(maxsize=32)
def font(size: float) -> ImageFont.FreeTypeFont:
    """The font that Pillow brings along, so that a picture looks the same on every machine."""
    face = ImageFont.load_default(size)
    if not isinstance(face, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType, so nbprof cannot draw text")
    return face


@lru_cache(maxsize=4096)
def _drawable(char: str) -> bool:
    face = font(24)
    return bytes(face.getmask(char)) != bytes(face.getmask("\U0010fffd"))


@lru_cache(maxsize=8192)
def _advance(size: float, pair: str) -> float:
    """Distance from the start of a letter to the start of the next one. Their sum is the width of a
    line, which the font itself takes ten times as long to measure.
    """
    face = font(size)
    return float(face.getlength(pair) - face.getlength(pair[1:]))


@lru_cache(maxsize=2048)
def _width(text: str, size: float) -> float:
    """The width of printable text in pixels."""
    return sum(_advance(size, text[i : i + 2]) for i in range(len(text)))


def _printable_width(text: str, size: int) -> float:
    """The width of printable text in units."""
    return _width(text, size * _SCALE) / _SCALE


_MARGIN = 4
"""Pixels around a line of text, for letters and strokes that reach over its box."""


@lru_cache(maxsize=256)
def _letters(text: str, size: float, stroke: float) -> Image.Image:
    """A line of printable text as a mask with a margin around it.

    Setting the letters is half of the time of a picture, and most lines of a picture are headings
    and labels that the next one has too.
    """
    width = round(_width(text, size) + size)
    mask = Image.new("L", (width + 2 * _MARGIN, round(2 * size) + 2 * _MARGIN))
    ImageDraw.Draw(mask).text(
        (_MARGIN, _MARGIN), text, fill=255, font=font(size), stroke_width=stroke, stroke_fill=255
    )
    return mask.point(_TO_SHADE)


@lru_cache(maxsize=2048)
def printable(text: str) -> str:
    """The text in characters that the font has: accents fall off, a script that it lacks becomes
    "?".
    """
    text = text.translate(_PLAIN)
    if text.isascii():
        return text
    letters = (
        char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char)
    )
    return "".join(char if char.isascii() or _drawable(char) else "?" for char in letters)


class Canvas:
    """A white sheet of a given width that is cut to the height used.

    Parameters
    ----------
    width, height : int
        Units; `height` is the most that can be drawn on.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self._image = Image.new("RGB", (round(width * _SCALE), round(height * _SCALE)), GROUND)
        self._draw = ImageDraw.Draw(self._image)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: int = 22,
        colour: str = TEXT,
        *,
        bold: bool = False,
        align: str = "l",
    ) -> float:
        """Draw one line with its top at y; gives the x at its end."""
        text = printable(text)
        width = _printable_width(text, size)
        left = x - width * _BEFORE[align]
        # The font has one weight: a thin stroke in the same colour reads as semibold.
        stroke = size * _SCALE / 44 if bold else 0
        corner = (round(left * _SCALE) - _MARGIN, round(y * _SCALE) - _MARGIN)
        self._draw.bitmap(corner, _letters(text, size * _SCALE, stroke), fill=colour)
        return left + width

    def measure(self, text: str, size: int) -> float:
        """Width in units."""
        return _printable_width(printable(text), size)

    def fit(self, text: str, size: int, width: float, *, keep_end: bool = False) -> str:
        """The text cut to a width, with an ellipsis at the cut."""
        text = printable(text)
        if _printable_width(text, size) <= width:
            return text

        def shortened(length: int) -> str:
            if not length:
                return "…"
            return f"…{text[-length:]}" if keep_end else f"{text[:length]}…"

        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if _printable_width(shortened(middle), size) <= width:
                low = middle
            else:
                high = middle - 1
        return shortened(low)

    def wrap(self, text: str, size: int, width: float, limit: int) -> list[str]:
        """The text in at most `limit` lines."""
        lines: list[str] = []
        for word in printable(text).split():
            if lines and _printable_width(f"{lines[-1]} {word}", size) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        if len(lines) > limit:
            lines = [*lines[: limit - 1], " ".join(lines[limit - 1 :])]
        return [self.fit(line, size, width) for line in lines]

    def box(
        self, left: float, top: float, right: float, bottom: float, colour: str, radius: float = 0
    ) -> None:
        """A filled rectangle; nothing when it has no area."""
        if right - left < 1 or bottom - top < 1:
            return
        x, y = round(left * _SCALE), round(top * _SCALE)
        area = (x, y, max(round(right * _SCALE) - 1, x), max(round(bottom * _SCALE) - 1, y))
        if radius:
            self._draw.rounded_rectangle(area, radius * _SCALE, fill=colour)
        else:
            self._draw.rectangle(area, fill=colour)

    def rule(self, left: float, right: float, y: float, colour: str = LINE, dash: int = 0) -> None:
        """A horizontal hairline."""
        # One pixel: two units would be one here and two there.
        y = round(y * _SCALE) / _SCALE
        if not dash:
            self.box(left, y, right, y + 1, colour)
            return
        for x in range(round(left), round(right), 2 * dash):
            self.box(x, y, min(x + dash, right), y + 1, colour)

    def png(self, height: float) -> bytes:
        """The sheet down to `height` as a PNG with a palette."""
        sheet = self._image.crop((0, 0, self._image.width, max(1, round(height * _SCALE))))
        # There are some forty colours; the rest of the palette repeats the most common one.
        by_count = sorted(sheet.getcolors(sheet.width * sheet.height) or [], reverse=True)[:256]
        palette = np.array([colour for _, colour in by_count], np.uint8).tobytes()
        colours = Image.new("P", (1, 1))
        colours.putpalette(palette + palette[:3] * (256 - len(by_count)))
        flat = sheet.quantize(palette=colours, dither=Image.Dither.NONE)
        return _png(np.asarray(flat), palette)


def _png(pixels: npt.NDArray[np.uint8], palette: bytes) -> bytes:
    """The file of an image with a palette, at 144 pixels an inch; Pillow's own writer imports those
    of four other formats first.
    """
    height, width = pixels.shape
    # Each row begins with its filter, which is none.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = pixels
    # Level 8 takes three times as long for a twentieth.
    packer = zlib.compressobj(6, strategy=zlib.Z_FILTERED)
    chunks = {
        b"IHDR": struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0),
        b"PLTE": palette,
        b"pHYs": struct.pack(">2IB", 5669, 5669, 1),
        b"IDAT": packer.compress(rows.tobytes()) + packer.flush(),
        b"IEND": b"",
    }
    file = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(file)
