"""Traces, logdirs and archives for tests of where profiles lie."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

from tests.support.xspace import PlaneWriter, chunk


def trace(
    name: str = "aten::mm",
    rank: int | None = None,
    world: int | None = None,
    *,
    exporter: bool = False,
    padding: int = 0,
) -> bytes:
    """A small trace as PyTorch writes it, or as XLA's exporter does."""
    top: dict[str, object] = (
        {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
        if exporter
        else {"schemaVersion": 1}
    )
    if rank is not None:
        top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    if padding:
        top["pad"] = "x" * padding
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": 1000.0,
        "dur": 10.0,
        "args": {},
    }
    return json.dumps({**top, "traceEvents": [event]}).encode()


def space(op: str = "dense/MatMul:MatMul", steps: int = 2) -> bytes:
    """A small XSpace in which one op tells it from others; it names no host, so that the file's
    name is taken.
    """
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event(op, i * 10**9, 10**8) for i in range(steps)])
    return chunk(1, host.encode())


def write(root: Path, files: dict[str, bytes], at: float | None = None) -> Path:
    """Files below a folder, by their paths; all of one time, if that is given."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if at is not None:
            os.utime(path, (at, at))
    return root


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar archive, `w:gz` and so on for a packed one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def gz(data: bytes) -> bytes:
    """Packed with gzip."""
    return gzip.compress(data)
