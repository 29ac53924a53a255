"""Time by line: each moment, kernel and op once, and what belongs to no line apart."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nbprof.core.line_times import LineTimes
from nbprof.hlo.hlo import Program
from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from nbprof.schema import frames
from nbprof.sources.recording import CaptureInfo
from tests.support import hlo
from tests.support.kineto import BACKWARD, Kineto, profile
from tests.support.xspace import MS, PlaneWriter, chunk, number, xspace

BASE = 1_700_000_000_000_000_000
CELL = "for batch in batches:\n    loss = model(batch)\n    loss.backward()\n"
MODEL = "def model(x):\n    y = f(x)\n    return y\n"


def times(*changes, cut=False):
    """Line times of (µs, stem, line, whether it was reached anew), or (µs,) for no line."""
    lines: dict[tuple[str, int], int] = {}
    at, line = [], []
    for us, *place in changes:
        at.append(BASE + us * 1000)
        code = lines.setdefault((place[0], place[1]), len(lines) + 1) if place else 0
        line.append(code if not place or place[2] else -code)
    return LineTimes(
        {"1": MODEL, "2": CELL}, list(lines), np.array(at), np.array(line, np.int32), cut
    )


RAN = times(
    (0, "2", 1, True), (10, "2", 2, True), (12, "1", 2, True), (40, "1", 3, True), (41, "2", 2, False),
    (50, "2", 3, True), (90, "2", 1, True), (95,), (100,),
)  # fmt: skip


def of(folder, kineto, ran=RAN):
    """A profile as a cell leaves it."""
    whole = profile(folder, kineto)
    whole.run.capture = CaptureInfo(cells={"1": 7, "2": 8}, lines=ran.packed())
    return whole


@pytest.fixture
def gpu():
    file = Kineto(baseTimeNanoseconds=BASE)
    file.launched("gemm", 20, 25, 30)
    # Autograd launches on a thread of its own, while the cell waits in backward().
    file.launched("gemm_back", 60, 62, 100, tid=BACKWARD)
    file.copy("Memcpy HtoD (Pageable -> Device)", 14, 7, file.call("cudaMemcpyAsync", 13, 2))
    # Launched before the recording began, launched after the last line, and by nobody knows what.
    file.launched("before", -20, 0, 3)
    file.launched("after", 98, 99, 5)
    file.kernel("unlinked", 70, 11)
    return file


def test_each_moment_is_that_of_the_innermost_line(tmp_path, gpu):
    p = of(tmp_path, gpu)
    frame = p.lines.frame
    assert list(zip(frame["file"], frame["line"], strict=True)) == [
        ("Cell [8]", 1), ("Cell [8]", 2), ("Cell [8]", 3), ("Cell [7]", 2), ("Cell [7]", 3),
    ]  # fmt: skip
    assert frame["host_us"].tolist() == [10 + 5, 2 + 9, 40, 28, 1]
    assert frame["calls"].tolist() == [2, 1, 1, 1, 1]
    assert frame["code"].tolist() == [*CELL.splitlines(), *MODEL.splitlines()[1:]]
    assert p.lines.unattributed["host_us"] == 5
    assert dict(frame.dtypes.astype(str)) == frames.dtypes("lines.frame")


def test_device_work_is_that_of_the_line_which_launched_it(tmp_path, gpu):
    p = of(tmp_path, gpu)
    frame = p.lines.frame.set_index(["file", "line"])["device_us"]
    assert frame["Cell [7]", 2] == 30 + 7
    assert frame["Cell [8]", 3] == 100
    assert frame["Cell [8]", 1] == frame["Cell [8]", 2] == 0
    assert p.lines.unattributed["device_us"] == 3 + 5 + 11
    work = [event["dur"] for event in gpu.events if event["cat"] in ("kernel", "gpu_memcpy")]
    assert frame.sum() + p.lines.unattributed["device_us"] == sum(work)
    assert p.lines.frame["program_us"].isna().all()


def test_without_a_device_or_a_clock_its_time_is_unknown(tmp_path, gpu):
    cpu = Kineto(baseTimeNanoseconds=BASE)
    cpu.op("aten::mm", 15, 10)
    gpu.metadata.pop("baseTimeNanoseconds")
    for name, file in (("cpu", cpu), ("clock", gpu)):
        (tmp_path / name).mkdir()
        p = of(tmp_path / name, file)
        assert p.lines.frame["device_us"].isna().all()
        assert np.isnan(p.lines.unattributed["device_us"])
        assert p.lines.frame["host_us"].sum() == 95


def test_nothing_recorded_is_said_with_the_remedy(tmp_path, gpu):
    p = profile(tmp_path, gpu)
    assert p.lines.frame.empty
    assert p.payload()["overview"]["code"] is None
    assert "%%nbprof --stacks" in repr(p.lines)
    assert dict(p.lines.frame.dtypes.astype(str)) == frames.dtypes("lines.frame")


def test_the_overview_shows_the_recorded_cell_whole_and_of_others_what_ran(tmp_path, gpu):
    p = of(tmp_path, gpu)
    code = p.payload()["overview"]["code"]
    assert [cell["title"] for cell in code["cells"]] == ["Cell [8]", "Cell [7]"]
    table = code["cells"][0]["table"]
    assert [head["key"] for head in table["columns"]] == [
        "line",
        "code",
        "calls",
        "host_ms",
        "device_ms",
    ]
    assert table["data"]["host_ms"].tolist() == pytest.approx([0.015, 0.011, 0.04])
    assert code["notes"] == [
        "5.0 µs (5.0%) of the host time of the recording is not attributed to any line.",
        "0.02 ms (12.2%) of the device time is not attributed to any line.",
    ]
    assert "loss.backward()" in p.save(tmp_path / "report.html").read_text()


def test_the_text_of_a_cell_is_in_no_redacted_report(tmp_path, gpu):
    p = of(tmp_path, gpu)
    data, _ = p.mimebundle(redact=True)
    said = p.save(tmp_path / "report.html", redact=True).read_text() + json.dumps(data)
    assert "loss.backward()" not in said


def test_a_recording_that_was_cut_says_so(tmp_path, gpu):
    p = of(tmp_path, gpu, times((0, "2", 1, True), (95,), cut=True))
    assert "part of the recording only" in p.payload()["overview"]["code"]["notes"][-1]


def framed(op, frame):
    """An instruction that has the number of its stack frame in place of file and line."""
    return hlo.instruction(op, "add", ident=frame, extra=chunk(7, number(15, frame)))


def located(*places):
    """Frames 1, 2, ... of a program, one for each (file, line)."""
    files = list(dict.fromkeys(file for file, _ in places))
    index = b"".join(chunk(1, file) for file in files)
    index += b"".join(
        chunk(3, number(1, files.index(file) + 1) + number(3, line)) for file, line in places
    )
    return index + b"".join(chunk(4, number(1, i + 1)) for i in range(len(places)))


PLACES = [
    ("/tmp/ipykernel_9/2.py", 2),
    ("/srv/train.py", 30),
    ("/srv/env/lib/python3.12/site-packages/flax/linear.py", 7),
]


def test_stack_frames_of_a_program_are_read_where_instructions_have_no_file():
    module = chunk(1, "jit_f") + chunk(
        3, hlo.computation("main", framed("a", 1), framed("b", 2), framed("c", 9))
    )
    program = Program(chunk(1, module + chunk(17, located(*PLACES))))
    assert [(i.source_file, i.source_line) for i in map(program.instruction, range(3))] == [
        *PLACES[:2],
        ("", 0),
    ]


def test_ops_of_programs_are_those_of_the_line_they_were_traced_from(tmp_path):
    ops = [framed(f"op.{i}", i) for i in range(1, 4)]
    module = (
        chunk(1, "jit_f")
        + chunk(2, "main")
        + chunk(3, hlo.computation("main", *ops))
        + number(5, 3)
        + chunk(17, located(*PLACES))
    )
    plane = PlaneWriter(
        "/device:GPU:0",
        {
            "device_vendor": "Nvidia",
            "compute_cap_major": 8,
            "core_count": 100,
            "clock_rate": 1_000_000,
        },
    )
    spans = [
        ("op.1", 0, MS),
        ("op.2", 2 * MS, 2 * MS),
        ("op.3", 5 * MS, 4 * MS),
        ("op.1", 10 * MS, MS),
    ]
    known = [
        plane.event("k", at, length, hlo_op=op, hlo_module="jit_f", program_id=3)
        for op, at, length in spans
    ]
    plane.line("Stream #7(Compute)", known, line_id=7)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(xspace(plane, hlo.metadata_plane(**{"jit_f(3)": (3, chunk(1, module))})))
    p: Profile = load(path)
    frame = p.lines.frame
    assert frame[["file", "line", "program_us"]].values.tolist() == [
        ["/srv/train.py", 30, 2000.0],
        ["Cell", 2, 2000.0],
    ]
    assert frame["host_us"].isna().all()
    assert frame["calls"].isna().all()
    # Of a library: to no line of the person's.
    assert p.lines.unattributed["program_us"] == 4000


def test_other_recordings_with_stacks_have_the_functions_of_the_person(tmp_path):
    file = Kineto(baseTimeNanoseconds=BASE)
    for name, ts, dur in (
        # Around all there is: on the stack when the recording began.
        ("runpy.py(5): run", 0, 200),
        ("train.py(3): step", 10, 100),
        ("torch/nn/modules/module.py(1500): forward", 20, 50),
        ("/tmp/ipykernel_9/2.py(7): loss", 30, 20),
        ("train.py(3): step", 120, 40),
        ("json/decoder.py(3): decode", 170, 10),
    ):
        file.add(name, "python_function", ts, dur)
    file.add("threading.py(327): wait", "python_function", 0, 150, tid=BACKWARD)
    op = file.op("aten::mm", 22, 6, **{"Sequence number": 4, "Fwd thread id": 0})
    file.launched("gemm", 23, 25, 30, op)
    back = file.op(
        "MmBackward0", 130, 10, tid=BACKWARD, **{"Sequence number": 4, "Fwd thread id": 1}
    )
    file.launched("gemm_back", 131, 140, 60, back, tid=BACKWARD)
    file.kernel("unlinked", 70, 11)
    lines = profile(tmp_path, file).lines
    rows = lines.frame[["file", "line", "calls", "host_us", "device_us"]]
    # The library's own time is that of the function which called it.
    assert rows.values.tolist() == [["train.py", 3, 2, 120.0, 90.0], ["Cell", 7, 1, 20.0, 0.0]]
    assert (lines.unattributed["host_us"], lines.unattributed["device_us"]) == (10, 11)
    assert lines.frame["code"].isna().all()


def test_stacks_that_old_traces_have_as_text_name_the_line_itself(tmp_path):
    file = Kineto(baseTimeNanoseconds=BASE)
    stack = "/usr/lib/python3.8/site-packages/torch/nn/functional.py(9): relu;train.py(44): main;train.py(50): <module>"
    op = file.op("aten::relu", 10, 10, **{"Call stack": stack})
    file.launched("relu", 12, 15, 4, op)
    file.launched("copy", 30, 31, 2, file.op("aten::copy_", 28, 5))
    lines = profile(tmp_path, file).lines
    assert lines.frame[["file", "line", "device_us"]].values.tolist() == [["train.py", 44, 4.0]]
    assert lines.frame[["calls", "host_us"]].isna().all(axis=None)
    assert lines.unattributed["device_us"] == 2
