"""Notes for the receipt on recordings of GPUs and on PyTorch's profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbprof.core.receipt import Note, info, warning
from nbprof.core.units import join_some
from nbprof.display import wording
from nbprof.display.wording import plural

ACTIVITIES = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_MOST_FILES = 8
_MOST_STEPS = 4
_MOST_OVERHEADS = 4
_SERIOUS_OVERHEAD = 0.02
"""Share of the profile."""


def steps_by_engine(suffix: str, count: int, noun: str) -> Note:
    """Steps are iterations of an inference engine; `suffix` is ` of HOST` if there are several."""
    text = f"Steps{suffix} are the {count:,} iterations of an inference engine, by its {noun}."
    return info("steps_by_engine", text)


def steps_by_optimizer(suffix: str, count: int) -> Note:
    """Steps end with those of an optimizer."""
    text = _unmarked(suffix, f"the {count} optimizer steps")
    return info("steps_by_optimizer", text)


def steps_by_batches(suffix: str, count: int) -> Note:
    """Steps begin with the batches of a DataLoader."""
    text = _unmarked(suffix, f"the {count} batches that the loop requested from its DataLoader")
    return info("steps_by_batches", text)


def _unmarked(suffix: str, source: str) -> str:
    return (
        f"The profile has no ProfilerStep{suffix}: steps are taken from {source}. prof.step()"
        " marks them exactly."
    )


def steps_by_ranges(
    suffix: str, count: int, ranges: str, family: str, alternatives: Sequence[str]
) -> Note:
    """Steps are ranges that the program named; `ranges` is what the recorder calls them."""
    text = f"Steps{suffix} are the {count:,} {ranges} called {family!r}"
    if alternatives:
        text += f"; {', '.join(map(repr, alternatives))} could mark steps too."
    else:
        text += "."
    return info("steps_by_ranges", text)


def steps_without_time(suffix: str, names: Sequence[str], *, device_work: bool) -> Note:
    """Steps that others hide; only with device work can it be the device that was late."""
    listed = _some(names)
    ended = "ended no later than the previous one, or as soon as it began"
    if device_work:
        ended = (
            "ended while the device was still running the previous one, and launched nothing that"
            " ran later"
        )
    if len(names) == 1:
        text = f"A step{suffix} {ended}: it has no time of its own and is not listed ({listed})."
    else:
        text = (
            f"{len(names):,} steps{suffix} {ended}: they have no time of their own and are not"
            f" listed ({listed})."
        )
    return warning("steps_without_time", text)


def truncated_steps(suffix: str, count: int, evidence: str) -> Note:
    """Steps that the end of the recording cut off."""
    steps = f"The last step{suffix} was"
    if count > 1:
        steps = f"The last {count} steps{suffix} were"
    text = f"{steps} cut off by the end of the recording ({evidence}): shown, but not averaged."
    return warning("truncated_steps", text)


@dataclass(frozen=True)
class LostWork:
    """Steps of a host whose device work was lost.

    `suffix` is ` of HOST` if there are several; `complete` is true if other steps lost nothing.
    """

    suffix: str
    names: Sequence[str]
    complete: bool

    @property
    def averaged(self) -> str:
        """Consequence for averages."""
        if self.complete:
            return "shown, but not averaged"
        return "no step is complete, so averages are of these"


def lost_work(steps: LostWork, lost: int, launched: int, after: Sequence[str]) -> Note:
    """Steps that lost device work, and those after them, which begin at an unknown time."""
    text = (
        f"{plural(len(steps.names), 'step')}{steps.suffix} lost device work, {lost:,} of"
        f" {launched:,} launches have none ({_some(steps.names)}): {steps.averaged}."
    )
    if after:
        verb = "is" if len(after) == 1 else "are"
        text += f" Nor {verb} {_some(after)}: it is unknown when the previous work ended."
    return warning("steps_with_lost_work", text)


def unrecorded_steps(steps: LostWork) -> Note:
    """Steps at the end in which the device was no longer recorded."""
    text = (
        f"{plural(len(steps.names), 'step')} at the end{steps.suffix} have neither launches nor"
        " device work, unlike those before: the device was apparently no longer recorded"
        f" ({_some(steps.names)}): {steps.averaged}."
    )
    return warning("steps_without_device", text)


def unread_steps(steps: LostWork) -> Note:
    """Steps whose device work the truncated part of a file may have held."""
    text = (
        f"{plural(len(steps.names), 'step')}{steps.suffix} may have device work in the part of the"
        f" truncated file that could not be read, so its time is unknown ({_some(steps.names)}):"
        f" {steps.averaged}."
    )
    return warning("steps_in_truncated_part", text)


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MOST_STEPS])
    more = len(names) - _MOST_STEPS
    return f"{listed} and {more:,} more" if more > 0 else listed


def first_collectives(count: int, events: str, longest: str, total: str) -> Note:
    """Collectives that waited at the start for ranks that came later.

    `events` are the name of the longest, and the places of all.
    """
    named = f"{count:,} first collectives of their streams ({events}) waited up to {longest}"
    each = "Each counts"
    if count == 1:
        named, each = f"The first collective ({events}) waited {longest}", "It counts"
    text = (
        f"{named} at the start of the recording for ranks that came later, as when their profilers"
        f" start apart: that is warm-up. {each} with what later calls take, and {total} are left"
        " out of all figures."
    )
    return warning("first_collectives", text)


def batches_per_step(count: int) -> Note:
    """Steps take several batches."""
    text = f"each step takes {count:,} batches from DataLoaders, as with gradient accumulation"
    return info("batches_per_step", text)


def equal_ranks(rank: int, files: Sequence[str]) -> Note:
    """Files of the same rank."""
    text = (
        f"Several files have rank {rank}: {join_some(files, _MOST_FILES)}. Each is shown as a"
        " separate host."
    )
    return warning("equal_ranks", text)


def copied_files(first: str, copies: Sequence[str]) -> Note:
    """Files with the same events."""
    if len(copies) == 1:
        text = (
            f"{copies[0]} has the same events as {first}: it is a copy, and its events are counted"
            " twice."
        )
    else:
        text = (
            f"{len(copies):,} files have the same events as {first}:"
            f" {join_some(copies, _MOST_FILES)}. They are copies, and the events of each are"
            " counted."
        )
    return warning("copied_files", text)


def copies_without_work(count: int) -> Note:
    """Calls that copy or fill, but started nothing on the device."""
    text = (
        f"{count:,} calls that copy or fill have no device activity: they had 0 bytes, were host to"
        " host, or were dropped."
    )
    if count == 1:
        text = (
            "1 call that copies or fills has no device activity: it had 0 bytes, was host to host,"
            " or was dropped."
        )
    return info("copies_without_work", text)


def mtia_copies(count: int) -> Note:
    """Copies of MTIA devices, whose runtime records no calls that copy."""
    copies = plural(count, "copy of an MTIA states", "copies of MTIA devices state")
    text = f"{copies} no launch: each belongs to the step in which it started."
    return info("mtia_copies", text)


def no_runtime_calls() -> Note:
    """The profile has device work, but no calls into the runtime."""
    text = (
        "The profile has no runtime calls: launch times are unknown, and device work belongs to"
        " steps by its own time."
    )
    return info("no_runtime_calls", text)


def work_without_op(count: int, total: int) -> Note:
    """Device work that could not be linked to an op."""
    text = (
        f"{plural(count, 'device event')} of {total:,} ({100 * count / total:.3g} %) could not be"
        " linked to an op; the tables list them under their own names."
    )
    return info("work_without_op", text)


def unknown_category(category: str, count: int) -> Note:
    """Device work of a category that is none of a profiler that nbprof knows."""
    text = (
        f"{plural(count, 'event')} of category {category} are on device lanes: they count as device"
        " work, as kernels unless their names indicate a copy or fill."
    )
    return info("unknown_category", text)


def launch_spans(count: int, names: str, took: str, lanes: str) -> Note:
    """Events of devices that stand for all that a call launched."""
    events = plural(count, "device event is", "device events are")
    text = (
        f"{events} named as the call that launches ({names}; {took} on {lanes}): it stands for all"
        " that was launched, idle time included, and counts as no device work. Only kernels"
        " recorded by themselves count."
    )
    return warning("launch_spans", text)


def captured_calls(count: int, captures: int, took_ms: float) -> Note:
    """Calls that were captured into graphs: their missing work is not lost."""
    calls = plural(
        count, "call that launches, copies or fills was", "calls that launch, copy or fill were"
    )
    took = f"{plural(captures, 'capture')} of {wording.millis(took_ms)}"
    text = (
        f"{calls} captured into a graph and not run ({took}): that time counts as compilation; no"
        " work is missing."
    )
    return info("captured_calls", text)


def graph_replays(replays: int, graphs: int, nodes: int, facts: Sequence[str]) -> Note:
    """Replayed graphs, and what is known of their nodes."""
    text = f"{plural(replays, 'replay')} of {plural(graphs, 'graph')} with {plural(nodes, 'node')}"
    return info("graph_replays", f"{text}: {'; '.join(facts)}.")


def unmatched_annotations(graphs: int) -> Note:
    """Annotations of graphs that were not replayed."""
    text = (
        f"kernel_annotations_rank*.pkl next to the trace annotates {plural(graphs, 'graph')} that"
        " no replay here has: it is from another recording and is ignored there."
    )
    return warning("unmatched_annotations", text)


def attributed_time(subject: str, shares: dict[str, float], remedy: str) -> Note:
    """Share of time with a known op, module and line; `shares` by origin."""
    parts = ", ".join(f"{_percent(share)} to {origin}" for origin, share in shares.items())
    return info("attributed_time", f"{subject} is attributed: {parts}.{remedy}")


def _percent(share: float) -> str:
    """100 only if nothing is left out, 0 only for nothing."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.1), 99.9):.1f} %"


