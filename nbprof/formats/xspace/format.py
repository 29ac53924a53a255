"""XSpace as a format: `*.xplane.pb` of TensorFlow, JAX and PyTorch/XLA.

All such files of a folder are the hosts of one run, which is named after the folder. This is how
the profilers write: `<logdir>/plugins/profile/<run>/<host>.xplane.pb`. A profile of over 2 GiB,
more than protobuf can write as one message, is `<host>.xplane.riegeli` where it was recorded in
parts, and else an empty `<host>.xplane.pb`.
"""

from __future__ import annotations

import re
import time

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles
from nbprof.core.receipt import info
from nbprof.formats import hosts
from nbprof.formats.format import PACKING, Format, Head, Here, Kind, Member, is_text
from nbprof.formats.names import SUFFIXES
from nbprof.formats.xspace.riegeli import SIGNATURE

_NAME = "xspace"
_PARTS = ".riegeli"
EMPTY = (
    "the file is empty: the profiler was stopped before it wrote anything, or the profile is larger"
    " than 2 GiB, which does not fit into a *.xplane.pb."
)
_TABLE = "a table that TensorBoard created from a profile"
_PROFILE = ".xplane.pb"
# Other protobuf files that lie where profiles do.
_OTHERS: tuple[tuple[str, str, str], ...] = (
    (".hlo_proto.pb", "a compiled program (HLO) that XProf stored next to the profile", _PROFILE),
    (".op_stats.pb", "a table that XProf created from a profile", _PROFILE),
    (".overview_page.pb", _TABLE, _PROFILE),
    (".input_pipeline.pb", _TABLE, _PROFILE),
    (".tensorflow_stats.pb", _TABLE, _PROFILE),
    (".kernel_stats.pb", _TABLE, _PROFILE),
    ("saved_model.pb", "a TensorFlow SavedModel", ""),
)


def sniff(head: Head) -> Kind | None:
    """Whether it is an XSpace, or another protobuf file."""
    named_riegeli = ".xplane.riegeli" in head.name.lower()
    if head.data.startswith(SIGNATURE) or (head.named and named_riegeli):
        # A file of records may hold anything.
        return Kind(
            _NAME, "an XSpace profile" if named_riegeli else "a Riegeli file", sure=named_riegeli
        )
    if not head.json:
        # By its name it is one: where it is damaged, the reader says. Nothing is walked in the
        # files of a thousand hosts.
        named = head.named and ".xplane.pb" in head.name and head.data[0] in _TAGS
        sure = False if named else begins(head.data)
        # A quote begins a field, too, whose end a short text does not have.
        text = head.data[:1] == b'"' and is_text(head.data[:4096])
        if sure or (sure is False and not text):
            return Kind(_NAME, "an XSpace profile", sure=sure)
    lower = head.name.lower()
    for suffix, description, source in _OTHERS:
        if lower.endswith(suffix):
            return Kind("", description, source=source)
    if lower.endswith(".pb") and not is_text(head.data[:4096]):
        return Kind("", "a protobuf file, but not an XSpace profile")
    return None


# Fields of an XSpace down to lines and stats: the wire type, _TEXT, or the message that is below.
_TEXT = 22
# What is walked field by field: enough to tell.
_ENOUGH = 1 << 11
_TAGS = (0x0A, 0x12, 0x1A, 0x22)
_Shape = dict[int, "int | _Shape"]
_STAT: _Shape = {
    1: wire.VARINT,
    2: wire.FIXED64,
    3: wire.VARINT,
    4: wire.VARINT,
    5: wire.LENGTH,
    6: wire.LENGTH,
    7: wire.VARINT,
}
_EVENT: _Shape = {1: wire.VARINT, 2: wire.VARINT, 3: wire.VARINT, 4: _STAT, 5: wire.VARINT}
_LINE: _Shape = {
    1: wire.VARINT,
    2: _TEXT,
    3: wire.VARINT,
    4: _EVENT,
    9: wire.VARINT,
    10: wire.VARINT,
    11: _TEXT,
}
_ENTRY: _Shape = {1: wire.VARINT, 2: wire.LENGTH}
_PLANE: _Shape = {1: wire.VARINT, 2: _TEXT, 3: _LINE, 4: _ENTRY, 5: _ENTRY, 6: _STAT}
_SPACE: _Shape = {1: _PLANE, 2: _TEXT, 3: _TEXT, 4: _TEXT}


