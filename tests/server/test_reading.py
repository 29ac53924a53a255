"""How far the reading of files is, and that it is told."""

from __future__ import annotations

import gzip
import json

import pytest

from nbprof.profiles.load import load
from nbprof.server import handlers, reading
from nbprof.server.process import Progress
from nbprof.sources.locate import find
from tests.server.conftest import torch_trace
from tests.support import pods
from tests.support.xspace import training_run


def read(path):
    """What was said while the files at a path were read, and the profile."""
    said = []
    files, say = reading.followed(
        find(path), lambda text, fraction=None: said.append((text, fraction))
    )
    return said, load(files, progress=say)


@pytest.fixture(autouse=True)
def _uncached(monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE", "0")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.xplane.pb", training_run(300)),
        ("a.pt.trace.json", torch_trace()),
        ("a.pt.trace.json.gz", gzip.compress(torch_trace())),
    ],
)
def test_a_byte_counts_when_it_is_in_memory_and_when_it_is_decoded(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    said, profile = read(tmp_path / name)
    fractions = [fraction for _, fraction in said]
    assert {text for text, _ in said} == {f"reading {name}"}
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert 0.5 in fractions, "all is in memory, and nothing is decoded"
    assert fractions[-1] > 0.9
    assert profile.run.receipt.events == load(tmp_path / name).run.receipt.events


def test_the_files_of_a_run_are_one_whole(tmp_path):
    run = tmp_path / "plugins" / "profile" / "run"
    run.mkdir(parents=True)
    for host, steps in (("a", 50), ("b", 51)):
        (run / f"{host}.xplane.pb").write_bytes(training_run(steps))
    said, _ = read(tmp_path)
    begun = dict(reversed(said))
    assert begun["reading a.xplane.pb"] == 0.0
    assert 0.4 < begun["reading b.xplane.pb"] <= 0.5
    assert said[-1][1] > 0.9


def test_of_a_file_that_lies_packed_only_the_sentences_come(tmp_path):
    path = tmp_path / "a.xplane.pb.gz"
    path.write_bytes(gzip.compress(training_run(5)))
    said, _ = read(path)
    assert said
    assert {fraction for _, fraction in said} == {None}


def test_a_line_has_the_fraction_where_it_is_known():
    assert json.loads(handlers._progress(Progress("Reading it", 0.12345))) == {
        "progress": "Reading it",
        "fraction": 0.123,
    }
    assert json.loads(handlers._progress(Progress("Analysing it"))) == {"progress": "Analysing it"}
    assert json.loads(handlers._progress("")) == {"progress": ""}


def test_many_hosts_are_followed_by_how_many_have_been_read(tmp_path):
    pods.write(tmp_path / "job", 10, 4)
    said, profile = read(tmp_path / "job")
    assert len(profile.hosts) == 10
    assert said[-1][0].startswith("10 hosts read in ")
