"""The compiled readers: how they are built and loaded, and that what reads instead reads the same."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.core.trace import BYTES, TEXT
from nbprof.formats.chrome import chrome
from nbprof.formats.perfetto import perfetto
from nbprof.formats.xspace import xspace
from nbprof.native import chrome as native
from nbprof.native import compile as native_compile
from nbprof.native import library
from tests.fuzz import formats
from tests.support.chrome import compact, complete, kineto, read, slices_of
from tests.support.perfetto import every_kind
from tests.support.profiles import needed

DATA = Path(__file__).parents[1] / "data"


def test_the_library_is_there():
    assert library.load() == (library.load().library, "")
    assert library.load().library is not None


def test_why_there_is_no_library(tmp_path, monkeypatch):
    path = tmp_path / "libnbprof.so"
    assert library._load(path) == (None, "it was not built when nbprof was installed")
    path.write_bytes(b"no library")
    assert library._load(path).reason.startswith("it cannot be loaded (")
    monkeypatch.setattr(library, "ABI_VERSION", -1)
    (built,) = native_compile.HERE.glob(native_compile.library_name())
    assert library._load(built) == (None, "it belongs to another version of nbprof")


def test_names_of_the_file_are_the_same_on_both_sides():
    assert library.NAMES["win32"] == native_compile.library_name("x86_64-windows-gnu")
    assert library.NAMES["darwin"] == native_compile.library_name("aarch64-macos.11.0")


def test_it_is_compiled_by_the_compiler_of_the_user(tmp_path, monkeypatch):
    if not native_compile.own_compiler():
        needed("there is no C compiler")
    monkeypatch.setenv("CC", f"{shutil.which('cc')} -O1")
    path = native_compile.build(tmp_path)
    assert ctypes.CDLL(str(path)).nbprof_abi_version() == library.ABI_VERSION
    assert [made.name for made in tmp_path.iterdir()] == [path.name]
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(OSError, match="there is no C compiler"):
        native_compile.build(tmp_path)


def test_the_sources_have_no_warnings():
    command = native_compile.own_compiler()
    if not command:
        needed("there is no C compiler")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    sources = sorted(map(str, native_compile.HERE.glob("*.c")))
    done = subprocess.run(
        [*command, *flags, "-fsyntax-only", *sources], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_of_the_interface_is_that_of_the_header():
    header = (native_compile.HERE / "api.h").read_text()
    (version,) = re.findall(r"#define NBPROF_ABI_VERSION (\d+)", header)
    assert int(version) == library.ABI_VERSION


SMALL = [
    complete("aten::mm", 5013.125, 10.5, args={"External id": 7, "Input Dims": [[2, 3], []]}),
    complete("k", "5014.5", 1, cat="kernel", pid=0, tid="stream 7", args={"grid": [1, 2, 3]}),
    complete("e", 1e-3, 1.5e3, id="0x1", args={"v": 1e22, "w": -0.0, "x": 2**63, "y": 1e-7}),
    {"ph": "i", "name": "mark", "pid": 7, "tid": 8, "ts": 5014, "s": "t", "args": {"n": None}},
]
DAMAGED = {
    "whole": kineto(*SMALL),
    "quotes": kineto(*SMALL).replace("aten::mm", 'aten::"mm"'),
    "no number": compact(*SMALL).replace("5013.125", "50x3"),
    "word": compact(*SMALL).replace('"ts":5014,', '"ts":None,"n":N/A,"i":-inf,'),
    "twice": compact(*SMALL).replace('"dur":10.5', '"dur":10.5,"dur":11'),
    "broken": compact(*SMALL).replace('"dur":10.5', '"dur" 10.5'),
    "cut": compact(*SMALL)[:-30],
    "open": json.dumps(SMALL)[:-1],
    "entries": "[1,null,[],{}," + json.dumps(SMALL)[1:],
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_what_reads_without_the_library_reads_the_same(text, without_library):
    expected = read(text)
    without_library()
    found = read(text)
    assert slices_of(found) == slices_of(expected)
    notes = found.receipt.notes
    others = notes[notes["key"] != "native_reader_missing"]
    assert len(others) == len(notes) - 1
    assert others["text"].tolist() == expected.receipt.notes["text"].tolist()


@pytest.mark.parametrize(
    "name", ["chrome/jax_cpu.trace.json.gz", "kineto/cpu_train.pt.trace.json.gz"]
)
def test_recordings_without_the_library(name, without_library):
    expected = chrome.read([LocalFile(DATA / name)])
    assert "native_reader_missing" not in set(expected.receipt.notes["key"])
    without_library()
    found = chrome.read([LocalFile(DATA / name)])
    assert slices_of(found) == slices_of(expected)
    notes = found.receipt.notes.set_index("key")
    assert notes.loc["native_reader_missing", "level"] == "info"
    assert "it was left out" in notes.loc["native_reader_missing", "text"]


def told(trace):
    """All that a trace of an XSpace tells, without the numbers of texts, which follow the order in
    which they were read.
    """
    events = trace.events
    args = {}
    for name, column in trace.args.items():
        values = column.values.tolist()
        for row, kind in enumerate(column.kinds.tolist()):
            if kind in (TEXT, BYTES):
                values[row] = (trace.strings if kind == TEXT else trace.blobs)[values[row]]
        args[name] = (column.event.tolist(), column.kinds.tolist(), values)
    notes = trace.receipt.notes
    return {
        "events": np.stack([events.lane, events.name, events.start, events.duration]).tolist(),
        "names": [trace.names.tolist(), trace.display.tolist()],
        "lanes": trace.lanes.to_dict("list"),
        "aggregated": trace.aggregated.to_dict("list"),
        "args": args,
        "name_args": trace.name_args,
        "receipt": (trace.receipt.events, trace.receipt.dropped),
        "notes": notes["text"][notes["key"] != "native_reader_missing"].tolist(),
    }


def read_or_refused(path, reader=xspace):
    try:
        return told(reader.read([LocalFile(path)]))
    except ReadError as error:
        return str(error)


@pytest.mark.parametrize("number", range(60))
def test_damaged_xspaces_without_the_library(number, tmp_path, without_library):
    path = tmp_path / "host.xplane.pb"
    (data,) = formats.draw("xspace", 3, number).values()
    path.write_bytes(data)
    expected = read_or_refused(path)
    without_library()
    assert read_or_refused(path) == expected


@pytest.mark.parametrize("number", range(60))
def test_damaged_perfetto_traces_without_the_library(number, tmp_path, without_library):
    path = tmp_path / "host.pftrace"
    (data,) = formats.draw("perfetto", 3, number).values()
    path.write_bytes(data)
    expected = read_or_refused(path, perfetto)
    without_library()
    assert read_or_refused(path, perfetto) == expected


def test_perfetto_traces_without_the_library(tmp_path, without_library):
    path = tmp_path / "host.pftrace"
    path.write_bytes(every_kind().bytes())
    expected = perfetto.read([LocalFile(path)])
    assert "native_reader_missing" not in set(expected.receipt.notes["key"])
    without_library()
    found = perfetto.read([LocalFile(path)])
    assert told(found) == told(expected)
    notes = found.receipt.notes.set_index("key")
    assert notes.loc["native_reader_missing", "level"] == "info"
    assert "Perfetto traces" in notes.loc["native_reader_missing", "text"]


@pytest.mark.parametrize("path", sorted(DATA.glob("xspace/*.pb")), ids=lambda path: path.name)
def test_xspaces_without_the_library(path, without_library):
    expected = xspace.read([LocalFile(path)])
    assert "native_reader_missing" not in set(expected.receipt.notes["key"])
    without_library()
    found = xspace.read([LocalFile(path)])
    assert told(found) == told(expected)
    notes = found.receipt.notes.set_index("key")
    assert notes.loc["native_reader_missing", "level"] == "info"
    assert "XSpace files" in notes.loc["native_reader_missing", "text"]


def test_texts_and_keys_are_numbered_in_the_order_of_their_first_places():
    names = [f"n{i % 700}" for i in range(2000)]
    text = compact(*[complete(name, args={f"k{name}": name}) for name in names]).encode()
    columns = native.scan(text[text.index(b"[") + 1 :])
    texts = columns.text[:, :2].tolist()
    body = text[text.index(b"[") + 1 :]
    found = [body[a:b].decode() for a, b in texts]
    assert len(found) == len(
        {(t, q) for t, q in zip(found, columns.text[:, 2].tolist(), strict=True)}
    )
    assert [found[code] for code in columns.fields[0].tolist()] == names
    keys = [body[a:b].decode() for a, b in columns.key.tolist()]
    assert len(keys) == len(set(keys))
    assert {"ph", "name", "args", "kn0", "kn699"} <= set(keys)
    number = keys.index("kn5")
    rows = slice(*columns.edges[2 * number + 1 : 2 * number + 3])
    assert columns.event[rows].tolist() == [5, 705, 1405]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 511])
def test_texts_of_every_length_around_a_word(length):
    names = ["x" * length + end for end in ("", "y", "yz")]
    assert set(map(str, read(compact(*map(complete, names))).names)) == set(names)


def test_numbers_that_need_all_of_their_bits():
    values = [0.1, 1 / 3, 123456789012345.6, 5e-324, 1.7976931348623157e308, 1e22, 1e23, 2.5e-22]
    trace = read(json.dumps([complete(ts=i, args={"v": v}) for i, v in enumerate(values)]))
    assert trace.args["v"].floats().tolist() == values
    whole = [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 10**18 - 1, 10**18, 2**63 - 1]
    trace = read(json.dumps([complete(ts=i, args={"v": v}) for i, v in enumerate(whole)]))
    assert np.asarray(trace.args["v"].values).tolist() == whole
