"""Real Chrome traces, event by event against the standard library's JSON with decimals."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nbprof.core.files import LocalFile
from nbprof.formats.chrome import chrome
from tests.support.chrome import expected_slices, slices_of
from tests.support.profiles import real

KINETO = [
    "kineto/a100-nccl-ranks/sampled_rank-0.json.gz",
    "kineto/a100-nccl-ranks/sampled_rank-1.json.gz",
    "kineto/h100-bert/h100_bert.pt.trace.json.gz",
    "kineto/mi300-ddp-resnet18/train_resnet18.json.gz",
    "kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/v100-resnet50-workers4/worker0.1623213129365.pt.trace.json.gz",
]


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def _agrees(path: Path) -> int:
    trace = chrome.read([LocalFile(path)])
    found, wanted = slices_of(trace), expected_slices(_text(path))
    assert not found - wanted
    # What is missing stands in the receipt.
    missing = wanted - found
    marks = sum("Record Window End" in event for event in missing)
    assert not any(n.text.startswith("Trace-wide marks") for n in trace.receipt.entries)
    others = sum(n for why, n in trace.receipt.skipped.items() if "(ph" in why)
    flows = _text(path).count('"ph": "f"') + _text(path).count('"ph": "s"')
    assert (
        trace.receipt.dropped - others - flows
        <= sum(missing.values()) - marks
        <= trace.receipt.dropped - others
    )
    return len(trace.events)


@pytest.mark.parametrize("name", KINETO)
def test_every_event_and_arg_of_kineto_traces(name):
    assert _agrees(real(name)) > 2000


def test_every_event_and_arg_of_ascend_traces():
    folder = real("ascend")
    files = [
        f
        for f in sorted(folder.rglob("*.json"))
        if f.read_bytes().lstrip()[:1] == b"[" and b'"ph"' in f.read_bytes()
    ]
    assert len({f.parent for f in files}) > 2
    assert sum(_agrees(f) for f in files) > 10_000
