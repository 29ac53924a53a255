"""`p.memory_viewer`: which programs there are, what is asked for by which name, what each says, and
that damage is told.
"""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.trace import Module
from nbprof.hlo.hlo import Program
from nbprof.profiles.load import load
from nbprof.schema import frames
from tests.support import hlo
from tests.support.build import profile
from tests.support.frames import below
from tests.support.hlo_memory import KIB, large, small, without_assignment
from tests.support.profiles import real
from tests.support.xspace import gpu_run, xspace

PROGRAMS = {
    "jit_small(1)": (1, small("jit_small", 1, allocated=4 * KIB)),
    "jit_step(8)": (8, small()),
    "jit_bare(10)": (10, without_assignment()),
    "jit_cut(11)": (11, small()[:-7]),
    "jit_step(12)": (12, small(ident=12)),
}


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    return profile(
        tmp_path_factory.mktemp("xla"), xspace(hlo.metadata_plane(**PROGRAMS))
    ).memory_viewer


def test_frames_are_as_declared(viewer):
    module = viewer["jit_step(8)"]
    found = {
        ".modules": viewer.modules,
        "[module].timeline": module.timeline,
        "[module].at_peak": module.at_peak,
    }
    assert set(found) == set(below("memory_viewer"))
    for name, frame in found.items():
        assert list(frame.columns) == frames.names(f"memory_viewer{name}")
        for col in below("memory_viewer")[name]:
            assert str(frame[col.name].dtype) in (
                col.dtype,
                "str" if col.dtype == "object" else col.dtype,
            ), (name, col.name)
            assert col.help.endswith(".")
    assert frames.column("memory_viewer.modules", "note").label == "Note"
    with pytest.raises(KeyError, match="it has position, instruction"):
        frames.column("memory_viewer[module].timeline", "nothing")


def test_programs_by_their_peaks_and_why_one_is_not_known(viewer):
    frame = viewer.modules.set_index("module")
    assert list(frame.index) == [
        "jit_step(8)",
        "jit_step(12)",
        "jit_small(1)",
        "jit_bare(10)",
        "jit_cut(11)",
    ]
    assert frame["peak_bytes"].tolist()[:3] == [16 * KIB, 16 * KIB, 12 * KIB]
    assert frame["peak_unpadded_bytes"].tolist()[:3] == [4 * KIB + 3200 + 4 * KIB] * 3
    assert frame["total_bytes"].tolist()[:3] == [16 * KIB] * 3
    assert frame["peak_bytes"].isna().tolist() == [False] * 3 + [True] * 2
    assert frame.loc["jit_step(8)", "instructions"] == 4
    assert frame.loc["jit_bare(10)", "note"] == "no buffer assignment"
    assert frame.loc["jit_cut(11)", "note"].startswith("damaged: byte ")
    assert frame["time_ms"].isna().all(), "no device ran them"


def test_it_is_a_mapping_of_the_programs_whose_memory_is_known(viewer):
    assert list(viewer) == ["jit_step(8)", "jit_step(12)", "jit_small(1)"]
    assert len(viewer) == 3
    assert "jit_step(8)" in viewer
    assert "jit_bare(10)" not in viewer
    assert viewer.get("no such") is None
    assert {name: module.peak_bytes for name, module in viewer.items()}["jit_small(1)"] == 12 * KIB
    assert "16.0 KiB  jit_step(8)" in repr(viewer)


def test_the_memory_of_a_program(viewer):
    module = viewer["jit_step(8)"]
    assert module.timeline["allocated_bytes"].tolist() == [4 * KIB, 12 * KIB, 16 * KIB, 8 * KIB]
    assert module.timeline["instruction"].tolist() == ["padded", "flat", "flat", ""]
    at_peak = module.at_peak.set_index("buffer")
    assert list(at_peak.index) == ["x", "padded", "flat"]
    assert at_peak.loc["padded", ["start", "end", "allocation"]].tolist() == [0, 2, 1]
    assert at_peak.loc["padded", "padding_ratio"] == 8 * KIB / 3200
    assert at_peak.loc["padded", "shape"] == "f32[16,50]{1,0:T(8,128)}"
    assert at_peak.loc["padded", ["framework_op", "source"]].tolist() == ["jit(step)/mul", "m.py:7"]
    assert module.summary["peak_position"] == 1
    assert (module.peak_bytes, module.peak_unpadded_bytes, module.spaces) == (
        16 * KIB,
        8 * KIB + 3200,
        [0, 1],
    )
    text = module.text()
    assert "peak 16.0 KiB at program point 2 of 3" in text
    assert "padding 4.9 KiB, 30.5% of the peak" in text
    assert str(module) == text
    handed_out = module.timeline
    handed_out.loc[:, "position"] = 0
    assert module.timeline["position"].tolist() == [0, 1, 2, 3], "what is handed out is a copy"