def overlapping_work(count: int, longest_us: float) -> Note:
    """Device work that starts before the previous one on its stream ends."""
    text = (
        f"{plural(count, 'device event starts', 'device events start')} before the previous one on"
        f" the same stream ends, by up to {wording.micros(longest_us)}. Programmatic dependent"
        " launch causes this; so do profiler errors. All are kept; busy time counts each instant"
        " once."
    )
    return info("overlapping_events", text)


def clipped_ops(count: int, longest_ns: float, most_us: int) -> Note:
    """Ops that end after the op around them."""
    text = (
        f"{plural(count, 'op ends', 'ops end')} up to {longest_ns:,.0f} ns after the enclosing op"
        f" (profiler rounding, at most {most_us} µs): treated as ending with it."
    )
    return info("clipped_ops", text)


def profiler_message(message: str, host: str) -> Note:
    """A warning that the profiler logged; `host` is empty if there is only one."""
    source = host or "The profiler warned"
    return warning("profiler_message", f"{source}: {' '.join(message.split())}")


def more_profiler_messages(count: int) -> Note:
    """Further warnings of the profiler."""
    text = f"The profiler gave {count:,} more warnings; see the file's metadata."
    return warning("more_profiler_messages", text)


@dataclass(frozen=True)
class Overhead:
    """A kind of the profiler's overhead."""

    name: str
    count: int
    duration_ps: int


