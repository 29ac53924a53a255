"""The sentences of the notes that come from analyses."""

from __future__ import annotations

import pytest

from nbprof.analysis import notes

SENTENCES = [
    (
        notes.uncompared_hosts(["a"]),
        (
            "a: no device activity, unlike the other hosts. It only coordinates, or its recording is"
            " incomplete; it is not compared."
        ),
    ),
    (
        notes.uncompared_hosts(["a", "b"]),
        (
            "a, b: no device activity, unlike the other hosts. They only coordinate, or their"
            " recordings are incomplete; they are not compared."
        ),
    ),
    (
        notes.steps_do_not_match("b", "a"),
        (
            "The steps of b and a do not overlap in time and have no step numbers in common, so b is"
            " not compared."
        ),
    ),
    (
        notes.steps_matched_by_number("b", "a"),
        "The steps of b and a do not overlap in time: they are compared by step number.",
    ),
    (
        notes.steps_matched_by_time("step 0 of b", "step 5 of a", has_offsets=False),
        "Steps are matched by time: step 0 of b is step 5 of a, if their clocks agree.",
    ),
    (
        notes.steps_matched_by_time("step 0 of b", "step 5 of a", has_offsets=True),
        "Steps are matched by time: step 0 of b is step 5 of a.",
    ),
    (
        notes.no_common_step(),
        "No step was recorded by all hosts, so the hosts cannot be compared.",
    ),
    (
        notes.steps_not_compared(1),
        "1 step is excluded from the comparison of hosts: not all of them recorded it.",
    ),
    (
        notes.steps_not_compared(1200),
        "1,200 steps are excluded from the comparison of hosts: not all of them recorded them.",
    ),
    (
        notes.different_step_counts("1 (rank 2)", "2 (rank 0)"),
        (
            "The hosts recorded different numbers of steps, from 1 (rank 2) to 2 (rank 0): only steps"
            " that several hosts recorded are compared."
        ),
    ),
    (
        notes.missing_ranks(4, [1]),
        "The job had 4 ranks; only rank 1 is here. What the others waited for is unknown.",
    ),
    (
        notes.missing_ranks(64, range(9)),
        (
            "The job had 64 ranks; only ranks 0, 1, 2, 3, 4, 5, 6, 7 … are here. What the others"
            " waited for is unknown."
        ),
    ),
    (
        notes.repeated_ranks(["rank 0, host1"]),
        "Several files have the same rank: only the first of each is compared, not rank 0, host1.",
    ),
    (
        notes.repeated_ranks(list("abcde")),
        "Several files have the same rank: only the first of each is compared, not a, b, c, d ….",
    ),
    (
        notes.unmatched_collectives(3, 2),
        (
            "3 collective calls on 2 ranks could not be matched: the ranks have different numbers of"
            " them in the same step, as in recordings of different length. Their waiting time is"
            " unknown."
        ),
    ),
    (
        notes.launched_before_recording(1, "", "0.09 ms busy", in_steps=True),
        (
            "1 device event (0.09 ms busy) was launched before the recording began: not counted in any"
            " step; the first step begins when it has ended (p.steps.backlog)."
        ),
    ),
    (
        notes.launched_before_recording(3, " of a", "0.09 ms busy", in_steps=False),
        "3 device events of a (0.09 ms busy) were launched before the recording began.",
    ),
    (
        notes.empty_memory_columns(["cpu0"], ["stack", "addresses"]),
        "Allocator events of cpu0 do not include stack and addresses: these columns are empty.",
    ),
    (
        notes.empty_memory_columns(["cpu0", "cpu1", "cpu2"], ["fragmentation"]),
        (
            "Allocator events of cpu0 and 2 more do not include fragmentation: these columns are"
            " empty."
        ),
    ),
    (
        notes.no_allocation_history("torch.cuda"),
        (
            "The snapshot has no history: torch.cuda.memory._record_memory_history() was not called"
            " before it was taken, so only the moment of the snapshot is known, not the peak."
        ),
    ),
    (
        notes.allocation_history_starts_late("cuda:0", 1 << 30),
        (
            "The history of cuda:0 starts with 1.00 GiB already reserved; earlier allocations are"
            " unknown. Recording was started late, or max_entries was exceeded and the oldest entries"
            " were dropped."
        ),
    ),
]


@pytest.mark.parametrize(("note", "sentence"), SENTENCES)
def test_sentences(note, sentence):
    assert note.text == sentence
    assert note.key in vars(notes), "a note is named like its function"
