"""Sidecar files that are read along with a run. Each may be a link that leads elsewhere."""

from __future__ import annotations

from nbprof.core.files import RunFiles, SourceFile
from nbprof.formats.chrome import graph_annotations, inductor
from nbprof.formats.torch_snapshot import beside as snapshots


def beside(files: RunFiles) -> tuple[SourceFile, ...]:
    """Snapshots of PyTorch's allocator, inductor's provenance, and PyTorch's annotations of
    graphs.
    """
    return (*snapshots.beside(files), *inductor.beside(files), *graph_annotations.beside(files))
