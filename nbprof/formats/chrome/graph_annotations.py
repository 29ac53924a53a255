"""PyTorch's annotations of what was captured into CUDA graphs, in files that lie beside a trace.

`torch.cuda.graph_annotations.mark_kernels` (up to PyTorch 2.13 `torch.cuda._graph_annotations`)
notes for each node of a graph that is captured within it a text, or a dict such as `{"name": ...,
"module_fqn": ...}`. PyTorch keeps them by the number that a replay states as `graph node id`, and
programs save them with `pickle.dump(dict(get_kernel_annotations()), file)` as
`kernel_annotations_rank0_*.pkl`, the name that `torch.cuda._annotate_cuda_graph_trace` looks for.
Read as plain data: no code in the pickle runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.files import RunFiles, SourceFile, printable
from nbprof.core.receipt import Note, warning
from nbprof.formats.chrome import runs

_FILE = re.compile(r"kernel_annotations_rank(\d{1,9})(?:_.*)?\.(?:pkl|pickle)\Z")
_RANK = re.compile(rb'"distributedInfo"[^}]{0,4096}?"rank"\s*:\s*(\d{1,9})')
_HEAD = 1 << 16
_LARGEST = 256 << 20
NAMES = ("annotation", "str", "name")
"""The keys of an annotation's text in the versions of PyTorch: what it says of a node where that is
no dict, of a text, and of a dict.
"""
MODULES = ("module_fqn",)
"""The key of the nn.Module, as TorchTitan writes it."""


class Said(NamedTuple):
    """What an annotation says of a node of a graph; empty texts for what it does not."""

    name: str = ""
    module: str = ""


Annotations = Mapping[int, Mapping[int, Said]]
"""By rank, and by node as a replay states it."""


def beside(files: RunFiles) -> tuple[SourceFile, ...]:
    """The files of annotations in the folders of a run of Chrome traces; of many ranks those of its
    traces, where these state theirs.
    """
    result = runs.lying_beside(files, _FILE)
    if len(result) > len(files.files):
        # Read apart, each host would read the files of all.
        ranks = {_rank(file) for file in files.files}
        if None not in ranks:
            result = [file for file in result if int(_FILE.sub(r"\1", file.name)) in ranks]
    return tuple(result)


def _rank(file: SourceFile) -> int | None:
    """The rank that a trace states at its beginning."""
    try:
        match = _RANK.search(file.head(_HEAD))
    except (NbprofError, OSError):
        return None
    return int(match[1]) if match else None


def read(pieces: Sequence[SourceFile]) -> tuple[Annotations, list[Note]]:
    """The annotations in some files, and a note on each file that cannot be read.

    Of a node that several files of one rank annotate, only that in which they agree is said.
    """
    result: dict[int, dict[int, Said]] = {}
    bad = []
    for piece in pieces:
        rank = _FILE.match(piece.name)
        try:
            nodes = _nodes(piece)
        except (ReadError, OSError):
            text = (
                f"{printable(piece.name)} next to the trace is not a valid PyTorch graph annotation"
                " file and is ignored."
            )
            bad.append(warning("invalid_graph_annotations", text))
            continue
        noted = result.setdefault(int(rank[1]) if rank else 0, {})
        for node, note in nodes.items():
            previous = noted.get(node, note)
            noted[node] = Said(
                *(
                    agreed if agreed == other else ""
                    for agreed, other in zip(previous, note, strict=True)
                )
            )
    return result, bad


def _nodes(piece: SourceFile) -> dict[int, Said]:
    # Late: most traces have none, and need no reader of pickles.
    from nbprof.formats.torch_snapshot.plain_pickle import Unpickler

    if (piece.size or 0) > _LARGEST:
        raise ReadError("it is too large.")
    with piece.open() as opened:
        top = Unpickler(opened.read).load()
    if type(top) is not dict or not all(
        type(node) is int and isinstance(notes, list) for node, notes in top.items()
    ):
        raise ReadError("it is not a dict of nodes.")
    return {node: _annotation_of(notes) for node, notes in top.items()}


def _annotation_of(notes: list[Any]) -> Said:
    """What the notes of one node say together: of a key the last, as PyTorch's tool writes them
    into a trace.
    """
    texts: dict[Any, str] = {}
    for note in notes:
        if isinstance(note, dict):
            texts.update(
                (key, str(value))
                for key, value in note.items()
                if isinstance(value, str | int | float)
            )
        elif isinstance(note, str):
            texts["annotation"] = note
    return Said(
        *(next((texts[key] for key in keys if texts.get(key)), "") for keys in (NAMES, MODULES))
    )