def test_another_memory_space(viewer):
    fast = viewer["jit_step(8)"].in_space(1)
    assert fast.peak_bytes == 512
    assert "in memory space 1" in fast.text()
    with pytest.raises(NbprofError, match=r"uses no memory space 7; it uses 0, 1"):
        fast.in_space(7)


def test_a_figure_has_the_working_set_and_the_lifetimes(viewer):
    from bokeh.document import Document

    figure = viewer["jit_step(8)"].figure(width=600)
    document = Document()
    document.add_root(figure)
    assert "padded" in str(document.to_json())
    bare = profile_of(viewer, hlo.program("jit_flat", hlo.computation("main", hlo.instruction("x", "parameter", ident=1), ident=1))
                      + hlo.assignment([hlo.buffer(1, 4, 1)], [hlo.allocation(0, 4, (1, 0, 4), parameter=0)], []))  # fmt: skip
    with pytest.raises(NbprofError, match="4 B throughout"):
        bare.figure()


def profile_of(viewer, data):
    from nbprof.hlo import buffers as hlo_buffers
    from nbprof.hlo.hlo import Program
    from nbprof.tools.memory_viewer.accessor import ModuleMemory

    return ModuleMemory(None, "jit_flat", Program(data), hlo_buffers.read(Program(data)))


def test_names(viewer):
    assert viewer["jit_small"].module == "jit_small(1)", "one program is called that"
    with pytest.raises(
        KeyError,
        match=r"2 compiled programs are named 'jit_step'; choose one of jit_step\(8\), jit_step\(12\)",
    ):
        viewer["jit_step"]
    with pytest.raises(
        NbprofError,
        match=r"no compiled program 'jit_smal' in this profile; did you mean jit_small\(1\)",
    ):
        viewer["jit_smal"]
    with pytest.raises(
        NbprofError, match=r"no compiled program 'zzz' in this profile; it has jit_small\(1\)"
    ):
        viewer["zzz"]
    with pytest.raises(ReadError, match=r"jit_bare\(10\) has no buffer assignment"):
        viewer["jit_bare(10)"]
    with pytest.raises(
        ReadError, match=r"jit_cut\(11\) is damaged in the profile \(byte .*record again"
    ):
        viewer["jit_cut"]


def test_a_profile_without_programs(tmp_path):
    viewer = profile(tmp_path, gpu_run()).memory_viewer
    assert len(viewer) == 0
    assert viewer.modules.empty
    assert list(viewer.modules.columns) == frames.names("memory_viewer.modules")
    with pytest.raises(KeyError, match="this profile has no compiled programs"):
        viewer["jit_step"]


def test_of_equal_hosts_each_program_is_listed_once_though_two_have_one_name():
    both = small(), small(allocated=4 * KIB)
    found = memory_modules.named(
        [Module("jit_step(8)", 8, data, host) for host in range(3) for data in both],
        ["a", "b", "c"],
    )
    assert {name: one.hosts for name, one in found.items()} == {
        "jit_step(8)": ["a", "b", "c"],
        "jit_step(8) on a": ["a", "b", "c"],
    }


