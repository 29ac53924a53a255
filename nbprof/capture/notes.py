"""The notes on a recording, each with its key, for the receipt of its profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nbprof.core import remedies
from nbprof.core.receipt import Note, info, warning
from nbprof.core.sidecar import BATCHES_OF_KERAS, KERAS_STEPS
from nbprof.core.units import duration_text, join_some, listed, plural

if TYPE_CHECKING:
    from nbprof.capture.loader_workers.watch import Missing
    from nbprof.capture.torch_passes import Pass

WITHOUT_EFFECT = "option_without_effect"
STACKS_NOT_SAMPLED = "stacks_not_sampled"
LINES_NOT_TIMED = "lines_not_timed"
NPU_NOT_RECORDED = "npu_not_recorded"
STEPS_NOT_ADDED = "steps_not_added"


def cause(error: BaseException) -> str:
    """The type and the text of an exception."""
    return f"{type(error).__name__}: {error}"


def infos(key: str, texts: Iterable[str]) -> list[Note]:
    """Notes with the same key."""
    return [info(key, text) for text in texts]


def without_effect(text: str) -> Note:
    """An option that a recorder does not have or did not obey."""
    return info(WITHOUT_EFFECT, text)


def without_npu(options: list[str]) -> list[Note]:
    """The note on options that only apply to an NPU."""
    return infos(WITHOUT_EFFECT, remedies.without_npu(options))


def gpu_not_recorded(lines: list[str]) -> list[Note]:
    """The note for lines that a recorder logged; none for unknown lines."""
    return infos("gpu_not_recorded", remedies.logged_remedy(lines))


def children_not_recorded(names: Sequence[str], by: str) -> Note:
    """The program did nothing but wait for processes that it had started."""
    # Not at the top: it imports NumPy.
    from nbprof.sources.recording import SCRIPT

    remedy = {SCRIPT: "nbprof run --children", "cell": "%%nbprof --children"}.get(
        by, "nbprof.profile(children=True)"
    )
    remedy = f"{remedy} records them if they are programs of Python"
    text = f"The {by} waited for processes that are not recorded: {join_some(names)}. {remedy}."
    return warning("children_not_recorded", text)


def ray_workers_not_recorded() -> Note:
    """The program did nothing but wait, with Ray running."""
    text = (
        "What workers of Ray do is not recorded here: nbprof.profile(logdir=...) in the function"
        " that they run records it."
    )
    return warning("ray_workers_not_recorded", text)


def children_refused(why: str) -> Note:
    """`children` has no effect."""
    return warning("children_not_recorded", f"Its processes are not recorded: {why}.")


def children_still_run(count: int, by: str, path: str) -> Note:
    """Processes run on after the program that started them."""
    text = (
        f"{plural(count, 'process', 'processes')} that the {by} started still ran at its end:"
        f' nbprof.load("{path}") has their recordings once they have ended'
    )
    return warning("children_still_run", text)


# Steps


def step_origins(origins: Mapping[str, int]) -> Note:
    """Number of steps by origin, in the order of their first one."""
    counts = ", ".join(f"{count:,} {origin}" for origin, count in origins.items())
    *_, last = origins
    if len(origins) == 1:
        counts = last
    key = "step_origins"
    if last == BATCHES_OF_KERAS:
        key = KERAS_STEPS
    return info(key, f"steps: {counts}")


def steps_not_marked(seen: int, fault: str) -> Note:
    """Following the steps failed."""
    return info("steps_not_marked", f"steps after {seen} are not marked: {fault}")


def keras_steps_not_marked(error: Exception) -> Note:
    """Keras could not be hooked."""
    return info("steps_not_marked", f"Keras steps could not be marked: {cause(error)}")


def batches_per_step(batches: int) -> Note:
    """Steps of several batches, by Keras' `steps_per_execution`."""
    return info("batches_per_step", f"each step covers {batches} batches (steps_per_execution)")


def steps_not_reached(first: int, last: int, seen: int) -> Note:
    """The cell ended before the last requested step."""
    return info(
        "steps_not_reached",
        f"--steps asked for {first} to {last}, but the cell ended after step {seen}",
    )


def steps_without_update(count: int) -> Note:
    """Steps that a GradScaler skipped."""
    return info(
        "steps_without_update",
        f"{plural(count, 'step')} without an update: loss scaling found gradients that were not"
        " finite",
    )


def evaluation_passes(evaluations: Sequence[Pass]) -> Note:
    """Evaluations over a loader, between steps."""
    passes = plural(len(evaluations), "pass", "passes")
    batches = plural(sum(source.batches for source in evaluations), "batch", "batches")
    seconds = sum(source.over - source.began for source in evaluations) / 1e9
    return info(
        "evaluation_passes",
        f"{passes} over a DataLoader without an optimizer step, such as validation ({batches},"
        f" {duration_text(seconds)}): not part of any step",
    )


