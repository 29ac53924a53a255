"""The receipt of a profile: everything that was skipped, clipped or looks wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from nbprof.core.units import join_some

if TYPE_CHECKING:
    import pandas as pd

Level = Literal["info", "warning"]

CELL_FAILED = "cell_failed"
"""The key of the note that says how a cell or a script failed."""


@dataclass(frozen=True)
class Note:
    """One line of the receipt.

    Attributes
    ----------
    level : "info" or "warning"
        A warning makes the figures less reliable; anything else is a fact.
    text : str
        One or more sentences.
    key : str
        Names the kind of note, such as "equal_hosts": it stays the same when the wording changes.
    """

    level: Level
    text: str
    key: str


@dataclass(frozen=True)
class Cut:
    """A truncated or damaged file of which a part was read.

    Attributes
    ----------
    host : int
        The number of its host in the run.
    file : str
    what : str
        Position of its end, and the part that was read.
    """

    host: int
    file: str
    what: str


@dataclass
class Receipt:
    """Notes on reading a profile: everything skipped, clipped or suspicious is listed.

    Attributes
    ----------
    events : int
        Number of events read.
    entries : list of Note
        Without those on skipped events, see `lines`.
    skipped : dict of str to int
        Number of skipped events by reason, which ends the sentence "3 events ...".
    keys : dict of str to str
        Key of the note on the skipped events, by reason.
    cut : list of Cut
        Files that were read in part; they share one note, `about_cut`.
    """

    events: int = 0
    entries: list[Note] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    cut: list[Cut] = field(default_factory=list)

    @property
    def notes(self) -> pd.DataFrame:
        """A row per note: `key`, `level` ("info" or "warning"), `text`.

        Filter by `key`: the wording of a note may change, its key does not.
        """
        # Late: a recording takes notes in programs that do not use pandas.
        import pandas as pd

        lines = self.lines
        return pd.DataFrame(
            {
                "key": [note.key for note in lines],
                "level": [note.level for note in lines],
                "text": [note.text for note in lines],
            },
            dtype=object,
        )

    @property
    def read_in_part(self) -> bool:
        """True if a file is truncated or damaged, and may have had what is missing."""
        return any(note.key == "file_read_in_part" for note in self.entries)

    @property
    def dropped(self) -> int:
        """Number of skipped events."""
        return sum(self.skipped.values())

    def skip(self, reason: str, count: int = 1, *, key: str) -> None:
        """Count skipped events; the reason ends the sentence "3 events ..."."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count
            self.keys[reason] = key

    def info(self, text: str, *, key: str) -> None:
        """Add a fact."""
        self.add(Note("info", text, key))

    def warn(self, text: str, *, key: str) -> None:
        """Add a warning: something that makes the numbers less reliable."""
        self.add(Note("warning", text, key))

    def add(self, *notes: Note) -> None:
        """Add notes; one that is there already is not added again."""
        for note in notes:
            if note not in self.entries:
                self.entries.append(note)

    def cut_off(self, truncated: Cut) -> None:
        """Add a file that was read in part."""
        old = self.about_cut
        index = self.entries.index(old) if old in self.entries else len(self.entries)
        self.cut.append(truncated)
        self.entries[index : index + 1] = [note for note in [self.about_cut] if note is not None]

    @property
    def about_cut(self) -> Note | None:
        """The note on the files that were read in part; None if there are none."""
        if not self.cut:
            return None
        first = self.cut[0]
        if len(self.cut) == 1:
            return Note("warning", f"{first.file}: {first.what}", "file_read_in_part")
        names = join_some([truncated.file for truncated in self.cut], 3)
        return Note(
            "warning",
            f"{len(self.cut):,} files were read in part: {names}. Of the first: {first.what} All"
            " are in p.pods.missing.",
            "file_read_in_part",
        )

    def __str__(self) -> str:
        lines = [f"{_events(self.events)} read, {self.dropped:,} dropped"]
        for note in self.lines:
            mark = "!" if note.level == "warning" else "-"
            lines.append(f"{mark} {note.text}")
        return "\n".join(lines)

    @property
    def lines(self) -> list[Note]:
        """A line for each kind of skipped events, then the notes."""
        skipped = [
            Note("warning", f"{_events(count)} {reason}", self.keys.get(reason, ""))
            for reason, count in self.skipped.items()
        ]
        return skipped + self.entries


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"


def info(key: str, text: str) -> Note:
    """A fact for the receipt."""
    return Note("info", text, key)


def warning(key: str, text: str) -> Note:
    """A warning for the receipt: something that makes the figures less reliable."""
    return Note("warning", text, key)