def test_programs_of_several_hosts_are_told_apart_only_where_they_differ():
    same, other = small(), small(allocated=4 * KIB)
    modules = [
        Module("jit_step(8)", 8, data, host) for host, data in enumerate([same, same, other, other])
    ]
    found = memory_modules.named(modules, ["a", "b", "c", "d"])
    assert {name: one.hosts for name, one in found.items()} == {
        "jit_step(8)": ["a", "b"],
        "jit_step(8) on c": ["c", "d"],
    }
    twice = memory_modules.named([Module("j", 1, bytes([i]), 0) for i in range(3)], ["a"])
    assert list(twice) == ["j", "j on a", "j on a (2)"]
    times = {("a", 8): 1.5, ("b", 8): 2.5}
    frame = memory_modules.frame(found, times).set_index("module")
    assert frame["time_ms"].tolist()[0] == 4
    assert frame["hosts"].tolist() == [2, 2]
    assert pd.isna(frame.loc["jit_step(8) on c", "time_ms"])


def test_a_program_fits_or_lacks_memory_by_so_much():
    found = memory_modules.named([Module("j", 1, small(), 0)], ["a"])
    (peak,) = memory_modules.frame(found, {})["peak_bytes"]

    def of_device(capacity, times=None):
        (row,) = memory_modules.frame(found, times or {}, capacity).to_dict("records")
        return row["capacity_bytes"], row["spare_bytes"]

    assert of_device(peak + 5) == (peak + 5, 5)
    assert of_device(peak - 5) == (peak - 5, -5)
    ran = {("a", 1): 2.0}
    assert of_device(peak + 5, ran) == (peak + 5, 5)
    # It has fitted, so the device has more than is stated.
    assert all(pd.isna(value) for value in of_device(peak - 5, ran))
    assert all(pd.isna(value) for value in of_device(None))


def test_the_memory_of_a_device_is_stated_or_known_by_its_name_or_its_allocator():
    def devices(*rows):
        return pd.DataFrame(rows, columns=["name", "memory_bytes"])

    none = pd.DataFrame({"capacity_bytes": pd.array([], "Int64")})
    allocator = pd.DataFrame({"capacity_bytes": pd.array([7 * KIB], "Int64")})
    sizes = devices(("TPU v4", 32 * KIB), ("TPU v4", 16 * KIB))
    assert memory_modules.device_bytes(sizes, allocator) == 16 * KIB
    one_unknown = devices(("TPU v4", 32 * KIB), ("TPU v4", None))
    assert memory_modules.device_bytes(one_unknown, allocator) == 7 * KIB
    assert memory_modules.device_bytes(one_unknown, none) is None
    assert memory_modules.device_bytes(devices(("Tesla T4", None)), none) == int(14.56 * 2**30)
    assert memory_modules.device_bytes(devices(), none) is None
    assert memory_modules.device_bytes(devices(("GPU", 0)), none) is None


def test_compiled_programs_have_roles_that_add_up_to_their_peak():
    found = memory_modules.named(
        [Module("j", 1, small(), 0), Module("broken", 2, small()[:40], 0)], ["a"]
    )
    modules = memory_modules.frame(found, {})
    rows = memory_modules.roles(modules)
    assert set(rows["memory_id"]) == {"j"}
    assert rows["bytes"].sum() == modules["peak_bytes"].max()
    assert rows["percent"].sum() == pytest.approx(100)
    assert (rows["bytes"].diff().dropna() <= 0).all()
    alive = memory_viewer.view(Program(small())).at_peak
    words = {"Parameter": "arguments", "Output": "outputs", "Constant": "constants"}
    roles = alive["category"].map(words).fillna("temporaries")
    assert (
        rows.set_index("role")["bytes"].to_dict()
        == alive["size_bytes"].groupby(roles).sum().to_dict()
    )
    assert memory_modules.roles(modules.head(0)).equals(frames.empty("memory.roles"))


def test_roles_of_programs_stand_where_no_allocator_was_recorded(tmp_path):
    p = profile(tmp_path, xspace(hlo.metadata_plane(**{"jit_step(8)": (8, small())})))
    assert p.memory.summary.empty
    assert p.memory.roles["bytes"].sum() == p.memory_viewer["jit_step(8)"].peak_bytes


@pytest.mark.parametrize(
    "path", ["jax/gtx1080ti-reactant", "jax/mi300-jax08_attention", "jax/tpu-v6e-inference"]
)
def test_roles_of_programs_stand_where_those_of_an_allocator_are_unknown(path):
    p = load(real(path))
    assert len(p.memory.summary)
    planned = p.memory_viewer.modules.set_index("module")["peak_bytes"].dropna()
    assert len(planned)
    assert p.memory.roles.groupby("memory_id")["bytes"].sum().to_dict() == planned.to_dict()