def evaluation_mode(count: int, seconds: float) -> Note:
    """Evaluations without a loader, between steps."""
    periods = "a period" if count == 1 else f"{count:,} periods"
    return info(
        "evaluation_mode",
        f"{periods} with the model in evaluation mode ({duration_text(seconds)}) between steps:"
        " not part of any step",
    )


def between_trainings(seconds: Sequence[float]) -> Note:
    """Times that belong to neither of two trainings."""
    times = "the time" if len(seconds) == 1 else f"{len(seconds):,} times"
    return info(
        "between_trainings",
        f"{times} between two trainings, until the optimizer of the next was made"
        f" ({duration_text(sum(seconds))}): not part of any step",
    )


# Frameworks


def framework_not_recorded(title: str, failure: str) -> Note:
    """The profiler of a framework failed."""
    return info("framework_not_recorded", f"{title} was not recorded: {failure}")


def framework_refused(title: str, error: Exception) -> Note:
    """A framework that the cell imported could not be recorded."""
    return info("framework_not_recorded", f"{title} could not be recorded: {cause(error)}")


def nothing_ran(title: str) -> Note:
    """An expected framework of which nothing ran."""
    return info(
        "nothing_ran",
        f"nothing of {title} ran while this was recorded, so it is a recording of Python only",
    )


def other_framework_used(title: str, name: str) -> Note:
    """A framework that the cell used beside the recorded one."""
    return info(
        "other_framework_used",
        f"the cell also uses {title}, which was not recorded; to record it instead: --backend"
        f" {name}",
    )


def other_frameworks_imported(recorded: str, others: Mapping[str, str]) -> Note:
    """Imported frameworks (titles by name) that the cell may have used beside the recorded one."""
    titles = listed(list(others.values()), "and")
    options = listed([f"--backend {name}" for name in others], "or")
    them, one_of_them, are = "them", "one of them", "are"
    if len(others) == 1:
        them, one_of_them, are = "it", "it", "is"
    return info(
        "other_frameworks_imported",
        f"the cell names no framework, so {recorded} was recorded; {titles} {are} imported too, and"
        f" anything that the cell did with {them} was not recorded; to record {one_of_them}"
        f" instead: {options}",
    )


def recorded_separately(title: str, run: Path) -> Note:
    """A second framework ran, and its recording is in `run`."""
    return info(
        "recorded_separately",
        f'the cell also ran {title}, which was recorded separately: nbprof.load("{run}") opens'
        " that",
    )


def own_profiler_started(title: str, seen: int) -> Note:
    """The recording gave way to the user's own profiler."""
    after = f", after step {seen}" if seen else ""
    return info(
        "own_profiler_started",
        f"the cell starts {title}'s profiler itself, so nbprof stopped recording there{after}",
    )


def profiler_suspended(names: Iterable[str]) -> Note:
    """Other profilers of Python calls were suspended."""
    profilers = ", ".join(dict.fromkeys(names))
    return info(
        "profiler_suspended",
        f"another profiler of Python calls was running ({profilers}): Python has one at a time, so"
        " it was suspended while Python calls were recorded, and resumed afterwards; it lacks what"
        " ran in between",
    )


def threads_not_recorded(threads: Sequence[str]) -> Note:
    """Threads that ran PyTorch but were not recorded."""
    quoted = ", ".join(f'"{name}"' for name in threads[:3])
    if len(threads) > 3:
        quoted += f" and {len(threads) - 3:,} more"
    subject, was = f"threads {quoted}", "were"
    if len(threads) == 1:
        subject, was = f"thread {quoted}", "was"
    return info(
        "threads_not_recorded", remedies.UNRECORDED_THREADS.format(threads=subject, was=was)
    )


def optimizer_thread_not_recorded() -> Note:
    """The optimizer ran on a thread that was not recorded."""
    return info("optimizer_thread_not_recorded", remedies.OTHER_THREAD)


def npu_optimizer_thread_not_recorded() -> Note:
    """The same where the NPU is recorded nevertheless."""
    return info("optimizer_thread_not_recorded", remedies.NPU_OTHER_THREAD)


def no_host_events() -> Note:
    """`--host-level 0` was given."""
    return info(
        "no_host_events",
        "--host-level 0 records no host events, and programs that run on the CPU are host events",
    )


def device_still_busy(when: str) -> Note:
    """The recording did not wait for the device any longer."""
    return info(
        "device_still_busy",
        f"the device was still busy {when} after the cell ended: later work was not recorded",
    )


# Windows and the files of a run


