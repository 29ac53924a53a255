"""The unit of work that figures are given per: a step, an iteration, a call, or the recording
itself.

Every recording with work in it has one. Where nothing marks steps, the iterations of a loop, calls
of a model or repetitions in the recorded events are the unit; where nothing repeats, the recording
from its first to its last event of work is. All frames that have a row per step have a row per unit
then, and every sentence takes its words from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nbprof.core.receipt import Note, info

# Not the name of a column or a frame, such as step_time or p.steps.
_STEP = re.compile(r"\b(an? )?(?<![`.])(steps?)\b(?!\.\w)", re.IGNORECASE)
_OF_RECORDING = (
    (re.compile(r" / step\b"), ""),
    (
        re.compile(r"\b(?:per|of) (?:the |a )?step(?: time)?\b|\bover the steps\b"),
        "of the recording",
    ),
    (re.compile(r"\bstep time\b"), "duration"),
    (re.compile(r"\b(?:a|the) step\b"), "the recording"),
    (re.compile(r"\bStep (?=ms\b)"), "Recording "),
)
"""What headings and tooltips of columns say of steps, and what that is where there is one recording
in their place.
"""

STEP, ITERATION, CALL, RECORDING = "step", "iteration", "call", "recording"
KINDS = (STEP, ITERATION, CALL, RECORDING)
"""Kinds of units, the best first: hosts of one run that have different ones are shown by the
best.
"""


@dataclass(frozen=True)
class Unit:
    """The unit that a recording is divided into.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    how : str
        A sentence for the receipt: how it was found, and how to choose another; "" where steps are
        marked.
    agreement : float or None
        Of an estimate, the share of events that fit it, 0 to 1; None of what is exact.
    """

    kind: str = STEP
    how: str = ""
    agreement: float | None = None

    @property
    def estimated(self) -> bool:
        """True if it was inferred from events that repeat, rather than recorded."""
        return self.agreement is not None

    @property
    def is_recording(self) -> bool:
        """True if the unit is the recording itself, so that there is only one and no average."""
        return self.kind == RECORDING

    @property
    def noun(self) -> str:
        """One of them: "step", "iteration", "call" or "recording"."""
        return self.kind

    @property
    def plural(self) -> str:
        """Several of them."""
        return f"{self.noun}s"

    @property
    def a(self) -> str:
        """With an article, as a subject: "a step", "an iteration", "the recording"."""
        if self.is_recording:
            return "the recording"
        article = "an" if self.noun[0] in "aeiou" else "a"
        return f"{article} {self.noun}"

    @property
    def the(self) -> str:
        """With the definite article: "the step"."""
        return f"the {self.noun}"

    @property
    def time(self) -> str:
        """The total of percentages: "step time", "iteration time", "call time"; for the recording
        "the recording".
        """
        return "the recording" if self.is_recording else f"{self.noun} time"

    @property
    def per(self) -> str:
        """The unit of figures: "per step", "per iteration", "per call"; for the recording "of the
        recording".
        """
        return "of the recording" if self.is_recording else f"per {self.noun}"

    @property
    def counted(self) -> str:
        """The unit of counts: "12 times per step"; for a recording "12 times in the recording"."""
        return "in the recording" if self.is_recording else self.per

    @property
    def label(self) -> str:
        """The heading of its mean duration: "Average step time"; of the recording "Duration"."""
        return "Duration" if self.is_recording else f"Average {self.time}"

    @property
    def average(self) -> str:
        """The heading of the figure of its mean duration where there is little room: "Average
        step"; of the recording "Duration".
        """
        return "Duration" if self.is_recording else f"Average {self.noun}"

    @property
    def words(self) -> dict[str, str]:
        """All of them, by name: what a page that draws figures needs to speak of them."""
        names = ("kind", "noun", "plural", "a", "the", "time", "per", "counted", "label", "average")
        return {name: str(getattr(self, name)) for name in names}

    def reword(self, text: str) -> str:
        """The heading or the tooltip of a column, which are written of steps, in the words of this
        unit.
        """
        if self.kind == STEP:
            return text
        if not self.is_recording:
            return _STEP.sub(self._instead, text)
        for of_steps, instead in _OF_RECORDING:
            text = of_steps.sub(instead, text)
        return text

    def _instead(self, match: re.Match[str]) -> str:
        word = self.noun
        if match[1]:
            word = self.a
        elif match[2].lower() == "steps":
            word = self.plural
        if match[0][0].isupper():
            return word[:1].upper() + word[1:]
        return word

    def fill(self, text: str) -> str:
        """A text with `{noun}`, `{plural}`, `{a}`, `{the}`, `{time}` and `{per}` replaced by these
        words.
        """
        return text.format(
            noun=self.noun, plural=self.plural, a=self.a, the=self.the, time=self.time, per=self.per
        )

    @property
    def notes(self) -> list[Note]:
        """The note on how it was found; none of marked steps."""
        return [info("unit_of_figures", self.how)] if self.how else []

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Unit:
        """The unit that `to_dict` returned."""
        return cls(str(values["kind"]), str(values["how"]), values["agreement"])

    @classmethod
    def of(cls, overview: Mapping[str, Any]) -> Unit:
        """The unit of a mapping `p.overview`, or of what was made of one; `MARKED` where it is
        older than units.
        """
        values = overview.get("unit")
        if not isinstance(values, dict):
            return MARKED
        return cls.from_dict(values)


NONE, WHOLE, NAMED, ANY = "none", "recording", "named", "any"
"""What may stand in the place of steps where nothing marks any: nothing, the recording, ranges and
calls that have a name, or all that repeats. Hosts that are read one by one do not know whether
another has steps, nor what repeats on all of them. Where the loops of a notebook's cell were
recorded, what repeats beside them is no loop of the person's."""

MARKED = Unit()
"""Steps that the program, its framework or nbprof marked."""


def best(units: list[Unit]) -> Unit:
    """The best of the units of several hosts; `MARKED` of none."""
    return min(units, key=lambda unit: KINDS.index(unit.kind), default=MARKED)