def test_a_large_program_is_played_back_whole():
    count = 20_000
    frame = memory_modules.frame(
        memory_modules.named([Module("large", 9, large(count), 0)], ["a"]), {}
    )
    assert frame["instructions"].tolist() == [count]
    assert frame["note"].tolist() == [""]


HUGE = (1 << 62) + 5


@pytest.mark.parametrize("size", [HUGE, (1 << 63) - 1, -1])
def test_sizes_that_no_memory_has_are_told(size):
    shape = hlo.chunk(3, hlo.shape(11, 1 << 40, 1 << 40))
    lines = [hlo.instruction(f"op{i}", "add", ident=i + 1, extra=shape) for i in range(4)]
    unsigned = size & (1 << 64) - 1
    buffers = [hlo.buffer(i, unsigned, i + 1) for i in range(4)]
    allocations = [
        hlo.allocation(0, unsigned, *((i, 0, unsigned) for i in range(4))),
        hlo.allocation(1, unsigned, constant=True),
    ]
    heaps = [hlo.heap(*((0, i, f"op{i}") for i in range(4)), allocation=0)]
    data = hlo.program("j", hlo.computation("main", *lines, ident=1)) + hlo.assignment(
        buffers, allocations, heaps
    )
    frame = memory_modules.frame(memory_modules.named([Module("j", 1, data, 0)], ["a"]), {})
    assert "impossible sizes" in frame["note"][0]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(small()) - 1), st.integers(0, 255)), min_size=1, max_size=8
    ),
    st.integers(0, len(small())),
)
@example([(0, 10)], 0)
def test_damaged_programs_are_told_not_met_with_a_crash(changes, length):
    data = bytearray(small())
    for at, value in changes:
        data[at] = value
    for given_data in (bytes(data), bytes(data[:length])):
        frame = memory_modules.frame(
            memory_modules.named([Module("j", 1, given_data, 0)], ["a"]), {}
        )
        assert frame["peak_bytes"].notna()[0] == (frame["note"][0] == "")


def test_memory_that_buffers_share_is_given_back_by_the_last_of_them():
    """Played back by hand: one shared by two, given back, taken up again by a third; an event about
    no known buffer is left out.
    """
    of = hlo.shape(11, 256)
    lines = [
        hlo.instruction(name, "add", ident=i, extra=hlo.chunk(3, of))
        for i, name in enumerate(("first", "second", "third", "other"), 1)
    ]
    buffers = [hlo.buffer(i, KIB, i) for i in (1, 2, 3)] + [hlo.buffer(4, 2 * KIB, 4)]
    events = [
        (0, 1, "first"), (2, 2, "second", 1), (1, 1, "second"), (0, 4, "other"),
        (1, 2, "other"), (2, 3, "third", 1), (1, 77, "third"), (1, 3, "third"),
    ]  # fmt: skip
    allocation = hlo.allocation(
        0, 3 * KIB, (1, 0, KIB), (2, 0, KIB), (3, 0, KIB), (4, KIB, 2 * KIB)
    )
    data = hlo.program("jit_f", hlo.computation("main", *lines)) + hlo.assignment(
        buffers, [allocation], [hlo.heap(*events, allocation=0)]
    )
    view = memory_viewer.view(Program(data))
    assert (view.timeline["allocated_bytes"] / KIB).tolist() == [0, 1, 1, 1, 3, 2, 3, 2]
    assert (view.timeline["unpadded_bytes"] / KIB).tolist() == [0, 1, 1, 1, 2, 1, 2, 1]
    assert (view.peak_bytes, view.peak_unpadded_bytes, view.peak_position) == (3 * KIB, 2 * KIB, 3)
    alive = (
        view.at_peak[["buffer", "size_bytes", "padding_ratio", "start", "end"]].to_numpy().tolist()
    )
    assert alive == [["first", KIB, 1.0, 0, 4], ["other", 2 * KIB, 2.0, 3, 7]]
    assert "heap events refer to buffers that the file does not list" in view.notes[0]
