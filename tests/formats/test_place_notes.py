"""The sentences of the notes on files of a place."""

from __future__ import annotations

from nbprof.core.files import Missing, about_skipped
from nbprof.core.receipt import Note
from nbprof.sources import notes


def texts(*given: Note) -> list[str]:
    return [f"{note.level} {note.key}: {note.text}" for note in given]


def test_files_that_were_not_read():
    assert texts(
        notes.could_not_examine("a/b", "Permission denied."),
        notes.unknown_names(1234),
        notes.more_not_read(50),
        notes.broken_link("h.xplane.pb"),
        notes.link_in_archive("h.xplane.pb"),
        notes.no_profile("h.xplane.pb", "a zip archive"),
        notes.other_kind("h.xplane.pb", "a zip archive"),
    ) == [
        "info unexamined_files: a/b could not be examined: Permission denied.",
        "info unexamined_files: 1,234 more files with unknown names were not examined.",
        "info unexamined_files: 50 more files here could not be read, or are not profiles.",
        "info broken_link: h.xplane.pb is a broken link.",
        "info link_in_archive: h.xplane.pb in the archive is a link, and was not followed.",
        "info not_a_profile: h.xplane.pb is a zip archive, not a profile.",
        "warning not_a_profile: h.xplane.pb is a zip archive among files of another kind; it was not read.",
    ]


def test_places_that_were_not_read_completely():
    assert texts(
        notes.not_examined("it took 5 s"),
        notes.newest_traces(30_000, 20_000),
        notes.many_subfolders(1000),
        notes.no_end_marker(),
    ) == [
        "warning incomplete_search: It took 5 s; the rest was not examined. Name the folder of a run.",
        "warning incomplete_search: Of 30,000 traces here the newest 20,000 were examined. Name the folder of a run.",
        "warning incomplete_search: There are more than 1,000 subfolders; the rest were not examined.",
        "warning truncated_archive: The archive has no end marker: it may be truncated, and files may be missing.",
    ]


def test_the_choice_of_files():
    assert texts(
        notes.newest_run("b", 2, dated=True),
        notes.newest_run("b", 2, dated=False),
        notes.copied("a", ["b"]),
        notes.copied("a", ["b", "c", "d", "e"]),
        about_skipped([Missing("a", "it is empty.")], listed=True),
        about_skipped([Missing(name, "it is empty.") for name in "abcd"], listed=True),
    ) == [
        "info newest_run: b is the newest of 2 runs here, by when they were recorded. nbprof.runs lists them, and run= opens another.",
        "info newest_run: b is the newest of 2 runs here, by when their files were last changed, because not all have a recording time. nbprof.runs lists them, and run= opens another.",
        "warning copied_file: b is a copy of a, byte for byte; it was read once. Was one host's file copied over another's?",
        "warning copied_file: 4 files are copies of a, byte for byte: b, c, d and 1 more; it was read once. Was one host's file copied over the others'?",
        "warning skipped_files: A file was skipped, and the figures do not include its host: a: it is empty.",
        "warning skipped_files: 4 files were skipped, and the figures do not include their hosts: a, b, c and 1 more. The first: it is empty. All are in p.pods.missing.",
    ]