def recording_ended(why: str, seen: int, *, in_step: bool) -> Note:
    """A limit, or the user, ended the recording."""
    text = f"{why}: recording ended"
    if seen:
        text += f" after step {seen:,}"
    elif in_step:
        text += " before the first step ended"
    return info("recording_ended", text)


def recorded_enough(window: tuple[int, int], why: str, later: Mapping[str, int], by: str) -> Note:
    """The recording ended once enough was known; `later` has the steps after it, by kind."""
    option = f"--steps all records the whole {by}"
    if by == "block":
        option = 'steps="all" records the whole block'
    ran = "no further step ran"
    if later:
        kinds = ""
        if len(later) > 1:
            each = listed([f"{number:,} {kind}" for kind, number in later.items()], "and")
            kinds = f" ({each})"
        ran = f"{plural(sum(later.values()), 'later step')}{kinds} ran without the profiler"
    return info(
        "recorded_enough",
        f"steps {window[0]:,} to {window[1]:,} were recorded, until {why}; {ran}, and nothing after"
        f" step {window[1]:,} was recorded; {option}",
    )


def no_further_window(why: str) -> Note:
    """The same between two windows."""
    return info("recording_ended", f"{why}: no further window was recorded")


def recording_not_ended(why: str, title: str) -> Note:
    """No step ended after a limit was reached."""
    return info(
        "recording_not_ended",
        f"{why}, but {title}'s profiler can only be stopped by the thread that started it, at the"
        " end of a step, and none ended: recorded to the end of the cell (with --no-memory, any"
        " thread can stop it)",
    )


def bounds_failed(error: Exception) -> Note:
    """The limits were not watched to the end."""
    return info("bounds_failed", f"--seconds and --limit stopped working: {cause(error)}")


def window_not_recorded(failure: str) -> Note:
    """A further window failed."""
    return info("window_not_recorded", f"a later window could not be recorded: {failure}")


def info_not_written(run: str, error: OSError, *, has_old: bool = False) -> Note:
    """The facts about the recording are not, or not all, on disk."""
    done = "completed" if has_old else "written"
    return info(
        "info_not_written", f"nbprof.json of the run {run} could not be {done}: {error.strerror}"
    )


def logdir_not_writable(logdir: Path, used: Path, error: OSError) -> Note:
    """The run is in another folder than was requested."""
    return info(
        "logdir_not_writable",
        f"{logdir} cannot be written ({error.strerror or type(error).__name__}): the run is saved"
        f" in {used} instead; choose another location with --logdir DIR",
    )


def run_moved(reason: str, used: Path) -> Note:
    """The same where the logdir failed when the run was complete."""
    return info(
        "run_moved",
        f"{reason}. The run is saved in {used} instead; free some space, or choose another location"
        " with --logdir DIR",
    )


# Python


def lines_not_timed(error: Exception) -> Note:
    """Timing the lines of cells failed."""
    return info(LINES_NOT_TIMED, f"lines of cells are not timed: {cause(error)}")


def loops_not_timed(error: Exception) -> Note:
    """Timing the loops of cells failed."""
    return info("loops_not_timed", f"loops of cells are not timed: {cause(error)}")


def stacks_not_sampled(error: Exception) -> Note:
    """Sampling Python stacks failed."""
    return info(STACKS_NOT_SAMPLED, f"Python stacks are not sampled: {cause(error)}")


def stacks_not_sampled_without_gil() -> Note:
    """Stacks cannot be read while other threads run."""
    return info(
        STACKS_NOT_SAMPLED,
        "Python stacks are not sampled in free-threaded Python (without the GIL)",
    )


def stacks_sampled_in_part(error: Exception) -> Note:
    """Sampling Python stacks failed during the recording."""
    return info(
        "stacks_sampled_in_part",
        f"Python stacks were sampled for part of the recording only: {cause(error)}",
    )


def library_calls_not_recorded(counts: Mapping[str, int], seconds: float) -> Note:
    """Python calls inside compilations and imports, by the number of each."""
    parts = " and ".join(plural(count, kind) for kind, count in counts.items())
    return info(
        "library_calls_not_recorded",
        f"Python calls inside {parts} of libraries ({duration_text(seconds)}) are not recorded",
    )


# The allocator of CUDA


def allocator_history(file: str) -> Note:
    """The allocator's history is a file."""
    return info(
        "allocator_history",
        f"{file} next to the trace has the CUDA allocator's own history: see p.allocator and the"
        " tab Allocator",
    )


def allocator_history_failed(failure: str, error: Exception) -> Note:
    """The allocator's history is not available, or goes on."""
    return info("allocator_history_failed", f"{failure}: {cause(error)}")


# NPUs


def npu_not_recorded(reason: str) -> Note:
    """An NPU is used but not recorded."""
    return info(NPU_NOT_RECORDED, f"the NPU is not recorded: {reason}")


