"""`nbprof.page`: a folder for any web server, whose page opens saved reports in the browser."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from html import unescape
from itertools import chain, count
from pathlib import Path

from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.profiles.actions import file_name
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.load import read
from nbprof.profiles.profile import Profile
from nbprof.profiles.report import site
from nbprof.sources.locate import Source
from nbprof.sources.sniff import is_report

Reported = Profile | Comparison | Source

_FOLDER = "reports"
_HEAD_BYTES = 1 << 16


def page(
    folder: str | Path,
    reports: Sequence[Reported] = (),
    *,
    events: int | None = None,
    redact: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write a folder for a web server, GitHub Pages or S3, whose page opens saved reports and
    notebooks with nbprof outputs in the browser. Nothing is uploaded, and it opens from a file too.

    Its start page lists the reports of the folder `reports` in it. Those given here are added to
    them; to remove one, delete its file and call this again.

    Parameters
    ----------
    folder : str or path
        It is created if it does not exist.
    reports : sequence of Profile, Comparison, str, path or list, optional
        To add: what was profiled or compared, whatever `nbprof.load` takes, or saved reports.
    events : int, optional
        Number of trace events in each report that is written; 20,000 by default.
    redact : bool
        Pseudonyms instead of names, as `Profile.save` has them.
    progress : callable, optional
        Called with progress messages while reading; try `print`.

    Returns
    -------
    Path
        The start page.

    Raises
    ------
    ReadError
        One of the reports does not exist, is not a profile or is damaged.
    NbprofError
        The folder has another start page, or could not be written; or a saved report should be
        redacted.

    Examples
    --------
    >>> nbprof.page("site/", [p, "logs/before"])   # doctest: +SKIP
    """
    target = Path(folder).expanduser()
    index = target / "index.html"
    if index.exists() and not is_report(index):
        raise NbprofError(f"{index} exists and is not a page of nbprof. Choose another folder.")
    if isinstance(reports, (str, os.PathLike, Profile, Comparison)):
        reports = [reports]
    pages = [_page_of(report, events, redact, progress) for report in reports]
    try:
        (target / _FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NbprofError(
            f"{target / _FOLDER}: the folder could not be created ({error.strerror}). Choose"
            " another folder."
        ) from error
    for content in pages:
        _add(target / _FOLDER, content)
    start_page = site.page(_links(target / _FOLDER)).encode()
    with atomic_write(index, "page", len(start_page)) as file:
        file.write(start_page)
    return index


def _page_of(
    report: Reported,
    events: int | None,
    redact: bool,
    progress: Callable[[str], None] | None,
) -> bytes:
    """The report as an HTML page."""
    if not isinstance(report, (Profile, Comparison)):
        if isinstance(report, (str, os.PathLike)) and is_report(path := Path(report).expanduser()):
            if redact:
                raise NbprofError(
                    f"{path} is a saved report, in which names cannot be replaced any more. Name"
                    " the recording that it was written from."
                )
            return path.read_bytes()
        report = read(report, progress=progress)
    with tempfile.TemporaryDirectory(prefix="nbprof-") as scratch:
        return report.save(Path(scratch, "report.html"), events=events, redact=redact).read_bytes()


def _add(folder: Path, content: bytes) -> None:
    """Write a report under the name of its run. Other reports, and links to them, stay."""
    label = _title(content).split(" · ")[0]
    stem = Path(file_name(label)).stem
    for name in chain([f"{stem}.html"], (f"{stem}-{number}.html" for number in count(2))):
        path = folder / name
        if not path.exists():
            break
        if path.is_file() and path.read_bytes() == content:
            return
    with atomic_write(path, "report", len(content)) as file:
        file.write(content)


def _links(folder: Path) -> list[site.Link]:
    """The reports in a folder, by name."""
    links = []
    for path in sorted(folder.glob("*.html")):
        if is_report(path):
            with path.open("rb") as file:
                title = _title(file.read(_HEAD_BYTES))
            links.append(site.Link(f"{_FOLDER}/{path.name}", title or path.stem))
    return links


def _title(content: bytes) -> str:
    """The title of a page of nbprof without the name of nbprof; "" if it has none."""
    found = re.search(rb"<title>(.*?)</title>", content[:_HEAD_BYTES], re.DOTALL)
    if found is None:
        return ""
    return unescape(found[1].decode("utf-8", "replace")).removesuffix(" · nbprof")
