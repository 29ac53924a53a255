"""What inductor, the compiler behind `torch.compile`, says of its kernels in files that lie beside
a trace.

Recorded with `INDUCTOR_PROVENANCE=1` it writes for each compiled graph which nodes of the graph
went into each kernel, and the lines of code that these came of: `torch/_inductor/debug.py`.
`TORCH_COMPILE_DEBUG=1` leaves the nodes as a file, tlparse both, a package of AOTInductor both as
`kernel_information.json`; the log that `TORCH_TRACE` names has both as they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nbprof.core.errors import NbprofError
from nbprof.core.files import RunFiles, SourceFile
from nbprof.core.late_pattern import late_pattern
from nbprof.core.receipt import Note, warning
from nbprof.formats.chrome import runs

_FILE = late_pattern(
    r"inductor_(?:provenance_tracking_(?:node_mappings|kernel_stack_traces)|triton_kernel_to_post_grad_nodes)\w*\.json\Z"
    r"|kernel_information\.json\Z|dedicated_log_torch_trace_\w*\.log\Z"
)
_ARTIFACT = late_pattern(
    rb'"artifact": *\{"name": *"inductor_provenance_tracking_(?:node_mappings|kernel_stack_traces)"'
)
_LARGEST = 256 << 20
_HANDLE = late_pattern(r":(\d+)\Z")
_FRAME = late_pattern(r'^\s*File "(.*)", line (\d+), in ', re.MULTILINE)
_COUNTED = late_pattern(r"_\d+\Z")
# Nodes that are no op: inputs and constants of the graph, and the choice of one output of several.
_NO_OP = late_pattern(
    r"(?:primals|tangents|arg\d+|s\d+|getitem|\w+_rng_state|_tensor_constant\d+|_frozen_param\d+)\Z"
)
# A node that a pass of inductor puts in is named by its overload as well: `add_tensor` is
# aten.add.Tensor.
_OVERLOAD = late_pattern(
    r"(\w+?)_(?:default|tensor|scalar|tensor_scalar|tensor_tensor|int|self|dims?|dim_int_list|correction)\Z"
)
# Ops that are themselves named as if by an overload.
_ALIKE = late_pattern(
    r"(?:scalar|hash|quantize_per|_choose_qparams_per|_make_per_(?:tensor|channel)_quantized|_?nested_(?:from|to)_padded|to_padded|"
    r"_reshape_from|_shape_as|sparse_(?:coo|csr|csc|bsr|bsc|compressed))_tensor\Z|_(?:functional_)?assert_scalar\Z|"
    r"\w+_with_dims\Z|(?:take_along|unique|norm_except|_add_batch|_remove_batch|sparse|dense)_dim\Z"
)


class Kernel(NamedTuple):
    """A call of a kernel in a compiled graph: its name, the ops (of ATen and prims) that it was
    made of, and their lines of code.
    """

    name: str
    ops: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


Program = tuple[Kernel, ...]
"""The calls of kernels of one compiled graph, in order."""


def beside(files: RunFiles) -> tuple[SourceFile, ...]:
    """The files of inductor in the folders of a run of Chrome traces."""
    return tuple(runs.lying_beside(files, _FILE))


def read(pieces: Sequence[SourceFile]) -> tuple[tuple[Program, ...], list[Note]]:
    """The programs in some files, each once, and a note on each file that cannot be read."""
    nodes: list[dict[str, tuple[str, ...]]] = []
    lines: list[dict[str, tuple[str, ...]]] = []
    bad = []
    for piece in pieces:
        try:
            for text in _texts(piece):
                _sort(json.loads(text), nodes, lines)
        except (NbprofError, ValueError, RecursionError, OSError):
            about = f"{piece.name} next to the trace is not valid inductor output and is ignored."
            bad.append(warning("invalid_inductor_output", about))
    # Both are of one graph where they are of the same calls.
    joined = [(line, [other for other in nodes if other.keys() == line.keys()]) for line in lines]
    alone = [node for node in nodes if not any(node.keys() == other.keys() for other in lines)]
    programs = [
        _program(joined_node, node) for node, fitting in joined for joined_node in fitting or [{}]
    ] + [_program(node, {}) for node in alone]
    return tuple(
        dict.fromkeys(
            program for program in programs if any(kernel.ops or kernel.lines for kernel in program)
        )
    ), bad


def _texts(piece: SourceFile) -> Iterator[bytes]:
    if (piece.size or 0) > _LARGEST:
        raise ValueError(piece.name)
    if not piece.name.endswith(".log"):
        yield piece.head(_LARGEST)
        return
    with piece.open() as log:
        selected = False
        for line in log:
            if selected and line.startswith(b"\t"):
                yield line
            selected = bool(_ARTIFACT.search(line))


def _sort(
    value: object, nodes: list[dict[str, tuple[str, ...]]], lines: list[dict[str, tuple[str, ...]]]
) -> None:
    """Adds what one text says of kernels: nodes or lines of each, or both."""
    if not isinstance(value, dict):
        raise ValueError(value)
    mapped = value.get("cppCodeToPost")
    if isinstance(mapped, dict):
        nodes.append({str(key): _ops(names) for key, names in mapped.items()})
        return
    if "version" in value:
        # Of a graph of which it knows no nodes.
        return
    both = {str(key): entry for key, entry in value.items() if isinstance(entry, dict)}
    if both:
        nodes.append({key: _ops(entry.get("post_grad_nodes")) for key, entry in both.items()})
        lines.append({key: _lines(entry.get("stack_traces")) for key, entry in both.items()})
        return
    stacks = any(
        "File " in str(text)
        for listed in value.values()
        if isinstance(listed, list)
        for text in listed
    )
    (lines if stacks else nodes).append(
        {str(key): (_lines if stacks else _ops)(entry) for key, entry in value.items()}
    )


def _ops(names: object) -> tuple[str, ...]:
    """Ops of nodes, which are counted where there are several of an op: `mul`, `mul_1`."""
    plain = (_COUNTED.sub("", str(name)) for name in names) if isinstance(names, list) else ()
    return tuple(dict.fromkeys(_op(name) for name in plain if not _NO_OP.match(name)))


def _op(node: str) -> str:
    match = None if _ALIKE.match(node) else _OVERLOAD.match(node)
    return match[1] if match else node


def _lines(stacks: object) -> tuple[str, ...]:
    """The innermost line of each stack."""
    frame_lists = [_FRAME.findall(str(text)) for text in stacks] if isinstance(stacks, list) else []
    return tuple(
        dict.fromkeys(f"{frames[-1][0]}:{frames[-1][1]}" for frames in frame_lists if frames)
    )


def _program(nodes: dict[str, tuple[str, ...]], lines: dict[str, tuple[str, ...]]) -> Program:
    keys = list(lines or nodes)
    counted = [
        int(match[1]) if (match := _HANDLE.search(key)) else number
        for number, key in enumerate(keys)
    ]
    order = sorted(range(len(keys)), key=counted.__getitem__)
    return tuple(
        Kernel(_HANDLE.sub("", keys[i]), nodes.get(keys[i], ()), lines.get(keys[i], ()))
        for i in order
    )