def npu_refused(module: str, error: Exception) -> Note:
    """The adapter of an NPU could not be hooked."""
    return info(NPU_NOT_RECORDED, f"the NPU could not be recorded: {module}: {cause(error)}")


def own_npu_profiler(options: str, left: str) -> Note:
    """The program records the NPU itself."""
    return info(
        "own_npu_profiler", f"the program itself turns on the NPU's profiler, in {options}: {left}"
    )


def npu_recorded_separately(text: str, output: Path) -> Note:
    """The data of the NPU are in another folder."""
    return info("npu_recorded_separately", text.format(output=output))


def torch_npu_messages(lines: Iterable[str]) -> list[Note]:
    """Messages that torch_npu printed."""
    return infos("torch_npu_message", map(remedies.OF_TORCH_NPU.format, lines))


# Workers


MISSING_WORKER = "missing_worker"
"""Key of the note on a worker that was not recorded."""


def missing_worker(address: object, reason: str) -> Note:
    """A worker that was not recorded."""
    return warning(MISSING_WORKER, f"{address} is missing: {reason}")


def repeated_address(address: object) -> Note:
    """An address that was given several times."""
    return info("repeated_address", f"{address} was given more than once and recorded once")


def workers_sampled(workers: str, seconds: float, over: str = "gRPC") -> Note:
    """Number of workers, and the duration."""
    return info("workers_sampled", f"sampled over {over}: {workers}, {seconds:g} s")


def python_of_one_worker() -> Note:
    """Sampled stacks are stored of one process only."""
    text = "Python stacks, lines and loader times are kept where a single worker is recorded"
    return info("python_of_one_worker", text)


def stopped_early(after_s: float, seconds: float) -> Note:
    """The recording of workers was stopped by the user."""
    return info(
        "stopped_early",
        f"the recording was stopped early, after {after_s:.1f} of {seconds:g} s",
    )


def late_worker(address: object, when: str, reason: str) -> Note:
    """A worker that was recorded on a later attempt."""
    return info("late_worker", f"{address} was recorded {when}: {reason}")


# Workers of loaders


def workers(missing: Missing) -> list[Note]:
    """The notes on what a recording lacks of the workers of loaders."""
    about = []
    if missing.error is not None:
        about.append(workers_not_recorded(missing.error))
    if missing.unreached:
        about.append(workers_not_reached(missing.unreached, missing.running))
    if missing.killed:
        about.append(workers_ended_early(missing.killed))
    return about


def compilations_not_recorded(framework: str, error: Exception) -> Note:
    """The version of a framework lacks a hook that the recorder of compilations needs."""
    return info(
        "compilations_not_recorded",
        f"what {framework} compiled was not recorded ({type(error).__name__}: {error}): this"
        " version may not report it as others do",
    )


def pools(missing: Missing) -> list[Note]:
    """The notes on what a recording lacks of the workers of process pools."""
    about = []
    if missing.error is not None:
        about.append(pools_not_recorded(missing.error))
    if missing.killed:
        about.append(pool_workers_ended_early(missing.killed))
    return about


def pools_not_recorded(error: Exception) -> Note:
    """Workers of pools could not report, or their reports not be read."""
    return info(
        "pools_not_recorded",
        f"what happens in the workers of process pools was not recorded: {_why_no_report(error)}",
    )


def pool_workers_ended_early(count: int) -> Note:
    """Workers of pools that were killed."""
    return info(
        "pool_workers_ended_early",
        f"{plural(count, 'worker')} of process pools ended without a last report, as a process that"
        " is killed does: the figures of that lack up to its last second",
    )


def _why_no_report(error: Exception) -> str:
    remedy = ""
    if isinstance(error, OSError):
        remedy = "; set TMPDIR to a folder that can be written to"
    return f"{cause(error)}{remedy}"


def workers_not_recorded(error: Exception) -> Note:
    """Workers could not report, or their reports not be read."""
    return info(
        "workers_not_recorded",
        f"what happens in the workers of DataLoaders was not recorded: {_why_no_report(error)}",
    )


def workers_not_reached(count: int, running: int) -> Note:
    """Workers that do not answer."""
    return info(
        "workers_not_reached",
        f"{plural(count, 'worker')} of {running:,} that ran at the end sent no report: the workers"
        " were asked for their first batch before the recording, had just started, find no nbprof,"
        " or could not run Python when it ended. To record them from their start, make the"
        " DataLoader in the recorded cell.",
    )


def workers_ended_early(count: int) -> Note:
    """Workers that were killed."""
    return info(
        "workers_ended_early",
        f"{plural(count, 'worker')} ended without a last report, as a process that is killed does:"
        " the figures of that lack up to its last second",
    )