def begins(head: bytes) -> bool | None:
    """Whether an XSpace begins here: True if it must be one, False if nothing is against it, None
    if it is none.

    The fields in the head are walked down to lines and stats. Other protobuf files (graphs,
    SavedModels, compiled programs, tables of TensorBoard) have a field of another type in one of
    these places.
    """
    if head[0] not in _TAGS:
        return None
    head = head[:_ENOUGH]
    planes: list[int] = []
    if not _fits(head, 0, len(head), _SPACE, planes):
        return None
    return bool(planes)


def _fits(data: bytes, offset: int, end: int, shape: _Shape, planes: list[int]) -> bool:
    """True if the fields from `offset` to `end` have the types of a message; one that runs over the
    end of the head is walked that far.
    """
    truncated = end == len(data)
    try:
        while offset < end:
            start = offset
            tag, offset = wire.read_varint(data, offset, end)
            number, kind = tag >> 3, tag & 7
            expected = shape.get(number)
            fits = expected is None or kind == (
                expected if expected in (wire.VARINT, wire.FIXED64, wire.LENGTH) else wire.LENGTH
            )
            if (
                not fits
                or number == 0
                or kind not in (wire.VARINT, wire.FIXED64, wire.LENGTH, wire.FIXED32)
            ):
                return False
            if kind == wire.VARINT:
                offset = wire.read_varint(data, offset, end)[1]
            elif kind != wire.LENGTH:
                offset += 8 if kind == wire.FIXED64 else 4
            else:
                length, offset = wire.read_varint(data, offset, end)
                here = min(offset + length, len(data))
                if offset + length > end and not truncated:
                    return False
                if expected == _TEXT and not is_text(data[offset:here]):
                    return False
                if isinstance(expected, dict) and not _fits(data, offset, here, expected, planes):
                    return False
                offset += length
            if shape is _PLANE and expected is not None and offset - start > 2:
                planes.append(start)
    except ReadError:
        # At the end of the head a number may be cut off; before it, it is wrong.
        return truncated
    return True


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """All hosts of a folder are one run."""
    members = here.of(_NAME)
    if not members:
        return before
    in_parts = {
        member.stem: member.file.name for member in members if _PARTS in member.file.name.lower()
    }
    left = [member for member in members if _is_left(member, in_parts)]
    notes = tuple(
        info(
            "read_from_parts",
            f"{member.file.name} is empty: the profile is larger than 2 GiB, which protobuf cannot"
            f" write as one message. It is read from {in_parts[member.stem]} beside it.",
        )
        for member in left
    )
    members = [member for member in members if member not in left]
    files = tuple(member.file for member in members)
    started = _started(here.name) if here.of_one_run else None
    newest = max(file.modified for file in files) if started is None else started
    notes += hosts.about_missing(member.stem for member in members)
    return [
        *before,
        RunFiles(here.name, here.folder, files, newest, _NAME, notes, dated=started is not None),
    ]


def _started(run: str) -> float | None:
    """When a run was recorded, which TensorFlow and JAX name it after; None of another name."""
    try:
        return time.mktime(time.strptime(run, "%Y_%m_%d_%H_%M_%S"))
    except (ValueError, OverflowError):
        return None


def _is_left(member: Member, in_parts: dict[str, str]) -> bool:
    """Whether a file is what is left of one host's profile that was too large for it, and that is
    there in parts.
    """
    return in_parts.get(member.stem, member.file.name) != member.file.name and member.file.size == 0


FORMAT = Format(
    name=_NAME,
    label="*.xplane.pb",
    sniff=sniff,
    reader="nbprof.formats.xspace.xspace:read",
    dialect="nbprof.dialects.xplane.xplane:interpret",
    suffixes=SUFFIXES["xspace"],
    names=re.compile(r"\.xplane\.(pb|riegeli)" + PACKING, re.IGNORECASE),
    empty=EMPTY,
    by_folder=True,
    gather=gather,
    bounded=True,
    says_decoded=True,
    separate_hosts=True,
)
