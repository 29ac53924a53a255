"""Notes for the receipt that several dialects make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbprof.core.receipt import Note, info, warning
from nbprof.display import wording
from nbprof.display.wording import plural

UNUSABLE_TIMES = (
    "This profile has device work, but none with usable times: see the receipt. Record again."
)
"""Why a view of kernels is empty."""
CUT_OFF = (
    "The part of the file that was read has no device work: what the device did is unknown. Copy"
    " the file again, or record again."
)
"""Why a view of kernels of a truncated file is empty."""
_SERIOUS = 0.01
"""From this share of events on, what is missing changes what the figures say."""
_SHORT_US = 100
"""Overlaps below this are usual: a kernel may start before the last blocks of another end."""
_MOST_HOSTS = 3


@dataclass(frozen=True)
class Replaced:
    """Events whose stated durations are impossible.

    `places` are their lanes with counts, `names` the commonest name and the number of others; the
    times are those stated (`longest`) and those left out of the figures (`excess`).
    """

    event_kind: str
    count: int
    places: str
    names: str
    longest: str
    excess: str
    evidence: str


def _note(key: str, text: str, share: float) -> Note:
    """A warning if the share of affected events is serious."""
    if share > _SERIOUS:
        return warning(key, text)
    return info(key, text)


def overlapping_events(
    event_kind: str, count: int, total: int, lanes: int, longest_us: float
) -> Note:
    """Events that start before their neighbour has ended."""
    # Some overlaps are of a nanosecond.
    longest = wording.micros(longest_us, 3)
    if count == 1:
        text = (
            f"1 {event_kind} starts before the previous one has ended (by {longest}); it is shown"
            " as recorded."
        )
    else:
        text = (
            f"{count:,} {event_kind}s on {plural(lanes, 'lane')} start before the previous one has"
            f" ended (by at most {longest}); they are shown as recorded."
        )
    if longest_us < _SHORT_US:
        return info("overlapping_events", f"{text} Busy time counts each instant once.")
    return _note("overlapping_events", text, count / total)


def lost_launches(lost: int, launched: int) -> Note:
    """Launches whose work on the device was not recorded."""
    share = lost / launched
    text = (
        f"{lost:,} of {launched:,} launches ({100 * share:.3g} %) have no device activity in this"
        " profile: it was dropped, or ran after the capture had ended. Device times are too low by"
        " that share."
    )
    return _note("lost_launches", text, share)


def unlaunched_work(count: int, total: int) -> Note:
    """Device work without a recorded launch."""
    share = count / total
    text = (
        f"{count:,} of {total:,} device events ({100 * share:.3g} %) have no launch in this"
        " profile: it was made before the capture started, or was dropped. Their op and step are"
        " known only if recorded with them."
    )
    return _note("unlaunched_work", text, share)


def lost_kernels(launches: int, reason: str) -> Note:
    """All kernels were lost; `reason` says why, and what helps."""
    launched = f"{plural(launches, 'launch was', 'launches were')} recorded, but no kernel"
    return warning("lost_kernels", f"{launched}, so what the device did is unknown: {reason}")


def hosts_without_events(hosts: Sequence[str]) -> Note:
    """Hosts that recorded nothing."""
    return warning("hosts_without_events", f"{_list(hosts)} recorded no events.")


def hosts_without_device(hosts: Sequence[str]) -> Note:
    """Hosts that recorded no device, unlike others."""
    text = f"{_list(hosts)} recorded no device, although other hosts did."
    return warning("hosts_without_device", text)


def hosts_without_steps(hosts: Sequence[str]) -> Note:
    """Hosts without steps, unlike others."""
    text = f"{_list(hosts)} recorded no steps: step times are those of the other hosts."
    return info("hosts_without_steps", text)


def hosts_at_other_times(hosts: Sequence[str], *, all_hosts: bool) -> Note:
    """Hosts whose recordings overlap with those of no other host."""
    other_hosts = "the other hosts"
    if all_hosts:
        other_hosts = "any other host"
    text = (
        f"{_list(hosts)} recorded at a different time than {other_hosts}: are these files from one"
        " run? Are the clocks correct?"
    )
    return warning("hosts_at_other_times", text)


def _list(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MOST_HOSTS])
    more = len(names) - _MOST_HOSTS
    if more <= 0:
        return listed
    return f"{listed} and {plural(more, 'more host')}"


def device_clocks(shifts: Sequence[str]) -> Note:
    """Devices whose clock is not that of their host, each with how far it is behind or ahead."""
    text = "; ".join(shifts[:_MOST_HOSTS])
    if (more := len(shifts) - _MOST_HOSTS) > 0:
        text += f"; {plural(more, 'more device')}"
    return warning(
        "device_clocks",
        f"Clocks of devices differ from that of their host ({text}): work begins before its launch,"
        " or after the host had waited for it. The times of these devices are moved by as much as"
        " is needed at least, so delays between launches and work are known only roughly.",
    )


def impossible_times(count: int, places: str, took: str, reason: str) -> Note:
    """Device work at times that cannot be.

    `reason` says why; `{their}` in it stands for the pronoun.
    """
    begin, their, they = "begin", "their", "They are"
    if count == 1:
        begin, their, they = "begins", "its", "It is"
    text = (
        f"{plural(count, 'device event')} ({places}; {took}) {begin} at an impossible time:"
        f" {reason.format(their=their)}. {they} in no figure. The profiler wrote a wrong time:"
        " record again."
    )
    return warning("impossible_times", text)


def no_device_durations(count: int, places: str) -> Note:
    """Device work of which none states how long it took."""
    return warning(
        "no_device_durations",
        f"{plural(count, 'device event')} ({places}) and all others of this host have no duration:"
        " they are in no figure. The profiler wrote no ends: record again.",
    )


def impossible_durations(events: Replaced) -> Note:
    """Events whose durations cannot be, and were replaced."""
    many = events.event_kind.replace("event", "events")
    have, each, their = f"have durations of up to {events.longest}", "Each counts", "their"
    if events.count == 1:
        have, each, their = f"has a duration of {events.longest}", "It counts", "its"
    text = (
        f"{plural(events.count, events.event_kind, many)} ({events.places}: {events.names}) {have},"
        f" which is impossible: {events.evidence}. {each} with what other calls of its name take,"
        f" at most until the next work; {events.excess} are left out of all figures. The profiler"
        f" wrote a wrong end: record again for {their} times."
    )
    return warning("impossible_durations", text)
