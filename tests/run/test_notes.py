"""The sentences of the notes on a run."""

from __future__ import annotations

from nbprof.core.receipt import Note
from nbprof.run import notes
from nbprof.run.combine import folded


def texts(*given: Note) -> list[str]:
    return [f"{note.level} {note.key}: {note.text}" for note in given]


def test_notes_on_a_run():
    assert texts(
        notes.crowded_steps("step 3"),
        notes.given_peaks({"flops": 312e12}),
        notes.compiled_programs(1),
        notes.compiled_programs(2),
        notes.other_snapshots(3),
        notes.overlapping_host_ops(2, 1000),
        notes.overlapping_host_ops(11, 1000),
        notes.steps_not_shown(1),
        notes.steps_not_shown(2),
        notes.equal_host_names(1),
        notes.equal_host_names(2),
    ) == [
        "info crowded_steps: Averages exclude step 3.",
        "info given_peaks: Device peaks given by the user, in operations and bytes per second: flops 3.12e+14.",
        "info compiled_programs: 1 compiled XLA program is in the profile: framework op names and buffer assignments come from there.",
        "info compiled_programs: 2 compiled XLA programs are in the profile: framework op names and buffer assignments come from there.",
        "info other_snapshots: 3 snapshots were found; the one with the longest history is shown.",
        "info overlapping_host_ops: 2 of 1,000 host ops partly overlap another op on their thread: that time is attributed to the later one.",
        "warning overlapping_host_ops: 11 of 1,000 host ops partly overlap another op on their thread: that time is attributed to the later one.",
        "info steps_not_shown: Not shown: 1 marked step at the start or end of the recording, as no compute was recorded in it.",
        "info steps_not_shown: Not shown: 2 marked steps at the start or end of the recording, as no compute was recorded in them.",
        "warning equal_host_names: 1 file has the same host name as another file and is shown under its file name. If these are separate recordings, open them separately.",
        "warning equal_host_names: 2 files have the same host names as other files and are shown under their file names. If these are separate recordings, open them separately.",
    ]


def test_notes_of_hosts_keep_their_keys():
    lost = Note("warning", "3 packets of node-1 were lost.", "lost_packets")
    also = Note("warning", "3 packets of node-2 were lost.", "lost_packets")
    only = Note("info", "node-2 has no clock.", "no_clock")
    assert texts(*folded([[lost], [also, only]], [["node-1"], ["node-2"]])) == [
        "warning lost_packets: Each of 2 hosts: 3 packets of this host were lost.",
        "info no_clock: node-2 has no clock.",
    ]