def profiler_overhead(overheads: Sequence[Overhead], profile_ps: int) -> Note:
    """Time that the profiler took for itself."""
    longest = sorted(overheads, key=lambda overhead: -overhead.duration_ps)[:_MOST_OVERHEADS]
    listed = []
    for overhead in longest:
        took = wording.millis(overhead.duration_ps / 1e9)
        listed.append(f"{overhead.name} {took} in {overhead.count:,}")
    total_ps = sum(overhead.duration_ps for overhead in overheads)
    text = (
        f"Profiler overhead took {wording.millis(total_ps / 1e9)} of the profile:"
        f" {', '.join(listed)}."
    )
    if total_ps > _SERIOUS_OVERHEAD * profile_ps:
        return warning("profiler_overhead", text)
    return info("profiler_overhead", text)


def memory_without_totals() -> Note:
    """Memory in use is summed from the events."""
    text = (
        "The allocator events state no totals (PyTorch before 1.11): memory in use is summed from"
        " the events, so what was allocated before the recording is missing."
    )
    return info("memory_without_totals", text)


def out_of_memory(count: int) -> Note:
    """Allocations that failed."""
    text = (
        f"The allocator ran out of memory {plural(count, 'time')} while the profile was recorded."
    )
    return warning("out_of_memory", text)


def unrecorded_gpu(proof: str, reason: str) -> Note:
    """The program used a GPU that was not recorded; `reason` says why, and what helps."""
    return warning("unrecorded_gpu", f"The program {proof}, but {reason}")


def unknown_gpu_use(gpus: int) -> Note:
    """The machine has GPUs, of which nothing was recorded."""
    has, them = f"{gpus:,} GPUs", "them"
    if gpus == 1:
        has, them = "a GPU", "it"
    text = (
        f"The machine has {has}, but no call into the runtime was recorded: if the program used"
        f" {them}, what was done there is unknown. Record with {ACTIVITIES}."
    )
    return warning("unknown_gpu_use", text)
